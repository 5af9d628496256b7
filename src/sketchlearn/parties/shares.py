r"""Shares: what each party sends, which says nothing until all of them are added up.

Of party i with total :math:`V_i` and masks that cancel,

.. math::
    y_i = V_i + \xi_i + \sum_{j > i} r_{ij} - \sum_{j < i} r_{ji} \bmod 2^{128},
    \qquad \sum_i y_i = \sum_i V_i + \sum_i \xi_i ,

with :math:`\xi_i` its share of the noise. The number of rows is one more coordinate.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from typing import Any, final

from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.errors import (
    BudgetExceeded,
    FeatureMapMismatch,
    PrivacyError,
    SessionError,
)
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.spec import FeatureSpec
from sketchlearn.parties.keys import PartyKey
from sketchlearn.parties.masks import mask_keys, masked, unmasked
from sketchlearn.parties.session import Session
from sketchlearn.privacy.ledger import Ledger, open_ledger
from sketchlearn.privacy.noise import RandomBytes
from sketchlearn.privacy.planned import PlannedRelease
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = ["Share", "contribute", "draw_share"]
__public__ = ["Share", "contribute"]


@final
@dataclass(frozen=True, eq=False, repr=False)
class Share:
    """What one party sends: uniform numbers to whoever lacks one of the others.

    Made by :func:`contribute`, added up by :func:`combine`. It holds nothing exact:
    not the number of rows, and not the passes over rows inside the sketch.

    Parameters
    ----------
    session : Session
        The terms on which it was made.
    party : str
        Whose it is.
    masked : Int128Array
        Numbers modulo 2**128, the last one for the number of rows.
    features : FeatureSpec
        What the features are.
    columns : tuple of str, optional
        Names of the columns, which are taken to be public.
    seeded : bool
        True for test doubles, whose noise is no secret.
    source_map : AbstractFeatureMap, optional
        The map itself, if it is at hand.
    """

    session: Session
    party: str
    masked: Int128Array
    features: FeatureSpec
    columns: tuple[str, ...] | None = None
    seeded: bool = False
    source_map: AbstractFeatureMap | None = None

    def __post_init__(self) -> None:
        self.session.require_map(self.features)
        if self.party not in self.session.names:
            raise SessionError(
                f"{str(self.party)[:64]!r} is no party of this session; its parties "
                f"are {', '.join(self.session.names)[:400]}."
            )
        if len(self.masked) != self.features.sketch_size + 1:
            raise SessionError(
                f"a share of this map has {self.features.sketch_size + 1} numbers; "
                f"got {len(self.masked)}. Ask its party for the original."
            )
        if self.seeded and self.session.is_exact:
            raise SessionError("without noise there is nothing to seed.")

    def with_map(self, feature_map: AbstractFeatureMap) -> Share:
        """Attach the map this share was made with, after checking that it is."""
        self.features.require_equal(feature_map.spec)
        return replace(self, source_map=feature_map)

    def renewed(self, session: Session, key: PartyKey) -> Share:
        r"""The same noisy numbers under the masks of another session, free of charge.

        For when a session was spoiled: the other one may have other parties, and has
        the same map, promise and noise. Where ``n_honest`` is 1 the noise of this
        party alone keeps the promise, so that :math:`V_i + \xi_i` was paid for as it
        is and can be shown any number of times. In any other session parties rely on
        noise that the others draw *anew*, and this is refused.

        Parameters
        ----------
        session : Session
            The terms of the other session.
        key : PartyKey
            Of the party that made this share.
        """
        own = self.session.party_of(key)
        if own != self.party:
            raise SessionError(
                f"this share is of {self.party!r}, and the key of {own!r}. Each party "
                "renews the share it made itself."
            )
        _require_same_noise(self.session, session)
        party = session.party_of(key)
        keys, before = mask_keys(session, key), mask_keys(self.session, key)
        with key.once(session.session_id):
            numbers = masked(unmasked(self.masked, own, before), party, keys)
            return replace(self, session=session, party=party, masked=numbers)

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __repr__(self) -> str:
        seeded = ", SEEDED TEST DOUBLE" if self.seeded else ""
        return (
            f"Share({self.party!r} of {len(self.session.parties)}, "
            f"{self.session.session_id[:6]}.., {len(self.masked)} numbers{seeded})"
        )


def contribute(
    sketch: Sketch,
    session: Session,
    key: PartyKey,
    *,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    honest_others: int = 0,
) -> Share:
    r"""The share of one party: its sketch under masks, with its part of the noise.

    For a private session the ledger is charged, on disk, before any noise is drawn;
    on refusal nothing is made or spent. The charge follows from how many others this
    party relies on: if k of them keep their noise to themselves, it is hidden by k + 1
    shares of noise, at the price :math:`\mu^2 = \Delta^2 / ((k + 1) \sigma_i^2)`. From
    ``k + 1 = n_honest`` on this is the price of the promise, and below it is more.

    A party contributes to a session once, since two shares under the same masks would
    show the difference of two sketches. The file of the key says to which sessions it
    has contributed, and is on the disk before the share is returned: if the share is
    lost after that, so is the session for this party. A key in memory knows it within
    its process. *Copies of a key file do not know of one another.*

    Parameters
    ----------
    sketch : Sketch
        Of this party's rows, by the map of the session, pooled by mean.
    session : Session
        The terms, the same for all parties.
    key : PartyKey
        Of this party; it says which one it is.
    ledger : Ledger or path
        Where the price is recorded, as for :func:`release`; none for an exact session.
    honest_others : int
        How many of the other parties, at least, you believe to be honest: to keep
        their noise to themselves and to be somebody else than the rest. With 0 nobody
        is relied on, and what the ledger says is true whoever the others are.

    Returns
    -------
    Share
        Without all others it says nothing; all of them are the sum. Of an exact
        session send it by a safe line, and in any case so that it arrives unchanged.

    Examples
    --------
    >>> import numpy as np, sketchlearn as sl
    >>> phi = sl.clipped(sl.FourierFeatures(2, 16), norm_bound=2.0)
    >>> keys = {name: sl.PartyKey.generate() for name in ("north", "south")}
    >>> public = {name: key.public for name, key in keys.items()}
    >>> session = sl.Session.start(phi, public, epsilon=1.0, delta=1e-6)
    >>> exact = sl.sketch_rows(np.zeros((10_000, 2)), phi)
    >>> book = sl.Ledger.ephemeral(epsilon=1.0, delta=1e-6)
    >>> sl.contribute(exact, session, keys["north"], ledger=book).party
    'north'
    >>> round(book.spent_epsilon(1e-6), 2)
    1.0
    """
    party = _require_fitting(sketch, session, key)
    _require_others(honest_others, session)
    keys = mask_keys(session, key)
    if session.is_exact:
        if ledger is not None or honest_others:
            raise PrivacyError(
                "an exact session adds no noise, so that no ledger can pay for it. "
                "Leave out ledger= and honest_others=, or start a session with "
                "epsilon= and delta=."
            )
        numbers = _exact_numbers(sketch, session)
        with key.once(session.session_id):
            return _share(sketch, session, party, masked(numbers, party, keys))
    plan, book = session.plan(sketch), open_ledger(ledger)
    charge = plan.charge_among(honest_others + 1)
    with key.once(session.session_id):
        try:
            book.charge(charge, once=True)
        except BudgetExceeded as error:
            if charge == plan.charge:
                raise
            raise BudgetExceeded(
                f"{error} The terms promise epsilon={session.epsilon:g} to whoever "
                f"relies on n_honest={session.n_honest} parties, and this one relies "
                f"on itself and {honest_others} others. State honest_others= if you "
                "trust more of them, or start a session with "
                f"n_honest={honest_others + 1}, which has more noise."
            ) from error
        return draw_share(plan, session, party, keys, os.urandom)


def draw_share(
    plan: PlannedRelease,
    session: Session,
    party: str,
    keys: dict[str, bytes],
    random_bytes: RandomBytes,
) -> Share:
    """The share of a plan; who calls this has paid for it."""
    numbers = masked(plan.draw_share(random_bytes), party, keys)
    made = _share(plan.sketch, session, party, numbers)
    return replace(made, seeded=random_bytes is not os.urandom)


def _share(sketch: Sketch, session: Session, party: str, numbers: Int128Array) -> Share:
    return Share(
        session=session,
        party=party,
        masked=numbers,
        features=sketch.features,
        columns=sketch.columns,
        source_map=sketch.source_map,
    )


def _require_fitting(sketch: Any, session: Any, key: PartyKey) -> str:
    """Whose sketch this is, if it can be contributed to the session."""
    if not isinstance(session, Session):
        raise SessionError(
            f"session must be a Session; got a {type(session).__name__}. Load the "
            "terms that all parties agreed on."
        )
    if isinstance(sketch, PrivateSketch) or not isinstance(sketch, Sketch):
        raise PrivacyError(
            "contribute takes the exact sketch of this party's rows, as sketch_rows "
            f"makes it; got a {type(sketch).__name__}."
        )
    session.require_map(sketch.features)
    if sketch.pooling != "mean":
        raise FeatureMapMismatch(
            f"cannot contribute: this sketch is pooled by {sketch.pooling!r}, and only "
            "sketches pooled by mean add up. Sketch the rows with pooling='mean'."
        )
    return session.party_of(key)


def _require_others(honest_others: Any, session: Session) -> None:
    most = len(session.parties) - 2
    if type(honest_others) is not int or not 0 <= honest_others <= most:
        raise SessionError(
            f"honest_others must be a whole number from 0 to {most}, two less than "
            "there are parties: whoever looks at the sum may be one of them. Got "
            f"{honest_others!r}."
        )


def _require_same_noise(old: Session, new: Any) -> None:
    """Refuse to show noisy numbers again where others would rely on new noise."""
    if not isinstance(new, Session):
        raise SessionError(
            f"session must be a Session; got a {type(new).__name__}. Load its terms."
        )
    terms = [{**one.describe(), "session_id": "", "parties": []} for one in (old, new)]
    if terms[0] != terms[1] or old.n_honest != 1:
        raise SessionError(
            "a share is sent again in a session with the same map, epsilon, delta, "
            "neighbours and rows_per_unit, and with n_honest=1: elsewhere parties rely "
            "on noise that the others draw anew. Contribute to it, as to any session."
        )


def _exact_numbers(sketch: Sketch, session: Session) -> Int128Array:
    """Total and count of a sketch, if the sum over all parties has room for them."""
    numbers = Int128Array.concatenate(
        [sketch.total, Int128Array.from_ints([sketch.count])]
    )
    room = (2**127 - 1) // len(session.parties)
    if not sketch.is_possible or not numbers.within(-room, room):
        raise SessionError(
            f"{sketch.count} rows cannot have this total, or {len(session.parties)} "
            "such totals do not fit in 128 bits. Sketch the rows again."
        )
    return numbers
