"""Sessions: the public terms on which parties add up their sketches, once.

All parties must have the same terms to the bit: the masks are made from a digest of
them, so that shares made on other terms never add up. What is computed on these terms
is not known here.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any, final

from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.errors import FeatureMapMismatch, SessionError
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.spec import FeatureSpec
from sketchlearn.files.container import canonical_json
from sketchlearn.parties.keys import PartyKey, require_public_key
from sketchlearn.privacy.charge import Neighbours, require_modes
from sketchlearn.privacy.mechanisms import require_budget
from sketchlearn.privacy.planned import PlannedRelease, plan_release
from sketchlearn.sketching.sketch import Sketch

__all__ = ["Session"]
__public__ = ["Session"]

MOST_PARTIES = 4096
"""Each makes a mask with every other: more than this are no parties, but a mistake."""

_SESSION_PURPOSE = "sketchlearn-session 1"
"""Stands before the terms in their digest."""


@final
@dataclass(frozen=True)
class Session:
    r"""The public terms on which parties add up their sketches, once.

    Made by :meth:`start`, and sent to every party. With ε and δ each party adds
    a share of noise and the sum is a :class:`PrivateSketch`; without, the sum is exact.

    Parameters
    ----------
    session_id : str
        128 random bits in hexadecimal, for a single use: also the name of what comes
        out, in the ledgers of all parties and in the result.
    parties : tuple of (str, str)
        Name and public key of each, sorted by name.
    feature_map : str
        Fingerprint of the map of all sketches.
    epsilon, delta : float or None
        What is promised to each row of each party; None for an exact sum.
    neighbours, rows_per_unit
        As for :func:`sketchlearn.release`.
    n_honest : int or None
        The promise holds as long as so many parties keep their noise to themselves;
        None for an exact sum. Each party states how many of the *others* it believes
        to do so when it contributes.

    Examples
    --------
    >>> import sketchlearn as sl
    >>> phi = sl.clipped(sl.FourierFeatures(2, 16), norm_bound=2.0)
    >>> keys = {name: sl.PartyKey.generate() for name in ("north", "south", "west")}
    >>> public = {name: key.public for name, key in keys.items()}
    >>> session = sl.Session.start(phi, public, epsilon=1.0, delta=1e-6)
    >>> session.names, session.n_honest, session.is_exact
    (('north', 'south', 'west'), 1, False)
    >>> session.renewed().session_id == session.session_id
    False
    """

    session_id: str
    parties: tuple[tuple[str, str], ...]
    feature_map: str
    epsilon: float | None
    delta: float | None
    neighbours: Neighbours
    rows_per_unit: int
    n_honest: int | None

    @staticmethod
    def start(
        feature_map: AbstractFeatureMap,
        parties: Mapping[str, str],
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        neighbours: Neighbours = "add_remove",
        rows_per_unit: int = 1,
        n_honest: int | None = None,
    ) -> Session:
        """New terms, checked, under a new name.

        Parameters
        ----------
        feature_map : AbstractFeatureMap
            The map of all sketches; for a private sum it must be releasable: bounded
            in norm and planned without looking at the data.
        parties : mapping of str to str
            The public key (``PartyKey.public``) of each party, by its name.
        epsilon, delta : float, optional
            The promise about each row of each party. Without them no noise is added:
            the sum is exact, and as sensitive as the rows.
        neighbours, rows_per_unit
            As for :func:`sketchlearn.release`.
        n_honest : int, optional
            How many parties, at least, keep their noise to themselves: the promise
            holds even if all others put together what they know, or are one and the
            same. One unless stated: then nobody relies on anybody, and the sum has as
            much noise as merged releases, n times the variance of one. With h it has
            n / h times; n - 1 is the most, since whoever takes part knows his own.
        """
        if not isinstance(feature_map, AbstractFeatureMap):
            raise SessionError(
                "a session is about a feature map, as plan(...) or clipped(...) make "
                f"it; got a {type(feature_map).__name__}."
            )
        named = parties if isinstance(parties, Mapping) else {}
        private = epsilon is not None or delta is not None
        made = Session(
            session_id=os.urandom(16).hex(),
            parties=tuple(sorted(named.items(), key=lambda item: str(item[0]))),
            feature_map=feature_map.fingerprint,
            epsilon=epsilon,
            delta=delta,
            neighbours=neighbours,
            rows_per_unit=rows_per_unit,
            n_honest=1 if private and n_honest is None else n_honest,
        )
        if private:
            made.plan_empty(feature_map.spec, feature_map)  # refused now or never
        return made

    def __post_init__(self) -> None:
        _require_names(self.session_id, self.feature_map)
        _require_parties(self.parties)
        if self.is_exact:
            if (self.neighbours, self.rows_per_unit) != ("add_remove", 1):
                raise SessionError(
                    "an exact sum promises nothing, so that it has no neighbours= and "
                    "rows_per_unit=. Give epsilon= and delta= for a private one."
                )
            if self.delta is not None or self.n_honest is not None:
                raise SessionError(
                    "epsilon and delta are given together, and n_honest with them "
                    "only. Leave out all of them for an exact sum."
                )
            return
        require_budget(self.epsilon, self.delta)
        require_modes(self.neighbours, "joint", self.rows_per_unit)
        plain = {"epsilon": float, "delta": float, "rows_per_unit": int}
        for name, kind in plain.items():  # NumPy's numbers have other digests
            object.__setattr__(self, name, kind(getattr(self, name)))
        most = len(self.parties) - 1
        if type(self.n_honest) is not int or not 1 <= self.n_honest <= most:
            raise SessionError(
                f"n_honest must be a whole number from 1 to {most}, one less than "
                "there are parties: each party knows its own noise, and the noise of "
                f"the others must be enough. Got {self.n_honest!r}."
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parties, sorted."""
        return tuple(name for name, _ in self.parties)

    @property
    def is_exact(self) -> bool:
        """Whether no noise is added."""
        return self.epsilon is None

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all terms: whoever has the same one has the same terms."""
        text = f"{_SESSION_PURPOSE} {canonical_json(self.describe())}"
        return hashlib.sha256(text.encode()).hexdigest()

    def renewed(self) -> Session:
        """The same terms under a new name, for when a share is missing or lost.

        Everybody contributes again, which is charged again; where ``n_honest`` is 1,
        :meth:`Share.renewed` sends the same noisy numbers again, which is free.
        """
        return replace(self, session_id=os.urandom(16).hex())

    def party_of(self, key: PartyKey) -> str:
        """The name of the party that has this key."""
        if not isinstance(key, PartyKey):
            raise SessionError(
                f"key must be a PartyKey; got a {type(key).__name__}. Load it with "
                "PartyKey.load(path)."
            )
        for name, public in self.parties:
            if public == key.public:
                return name
        raise SessionError(
            f"the key {key.public[:6]}.. is none of this session's; its parties are "
            f"{', '.join(self.names)[:400]}. Start a session with its public key, or "
            "load the key that belongs here."
        )

    def require_map(self, spec: FeatureSpec) -> None:
        """Refuse features of another map than the session's."""
        if spec.fingerprint != self.feature_map:
            raise FeatureMapMismatch(
                f"cannot contribute: the session is about the map "
                f"{self.feature_map[:6]}.., and this is of {spec.fingerprint[:6]}... "
                "Sketch the rows with the map that the session was started with."
            )

    def plan(self, sketch: Sketch) -> PlannedRelease:
        """The part of a sketch in this session's release; nothing is drawn or spent."""
        assert self.epsilon is not None
        assert self.delta is not None
        assert self.n_honest is not None
        planned = plan_release(
            sketch,
            epsilon=self.epsilon,
            delta=self.delta,
            neighbours=self.neighbours,
            rows_per_unit=self.rows_per_unit,
            among=(len(self.parties), self.n_honest),
        )
        return replace(planned, release_id=self.session_id)

    def plan_empty(
        self, spec: FeatureSpec, source_map: AbstractFeatureMap | None
    ) -> PlannedRelease:
        """What is planned for every party, whatever its rows."""
        nothing = Int128Array.zeros(spec.sketch_size)
        return self.plan(Sketch(nothing, 0, spec, source_map=source_map))

    def describe(self) -> dict[str, Any]:
        """Plain values for a file, numbers as hexadecimal texts."""
        promise = {"epsilon": self.epsilon, "delta": self.delta}
        return {
            **asdict(self),
            "parties": [list(party) for party in self.parties],
            **{k: None if v is None else v.hex() for k, v in promise.items()},
        }

    @staticmethod
    def from_description(values: Mapping[str, Any]) -> Session:
        """Rebuild from :meth:`describe`, refusing unknown or missing fields."""
        if set(values) != {field.name for field in fields(Session)}:
            raise SessionError("a session has unknown or missing fields.")
        numbers = {
            name: None if values[name] is None else float.fromhex(values[name])
            for name in ("epsilon", "delta")
        }
        parties = tuple((name, public) for name, public in values["parties"])
        return Session(**{**values, **numbers, "parties": parties})

    def __repr__(self) -> str:
        promise = "exact"
        if not self.is_exact:
            promise = (
                f"epsilon={self.epsilon:g}, delta={self.delta:g}, {self.neighbours}, "
                f"n_honest={self.n_honest}"
            )
        return (
            f"Session({self.session_id[:6]}.., {len(self.parties)} parties, {promise})"
        )


