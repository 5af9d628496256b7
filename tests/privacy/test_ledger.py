"""What was spent stays spent: across processes, crashes, faults and tampering."""

import copy
import errno
import json
import multiprocessing
import os
import pickle
import random
import shutil
import subprocess
import sys
import threading
import time
from fractions import Fraction
from math import inf, nan, sqrt

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant

from privacy.ledgers import CAPS, charge, forks, lines_of
from sketchlearn.errors import BudgetExceeded, LedgerError, PrivacyError
from sketchlearn.files.container import canonical_json
from sketchlearn.privacy import accountant, journal
from sketchlearn.privacy.accountant import Terms
from sketchlearn.privacy.charge import Charge
from sketchlearn.privacy.ledger import Ledger
from sketchlearn.privacy.mechanisms import gaussian_epsilon, gaussian_mu, zcdp_rho

FORK = multiprocessing.get_context("fork")


def exact_delta(mu, epsilon):
    with mpmath.workdps(80):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        far = mpmath.ncdf(-mu / 2 - epsilon / mu)
        return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * far


def test_charges_are_read_back_as_they_were(path, book):
    charges = [
        charge(0.1 / 3, "a", feature_map="ab" * 32, lineage=("r1", "r2")),
        charge(1e-300, "b"),
    ]
    for item in charges:
        book.charge(item)

    assert book.charges == tuple(charges)
    assert Ledger.open(path).charges == tuple(charges)
    assert Ledger(path, **CAPS).charges == tuple(charges)


def test_every_line_carries_the_hash_of_the_one_before(path, book):
    for name in "abc":
        book.charge(charge(name=name))
    previous = ""
    for text in lines_of(path):
        line = json.loads(text)
        found = line.pop("hash")
        assert found == journal.chain_hash(previous, line)
        assert text.decode() == canonical_json({**line, "hash": found}) + "\n"
        previous = found


def test_the_file_can_be_read_by_its_owner_only(path, book):
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("cut", [2, 20, 150])
def test_a_torn_last_line_is_dropped_since_nobody_was_told_of_it(path, book, cut):
    book.charge(charge(name="whole"))
    kept, told = path.read_bytes(), journal.witness_path(path).read_bytes()
    book.charge(charge(name="torn"))
    torn = path.read_bytes()[:-cut]
    path.write_bytes(torn)
    journal.witness_path(path).write_bytes(told)

    again = Ledger.open(path)
    assert [item.release_id for item in again.charges] == ["whole"]
    assert path.read_bytes() == torn  # who reads changes nothing
    again.charge(charge(name="next"))
    assert path.read_bytes().startswith(kept)
    assert b"torn" not in path.read_bytes()
    assert [item.release_id for item in again.charges] == ["whole", "next"]
    with pytest.raises(LedgerError, match="entries that were in it are gone"):
        book.charge(charge())  # it was told, so for it this is no torn line


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_a_changed_line_is_refused(path, book, number):
    for name in "abc":
        book.charge(charge(name=name))
    lines = lines_of(path)
    line = json.loads(lines[number])
    line["epsilon" if number == 0 else "mu2"] = (1e-9).hex()
    lines[number] = canonical_json(line).encode() + b"\n"
    path.write_bytes(b"".join(lines))

    for act in (lambda: Ledger.open(path), lambda: book.charge(charge())):
        with pytest.raises(LedgerError, match=f"line {number + 1} .*does not follow"):
            act()


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_removed_line_is_refused(path, book, number):
    for name in "abc":
        book.charge(charge(name=name))
    lines = lines_of(path)
    del lines[number]
    path.write_bytes(b"".join(lines))

    with pytest.raises(LedgerError, match="does not follow"):
        book.charge(charge())


def test_every_flipped_bit_is_refused_or_a_torn_line(path, book):
    book.charge(charge(name="a"))
    whole = path.read_bytes()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        if damaged.endswith(b"\n"):
            with pytest.raises(LedgerError):
                Ledger.open(path)


def test_swapped_and_repeated_lines_are_refused(path, book):
    for name in "ab":
        book.charge(charge(name=name))
    first, a, b = lines_of(path)
    for lines in ([first, b, a], [first, a, a, b], [a, first, b]):
        path.write_bytes(b"".join(lines))
        with pytest.raises(LedgerError):
            Ledger.open(path)


