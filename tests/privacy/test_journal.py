"""Entries on disk are never lost, changed or taken back, whatever befalls the file."""

import errno
import fcntl
import os
import resource
import shutil
import signal
import threading

import pytest

from privacy.ledgers import CAPS, charge, forks
from privacy.ledgers import names_in as names
from sketchlearn.errors import LedgerError
from sketchlearn.privacy import journal
from sketchlearn.privacy.ledger import Ledger

# The end of the file.


def test_at_every_place_a_cut_loses_torn_entries_only(path, book):
    for name in "abc":
        book.charge(charge(name=name))
    data = path.read_bytes()
    ends = [i for i, byte in enumerate(data) if byte == ord("\n")]
    for cut in range(1, len(data) + 1):
        path.write_bytes(data[:cut])
        whole = sum(cut >= end for end in ends)
        if whole == 0:
            with pytest.raises(LedgerError):
                Ledger.open(path)
            continue
        assert names(path) == list("abc")[: whole - 1], cut
        Ledger.open(path).charge(charge(name="next"))
        assert names(path) == [*list("abc")[: whole - 1], "next"], cut


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
    assert names(path) == ["a"]


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
    real = journal._open

    def counted(*arguments, **more):
        found = real(*arguments, **more)
        opened.set()
        return found

    journal._open = counted
    try:
        thread = threading.Thread(target=work)
        thread.start()
        assert opened.wait(60)
        meanwhile()
        os.close(descriptor)
        thread.join(60)
    finally:
        journal._open = real
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
    assert names(path) == []


def test_a_file_that_is_replaced_all_the_time_is_given_up(path, book, monkeypatch):
    monkeypatch.setattr(journal, "_has_name", lambda *arguments: False)
    with pytest.raises(LedgerError, match="replaced all the time"):
        book.charge(charge())


# A disk that is full.


@forks
def test_a_limit_on_the_size_of_files_never_breaks_a_ledger(path, book, tmp_path):
    book.charge(charge(name="a"))
    size, other = path.stat().st_size, tmp_path / "other"
    granted = 0
    for room in range(0, 460, 11):
        shutil.copy(path, other)
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
