"""Attack: find a row whose integer features are longer than their map's norm bound.

75,000 rows: every binade of float64, rows just beside the bound, one large entry among
tiny ones, equal entries, denormals; and rows of items that hold as much as they may, in
fractions of steps. The norm of what is summed is computed in Python integers and
compared with the bound that noise is calibrated to. Maps are those of every registered
kind (tests/portable/maps.py has examples of all), clipped where they have no bound.

usage: python3 dev.py run benchmarks/attacks/norms.py [--rows 75000]
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from tally import run

import sketchlearn as sl
from sketchlearn.errors import RowRangeError

sys.path.append(str(Path(__file__).parents[2] / "tests"))
from portable.maps import CROWDED, MAPS, crowded_rows  # noqa: E402

WIDTH = 6
WIDEST = 12
"""Examples of wider rows are left out: none is the only one of its kind."""


def maps():
    """Maps with a norm bound of their own, clipped ones and concatenations."""
    moments = sl.MomentFeatures(WIDTH, order="mean", reach=2.0**16)
    for bound in (1e-6, 1 / 3, 1.0, 1e6):
        yield sl.clipped(moments, norm_bound=bound)
    wide = sl.MomentFeatures(WIDTH, order="covariance", reach=2.0**10)
    yield sl.clipped(wide, norm_bound=0.7)
    fourier = sl.FourierFeatures(WIDTH, 16, scale=0.5)
    yield fourier
    yield sl.clipped(fourier, norm_bound=0.9)
    parts = [sl.clipped(moments, norm_bound=bound) for bound in (1e-3, 1.0)]
    yield sl.ConcatenatedFeatures(parts)
    huge = sl.Scaling.from_bounds(-1e300, 1e300, n_features=WIDTH)
    yield sl.clipped(sl.MomentFeatures(WIDTH, scaling=huge), norm_bound=1.0)
    yield sl.ConcatenatedFeatures([fourier, sl.clipped(wide, norm_bound=1.0)])
    for case in MAPS.values():
        phi = case.build()
        if phi.n_features <= WIDEST:
            yield sl.clipped(phi, norm_bound=0.7) if phi.norm_bound is None else phi


def adversarial(n, rng, width):
    """Rows of every size and shape."""
    signs = rng.choice([-1.0, 1.0], (n, width))
    sizes = 2.0 ** rng.uniform(-60, 60, (n, 1))
    kinds = rng.integers(0, 6, n)[:, None]
    near = rng.normal(size=(n, width))
    near /= np.linalg.norm(near, axis=1, keepdims=True)
    near *= np.nextafter(1.0, rng.choice([0.0, 2.0], (n, 1)))
    one = np.where(np.arange(width) == 0, 1.0, 1e-30)
    shapes = [
        signs * sizes,
        near,
        near * rng.choice([1e-6, 1 / 3, 0.7, 0.9, 1e6], (n, 1)),
        signs * one * sizes,
        signs * 5e-324 * rng.integers(1, 1000, (n, width)),
        signs * 2.0 ** rng.uniform(-990, 990, (n, width)),
    ]
    return np.choose(kinds, shapes)


def longest(phi, rows):
    """Largest squared norm in lattice steps, over rows that the map takes."""
    worst, taken = 0, 0
    for block in np.array_split(rows, max(1, len(rows) // 256)):
        try:
            features = phi(block)
        except RowRangeError:
            features = np.concatenate([_alone(phi, row) for row in block])
        steps = np.ldexp(features, phi.frac_bits)
        assert (steps == np.rint(steps)).all()
        for row in steps.tolist():
            worst = max(worst, sum(int(value) ** 2 for value in row))
        taken += len(features)
    return worst, taken


def _alone(phi, row):
    try:
        return phi(row[None])
    except RowRangeError:
        return np.empty((0, phi.sketch_size))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=75_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    def integer_norms():
        rng, trials, breaks = np.random.default_rng(arguments.seed), 0, 0
        found = list(maps())
        for phi in found:
            rows = adversarial(-(-arguments.rows // len(found)), rng, phi.n_features)
            worst, taken = longest(phi, rows)
            trials += taken
            breaks += worst > phi.spec.norm_steps**2
        return trials, breaks

    def integer_norms_of_items():
        trials, breaks = 0, 0
        for build in CROWDED.values():
            phi = build()
            rows = crowded_rows(phi, arguments.rows // 10, arguments.seed)
            worst, taken = longest(phi, rows)
            trials += taken
            breaks += worst > phi.spec.norm_steps**2
        return trials, breaks

    run(integer_norms, integer_norms_of_items)


if __name__ == "__main__":
    main()
