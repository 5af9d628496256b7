"""Entries on disk are never lost, changed or taken back, whatever befalls the file."""

import contextlib
import errno
import fcntl
import os
import resource
import shutil
import signal
import threading
from pathlib import Path

import pytest

from privacy.ledgers import CAPS, charge, copy_ledger, forks, lines_of
from privacy.ledgers import names_in as names
from sketchlearn.errors import LedgerError, SketchFileError
from sketchlearn.files import durable
from sketchlearn.privacy import journal, ledger
from sketchlearn.privacy.ledger import Ledger

GOLDEN = Path(__file__).parents[1] / "golden"

# The end of the file.


def three_charges(path, letters="abc"):
    """A ledger of three charges, and its bytes."""
    book = Ledger(path, **CAPS)
    for name in letters:
        book.charge(charge(name=name))
    return path.read_bytes()


def found_after(path, data):
    """Names of the charges in a ledger of these bytes; None if it is refused."""
    path.write_bytes(data)
    try:
        return names(path)
    except LedgerError:
        return None


def check_cuts(path):
    """Every cut of the last line is refused, but for that of its very end."""
    data = three_charges(path)
    start = data[:-1].rindex(b"\n")
    return found_after(path, data[:-1]) == list("abc") and all(
        found_after(path, data[:cut]) is None for cut in range(start, len(data) - 1)
    )


def test_no_cut_takes_an_acknowledged_charge_back(path):
    assert check_cuts(path)


def test_at_every_place_a_torn_line_that_nobody_was_told_of_is_dropped(path, book):
    for name in "ab":
        book.charge(charge(name=name))
    size, told = path.stat().st_size, journal.witness_path(path).read_bytes()
    book.charge(charge(name="c"))
    data = path.read_bytes()
    for cut in {*range(size, len(data), 9), len(data) - 2, len(data) - 1, len(data)}:
        kept = list("abc") if cut >= len(data) - 1 else list("ab")
        path.write_bytes(data[:cut])
        journal.witness_path(path).write_bytes(told)
        assert names(path) == kept, cut
        Ledger.open(path).charge(charge(name="next"))
        assert names(path) == [*kept, "next"], cut


class Power(BaseException):
    """It went out."""


def charge_until(path, calls):
    """Charge, but let the power fail at this call of the system; whether it did."""
    left = [calls]

    def failing(real):
        def call(*arguments, **more):
            left[0] -= 1
            if left[0] < 0:
                raise Power
            return real(*arguments, **more)

        return call

    with pytest.MonkeyPatch.context() as patch:
        book = Ledger.open(path)
        for name in ("open", "write", "ftruncate", "fsync", "replace", "unlink"):
            patch.setattr(os, name, failing(getattr(os, name)))
        try:
            book.charge(charge(name="b"))
        except Power:
            return True
    return False


def test_wherever_the_power_fails_the_ledger_opens_and_keeps_what_was_told(path):
    calls, found = 0, set()
    while True:
        for file in (path, journal.witness_path(path)):
            file.unlink(missing_ok=True)
        Ledger(path, **CAPS).charge(charge(name="a"))
        if not charge_until(path, calls):
            break
        found.add("".join(names(path)))
        Ledger.open(path).charge(charge(name="c"))
        assert "".join(names(path)) in ("ac", "abc")
        calls += 1
    assert calls > 8
    assert found == {"a", "ab"}
    assert names(path) == ["a", "b"]


@pytest.mark.parametrize("torn", [0, 1, 100, None])
def test_wherever_its_creation_stops_a_ledger_can_be_created_again(path, torn):
    Ledger(path, **CAPS)
    path.write_bytes(path.read_bytes()[:torn])
    journal.write_witness(path, journal.Seen())  # what comes first
    assert Ledger(path, **CAPS).charges == ()


@pytest.mark.parametrize(
    "end", [b"", b"\x0b", b"J", b"{", b'{"count', b"\0\0\0\0", b"}", b"\xff"]
)
def test_a_whole_last_entry_counts_whatever_became_of_its_end_of_line(path, book, end):
    book.charge(charge(name="a"))
    data = path.read_bytes()
    path.write_bytes(data[:-1] + end)

    assert names(path) == ["a"]
    assert names(path) == ["a"]
    again = Ledger.open(path)
    for name in "bc":
        again.charge(charge(name=name))
    assert names(path) == ["a", "b", "c"]
    assert path.read_bytes().startswith(data)
    assert [item.release_id for item in book.charges] == ["a", "b", "c"]


