"""Cost of a ledger with many entries: opening it, and one more charge.

Each charge reads and hashes every byte, but takes apart only what is new. Targets with
100,000 entries: opening in a second or two, a charge in a twentieth of that.

usage: python3 dev.py run benchmarks/ledger.py [--entries 100 10000 100000]
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

from sketchlearn.files.container import canonical_json
from sketchlearn.privacy.charge import Charge
from sketchlearn.privacy.entries import line_of
from sketchlearn.privacy.journal import chain_hash
from sketchlearn.privacy.ledger import Ledger


def fill(path, n):
    """Write a ledger of ``n`` charges without waiting for the disk after each."""
    Ledger(path, epsilon=50.0, delta=1e-6)
    previous = Ledger.open(path)._book.account.seen.last
    with open(path, "a") as stream:
        for _ in range(n):
            body = line_of(new_charge())
            previous = chain_hash(previous, body)
            stream.write(canonical_json({**body, "hash": previous}) + "\n")


def new_charge():
    name = os.urandom(16).hex()
    return Charge(name, 1e-9, 0.0, 2 * name, (name,), epsilon=0.1, delta=1e-6)


def seconds(act, repeats):
    """Shortest time of some calls."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        act()
        best = min(best, time.perf_counter() - start)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, nargs="+", default=[100, 10_000, 10**5])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for n in options.entries:
            path = Path(folder) / f"{n}.ledger"
            fill(path, n)
            opened = seconds(lambda path=path: Ledger.open(path), 3)
            book = Ledger.open(path)
            charged = seconds(lambda book=book: book.charge(new_charge()), 5)
            print(
                f"{n:7d} entries, {path.stat().st_size / 1e6:5.1f} MB: open "
                f"{opened * 1e3:7.1f} ms ({opened / n * 1e6:5.1f} us an entry), charge "
                f"{charged * 1e3:6.1f} ms, {charged / opened:.3f} of opening it"
            )


if __name__ == "__main__":
    main()
