"""What tests of parties share: a map, keys, sessions, and sketches to add up."""

import numpy as np

from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.features.clipping import clipped
from sketchlearn.features.moments import MomentFeatures
from sketchlearn.parties.keys import PartyKey
from sketchlearn.parties.session import Session
from sketchlearn.parties.shares import contribute
from sketchlearn.privacy.ledger import Ledger

PHI = clipped(MomentFeatures(4, order="mean"), norm_bound=1.0)
PROMISE = {"epsilon": 1.0, "delta": 1e-6}
NAMES = ("north", "south", "west")


def make_keys(names=NAMES):
    return {name: PartyKey.generate() for name in names}


def start(keys, phi=PHI, **terms):
    """A session of these keys."""
    return Session.start(phi, {name: k.public for name, k in keys.items()}, **terms)


def make_sketches(names=NAMES, phi=PHI, n_rows=3000):
    """A sketch of different rows for each party."""
    rng = np.random.default_rng(0)
    return {
        name: sketch_rows(rng.uniform(-0.4, 0.4, (n_rows, phi.n_features)), phi)
        for name in names
    }


def ample():
    """A ledger with room for one more release than a test makes."""
    return Ledger.ephemeral(epsilon=50.0, delta=1e-3)


def all_shares(session, keys, sketches):
    """The share of each party, paid from a ledger of its own."""
    return [
        contribute(
            sketches[name], session, key, ledger=None if session.is_exact else ample()
        )
        for name, key in keys.items()
    ]
