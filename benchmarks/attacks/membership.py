"""Attack: tell from releases whether one row is there, better than was promised.

The game of :func:`sketchlearn.audit`, played through :func:`sketchlearn.release` itself
(ledger, plan, noise) for each way to treat the count: 12,000 releases of each of two
datasets. A lower bound on epsilon above the promise is a break; a bound far below says
that the attack has little power, so the bound is printed too.

usage: python3 dev.py run benchmarks/attacks/membership.py [--releases 12000]
"""

import argparse
import sys

import numpy as np
from tally import run

import sketchlearn as sl

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

    run(*(attack(name, way) for name, way in WAYS.items()))


if __name__ == "__main__":
    main()
