"""Combining: all shares of a session add up to one sketch, or are refused.

Whoever does this, a party or anybody else, learns the sum and nothing of its parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import reduce

from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.arithmetic.modular import add_modulo
from sketchlearn.errors import SessionError, SketchlearnError
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.build import rebuild_map
from sketchlearn.parties.session import Session
from sketchlearn.parties.shares import Share
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.privacy.statement import PrivacyStatement
from sketchlearn.sketching.lineage import Lineage
from sketchlearn.sketching.sketch import Sketch, require_same_columns

__all__ = ["combine"]
__public__ = ["combine"]

_FILE_ROWS = 2**63
"""More than any file of a sketch can hold."""

_STDS = 64
"""Standard deviations of noise that are never drawn."""


def combine(shares: Iterable[Share]) -> Sketch | PrivateSketch:
    r"""The sketch of all parties' rows together, from one share of each.

    The masks cancel in the sum of all shares, and in no other sum: what is missing,
    repeated or of another session is refused.

    Parameters
    ----------
    shares : iterable of Share
        Of one session, one of each party, in any order.

    Returns
    -------
    PrivateSketch or Sketch
        Of a private session a release: its ε and δ hold with the noise of
        ``n_honest`` parties alone, its ``sigma_int`` is that of all noise on it.
        Of an exact session the exact sketch, as if ``sum(sketches)``. Both are named
        after the session: combined twice, they are not merged with themselves. What
        passes over rows are inside nobody knows: that sums of two sessions, or a sum
        and a party's sketch, have no rows in common is on you.

    Examples
    --------
    >>> import sketchlearn as sl
    >>> phi = sl.MomentFeatures(1, order="mean")
    >>> keys = {name: sl.PartyKey.generate() for name in ("north", "south", "west")}
    >>> public = {name: key.public for name, key in keys.items()}
    >>> session = sl.Session.start(phi, public)  # no noise: an exact sum
    >>> rows = {"north": [[1.0], [2.0]], "south": [[3.0]], "west": [[6.0]]}
    >>> whole = sl.combine(
    ...     sl.contribute(sl.sketch_rows(rows[name], phi), session, key)
    ...     for name, key in keys.items()
    ... )
    >>> whole.count, whole.mean.tolist()
    (4, [3.0])
    """
    parts = list(shares)
    session = _require_complete(parts)
    _require_alike(parts)
    total = reduce(add_modulo, [part.masked for part in parts])
    source = _map_of(parts)
    if session.is_exact:
        return _exact_sum(total, parts, source)
    return _private_sum(total, parts, source)


def _require_complete(parts: list[Share]) -> Session:
    """The session of shares that are all there, once each."""
    if not parts or not all(isinstance(part, Share) for part in parts):
        raise SessionError(
            "combine takes the shares of a session, as contribute makes them, at "
            "least two."
        )
    sessions = Counter(part.session.digest for part in parts)
    digest = max(sorted(sessions), key=lambda one: sessions[one])
    foreign = [part.party for part in parts if part.session.digest != digest]
    if foreign:
        raise SessionError(
            f"the shares of {_listed(foreign)} are of another session, or of one on "
            "other terms, than most; they add up to nothing. Give the shares of one "
            "session."
        )
    session = parts[0].session
    counts = Counter(part.party for part in parts)
    repeated = [name for name in session.names if counts[name] > 1]
    if repeated:
        raise SessionError(
            f"there are several shares of {_listed(repeated)}; each party has one. If "
            "they differ, that party contributed twice and this session is void: "
            "start a new one with session.renewed()."
        )
    missing = [name for name in session.names if not counts[name]]
    if missing:
        raise SessionError(
            f"the shares of {_listed(missing)} are missing, and without them the "
            f"others say nothing. Get them, or start a new session: {_again(session)}"
        )
    return session


def _require_alike(parts: list[Share]) -> None:
    """Refuse shares that nothing but numbers may tell apart, and more does."""
    columns = next((part.columns for part in parts if part.columns), None)
    for part in parts:
        parts[0].features.require_equal(part.features)
        require_same_columns(columns, part.columns, "combine")
    if len({part.seeded for part in parts}) > 1:
        raise SessionError(
            "some of these shares are seeded test doubles and some are real; the "
            "noise of doubles hides nothing. Combine each kind apart."
        )


def _exact_sum(
    numbers: Int128Array, parts: list[Share], source: AbstractFeatureMap | None
) -> Sketch:
    total, last = _parted(numbers)
    made = Sketch(
        total=total,
        count=last,
        features=parts[0].features,
        lineage=Lineage.of([parts[0].session.session_id]),
        source_map=source,
        columns=next((part.columns for part in parts if part.columns), None),
    )
    if not 0 <= last < _FILE_ROWS or not made.is_possible:
        raise _uncancelled()
    return made


def _private_sum(
    numbers: Int128Array, parts: list[Share], source: AbstractFeatureMap | None
) -> PrivateSketch:
    session, spec = parts[0].session, parts[0].features
    plan = session.plan_empty(spec, source)
    statement = replace(
        plan.statement, lineage=(session.session_id,), seeded=parts[0].seeded
    )
    if not _is_plausible(numbers, statement, plan.sketch):
        raise _uncancelled()
    return PrivateSketch(
        total=numbers,
        features=spec,
        statement=statement,
        source_map=source,
        columns=next((part.columns for part in parts if part.columns), None),
    )


def _is_plausible(
    numbers: Int128Array, statement: PrivacyStatement, empty: Sketch
) -> bool:
    """Whether some number of rows and this noise can have given these numbers.

    Masks that do not cancel leave uniform numbers modulo 2**128, which are far too
    large for any number of rows that a sketch may have.
    """
    total, last = _parted(numbers)
    noise = _STDS * statement.sigma_int
    most = (last + noise) // statement.count_weight
    if most < 0 or last - noise > _FILE_ROWS * statement.count_weight:
        return False
    limit = most * empty.features.norm_steps + noise
    return total.within(-limit, limit)


def _parted(numbers: Int128Array) -> tuple[Int128Array, int]:
    """The total, and the number of rows behind it."""
    *_, last = numbers.to_ints()
    return Int128Array(numbers.hi[:-1].copy(), numbers.lo[:-1].copy()), last


def _map_of(parts: list[Share]) -> AbstractFeatureMap | None:
    """The map, if a share has it or its description suffices."""
    for part in parts:
        if part.source_map is not None:
            return part.source_map
    with suppress(SketchlearnError):
        built = rebuild_map(parts[0].features)
        parts[0].features.require_equal(built.spec)
        return built
    return None


def _again(session: Session) -> str:
    """What to do after a share was lost."""
    if session.is_exact:
        return (
            "session.renewed(), with all parties and the same rows: the difference "
            "of two exact sums tells what one of them has and the other has not."
        )
    if session.n_honest == 1:
        return (
            "session.renewed(), or one without these parties; the others send their "
            "numbers again, free of charge: share.renewed(session, key)."
        )
    return (
        "session.renewed(), or one without these parties; everybody contributes "
        "again, which costs budget again."
    )


def _uncancelled() -> SessionError:
    return SessionError(
        "the masks of these shares do not cancel: no rows can have this sum. A share "
        "was damaged or forged, or made with a key that is not the one of its party. "
        "Start a new session with session.renewed()."
    )


def _listed(names: list[str]) -> str:
    return ", ".join(repr(name) for name in names)[:400]
