"""What the lines of a ledger say: its terms first, then one charge each.

Version 1 did not say which unit it is about: its owner can state it, once, in a line of
its own, and the charges behind that line are of version 2. Version 3 has the same lines
as version 2, and a witness from the start. Lines that are in the chain
and yet make no sense are refused, never guessed at.

What is written keeps its words for ever: ``release`` in a line is ``release_id`` of a
:class:`~sketchlearn.privacy.charge.Charge`, and its other fields are called alike.
Numbers are hexadecimal texts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Any, final

from sketchlearn.errors import LedgerError, PrivacyError
from sketchlearn.privacy.accountant import Spending, Terms
from sketchlearn.privacy.charge import Charge, require_unit
from sketchlearn.privacy.journal import Seen

__all__ = [
    "UNIT_VERSION",
    "WITNESS_VERSION",
    "Account",
    "add_lines",
    "charges_of",
    "header_of",
    "line_of",
    "read_account",
    "unit_of",
]

LEDGER_FORMAT, LEDGER_VERSION = "sketchlearn-ledger", 3
"""What the first line of a new ledger says it is."""

UNIT_VERSION, WITNESS_VERSION = 2, 3
"""The first versions that state their unit, and that have a witness."""

_CAPS = ("epsilon", "delta", "pure_epsilon")
_UNIT = ("neighbours", "rows_per_unit")
_HEADER = {"format", "version", "hash", *_CAPS}
_CHARGE = {"hash", "release", "time", "mu2", "pure_epsilon", "feature_map", "lineage"}
_WITH_UNIT = {
    "header": {*_HEADER, *_UNIT},
    "charge": {*_CHARGE, *_UNIT, "count_mode", "epsilon", "delta"},
}
_LINES = {
    1: {"header": _HEADER, "charge": _CHARGE},
    UNIT_VERSION: _WITH_UNIT,
    WITNESS_VERSION: _WITH_UNIT,
}
"""Fields of the two kinds of lines, by version."""

_STATED = {*_UNIT, "time", "hash"}
"""Fields of the line that states the unit of a ledger of version 1."""


@final
@dataclass(frozen=True)
class Account:
    """What was read of a ledger: its terms and sums, and how far it was read."""

    terms: Terms
    version: int = LEDGER_VERSION
    spent: Spending = field(default_factory=Spending)
    seen: Seen = field(default_factory=Seen)


def read_account(lines: list[dict[str, Any]], seen: Seen, path: Path) -> Account:
    """What all lines of a file say together."""
    header = lines[0]
    if header.get("format") != LEDGER_FORMAT:
        raise LedgerError(f"{str(path)!r} is not a ledger. Nothing was released.")
    version = header.get("version")
    if type(version) is not int or version not in _LINES:
        raise LedgerError(
            f"{str(path)!r} is a ledger of version {version!r}; this library reads "
            "1, 2 and 3. Nothing was released. Use a newer library."
        )
    _require_fields(header, _LINES[version]["header"], 0, path)
    values: dict[str, Any] = {name: header.get(name) for name in _UNIT}
    try:
        if version > 1:
            require_unit(values["neighbours"], values["rows_per_unit"])
        values.update({name: _from_hex(header[name]) for name in _CAPS})
        terms = Terms(**values)
    except (PrivacyError, ValueError, TypeError) as error:
        raise _malformed(0, path, error) from error
    start = Account(terms, version, seen=Seen(n_lines=1))
    return add_lines(start, lines[1:], seen, path)


def charges_of(lines: list[dict[str, Any]], path: Path) -> tuple[Charge, ...]:
    """All charges in the lines of a whole file."""
    charges, version = [], lines[0]["version"]
    for number, line in enumerate(lines[1:], start=1):
        if _is_statement(line):
            version = UNIT_VERSION
        else:
            charges.append(_charge_of(line, version, number, path))
    return tuple(charges)


def add_lines(
    account: Account, lines: list[dict[str, Any]], seen: Seen, path: Path
) -> Account:
    """The account with some more lines of the file."""
    terms, version, spent = account.terms, account.version, account.spent
    charges: list[Charge] = []
    first = account.seen.n_lines
    for number, line in enumerate(lines, start=first):
        if not _is_statement(line):
            charges.append(_charge_of(line, version, number, path))
            continue
        if terms.neighbours is not None:
            raise _malformed(number, path, "the unit is stated a second time")
        spent, charges = spent.plus(charges, terms), []
        terms, version = _with_unit(terms, line, number, path), UNIT_VERSION
    try:
        spent = spent.plus(charges, terms)
    except PrivacyError as error:
        raise _malformed(first, path, error) from error
    return Account(terms, version, spent, seen)


def _with_unit(terms: Terms, line: Mapping[str, Any], number: int, path: Path) -> Terms:
    _require_fields(line, _STATED, number, path)
    try:
        require_unit(line["neighbours"], line["rows_per_unit"])
    except PrivacyError as error:
        raise _malformed(number, path, error) from error
    return replace(terms, **{name: line[name] for name in _UNIT})


def _is_statement(line: Mapping[str, Any]) -> bool:
    return "release" not in line


def _charge_of(
    line: Mapping[str, Any], version: int, number: int, path: Path
) -> Charge:
    _require_fields(line, _LINES[version]["charge"], number, path)
    if type(line["lineage"]) is not list or type(line["time"]) is not int:
        raise _malformed(number, path, "lineage must be a list, time a whole number")
    try:
        plain = (
            line["release"],
            _from_hex(line["mu2"]),
            _from_hex(line["pure_epsilon"]),
            line["feature_map"],
            tuple(line["lineage"]),
        )
        if version == 1:
            return Charge(*plain)
        epsilon, delta = line["epsilon"], line["delta"]
        return Charge(
            *plain,
            line["neighbours"],
            line["rows_per_unit"],
            line["count_mode"],
            None if epsilon is None else _from_hex(epsilon),
            None if delta is None else _from_hex(delta),
        )
    except (PrivacyError, ValueError, TypeError) as error:
        raise _malformed(number, path, error) from error


def line_of(charge: Charge) -> dict[str, Any]:
    """The line of a charge."""
    promise = {"epsilon": charge.epsilon, "delta": charge.delta}
    return {
        "release": charge.release_id,
        "time": int(time.time()),
        "mu2": charge.mu2.hex(),
        "pure_epsilon": charge.pure_epsilon.hex(),
        "feature_map": charge.feature_map,
        "lineage": list(charge.lineage),
        "neighbours": charge.neighbours,
        "rows_per_unit": charge.rows_per_unit,
        "count_mode": charge.count_mode,
        **{k: None if v is None else float(v).hex() for k, v in promise.items()},
    }


def unit_of(terms: Terms) -> dict[str, Any]:
    """The line that states the unit of a ledger of version 1."""
    stated = {name: getattr(terms, name) for name in _UNIT}
    return {**stated, "time": int(time.time())}


def header_of(terms: Terms) -> dict[str, Any]:
    """The first line."""
    return {
        "format": LEDGER_FORMAT,
        "version": LEDGER_VERSION,
        **{name: getattr(terms, name).hex() for name in _CAPS},
        **{name: getattr(terms, name) for name in _UNIT},
    }


@lru_cache(maxsize=1024)  # most releases are like the one before
def _from_hex(text: Any) -> float:
    if type(text) is not str:
        raise ValueError("numbers are hexadecimal texts")
    value = float.fromhex(text)
    if not isfinite(value):
        raise ValueError("a number is not finite")
    return value


def _require_fields(
    line: Mapping[str, Any], names: set[str], number: int, path: Path
) -> None:
    if line.keys() != names:
        raise _malformed(number, path, "unknown or missing fields")


def _malformed(number: int, path: Path, why: object) -> LedgerError:
    return LedgerError(
        f"line {number + 1} of {str(path)!r} is not an entry of a ledger ({why}). "
        "Nothing was released."
    )
