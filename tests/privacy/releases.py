"""What tests of releases share: a sketch and a promise."""

from fractions import Fraction

import numpy as np
import pytest

from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.features.clipping import clipped
from sketchlearn.features.moments import MomentFeatures
from sketchlearn.privacy.planned import plan_release
from sketchlearn.privacy.release import release
from sketchlearn.sketching.sketch import Sketch

PHI = clipped(MomentFeatures(4, order="mean"), norm_bound=1.0)
PROMISE = {"epsilon": 1.0, "delta": 1e-6}
ROWS = np.random.default_rng(0).uniform(-0.4, 0.4, (4321, 4))


def plan_of(sketch, **promise):
    """What a release would state."""
    return plan_release(sketch, **promise).statement


def empty_sketch(size, norm_bound=1.0, count=1000):
    """A sketch of a clipped map with this many features, without the rows."""
    phi = clipped(MomentFeatures(size, order="mean"), norm_bound=norm_bound)
    runs = frozenset({"0" * 32})
    total = Int128Array.zeros(size)
    return Sketch(total, count, phi.spec, lineage=runs, source_map=phi)


def steps(value, statement):
    """A number in lattice steps, exactly."""
    return Fraction(value) * Fraction(2) ** statement.frac_bits


def require_refused(book, sketch, error, match, **changes):
    before = book.charges
    with pytest.raises(error, match=match):
        release(sketch, **{**PROMISE, "ledger": book, **changes})
    assert book.charges == before


def by_label(labels="ab"):
    rng = np.random.default_rng(0)
    return {x: sketch_rows(rng.uniform(-1, 1, (3000, 4)), PHI) for x in labels}
