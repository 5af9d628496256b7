"""The ledger: what has been spent of a dataset's privacy, on disk before the noise.

A ledger is a file of JSON lines. The first holds the caps, each further one a charge,
and every line carries the SHA-256 of the line before it, so that no line can be
removed or changed without the rest noticing. A charge holds an exclusive lock, reads
the file anew, and is on the disk when it returns: two processes can never spend the
same budget, and a crash loses budget, never privacy.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite, sqrt
from numbers import Real
from pathlib import Path
from typing import Any, Self, final

from sketchlearn.container import canonical_json
from sketchlearn.durable import retry, sync
from sketchlearn.errors import BudgetExceeded, LedgerError, PrivacyError
from sketchlearn.mechanisms import gaussian_epsilon, gaussian_mu, require_budget

__all__ = ["Charge", "Ledger"]

FORMAT = "sketchlearn-ledger"


@final
@dataclass(frozen=True)
class Charge:
    """The price of one release.

    Parameters
    ----------
    release_id : str
        128 random bits in hexadecimal.
    mu2 : float
        (sensitivity / noise)², the price of its Gaussian part.
    pure_epsilon : float
        The price of its Laplace part, if any.
    feature_map : str
        Fingerprint of the map.
    lineage : tuple of str
        Accumulation runs inside the sketch; empty if there are too many to list.
    """

    release_id: str
    mu2: float
    pure_epsilon: float = 0.0
    feature_map: str = ""
    lineage: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("mu2", "pure_epsilon"):
            value = getattr(self, name)
            number = isinstance(value, Real) and not isinstance(value, bool)
            if not number or not isfinite(value) or value < 0:
                raise PrivacyError(f"a charge of {name}={value!r} makes no sense.")
            object.__setattr__(self, name, float(value))
        if self.mu2 == 0 and self.pure_epsilon == 0:
            raise PrivacyError("a charge must cost something.")


@final
class Ledger:
    r"""What may be spent on one dataset, and what has been.

    Gaussian releases cost :math:`\mu^2 = (\Delta/\sigma)^2`, and these costs add
    up; the cap is the μ² that (ε, δ) allows. That is a valid filter even when later
    releases depend on earlier ones.

    Parameters
    ----------
    path : path
        The file. It is created if it does not exist; if it does, the caps must agree.
    epsilon, delta : float
        Cap on everything ever released from the dataset.
    pure_epsilon : float
        Part of ``epsilon`` set aside for Laplace counts.

    Examples
    --------
    >>> ledger = Ledger.ephemeral(epsilon=2.0, delta=1e-5)
    >>> ledger.charge(Charge("first", mu2=0.07))
    >>> round(ledger.spent_epsilon(1e-5), 2)
    0.99
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        epsilon: float,
        delta: float,
        pure_epsilon: float = 0.0,
    ) -> None:
        self._set_caps(epsilon, delta, pure_epsilon)
        self.path: Path | None = Path(path)
        with _locked(self.path, create=True) as descriptor:
            lines = _read(descriptor, self.path)
            if lines:
                self._require_caps(lines[0])
            else:
                _append(descriptor, self._header(), "")
        _sync_folder(self.path)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Ledger:
        """Open an existing ledger with the caps it has."""
        if not Path(path).exists():
            raise LedgerError(
                f"there is no ledger {os.fspath(path)!r}. Create it once for each "
                "dataset: Ledger(path, epsilon=..., delta=...)."
            )
        with _locked(Path(path), create=False) as descriptor:
            lines = _read(descriptor, Path(path))
        if not lines:
            raise LedgerError(f"{os.fspath(path)!r} is empty; it is not a ledger.")
        caps = lines[0]
        return cls(
            path,
            epsilon=float.fromhex(caps["epsilon"]),
            delta=float.fromhex(caps["delta"]),
            pure_epsilon=float.fromhex(caps["pure_epsilon"]),
        )

    @classmethod
    def ephemeral(
        cls, *, epsilon: float, delta: float, pure_epsilon: float = 0.0
    ) -> Self:
        """A ledger in memory: it forgets when the program ends."""
        ledger = cls.__new__(cls)
        ledger._set_caps(epsilon, delta, pure_epsilon)
        ledger.path = None
        return ledger

    def charge(self, charge: Charge) -> None:
        """Spend, or raise :class:`BudgetExceeded` and spend nothing.

        On return the charge is on the disk.
        """
        if self.path is None:
            self._require_room(self._charges, charge)
            self._charges.append(charge)
            return
        with _locked(self.path, create=False) as descriptor:
            lines = _read(descriptor, self.path)
            if not lines:
                raise LedgerError(f"{str(self.path)!r} has lost its first line.")
            self._require_caps(lines[0])
            self._require_room([_charge_of(line) for line in lines[1:]], charge)
            _append(descriptor, _line_of(charge), lines[-1]["hash"])

    @property
    def charges(self) -> tuple[Charge, ...]:
        """Everything spent so far, in order."""
        if self.path is None:
            return tuple(self._charges)
        with _locked(self.path, create=False) as descriptor:
            lines = _read(descriptor, self.path)
        return tuple(_charge_of(line) for line in lines[1:])

    def spent_epsilon(self, delta: float) -> float:
        """The ε that everything released so far keeps together, at this δ."""
        charges = self.charges
        total = float(sum(Fraction(charge.mu2) for charge in charges)) * (1 + 2**-52)
        pure = sum(charge.pure_epsilon for charge in charges)
        return gaussian_epsilon(sqrt(total) * (1 + 2**-52), delta) + pure

    def __repr__(self) -> str:
        where = "in memory" if self.path is None else repr(str(self.path))
        return (
            f"Ledger({where}, epsilon={self.epsilon}, delta={self.delta}, spent="
            f"{self.spent_epsilon(self.delta):.4g} in {len(self.charges)} charges)"
        )

    def _set_caps(self, epsilon: float, delta: float, pure_epsilon: float) -> None:
        require_budget(epsilon, delta)
        if not 0 <= pure_epsilon < epsilon:
            raise PrivacyError(
                f"pure_epsilon must be in [0, epsilon); got {pure_epsilon!r}."
            )
        self.epsilon, self.delta = float(epsilon), float(delta)
        self.pure_epsilon = float(pure_epsilon)
        self._cap = Fraction(gaussian_mu(epsilon - pure_epsilon, delta)) ** 2
        self._charges: list[Charge] = []

    def _header(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": 1,
            "epsilon": self.epsilon.hex(),
            "delta": self.delta.hex(),
            "pure_epsilon": self.pure_epsilon.hex(),
        }

    def _require_caps(self, header: Mapping[str, Any]) -> None:
        wanted = self._header()
        found = {name: header.get(name) for name in wanted}
        if found != wanted:
            raise LedgerError(
                f"{str(self.path)!r} has other caps than asked for: a ledger is made "
                "once for each dataset and keeps its caps. Open it with "
                "Ledger.open(path)."
            )

    def _require_room(self, spent: list[Charge], charge: Charge) -> None:
        mu2 = sum((Fraction(item.mu2) for item in spent), Fraction(0))
        pure = sum((Fraction(item.pure_epsilon) for item in spent), Fraction(0))
        room = mu2 + Fraction(charge.mu2) <= self._cap
        if room and pure + Fraction(charge.pure_epsilon) <= Fraction(self.pure_epsilon):
            return
        what = (
            f"Needs mu2={charge.mu2:.4g}, spent {float(mu2):.4g}, cap "
            f"{float(self._cap):.4g}"
        )
        if room:
            what = (
                f"Needs pure epsilon {charge.pure_epsilon:g}, spent {float(pure):g}, "
                f"set aside {self.pure_epsilon:g}"
            )
        raise BudgetExceeded(
            f"nothing was released. {what} (epsilon={self.epsilon:g}, "
            f"delta={self.delta:g})."
        )


