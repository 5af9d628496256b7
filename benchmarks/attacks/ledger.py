"""Attacks on ledgers: races, kills, cuts, flips, full disks, old copies, forged lines.

A break is a charge that was granted and is not recorded, more granted than the cap
allows, an entry lost, a good ledger refused, or an error that is not the library's own.

usage: python3 dev.py run benchmarks/attacks/ledger.py
"""

import fcntl
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

from tally import run

from sketchlearn.errors import BudgetExceeded, LedgerError
from sketchlearn.files.container import canonical_json
from sketchlearn.privacy.accountant import Terms
from sketchlearn.privacy.charge import Charge
from sketchlearn.privacy.journal import Seen, chain_hash, witness_path, write_witness
from sketchlearn.privacy.ledger import Ledger

CAPS = {"epsilon": 2.0, "delta": 1e-5}
CAP = Terms(2.0, 1e-5)._mu2_cap
PRICE = float(CAP / 100) * (1 - 1e-12)  # a hundred fit
FORK = multiprocessing.get_context("fork")
KILLS = 200


@contextmanager
def folder():
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def new_charge(mu2=1e-6):
    return Charge(os.urandom(16).hex(), mu2)


def spend(book, times, price=PRICE):
    """How many of these charges were granted."""
    granted = 0
    for _ in range(times):
        try:
            book.charge(new_charge(price))
        except BudgetExceeded:
            continue
        granted += 1
    return granted


def eight_processes_spend_one_budget():
    breaks, rounds = 0, 5
    for _ in range(rounds):
        with folder() as place:
            path = place / "a.ledger"
            Ledger(path, **CAPS)
            with FORK.Pool(8) as pool:
                jobs = [(path, 50)] * 8
                granted = sum(pool.starmap(spend_in_process, jobs, chunksize=1))
            recorded = len(Ledger.open(path).charges)
            breaks += not granted == recorded == 100
    return rounds * 8 * 50, breaks


def spend_in_process(path, times):
    return spend(Ledger.open(path), times)