def test_two_readers_of_an_entry_without_end_of_line_agree(path, book):
    book.charge(charge(name="a"))
    path.write_bytes(path.read_bytes()[:-1])
    one, two = Ledger.open(path), Ledger.open(path)

    assert len(one.charges) == len(one.charges) == 1
    one.charge(charge(name="b"))
    two.charge(charge(name="c"))
    one.charge(charge(name="d"))
    assert names(path) == ["a", "b", "c", "d"]


def test_a_whole_entry_that_does_not_follow_is_refused_and_not_cut_off(path, book):
    book.charge(charge(name="a"))
    data = path.read_bytes().replace(b'"release":"a"', b'"release":"b"')[:-1]
    path.write_bytes(data)

    with pytest.raises(LedgerError, match="line 2 .*does not follow"):
        Ledger.open(path)
    assert path.read_bytes() == data


# What was seen stays seen.


@pytest.mark.parametrize("act", ["charge", "charges", "summary", "spent"])
def test_what_was_seen_cannot_be_taken_back(path, book, act):
    book.charge(charge(name="a"))
    older = path.read_bytes()
    book.charge(charge(name="b"))
    path.write_bytes(older)  # a good ledger, such as a backup

    with pytest.raises(LedgerError, match="entries that were in it are gone"):
        {
            "charge": lambda: book.charge(charge(name="c")),
            "charges": lambda: book.charges,
            "summary": book.summary,
            "spent": lambda: book.spent_epsilon(1e-5),
        }[act]()
    assert path.read_bytes() == older


def test_a_change_of_one_byte_in_what_was_seen_is_noticed(path, book):
    for name in "abc":
        book.charge(charge(name=name))
    data = path.read_bytes()
    for place in range(0, len(data), 7):
        changed = bytearray(data)
        changed[place] ^= 1
        with open(path, "r+b") as stream:  # the same file, the same size
            stream.write(changed)
        with pytest.raises(LedgerError):
            book.charge(charge())
        path.write_bytes(data)
    book.charge(charge(name="d"))


def test_only_what_is_new_is_taken_apart(path, book, monkeypatch):
    for name in "abc":
        book.charge(charge(name=name))
    Ledger.open(path).charge(charge(name="d"))
    parsed, parse = [], journal._parse_lines
    monkeypatch.setattr(journal, "_parse_lines", lambda t: parsed.extend(t) or parse(t))
    book.charge(charge(name="e"))

    assert len(parsed) == 1
    assert book.summary().n_charges == 5


# What was acknowledged stays known to whoever opens it later.


def check_rollbacks(path):
    """Fewer lines, an older copy, another ledger and none at all are refused."""
    data = three_charges(path)
    lines = data.splitlines(keepends=True)
    other = path.with_name("other")
    three_charges(other, "xyz")
    bad = [b"".join(lines[:n]) for n in range(4)] + [other.read_bytes()]
    if [found_after(path, one) for one in bad] != [None] * 5:
        return False
    path.unlink()
    with contextlib.suppress(LedgerError):
        Ledger(path, **CAPS)
        return False
    return found_after(path, data) == list("abc")


def test_an_older_state_is_refused_by_who_opens_it_later(path):
    assert check_rollbacks(path)


def test_a_refusal_says_what_is_gone_and_what_to_do(path, book):
    book.charge(charge(name="a"))
    path.write_bytes(lines_of(path)[0])
    with pytest.raises(LedgerError, match=r"1 lines, and its witness '.*\.witness'"):
        Ledger.open(path)
    for words in ("knows 2", "both of them", "caps lower by all that may have been"):
        with pytest.raises(LedgerError, match=words):
            Ledger.open(path, without_witness=True)  # it is there, and says no


@pytest.mark.parametrize("state", [None, b"", b"{}", b"folder"])
def test_a_ledger_whose_witness_is_lost_is_opened_on_its_owners_word(path, book, state):
    book.charge(charge(name="a"))
    witness = journal.witness_path(path)
    good = witness.read_bytes()
    witness.unlink()
    if state is not None:
        witness.write_bytes(state)
    for act in (Ledger.open, lambda path: Ledger(path, **CAPS)):
        with pytest.raises(LedgerError, match=r"moved and copied together.*without_w"):
            act(path)
    assert Ledger.open(path, without_witness=True).charges == book.charges
    assert witness.read_bytes() == good
    assert names(path) == ["a"]


def test_a_moved_ledger_takes_its_witness_along(path, book, tmp_path):
    book.charge(charge(name="a"))
    moved = tmp_path / "moved"
    copy_ledger(path, moved)
    assert names(moved) == ["a"]
    journal.witness_path(moved).unlink()
    with pytest.raises(LedgerError, match="moved.witness' of this ledger is missing"):
        Ledger.open(moved)