def _charge_of(line: Mapping[str, Any]) -> Charge:
    return Charge(
        release_id=line["release"],
        mu2=float.fromhex(line["mu2"]),
        pure_epsilon=float.fromhex(line["pure_epsilon"]),
        feature_map=line["feature_map"],
        lineage=tuple(line["lineage"]),
    )


def _line_of(charge: Charge) -> dict[str, Any]:
    return {
        "release": charge.release_id,
        "time": int(time.time()),
        "mu2": charge.mu2.hex(),
        "pure_epsilon": charge.pure_epsilon.hex(),
        "feature_map": charge.feature_map,
        "lineage": list(charge.lineage),
    }


@contextmanager
def _locked(path: Path, *, create: bool) -> Iterator[int]:
    flags = os.O_RDWR | (os.O_CREAT if create else 0)
    descriptor = retry(os.open, str(path), flags, 0o600)
    try:
        retry(fcntl.flock, descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _read(descriptor: int, path: Path) -> list[dict[str, Any]]:
    """All whole lines, their chain checked; a torn last line is cut off."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    data = b""
    while part := retry(os.read, descriptor, 1 << 20):
        data += part
    whole = data[: data.rfind(b"\n") + 1]
    head = whole.partition(b"\n")[0] or data
    torn = not whole and data.startswith(b'{"delta":"'[: len(data)])
    if data and not torn and not (head.startswith(b"{") and b'"hash":"' in head):
        raise LedgerError(
            f"{str(path)!r} is not a ledger; it was left as it is. Nothing was "
            "released."
        )
    lines: list[dict[str, Any]] = []
    previous = ""
    for number, text in enumerate(whole.splitlines()):
        line = _parse(text, number, path)
        body = {name: value for name, value in line.items() if name != "hash"}
        if line.get("hash") != _hash(previous, body):
            raise LedgerError(
                f"line {number + 1} of {str(path)!r} does not follow from the lines "
                "before it: the ledger was changed or damaged. Nothing was released."
            )
        previous = line["hash"]
        lines.append(line)
    if lines and lines[0].get("format") != FORMAT:
        raise LedgerError(f"{str(path)!r} is not a ledger. Nothing was released.")
    if len(whole) < len(data):  # never acknowledged: the writer died
        os.ftruncate(descriptor, len(whole))
    return lines


def _parse(text: bytes, number: int, path: Path) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except ValueError as error:
        raise LedgerError(
            f"line {number + 1} of {str(path)!r} is not JSON: not a ledger, or "
            "damaged. Nothing was released."
        ) from error
    if not isinstance(line, dict):
        raise LedgerError(f"line {number + 1} of {str(path)!r} is not an entry.")
    return line


def _append(descriptor: int, body: Mapping[str, Any], previous: str) -> None:
    line = {**body, "hash": _hash(previous, body)}
    rest = memoryview(canonical_json(line).encode() + b"\n")
    os.lseek(descriptor, 0, os.SEEK_END)
    while rest:
        rest = rest[retry(os.write, descriptor, rest) :]
    sync(descriptor)


def _hash(previous: str, body: Mapping[str, Any]) -> str:
    return hashlib.sha256((previous + canonical_json(body)).encode()).hexdigest()


def _sync_folder(path: Path) -> None:
    descriptor = os.open(str(path.resolve().parent), os.O_RDONLY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)