def test_other_caps_than_the_file_has_are_refused(path, book):
    for change in ({"epsilon": 3.0}, {"delta": 1e-4}, {"pure_epsilon": 0.1}):
        with pytest.raises(LedgerError, match="keeps its caps.*Ledger.open"):
            Ledger(path, **{**CAPS, **change})
    path.write_bytes(b"")
    with pytest.raises(LedgerError, match="entries that were in it are gone"):
        book.charge(charge())


def test_open_takes_the_caps_of_the_file(path):
    Ledger(path, epsilon=3.0, delta=1e-7, pure_epsilon=0.3)
    again = Ledger.open(path)

    assert (again.epsilon, again.delta, again.pure_epsilon) == (3.0, 1e-7, 0.3)


def test_a_missing_or_empty_ledger_is_not_opened(path):
    with pytest.raises(LedgerError, match=r"there is no ledger .*Ledger\(path, eps"):
        Ledger.open(path)
    assert not path.exists()
    path.touch()
    with pytest.raises(LedgerError, match="empty"):
        Ledger.open(path)


@pytest.mark.parametrize(
    "data",
    [b"a,b\n1,2\n", b"[]\n", b"{}\n", b"null\n", b'{"hash":1}\n', b"\x00\xff\n"],
)
def test_a_foreign_file_is_refused_and_left_alone(path, data):
    path.write_bytes(data)

    for act in (Ledger.open, lambda path: Ledger(path, **CAPS)):
        with pytest.raises(LedgerError):
            act(path)
    assert path.read_bytes() == data


@pytest.mark.parametrize("data", [b"precious", b"a,b\n1,2\n3,4"])
def test_a_foreign_file_without_a_last_newline_is_left_alone(path, data):
    path.write_bytes(data)
    with pytest.raises(LedgerError):
        Ledger.open(path)
    assert path.read_bytes() == data


def test_a_chained_file_of_another_format_is_no_ledger(path):
    body = {"format": "other"}
    line = {**body, "hash": journal.chain_hash("", body)}
    path.write_text(canonical_json(line) + "\n")

    with pytest.raises(LedgerError, match="is not a ledger"):
        Ledger.open(path)


@pytest.mark.parametrize("name", ["mu2", "pure_epsilon"])
@pytest.mark.parametrize("value", [-10.0, -1e-300, nan, inf, -inf, True])
def test_charges_that_are_negative_or_no_number_are_refused(name, value):
    # A public ledger raised its budget by spending -10.
    with pytest.raises(PrivacyError, match="makes no sense"):
        Charge("x", **{"mu2": 0.1, name: value})


def test_a_charge_of_nothing_is_refused():
    with pytest.raises(PrivacyError, match="must cost something"):
        Charge("x", mu2=0.0)


@pytest.mark.parametrize("value", [1, "0.1", None])
def test_a_charge_of_an_integer_is_a_number_and_of_text_is_refused(tmp_path, value):
    large = Ledger(tmp_path / "large", epsilon=100.0, delta=1e-2)
    if isinstance(value, int):
        large.charge(charge(value))
        assert large.charges[0].mu2 == 1.0
        return
    with pytest.raises(PrivacyError, match="mu2"):
        charge(value)


@pytest.mark.parametrize("value", [-0.1, 2.0, 3.0, nan, inf])
def test_the_part_set_aside_for_counts_is_below_epsilon(path, value):
    with pytest.raises(PrivacyError, match=r"pure_epsilon must be in \[0, epsilon\)"):
        Ledger(path, **CAPS, pure_epsilon=value)
    assert not path.exists()


@pytest.mark.parametrize("caps", [(0, 1e-5), (1, 0), (True, 1e-5), (1, nan)])
def test_caps_out_of_range_are_refused(path, caps):
    with pytest.raises(PrivacyError, match="must be a real number in"):
        Ledger(path, epsilon=caps[0], delta=caps[1])
    assert not path.exists()


