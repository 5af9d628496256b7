"""Attacks on sums in secret: second shares, kills, false parties, spoiled sessions.

A break is a second share of one key for one session, a session that is not known after
its share left, a ledger that says less than what false parties can learn, or a session
made up for that shows other numbers than those that were paid for.

usage: python3 dev.py run benchmarks/attacks/parties.py
"""

import multiprocessing
import os
import random
import signal
import tempfile
import time
from fractions import Fraction
from math import sqrt
from pathlib import Path

import numpy as np
from tally import run

import sketchlearn as sl
from sketchlearn.errors import SessionError
from sketchlearn.privacy.mechanisms import gaussian_epsilon

PHI = sl.clipped(sl.MomentFeatures(4, order="mean"), norm_bound=1.0)
ROWS = np.random.default_rng(0).uniform(-0.4, 0.4, (3000, 4))
SKETCH = sl.sketch_rows(ROWS, PHI, progress=False)
LESS = sl.sketch_rows(ROWS[1:], PHI, progress=False)
PROMISE = {"epsilon": 1.0, "delta": 1e-6}
FORK = multiprocessing.get_context("fork")
KILLS = 100


def ample():
    return sl.Ledger.ephemeral(epsilon=100.0, delta=1e-2)


def start(keys, **terms):
    return sl.Session.start(PHI, {n: key.public for n, key in keys.items()}, **terms)


def contribute_in_process(path, session, sketch, ready):
    """In a child: whether there is a share."""
    key = sl.PartyKey.load(path)
    ready.wait()
    try:
        sl.contribute(
            sketch, session, key, ledger=None if session.is_exact else ample()
        )
    except SessionError:
        return False
    return True


def work(found, *arguments):
    found.put(contribute_in_process(*arguments))


def contribute_from_eight_processes():
    """With one key file, different rows, and a ledger for each."""
    breaks, rounds = 0, 20
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.key"
            keys = {name: sl.PartyKey.generate() for name in "ab"}
            sl.PartyKey(keys["a"].secret).save(path)
            session = start(keys, **(PROMISE if number % 2 else {}))
            ready, found = FORK.Barrier(8), FORK.Queue()
            children = [
                FORK.Process(target=work, args=(found, path, session, sketch, ready))
                for sketch in 4 * [SKETCH, LESS]
            ]
            for child in children:
                child.start()
            made = sum(found.get(timeout=60) for _ in children)
            for child in children:
                child.join()
            breaks += made != 1
    return rounds * 8, breaks


def kill_a_party_that_contributes():
    """A share that left is known to the key file, whenever the party is killed."""
    rng, breaks = random.Random(0), 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.key"
        keys = {name: sl.PartyKey.generate() for name in "ab"}
        sl.PartyKey(keys["a"].secret).save(path)
        for _ in range(KILLS):
            sessions = [start(keys) for _ in range(40)]
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                key = sl.PartyKey.load(path)
                os.write(writing, b"0")
                for session in sessions:
                    sl.contribute(SKETCH, session, key)
                    os.write(writing, b"1")
                os._exit(0)
            os.close(writing)
            os.read(reading, 1)
            time.sleep(rng.uniform(0, 0.05))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            with open(reading, "rb") as stream:
                left = len(stream.read())
            key = sl.PartyKey.load(path)
            for session in sessions[:left]:
                try:
                    sl.contribute(LESS, session, key)
                    breaks += 1
                except SessionError:
                    continue
    return KILLS, breaks


def be_all_other_parties():
    """The epsilon in the ledger against the one of a party whose others are one."""
    trials = breaks = 0
    for n in (2, 3, 5, 10, 50, 400):
        keys = {f"p{i}": sl.PartyKey.generate() for i in range(n)}
        for n_honest in {1, n // 2, n - 1} - {0}:
            trials += 1
            session, book = start(keys, **PROMISE, n_honest=n_honest), ample()
            sl.contribute(SKETCH, session, keys["p0"], ledger=book)
            plan = session.plan(SKETCH)
            steps = Fraction(plan.statement.sensitivity) * 2**plan.statement.frac_bits
            true = gaussian_epsilon(sqrt((steps / plan.shares.sigma) ** 2), 1e-6)
            breaks += book.spent_epsilon(1e-6) < true * (1 - 1e-9)
    return trials, breaks


def spoil_sessions_one_after_another():
    """Parties leave; what the rest sends again is what was paid for, to the bit."""
    trials = breaks = 0
    keys = {f"p{i}": sl.PartyKey.generate() for i in range(12)}
    session, books = start(keys, **PROMISE), {name: ample() for name in keys}
    first = {
        name: sl.contribute(SKETCH, session, key, ledger=books[name])
        for name, key in keys.items()
    }
    while len(keys) > 2:
        keys.pop(max(keys))
        again = start(keys, **PROMISE)
        sums = [
            sl.combine(first[name].renewed(terms, key) for name, key in keys.items())
            for terms in (again, again.renewed())
        ]
        trials += 1
        breaks += sums[0].total != sums[1].total
        breaks += any(len(book.charges) != 1 for book in books.values())
    return trials, breaks


if __name__ == "__main__":
    run(
        contribute_from_eight_processes,
        kill_a_party_that_contributes,
        be_all_other_parties,
        spoil_sessions_one_after_another,
    )
