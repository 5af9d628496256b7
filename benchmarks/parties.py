"""Sums in secret: what 50 parties take to add up 2,000 numbers, and whether they do.

Every party makes its share (a mask with each other one, and its noise), then all shares
are combined; seconds are of all parties together, one after the other. Without noise
the sum must be equal to the plain one. Target: less than 2 s.

usage: python3 dev.py run benchmarks/parties.py [--parties N] [--size N] [--repeats N]
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import sketchlearn as sl

TERMS = {"exact": {}, "private": {"epsilon": 1.0, "delta": 1e-6}}


def run(sketches, keys, phi, folder, terms):
    """Seconds to contribute and to combine, and the sum."""
    public = {name: key.public for name, key in keys.items()}
    session = sl.Session.start(phi, public, **terms)
    ledgers = dict.fromkeys(keys)
    if terms:
        ledgers = {
            name: sl.Ledger(folder / f"{session.session_id}-{name}.ledger", **terms)
            for name in keys
        }
    start = time.perf_counter()
    shares = [
        sl.contribute(sketches[name], session, key, ledger=ledgers[name])
        for name, key in keys.items()
    ]
    made = time.perf_counter()
    whole = sl.combine(shares)
    return made - start, time.perf_counter() - made, whole


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parties", type=int, default=50)
    parser.add_argument("--size", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    phi = sl.clipped(sl.FourierFeatures(4, options.size), norm_bound=1.0)
    names = [f"party-{i:03d}" for i in range(options.parties)]
    keys = {name: sl.PartyKey.generate() for name in names}
    rng = np.random.default_rng(0)
    sketches = {
        name: sl.sketch_rows(rng.normal(size=(200, 4)), phi, progress=False)
        for name in names
    }
    start = time.perf_counter()
    plain = sum(sketches.values())
    plainly = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        for name, terms in TERMS.items():
            tries = [
                run(sketches, keys, phi, Path(folder), terms)
                for _ in range(options.repeats)
            ]
            made, combined, whole = min(tries, key=lambda one: one[0] + one[1])
            print(
                f"{options.parties} parties x {options.size} numbers, {name:7}: "
                f"{made + combined:.2f} s ({made / options.parties * 1e3:.1f} ms a "
                f"party, combining {combined * 1e3:.1f} ms), "
                f"{(made + combined) / plainly:.0f} times the plain sum"
            )
            if not terms:
                print(f"equal to the plain sum: {whole == plain}")
                if whole != plain:
                    sys.exit(1)


if __name__ == "__main__":
    main()