def test_the_budget_is_spent_to_the_last_fraction_and_not_beyond(path, book):
    cap = Terms(2.0, 1e-5)._mu2_cap
    third = float(cap / 3)
    for name in "ab":
        book.charge(charge(third, name))
    rest = cap - 2 * Fraction(third)
    least = float(rest)
    if Fraction(least) > rest:
        least = float(np.nextafter(least, 0))
    with pytest.raises(BudgetExceeded):
        book.charge(charge(float(np.nextafter(least, 1)), "too much"))
    book.charge(charge(least, "c"))
    assert [item.release_id for item in book.charges] == ["a", "b", "c"]
    assert book.spent_epsilon(1e-5) == pytest.approx(2.0, rel=1e-6)


def test_a_refusal_says_what_was_needed_and_spends_nothing(path, book):
    book.charge(charge(0.2))
    before = path.read_bytes()

    with pytest.raises(
        BudgetExceeded,
        match=r"^nothing was released. epsilon=1.132 asked, about 0.83 is left of 2 "
        r"\(delta=1e-5\) in .*people.ledger.$",
    ):
        book.charge(charge(0.09))
    assert path.read_bytes() == before


def test_laplace_counts_are_paid_from_what_was_set_aside(path):
    book = Ledger(path, **CAPS, pure_epsilon=0.5)
    rho = zcdp_rho(2.0, 1e-5)

    book.charge(charge(rho / 2, pure_epsilon=0.25))
    with pytest.raises(
        BudgetExceeded,
        match=r"pure epsilon 0.3 asked for the count, about 0.25 is left of 0.5 in .*",
    ):
        book.charge(charge(rho / 4, pure_epsilon=0.3))
    with pytest.raises(
        BudgetExceeded, match=r"left of 2 .* count=\"joint\" costs less"
    ):
        book.charge(charge(rho, pure_epsilon=0.25))
    with pytest.raises(BudgetExceeded, match="left of 2"):
        book.charge(charge(1.5 * rho))
    book.charge(charge(rho / 4, pure_epsilon=0.1))
    assert len(book.charges) == 2
    assert book.spent_epsilon(1e-5) < 2.0


def test_a_ledger_without_a_part_for_counts_refuses_laplace(book):
    with pytest.raises(BudgetExceeded, match="pure epsilon"):
        book.charge(charge(0.01, pure_epsilon=0.1))
    assert book.charges == ()


def test_nothing_spent_is_epsilon_zero(book):
    assert book.spent_epsilon(1e-5) == 0.0
    assert repr(book).endswith("spent=0 in 0 charges)")