def _require_names(session_id: Any, feature_map: Any) -> None:
    for value, digits in ((session_id, 32), (feature_map, 64)):
        if type(value) is not str or not re.fullmatch(f"[0-9a-f]{{{digits}}}", value):
            raise SessionError(
                "session_id has 32 and feature_map 64 hexadecimal digits; make a "
                "session with Session.start(feature_map, parties)."
            )


def _require_parties(parties: tuple[tuple[str, str], ...]) -> None:
    names = [name for name, _ in parties]
    if not 2 <= len(names) <= MOST_PARTIES:
        raise SessionError(
            f"a session takes 2 to {MOST_PARTIES} parties, a mapping of names to "
            f"public keys; got {len(names)}."
        )
    for name, public in parties:
        if type(name) is not str or not re.fullmatch("[A-Za-z0-9._-]{1,64}", name):
            raise SessionError(
                "a party is named by 1 to 64 letters, digits, . _ and -; got "
                f"{str(name)[:64]!r}."
            )
        require_public_key(public)
    if names != sorted(set(names)):
        raise SessionError("the names of parties are all different, and sorted.")
    if len({public for _, public in parties}) < len(parties):
        raise SessionError(
            "two parties have the same public key; each makes a key of its own with "
            "PartyKey.generate()."
        )