def test_a_ledger_of_an_earlier_version_gets_a_witness_with_its_next_charge(tmp_path):
    for version in ("ledger_v1", "ledger_v2"):
        path = tmp_path / version
        shutil.copy(GOLDEN / f"{version}.ledger", path)
        unit = ("add_remove", 1) if version == "ledger_v1" else ("replace", 2)
        before = names(path)
        assert not journal.witness_path(path).exists()
        book = Ledger.open(path, neighbours=unit[0], rows_per_unit=unit[1])
        book.charge(charge(1e-6, "new"))
        assert names(path) == [*before, "new"]
        data = path.read_bytes()
        assert found_after(path, data[:-2]) is None
        assert found_after(path, data) == [*before, "new"]


def test_a_journal_longer_than_its_witness_says_counts_in_full(path, book):
    book.charge(charge(name="a"))
    told = journal.witness_path(path).read_bytes()
    for name in "bc":
        book.charge(charge(name=name))
    journal.witness_path(path).write_bytes(told)
    assert names(path) == ["a", "b", "c"]
    assert [item.release_id for item in book.charges] == ["a", "b", "c"]


# Locks that keep nobody out.


def check_locks(path):
    """Where locks are granted to everybody, no ledger is made, opened or charged."""
    book = Ledger(path, **CAPS)
    acts = (
        lambda: Ledger.open(path),
        lambda: book.charge(charge()),
        lambda: Ledger(path.with_name("new"), **CAPS),
    )
    refused = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fcntl, "flock", lambda *arguments: None)
        for act in acts:
            with contextlib.suppress(LedgerError):
                act()
                continue
            refused += 1
    return refused == len(acts) and book.charges == ()


def test_a_file_system_whose_locks_do_nothing_is_refused(path):
    assert check_locks(path)


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS])
def test_a_file_system_without_locks_is_refused(path, book, monkeypatch, code):
    def flock(*arguments):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(LedgerError, match=r"cannot be locked .* on a local disk"):
        book.charge(charge())


# One name, one budget.


def check_names(path):
    """A ledger that was opened by a relative name stays the same in other folders."""
    here = os.getcwd()
    folder = path.with_name("folder")
    folder.mkdir()
    try:
        os.chdir(path.parent)
        made, opened = Ledger(path.name, **CAPS), Ledger.open(path.name)
        os.chdir(folder)
        Ledger(path.name, **CAPS)
        made.charge(charge(name="a"))
        opened.charge(charge(name="b"))
        return names(path) == ["a", "b"] and made.path == path
    finally:
        os.chdir(here)


def test_a_relative_name_is_made_absolute_at_once(path):
    assert check_names(path)


def test_a_link_that_is_turned_later_changes_nothing(path, book, tmp_path):
    link, other = tmp_path / "link", tmp_path / "other"
    link.symlink_to(path)
    opened = Ledger.open(link)
    Ledger(other, **CAPS)
    link.unlink()
    link.symlink_to(other)
    opened.charge(charge(name="a"))
    assert (names(path), names(other)) == (["a"], [])


# Mutants: each takes one of these guards away.


@pytest.mark.parametrize(
    ("module", "name", "mutant", "check"),
    [
        (journal, "_require_witnessed", lambda *_: None, check_cuts),
        (journal, "_require_witnessed", lambda *_: None, check_rollbacks),
        (journal, "write_witness", lambda *_: None, check_cuts),
        (durable, "_is_alone", lambda *_: True, check_locks),
        (ledger, "_absolute", Path, check_names),
    ],
    ids=["cuts", "rollbacks", "witness not written", "locks", "relative names"],
)
def test_a_ledger_without_one_of_its_guards_is_found_out(
    path, monkeypatch, module, name, mutant, check
):
    monkeypatch.setattr(module, name, mutant)
    with contextlib.suppress(OSError):  # which is found out as well
        assert not check(path)


# Files that are no ledgers.


def make(kind, path):
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "null":
        path.symlink_to("/dev/null")
    elif kind == "below a file":
        path.write_bytes(b"x")
        return path / "below"
    return path


@pytest.mark.parametrize("kind", ["folder", "pipe", "loop", "null", "below a file"])
def test_what_is_no_regular_file_is_refused(path, kind):
    path = make(kind, path)
    for act in (Ledger.open, lambda path: Ledger(path, **CAPS)):
        with pytest.raises(LedgerError):
            act(path)