def test_a_ledger_in_memory_keeps_the_same_books(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    book = Ledger.ephemeral(**CAPS)
    book.charge(charge(0.2))
    with pytest.raises(BudgetExceeded):
        book.charge(charge(0.2))

    assert len(book.charges) == 1
    assert Ledger.ephemeral(**CAPS).charges == ()
    assert "in memory" in repr(book)
    assert os.listdir(tmp_path) == []


def require_equal_to_pld(n, seed):
    """Never below the truth (in 80 digits), and within 1e-6 of dp-accounting."""
    rng = np.random.default_rng(seed)
    for _ in range(n):
        delta = 10.0 ** rng.uniform(-9, -4)
        sigmas = rng.uniform(2, 30, rng.integers(1, 6))
        book = Ledger.ephemeral(epsilon=100.0, delta=1e-3)
        reference = PLDAccountant(value_discretization_interval=1e-4)
        for sigma in sigmas:
            book.charge(charge(float(sigma**-2)))
            reference.compose(dp_accounting.GaussianDpEvent(float(sigma)))
        found = book.spent_epsilon(delta)
        mu = mpmath.sqrt(mpmath.fsum(mpmath.mpf(c.mu2) for c in book.charges))

        assert found == pytest.approx(reference.get_epsilon(delta), abs=1e-6)
        assert exact_delta(mu, found * (1 + 1e-12)) <= delta


def test_spending_agrees_with_dp_accounting():
    require_equal_to_pld(20, seed=0)


@pytest.mark.full
def test_spending_agrees_with_dp_accounting_on_200_histories():
    require_equal_to_pld(200, seed=1)


def test_what_is_spent_within_the_cap_keeps_the_cap():
    rng = np.random.default_rng(0)
    for _ in range(50):
        book = Ledger.ephemeral(**CAPS)
        while True:
            try:
                book.charge(charge(float(rng.uniform(1e-3, 0.05))))
            except BudgetExceeded:
                break
        mu = sqrt(float(sum(Fraction(item.mu2) for item in book.charges)))
        assert exact_delta(mu, 2.0) <= 1e-5 * (1 + 1e-12)


def spend(path, price, barrier, granted):
    book = Ledger.open(path)
    barrier.wait()
    for _ in range(50):
        try:
            book.charge(charge(price, str(os.getpid())))
        except BudgetExceeded:
            continue
        with granted.get_lock():
            granted.value += 1


@forks
def test_eight_processes_cannot_spend_more_than_the_cap(path):
    book = Ledger(path, **CAPS)
    cap = Terms(2.0, 1e-5)._mu2_cap
    price = float(np.nextafter(float(cap / 100), 0))
    assert 100 * Fraction(price) <= cap < 101 * Fraction(price)
    barrier, granted = FORK.Barrier(8), FORK.Value("i", 0)
    arguments = path, price, barrier, granted
    workers = [FORK.Process(target=spend, args=arguments) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)

    assert [worker.exitcode for worker in workers] == [0] * 8
    assert granted.value == len(book.charges) == 100


def charge_for_ever(path, ready, acknowledged):
    book = Ledger.open(path)
    ready.set()
    while True:
        book.charge(charge(1e-9))
        acknowledged.value += 1


def require_kept_across_kills(path, n, seed):
    """Kill a charging child at random moments: what it was told is on the disk."""
    Ledger(path, epsilon=100.0, delta=1e-2)
    rng, acknowledged = random.Random(seed), FORK.RawValue("i", 0)
    for _ in range(n):
        ready = FORK.Event()
        child = FORK.Process(target=charge_for_ever, args=(path, ready, acknowledged))
        child.start()
        assert ready.wait(60)
        told = acknowledged.value + rng.randrange(3)
        while acknowledged.value < told:
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.004))
        child.kill()
        child.join()
        assert len(Ledger.open(path).charges) >= acknowledged.value
    assert acknowledged.value > 0


@forks
def test_a_killed_process_has_recorded_all_it_was_told(path):
    require_kept_across_kills(path, 60, seed=0)


@forks
@pytest.mark.full
def test_300_killed_processes_have_recorded_all_they_were_told(path):
    require_kept_across_kills(path, 300, seed=1)


