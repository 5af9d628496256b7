"""Attack: tell from releases whether one row is there, better than was promised.

The game of :func:`sketchlearn.audit`, played through :func:`sketchlearn.release` itself
(ledger, plan, noise) for each way to treat the count: 12,000 releases of each of two
datasets. A lower bound on epsilon above the promise is a break; a bound far below says
that the attack has little power, so the bound is printed too.

Two more tell a row without looking at the noise: columns that were learned from rows,
whose number says whether somebody has a category of his own; and maps whose features of
a row depend on other rows, so that one row moves the sum by many bounds. A release of
either is a break.

usage: python3 dev.py run benchmarks/attacks/membership.py [--releases 12000]
"""

import argparse
import sys
import warnings

import numpy as np
import pandas as pd
from sklearn.pipeline import make_pipeline
from tally import run

import sketchlearn as sl
from sketchlearn.errors import SketchlearnError
from sketchlearn.features.base import sum_features

PHI = sl.clipped(sl.MomentFeatures(4, order="mean", reach=1024.0), norm_bound=1.0)
ROWS, CANARY = np.eye(4)[:3], np.array([0.0, 0.0, 0.0, 500.0])
PROMISE = {"epsilon": 1.0, "delta": 1e-5}
WAYS = {
    "joint count": {},
    "Laplace count": {"count": "laplace"},
    "public count, one row replaced": {"neighbours": "replace", "count": "public"},
}


def releaser_of(way):
    """``releaser(rows, n)`` by the front door."""
    neighbours = way.get("neighbours", "add_remove")
    pure = 0.5 if way.get("count") == "laplace" else 0.0

    def releaser(rows, n):
        if neighbours == "replace" and len(rows) == len(ROWS):
            rows = np.concatenate([rows, -CANARY[None]])
        sketch = sl.sketch_rows(rows, PHI, progress=False)
        drawn = []
        for _ in range(n):
            book = sl.Ledger.ephemeral(
                epsilon=1.0, delta=1e-5, pure_epsilon=pure, neighbours=neighbours
            )
            private = sl.release(sketch, ledger=book, **PROMISE, **way)
            count = [] if private.noisy_count is None else [private.noisy_count]
            drawn.append([float(v) for v in (*private.total.to_ints(), *count)])
        return np.array(drawn)

    return releaser


def columns_learned_from_rows():
    """Sketches of a BinaryEncoder's columns, in every form they can have."""
    rng, trials, breaks = np.random.default_rng(0), 0, 0
    for trial in range(40):
        frame = pd.DataFrame(
            {"age": rng.normal(40, 10, 300), "city": rng.choice(["A", "B"], 300)}
        )
        if trial % 2:
            frame.loc[0, "city"] = f"Smallville-{trial}"
        for sketch in encoded_sketches(frame):
            trials += 1
            breaks += is_released(lambda made: made, sketch)
    return trials, breaks


def encoded_sketches(frame):
    """What learned columns are sketched by, on several ways."""
    coder, bits = sl.CompressiveAutoencoder(2), sl.BinaryEncoder().fit_transform(frame)
    framed = sl.BinaryEncoder().set_output(transform="pandas").fit_transform(frame)
    for rows in (
        bits,
        framed,
        framed[5:],
        np.vstack([bits[:9], bits[9:]]).astype(float),
        iter([bits[:100], bits[100:]]),
    ):
        yield coder.fit(rows).sketch_
    yield sl.loads(sl.dumps(coder.sketch_))
    yield sl.sketch_rows(bits, sl.MomentFeatures(bits.shape[1], order="mean"))
    yield make_pipeline(sl.BinaryEncoder(), coder).fit(frame)[-1].sketch_


class Peeping(sl.AbstractFeatureMap):
    """Rows, moved by something that all rows of a batch have in common."""

    kind = "attack-peeping"
    ways = ("max", "mean", "std", "size", "first", "place", "calls", "sorted")

    def __init__(self, way, width):
        self.way, self.calls = way, 0
        super().__init__(
            n_features=width,
            sketch_size=width,
            scaling=None,
            value_bound=2.0**20,
            norm_bound=None,
        )

    def describe(self):
        return {"way": self.way}

    def weights(self):
        return {}

    def evaluate(self, rows, first_row=0):
        x = np.asarray(rows, np.float64)
        self.calls += 1
        n = len(x)
        return {
            "max": lambda: x - x.max(axis=0),
            "mean": lambda: x - x.mean(axis=0),
            "std": lambda: x / (1e-9 + x.std(axis=0)),
            "size": lambda: x / n,
            "first": lambda: x - x[0] + 1,
            "place": lambda: x * (1 + (first_row + np.arange(n))[:, None]),
            "calls": lambda: x * self.calls,
            "sorted": lambda: np.sort(x, axis=0)[::-1],
        }[self.way]()

    def batch_sum(self, rows, first_row=0):
        return sum_features(self, rows, first_row)


def maps_that_look_beside_a_row():
    """Clipped maps of one's own whose features depend on the batch."""
    rng, trials, breaks = np.random.default_rng(0), 0, 0
    for _ in range(60):
        width = int(rng.integers(1, 6))
        rows = rng.normal(size=(int(rng.integers(2, 2000)), width))
        rows[-1] *= rng.choice([1.0, 30.0])
        for way in Peeping.ways:
            phi = sl.clipped(Peeping(way, width), norm_bound=rng.choice([1.0, 100.0]))
            trials += 1
            breaks += is_released(sl.sketch_rows, rows, phi)
    return trials, breaks


def is_released(make, *given):
    """Whether a sketch is made and released."""
    book = sl.Ledger.ephemeral(**PROMISE)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sl.release(make(*given), ledger=book, **PROMISE)
    except SketchlearnError:
        return False
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--releases", type=int, default=12_000)
    n = parser.parse_args().releases

    def attack(name, way):
        def play():
            game = {"rows": ROWS, "canary": CANARY, "n_releases": n, **PROMISE}
            # Laplace noise is judged by the bound that holds for any noise.
            normal = way.get("count") != "laplace"
            report = sl.audit(releaser_of(way), **game, gaussian=normal)
            print(f"# {name}: {report}", file=sys.stderr)
            return 2 * n, not report.passed

        play.__name__ = f"membership, {name}"
        return play

    games = [attack(name, way) for name, way in WAYS.items()]
    run(*games, columns_learned_from_rows, maps_that_look_beside_a_row)


if __name__ == "__main__":
    main()