def test_a_name_that_no_file_can_have_is_refused(path):
    for act in (Ledger.open, lambda path: Ledger(path, **CAPS)):
        with pytest.raises(SketchFileError, match="NUL"):
            act(f"{path}\0")


def test_a_ledger_that_became_a_device_is_refused(path, book):
    path.unlink()
    path.symlink_to("/dev/null")
    with pytest.raises(LedgerError, match="no regular file"):
        book.charge(charge())


def test_a_link_to_a_ledger_is_that_ledger(path, book, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(path)
    Ledger.open(link).charge(charge(name="a"))
    assert names(path) == ["a"]


# Replaced or removed while somebody waits.


def wait_for_lock(path, act, meanwhile):
    """Call ``act`` in a thread, which has to wait for the lock until all is done."""
    descriptor = os.open(path, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    results = []

    def work():
        try:
            results.append(act())
        except Exception as error:
            results.append(error)

    opened = threading.Event()
    real = durable._open_to_write

    def counted(*arguments, **more):
        found = real(*arguments, **more)
        opened.set()
        return found

    durable._open_to_write = counted
    try:
        thread = threading.Thread(target=work)
        thread.start()
        assert opened.wait(60)
        meanwhile()
        os.close(descriptor)
        thread.join(60)
    finally:
        durable._open_to_write = real
    return results[0]


def test_a_charge_goes_to_the_file_that_has_the_name(path, book, tmp_path):
    def swap():
        shutil.copy(path, tmp_path / "copy")
        os.replace(tmp_path / "copy", path)

    assert wait_for_lock(path, lambda: book.charge(charge(name="a")), swap) is None
    assert names(path) == ["a"]


def test_a_charge_to_a_ledger_that_was_removed_is_refused(path, book):
    result = wait_for_lock(path, lambda: book.charge(charge(name="a")), path.unlink)
    assert isinstance(result, LedgerError)
    assert "there is no ledger" in str(result)
    assert not path.exists()


def test_a_charge_to_a_ledger_that_was_replaced_by_a_fresh_one_is_refused(
    path, book, tmp_path
):
    book.charge(charge(name="a"))
    fresh = tmp_path / "fresh"
    Ledger(fresh, **CAPS)
    act = lambda: book.charge(charge(name="b"))  # noqa: E731
    result = wait_for_lock(path, act, lambda: os.replace(fresh, path))

    assert isinstance(result, LedgerError)
    assert "are gone" in str(result)
    with pytest.raises(LedgerError, match="are gone"):
        Ledger.open(path)


def test_a_file_that_is_replaced_all_the_time_is_given_up(path, book, monkeypatch):
    monkeypatch.setattr(durable, "has_name", lambda *arguments: False)
    with pytest.raises(LedgerError, match="replaced all the time"):
        book.charge(charge())


# A disk that is full.


@forks
def test_a_limit_on_the_size_of_files_never_breaks_a_ledger(path, book, tmp_path):
    book.charge(charge(name="a"))
    size, other = path.stat().st_size, tmp_path / "other"
    granted = 0
    for room in range(0, 460, 11):
        copy_ledger(path, other)
        child = os.fork()
        if child == 0:
            code = 2
            try:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                limit = (size + room, size + room)
                resource.setrlimit(resource.RLIMIT_FSIZE, limit)
                Ledger.open(other).charge(charge(name="b"))
                code = 0
            except OSError as error:
                code = 1 if error.errno == errno.EFBIG else 2
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, 1)
        assert names(other) == (["a", "b"] if code == 0 else ["a"])
        Ledger.open(other).charge(charge(name="c"))
        granted += code == 0
    assert 0 < granted < 42


def test_what_a_full_disk_left_is_taken_away_at_once(path, book, monkeypatch):
    before, write, calls = path.read_bytes(), os.write, []

    def short(descriptor, data):
        calls.append(1)
        if len(calls) == 1:
            return write(descriptor, bytes(data[:-1]))  # a whole entry, but for its end
        raise OSError(errno.ENOSPC, "No space left")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", short)
        with pytest.raises(OSError, match="No space"):
            book.charge(charge(name="lost"))
    assert path.read_bytes() == before
    book.charge(charge(name="after"))
    assert names(path) == ["after"]


def test_a_ledger_that_was_moved_without_its_witness_is_not_begun_anew(path):
    Ledger(path, **CAPS)
    path.unlink()
    with pytest.raises(LedgerError, match="witness is there"):
        Ledger(path, **CAPS)
    assert not path.exists()