@pytest.mark.parametrize("call", ["write", "fsync"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_failing_disk_is_an_error_and_leaves_a_ledger(
    path, book, monkeypatch, call, code
):
    book.charge(charge(name="before"))

    def broken(*arguments):
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, broken)
        with pytest.raises(OSError, match=os.strerror(code)):
            book.charge(charge(name="lost"))
    names = [item.release_id for item in Ledger.open(path).charges]
    assert names in (["before"], ["before", "lost"])
    book.charge(charge(name="after"))
    assert [item.release_id for item in book.charges] == [*names, "after"]


def test_a_disk_that_fills_up_within_a_line_leaves_a_ledger(path, book, monkeypatch):
    write, calls = os.write, []

    def short(descriptor, data):
        calls.append(len(data))
        if len(calls) == 1:
            return write(descriptor, bytes(data[:40]))
        raise OSError(errno.ENOSPC, "No space left")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", short)
        with pytest.raises(OSError, match="No space"):
            book.charge(charge(name="lost"))
    book.charge(charge(name="after"))
    assert [item.release_id for item in Ledger.open(path).charges] == ["after"]


def test_a_signal_during_a_write_is_no_error(path, book, monkeypatch):
    write, calls = os.write, []

    def interrupted(descriptor, data):
        calls.append(1)
        if len(calls) % 2:
            raise InterruptedError
        return write(descriptor, bytes(data[:50]))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", interrupted)
        book.charge(charge(name="a"))
    assert [item.release_id for item in Ledger.open(path).charges] == ["a"]


def test_the_charge_is_on_the_disk_before_it_is_acknowledged(path, book, monkeypatch):
    calls = []
    write, fsync = os.write, os.fsync
    monkeypatch.setattr(os, "write", lambda *a: calls.append("write") or write(*a))
    monkeypatch.setattr(os, "fsync", lambda *a: calls.append("fsync") or fsync(*a))
    book.charge(charge())

    assert calls[-1] == "fsync"
    assert "write" in calls


@pytest.mark.parametrize("delta", [0.0, nan])
def test_spending_is_reported_for_a_sensible_delta_only(book, delta):
    book.charge(charge())
    with pytest.raises(PrivacyError, match="delta"):
        book.spent_epsilon(delta)


# One unit and one relation.


def test_a_ledger_keeps_its_unit_and_relation(path):
    Ledger(path, **CAPS, neighbours="replace", rows_per_unit=7)
    again = Ledger.open(path)

    assert (again.neighbours, again.rows_per_unit) == ("replace", 7)
    for other in (
        {},
        {"neighbours": "replace"},
        {"neighbours": "replace", "rows_per_unit": 8},
        {"neighbours": "add_remove", "rows_per_unit": 7},
    ):
        with pytest.raises(LedgerError, match="keeps its caps and its unit"):
            Ledger(path, **CAPS, **other)
    with pytest.raises(LedgerError, match="keeps its caps and its unit"):
        Ledger.open(path, neighbours="replace", rows_per_unit=8)
    same = Ledger.open(path, neighbours="replace", rows_per_unit=7)
    assert same.rows_per_unit == 7


@pytest.mark.parametrize("memory", [True, False])
def test_charges_of_another_unit_are_converted_and_kept_as_they_were(path, memory):
    terms = {**CAPS, "neighbours": "add_remove", "rows_per_unit": 10}
    book = Ledger.ephemeral(**terms) if memory else Ledger(path, **terms)
    single = charge(1e-4, rows_per_unit=1, epsilon=0.02, delta=1e-6)
    book.charge(single)

    assert book.charges == (single,)
    expected = gaussian_epsilon(0.1, 1e-5)
    assert book.spent_epsilon(1e-5) == pytest.approx(expected, rel=1e-9)
    book.charge(charge(1e-4, rows_per_unit=10))
    with pytest.raises(BudgetExceeded):
        book.charge(charge(0.01))
    with pytest.raises(PrivacyError, match='neighbours="replace"'):
        book.charge(charge(1e-4, neighbours="replace", count_mode="public"))
    assert len(book.charges) == 2


def test_a_thousand_people_of_one_row_are_not_a_person_of_a_thousand(path):
    # One ledger used to add these up as if they were the same promise.
    book = Ledger(path, **CAPS, rows_per_unit=1000)
    with pytest.raises(BudgetExceeded, match=r"rows_per_unit=1, neighbours='add_rem"):
        book.charge(charge(0.05, rows_per_unit=1, epsilon=0.8, delta=1e-5))
    book.charge(charge(0.05, rows_per_unit=1000))


def test_the_summary_says_what_is_spent_and_left(path):
    book = Ledger(path, **CAPS, rows_per_unit=3)
    fresh = book.summary()
    assert (fresh.n_charges, fresh.spent_epsilon, fresh.left_epsilon) == (0, 0.0, 2.0)
    book.charge(charge(0.1, rows_per_unit=3))
    now = book.summary()

    assert now.path == path
    assert (now.epsilon, now.delta, now.pure_epsilon) == (2.0, 1e-5, 0.0)
    assert (now.neighbours, now.rows_per_unit, now.n_charges) == ("add_remove", 3, 1)
    assert now.spent_epsilon == book.spent_epsilon(1e-5)
    assert now.left_epsilon == book.left_epsilon()
    book.charge(charge(gaussian_mu(now.left_epsilon, 1e-5) ** 2, rows_per_unit=3))
    assert book.summary().left_epsilon == 0.0


# In memory.


def test_threads_share_one_budget_in_memory():
    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(3):
            book, granted = Ledger.ephemeral(**CAPS), []
            price = float(Terms(2.0, 1e-5)._mu2_cap / 100) * (1 - 1e-12)

            def work(book=book, granted=granted, price=price):
                for _ in range(20):
                    try:
                        book.charge(charge(price))
                    except BudgetExceeded:
                        continue
                    granted.append(1)

            threads = [threading.Thread(target=work) for _ in range(16)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(granted) == len(book.charges) == 100
            assert book.summary().n_charges == 100
    finally:
        sys.setswitchinterval(old)


@pytest.mark.parametrize("act", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_budget_in_memory_is_not_copied(act):
    book = Ledger.ephemeral(**CAPS)
    with pytest.raises(LedgerError, match="second budget"):
        act(book)


@forks
def test_a_budget_in_memory_is_not_spent_again_after_a_fork():
    book = Ledger.ephemeral(**CAPS)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            book.charge(charge())
        except LedgerError as error:
            code = 0 if "second budget" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    book.charge(charge())


@pytest.mark.parametrize(
    "act", [copy.copy, copy.deepcopy, lambda book: pickle.loads(pickle.dumps(book))]
)
def test_a_copy_of_a_ledger_in_a_file_is_that_ledger(path, book, act):
    book.charge(charge(0.2, "a"))
    again = act(book)
    again.charge(charge(0.01, "b"))

    assert [item.release_id for item in book.charges] == ["a", "b"]
    with pytest.raises(BudgetExceeded):
        book.charge(charge(0.05))


def run_without_locks(code, folder):
    """Run a program on a system that has no fcntl, as Windows."""
    program = f"import sys; sys.modules['fcntl'] = None\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=folder
    )
    assert done.returncode == 0, done.stderr


def test_without_file_locks_every_module_can_be_imported(tmp_path):
    code = """
import importlib, pkgutil, sketchlearn
for module in pkgutil.walk_packages(sketchlearn.__path__, "sketchlearn."):
    runs = module.name.endswith("__main__")
    if not runs and not module.name.startswith("sketchlearn.meta"):  # has torch
        importlib.import_module(module.name)
"""
    run_without_locks(code, tmp_path)


def test_without_file_locks_only_ledgers_in_files_are_missing(path, tmp_path):
    code = f"""
import sketchlearn as sl
phi = sl.clipped(sl.FourierFeatures(2, 16), norm_bound=2.0)
exact = sl.sketch_rows([[0.0, 0.0]] * 50_000, phi, progress=False)
book = sl.Ledger.ephemeral(epsilon=1.0, delta=1e-6)
sl.release(exact, epsilon=1.0, delta=1e-6, ledger=book)
sl.save(exact, "a.sketch")
assert sl.load("a.sketch") == exact
sl.CompressivePCA().fit([[1.0, 2.0], [3.0, 5.0], [4.0, 4.0]])
refused = 0
for act in (
    sl.Ledger.open,
    lambda path: sl.Ledger(path, epsilon=1.0, delta=1e-6),
    lambda path: sl.release(exact, epsilon=1.0, delta=1e-6, ledger=path),
):
    try:
        act({str(path)!r})
    except sl.errors.LedgerError as error:
        assert "file locks" in str(error)
        assert "Use Ledger.ephemeral(" in str(error)
        refused += 1
assert refused == 3
"""
    run_without_locks(code, tmp_path)
    assert not path.exists()


def test_a_file_replaced_while_it_is_written_to_grants_nothing(path, monkeypatch):
    book = Ledger(path, **CAPS)
    real = journal.sync

    def sync(descriptor):
        real(descriptor)
        shutil.copy(path, path.with_suffix(".copy"))
        os.replace(path.with_suffix(".copy"), path)

    monkeypatch.setattr(journal, "sync", sync)
    with pytest.raises(LedgerError, match="replaced while it was written to"):
        book.charge(charge())


@pytest.mark.parametrize("price", [10**400, "x", None, [1.0]])
def test_a_price_that_is_no_number_is_refused(price):
    with pytest.raises(PrivacyError, match="makes no sense"):
        charge(price)


def test_what_is_no_charge_and_a_folder_that_is_not_there_are_refused(tmp_path):
    with pytest.raises(PrivacyError, match="takes a Charge; got str"):
        Ledger.ephemeral(**CAPS).charge("x")
    with pytest.raises(LedgerError, match="folder of the ledger"):
        Ledger(tmp_path / "none" / "x.ledger", **CAPS)


def test_discrete_noise_is_paid_for_so_many_releases(monkeypatch):
    monkeypatch.setattr(accountant, "MOST_CHARGES", 2)
    book = Ledger.ephemeral(**CAPS)
    for name in "ab":
        book.charge(charge(1e-6, name))
    with pytest.raises(BudgetExceeded, match="set aside for 2"):
        book.charge(charge(1e-6, "c"))