def spend_in_threads(book):
    granted = []
    threads = [
        threading.Thread(target=lambda: granted.append(spend(book, 20)))
        for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(granted)


def sixteen_threads_spend_one_budget():
    breaks, rounds = 0, 5
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    for _ in range(rounds):
        with folder() as place:
            for book in (Ledger(place / "a", **CAPS), Ledger.ephemeral(**CAPS)):
                granted = spend_in_threads(book)
                breaks += not granted == len(book.charges) == 100
    sys.setswitchinterval(switch)
    return rounds * 2 * 16 * 20, breaks


def kill_during_charges():
    rng, breaks, acknowledged = random.Random(0), 0, 0
    with folder() as place:
        path = place / "a.ledger"
        Ledger(path, epsilon=100.0, delta=1e-2)
        for _ in range(KILLS):
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                book = Ledger.open(path)
                os.write(writing, b"0")
                while True:
                    book.charge(new_charge(1e-9))
                    os.write(writing, b"1")
            os.close(writing)
            os.read(reading, 1)
            time.sleep(rng.uniform(0, 0.01))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            with open(reading, "rb") as stream:
                acknowledged += len(stream.read())
            breaks += len(Ledger.open(path).charges) < acknowledged
    return KILLS, breaks


def small_ledger(path):
    """A ledger of three charges, their names, and its bytes."""
    book = Ledger(path, **CAPS)
    for _ in range(3):
        book.charge(new_charge())
    return [item.release_id for item in book.charges], path.read_bytes()


def names(path):
    return [item.release_id for item in Ledger.open(path).charges]


def found_in(path, data):
    """Charges in a ledger of these bytes; None if it is refused."""
    path.write_bytes(data)
    try:
        return names(path)
    except LedgerError:
        return None


def cut_at_every_byte():
    """What was acknowledged is there (a cut end of line is nothing), or refused."""
    breaks = 0
    with folder() as place:
        path = place / "a.ledger"
        whole, data = small_ledger(path)
        for cut in range(len(data)):
            expected = whole if cut == len(data) - 1 else None
            breaks += found_in(path, data[:cut]) != expected
        breaks += found_in(path, data) != whole
    return len(data), breaks


def cut_off_whole_lines_or_put_an_older_ledger_in_place():
    """Refused by whoever opens it later, as long as the witness stays."""
    trials = breaks = 0
    with folder() as place:
        path, other = place / "a.ledger", place / "b.ledger"
        book, states = Ledger(path, **CAPS), []
        for _ in range(100):
            states.append(path.read_bytes())
            book.charge(new_charge())
        states += [b"", small_ledger(other)[1]]
        for state in states:
            trials += 2
            breaks += found_in(path, state) is not None
            with suppress(LedgerError):
                Ledger(path, **CAPS)
                breaks += 1
    return trials, breaks


def tear_a_charge_that_nobody_was_told_of():
    """At every byte it is dropped, or counted if it is whole; then all works."""
    trials = breaks = 0
    with folder() as place:
        path = place / "a.ledger"
        whole, data = small_ledger(path)
        told = witness_path(path).read_bytes()
        Ledger.open(path).charge(new_charge())
        longer = path.read_bytes()
        for cut in range(len(data), len(longer) + 1):
            trials += 1
            witness_path(path).write_bytes(told)
            found = found_in(path, longer[:cut])
            kept = 4 if cut >= len(longer) - 1 else 3
            good = found is not None and found[:3] == whole and len(found) == kept
            Ledger.open(path).charge(new_charge())
            breaks += not (good and len(names(path)) == kept + 1)
    return trials, breaks


class PowerError(BaseException):
    """It went out."""


CALLS = ("open", "write", "ftruncate", "fsync", "replace", "unlink")


def lose_power_at_every_call_of_the_system():
    """While a ledger is created and charged; it opens and keeps what was told."""
    real = {name: getattr(os, name) for name in CALLS}
    trials = breaks = 0
    while True:
        with folder() as place:
            path, told = place / "a.ledger", 0
            left = [trials]

            def failing(call, left=left):
                def made(*arguments, **more):
                    left[0] -= 1
                    if left[0] < 0:
                        raise PowerError
                    return call(*arguments, **more)

                return made

            for name, call in real.items():
                setattr(os, name, failing(call))
            try:
                book = Ledger(path, **CAPS)
                for _ in range(3):
                    book.charge(new_charge())
                    told += 1
                return trials, breaks
            except PowerError:
                trials += 1
            finally:
                for name, call in real.items():
                    setattr(os, name, call)
            try:
                book = Ledger(path, **CAPS)
                found = len(book.charges)
                book.charge(new_charge())
                good = told <= found <= told + 1 and len(names(path)) == found + 1
                breaks += not good
            except LedgerError:
                breaks += 1


def lock_where_locks_do_nothing():
    """Eight threads on a file system whose locks are granted to everybody."""
    real, breaks, rounds = fcntl.flock, 0, 20
    for _ in range(rounds):
        with folder() as place:
            path, granted = place / "a.ledger", []
            book = Ledger(path, **CAPS)
            fcntl.flock = lambda *arguments: None
            threads = [
                threading.Thread(target=charge_quietly, args=(book, granted))
                for _ in range(8)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            fcntl.flock = real
            breaks += granted != [False] * 8 or book.charges != ()
    return rounds * 8, breaks


def open_by_a_relative_name_and_go_elsewhere():
    """One name, one budget, from whichever folder it is spent."""
    here, breaks, rounds = os.getcwd(), 0, 20
    for _ in range(rounds):
        with folder() as place:
            os.chdir(place)
            books = [Ledger("a.ledger", **CAPS), Ledger.open("a.ledger")]
            for book in books:
                elsewhere = place / os.urandom(4).hex()
                elsewhere.mkdir()
                os.chdir(elsewhere)
                Ledger("a.ledger", **CAPS)
                book.charge(new_charge())
            breaks += len(names(place / "a.ledger")) != 2
            os.chdir(here)
    return rounds, breaks


def flip_every_bit():
    """A flipped bit is refused, or no charge is lost."""
    breaks = 0
    with folder() as place:
        path = place / "a.ledger"
        whole, data = small_ledger(path)
        for bit in range(8 * len(data)):
            damaged = bytearray(data)
            damaged[bit // 8] ^= 1 << bit % 8
            path.write_bytes(damaged)
            try:
                breaks += names(path) != whole
            except LedgerError:
                continue
            except Exception:
                breaks += 1
    return 8 * len(data), breaks


def fill_the_disk_within_a_charge():
    """A limit on the size of the file hits at every byte of the new line."""
    breaks, rooms = 0, range(0, 480)
    with folder() as place:
        path, other = place / "a.ledger", place / "b.ledger"
        whole, data = small_ledger(path)
        for room in rooms:
            for file, copy in zip(pair(path), pair(other), strict=True):
                shutil.copy(file, copy)
            child = os.fork()
            if child == 0:
                charge_with_limit(other, len(data) + room)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            found = names(other)
            good = found[:3] == whole and len(found) == (4 if code == 0 else 3)
            breaks += not (good and code in (0, 1))
            Ledger.open(other).charge(new_charge())
    return len(rooms), breaks


def pair(path):
    """A ledger and its witness."""
    return path, witness_path(path)


def charge_with_limit(path, limit):
    """In a child: exit code 0 if granted, 1 if the disk was full."""
    code = 2
    try:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        Ledger.open(path).charge(new_charge())
        code = 0
    except OSError:
        code = 1
    finally:
        os._exit(code)


def replace_while_a_charge_waits():
    """By a copy (charged), by an older state (refused), by nothing (refused)."""
    breaks, rounds = 0, 30
    for number in range(rounds):
        with folder() as place:
            path = place / "a.ledger"
            book = Ledger(path, **CAPS)
            older = path.read_bytes()
            book.charge(new_charge())
            held = os.open(path, os.O_RDWR)
            fcntl.flock(held, fcntl.LOCK_EX)
            granted = []
            thread = threading.Thread(target=charge_quietly, args=(book, granted))
            thread.start()
            time.sleep(0.02)
            os.rename(path, place / "old")
            if number % 3 == 0:
                shutil.copy(place / "old", path)
            elif number % 3 == 1:
                path.write_bytes(older)
            os.close(held)
            thread.join()
            expected = [True, False, False][number % 3]
            recorded = path.exists() and found_in(path, path.read_bytes())
            good = recorded and len(recorded) == 2 if expected else not recorded
            breaks += granted != [expected] or not good
    return rounds, breaks


def charge_quietly(book, granted):
    try:
        book.charge(new_charge())
        granted.append(True)
    except LedgerError:
        granted.append(False)


def forge_lines_that_are_in_the_chain():
    """Entries of random types never raise anything else, and never give room."""
    rng, breaks, trials = random.Random(0), 0, 5000
    values = [None, True, 0, -1, 1e300, "", "nan", "-0x1p+9", "inf", [], {}, [[]], "x"]
    values += ["0x1p-9", 10**400, ["a", 1], {"a": {}}, -0.0, "\u0000", "public"]
    with folder() as place:
        path = place / "a.ledger"
        small_ledger(path)
        bodies = [parse(line) for line in path.read_text().splitlines()]
        full = Ledger.open(path).left_epsilon()
        for _ in range(trials):
            forged = [dict(body) for body in bodies]
            for _ in range(rng.randint(1, 3)):
                body = rng.choice(forged[1:])
                name = rng.choice([*body, "extra"])
                if rng.random() < 0.3:
                    body.pop(name, None)
                else:
                    body[name] = rng.choice(values)
            write_chain(path, forged)
            try:
                book = Ledger.open(path)
                breaks += book.left_epsilon() > full * (1 + 1e-9) or not book.charges
            except LedgerError:
                continue
            except Exception:
                breaks += 1
    return trials, breaks


def parse(line):
    body = json.loads(line)
    del body["hash"]
    return body


def write_chain(path, bodies):
    previous, text = "", ""
    for body in bodies:
        previous = chain_hash(previous, body)
        text += canonical_json({**body, "hash": previous}) + "\n"
    path.write_text(text)
    write_witness(path, Seen(0, len(bodies), previous))


if __name__ == "__main__":
    run(
        eight_processes_spend_one_budget,
        sixteen_threads_spend_one_budget,
        kill_during_charges,
        cut_at_every_byte,
        cut_off_whole_lines_or_put_an_older_ledger_in_place,
        tear_a_charge_that_nobody_was_told_of,
        lose_power_at_every_call_of_the_system,
        lock_where_locks_do_nothing,
        open_by_a_relative_name_and_go_elsewhere,
        flip_every_bit,
        fill_the_disk_within_a_charge,
        replace_while_a_charge_waits,
        forge_lines_that_are_in_the_chain,
    )
