"""Doubles for tests of programs that use sketchlearn.

Nothing made here is private: its noise comes from a seed anybody can guess. Such
sketches say so (``statement.seeded``), have a file kind of their own, never merge
with real ones and never touch a ledger.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np

from sketchlearn.errors import SessionError
from sketchlearn.parties.keys import PartyKey
from sketchlearn.parties.masks import mask_keys
from sketchlearn.parties.session import Session
from sketchlearn.parties.shares import Share, draw_share
from sketchlearn.privacy.charge import CountMode, Neighbours
from sketchlearn.privacy.planned import plan_release
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = ["contribute_seeded", "release_seeded"]


def release_seeded(
    sketch: Sketch,
    seed: int,
    *,
    epsilon: float,
    delta: float,
    neighbours: Neighbours = "add_remove",
    count: CountMode = "joint",
    rows_per_unit: int = 1,
    count_share: float = 0.1,
) -> PrivateSketch:
    """Like :func:`sketchlearn.release`, repeatable, and therefore not private.

    Parameters
    ----------
    sketch : Sketch
        What to release.
    seed : int
        Same seed, same noise.
    epsilon, delta, neighbours, count, rows_per_unit, count_share
        As for :func:`sketchlearn.release`.
    """
    plan = plan_release(
        sketch,
        epsilon=epsilon,
        delta=delta,
        neighbours=neighbours,
        count=count,
        rows_per_unit=rows_per_unit,
        count_share=count_share,
    )
    rng = np.random.default_rng(seed)
    statement = replace(plan.statement, seeded=True)
    name = hashlib.sha256(f"{seed} {sketch.digest}".encode()).hexdigest()[:32]
    return replace(plan, statement=statement, release_id=name).draw(rng.bytes)[0]


def contribute_seeded(
    sketch: Sketch, session: Session, key: PartyKey, seed: int
) -> Share:
    """Like :func:`sketchlearn.contribute`, repeatable, and therefore not private.

    What is combined from such shares says that it is seeded.

    Parameters
    ----------
    sketch, session, key
        As for :func:`sketchlearn.contribute`; of a private session.
    seed : int
        Same seed, same noise. Each party has its own.
    """
    if session.is_exact:
        raise SessionError("without noise there is nothing to seed; use contribute.")
    plan, party = session.plan(sketch), session.party_of(key)
    rng = np.random.default_rng(seed)
    return draw_share(plan, session, party, mask_keys(session, key), rng.bytes)
