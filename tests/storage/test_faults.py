"""No bytes make the reader fail otherwise than by refusing, and no fault tears a file.

Inputs are mutated files, half of them with a digest that fits again; faults are
errors, interrupts, kills and lost writes at every system call of a save.
"""

import contextlib
import errno
import hashlib
import itertools
import json
import os
import random
import re
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.errors import SketchFileError
from sketchlearn.features.fourier import FourierFeatures
from sketchlearn.features.hashing import BloomFeatures, CountSketchFeatures
from sketchlearn.features.nystrom import NystromFeatures
from sketchlearn.files import durable
from sketchlearn.storage import sketches as storage
from sketchlearn.storage.sketches import dumps, load, loads, save

QUICK_INPUTS, FULL_INPUTS = 20_000, 1_000_000
QUICK_KILLS, FULL_KILLS = 100, 2_000
MAP_BYTES = 2**20
"""Mutated maps may name large sizes; the fuzzed reader builds none above this."""

PHI = FourierFeatures(n_features=2, sketch_size=8, seed=0)
ROWS = np.random.default_rng(0).standard_normal((40, 2))
OLD, NEW = sketch_rows(ROWS[:10], PHI), sketch_rows(ROWS, PHI)
ITEMS = (np.arange(40)[:, None] % 7 == np.arange(5)).astype(float)
SIZES = {"n_features": 5, "width": 4, "depth": 3}
BASES = [
    dumps(NEW),
    dumps(sketch_rows(ITEMS, CountSketchFeatures(**SIZES))),
    dumps(sketch_rows(ITEMS, BloomFeatures(**SIZES), pooling="max")),
    dumps(sketch_rows(ROWS, PHI, pooling="max")),
    dumps(sketch_rows(ROWS, PHI, pooling="p-norm:2")),
    dumps(PHI),
    dumps(NystromFeatures(ROWS[:4])),
]


# Mutation fuzzing.


def split(data):
    length = int.from_bytes(data[:8], "little")
    return data[8 : 8 + length].rstrip(b" "), data[8 + length :]


def join(text, payload):
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + payload


def resign(data):
    """Make the digest fit, if there still is one."""
    found = re.search(rb'"digest":"sha256:', data)
    if found is None or found.end() + 64 > len(data):
        return data
    start = found.end()
    blank = data[:start] + b"0" * 64 + data[start + 64 :]
    digest = hashlib.sha256(blank).hexdigest().encode()
    return data[:start] + digest + data[start + 64 :]


def header_bomb(data, rng):
    text, payload = split(data)
    match rng.randrange(4):
        case 0:
            length = rng.choice([0, 1, 2**16, 2**16 + 1, 2**31, 2**62, 2**64 - 1])
            return length.to_bytes(8, "little") + data[8:]
        case 1:
            size = b"%d" % rng.choice([0, 2, 7, 2**24, 2**31, 2**62, 2**63, 2**64])
            return join(re.sub(rb'"shape":\[\d+', b'"shape":[' + size, text), payload)
        case 2:
            names = b",".join(b'"t%d":{}' % i for i in range(rng.randrange(3000)))
            return join(text[:-1] + b"," + names + b"}", payload)
    many = b",".join([b"1"] * rng.randrange(10_000))
    return join(re.sub(rb'"shape":\[', b'"shape":[' + many + b",", text), payload)


def duplicate_key(data, rng):
    text, payload = split(data)
    pairs = list(re.finditer(rb'"\w+":("[^"\\]*"|\[[^\]]*\])', text))
    if not pairs:
        return data
    found, other = rng.choice(pairs), rng.choice(pairs)
    place = other.start() if rng.random() < 0.5 else found.start()
    return join(text[:place] + found.group() + b"," + text[place:], payload)


def odd_number(data, rng):
    words = b"NaN Infinity -Infinity -0 1.0 1e400 1E2 true null 01 +1 0x1 -1 [] {}"
    return replace_number(data, rng, rng.choice(words.split()))


def long_number(data, rng):
    digits = rng.choice([19, 20, 40, 81, 400, 4300, 5000])
    return replace_number(data, rng, b"%d" % rng.randrange(1, 10) * digits)


def deep_nesting(data, rng):
    depth = rng.choice([10, 900, 3000, 20_000, 60_000])
    opening = rng.choice([b"[", b'{\\"a\\":', b'{"a":'])
    return replace_number(data, rng, (opening * depth)[:60_000])


def replace_number(data, rng, new):
    text, payload = split(data)
    numbers = list(re.finditer(rb"(?<![\w.])-?\d+(?![\w.])", text))
    found = rng.choice(numbers or list(re.finditer(rb"\d+", text)))
    return join(text[: found.start()] + new + text[found.end() :], payload)


def swapped_fields(data, rng):
    text, payload = split(data)
    header = json.loads(text)
    fields = header["__metadata__"]
    names = [name for name in header if name != "__metadata__"]
    kind = rng.randrange(6)
    if kind == 0 and names:
        types = ["F32", "F64", "I64", "U64", "U8", "BOOL", "I32", "i64", "", 5, None]
        header[rng.choice(names)]["dtype"] = rng.choice(types)
    elif kind == 1 and names:
        shapes = [[], [0], [1], [8], [2, 4], [8, 1], [-8], [8.0], [True], 8, "8", [[8]]]
        header[rng.choice(names)]["shape"] = rng.choice(shapes)
    elif kind == 2 and names:
        first, second = rng.choice(names), rng.choice(names)
        header[first], header[second] = header[second], header[first]
    elif kind == 3:
        first, second = rng.choice(list(fields)), rng.choice(list(fields))
        fields[first], fields[second] = fields[second], fields[first]
    elif kind == 4:
        words = [
            "",
            "0",
            "1",
            "-1",
            "*",
            "mean",
            "min",
            "{}",
            "[]",
            "0x1.8p+0",
            1,
            None,
        ]
        fields[rng.choice(list(fields))] = rng.choice(words)
    else:
        where = rng.choice([header, fields])
        where.pop(rng.choice(list(where)))
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    return join(text, payload)


def random_bytes(data, rng):
    changed, payload = bytearray(data), split(data)[1]
    first = len(data) - len(payload) if payload and rng.random() < 0.5 else 0
    for _ in range(rng.randrange(1, 9)):
        place = rng.randrange(first, len(changed))
        changed[place] = rng.choice([0, 255, rng.randrange(256)])
    return bytes(changed)


def splice(data, rng):
    other = rng.choice(BASES)
    start, stop = sorted(rng.choices(range(len(data) + 1), k=2))
    first, last = sorted(rng.choices(range(len(other) + 1), k=2))
    return data[:start] + other[first:last] + data[rng.choice([start, stop]) :]


MUTATORS = [
    header_bomb,
    duplicate_key,
    odd_number,
    long_number,
    deep_nesting,
    swapped_fields,
    random_bytes,
    splice,
]


def accepted_wrongly(seed):
    """One mutated input: whether the reader took what it should refuse."""
    rng = random.Random(seed)
    base, repaired = rng.choice(BASES), rng.random() < 0.5
    mutated = rng.choice(MUTATORS)(base, rng)
    if rng.random() < 0.2:
        mutated = rng.choice(MUTATORS[-2:])(mutated, rng)
    mutated = resign(mutated) if repaired else mutated
    if mutated in BASES:
        return False
    try:
        obj = loads(mutated, max_bytes=MAP_BYTES)
    except SketchFileError:
        return False
    return not repaired or dumps(obj) != mutated


def fuzz(count, first_seed):
    """Seeds of the inputs wrongly accepted."""
    wrong = []
    for seed in range(first_seed, first_seed + count):
        try:
            if accepted_wrongly(seed):
                wrong.append(seed)
        except Exception as error:
            raise AssertionError(f"input {seed} made the reader fail") from error
    return wrong


def test_mutated_files_are_refused_or_are_what_save_would_write():
    assert fuzz(QUICK_INPUTS, 0) == []


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_a_million_mutated_files_are_refused_or_are_what_save_would_write():
    assert fuzz(FULL_INPUTS, 10**6) == []


@pytest.mark.parametrize("mutate", MUTATORS)
def test_refusing_takes_no_more_memory_than_the_file_and_a_megabyte(mutate):
    rng = random.Random(0)
    for _ in range(40):
        mutated = resign(mutate(BASES[0], rng))
        tracemalloc.start()
        with contextlib.suppress(SketchFileError):
            loads(mutated)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < len(mutated) + 2**20


def test_forged_files_that_are_signed_anew_break_nothing():
    script = Path(__file__).parents[2] / "benchmarks" / "fuzz_storage.py"
    source = str(Path(storage.__file__).parents[2])
    sizes = ["--cases", "2000", "--models", "60", "--kills", "5"]
    done = subprocess.run(
        [sys.executable, str(script), *sizes],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": source, "OPENBLAS_NUM_THREADS": "1"},
    )
    reports = [json.loads(line) for line in done.stdout.splitlines()]

    assert done.returncode == 0, done.stderr
    assert len(reports) == 13
    assert sum(report["breaks"] for report in reports) == 0
    assert sum(report["trials"] for report in reports) > 2000


# Faults at every system call of a save.


class System:
    """The operating system as storage sees it, with one fault and a diary."""

    def __init__(self, fault=None, at=None, chunk=None):
        self.fault, self.at, self.chunk = fault, at, chunk
        self.calls, self.diary, self.names = 0, [], {}

    def __getattr__(self, name):
        return getattr(os, name)

    def _step(self, name):
        self.calls += 1
        if self.calls - 1 == self.at:
            raise self.fault
        return name

    def stat(self, path):
        """Follow a link and look."""
        self._step("stat")
        return os.stat(path)

    def open(self, path, flags, mode=0o777):
        """Open, and remember the name."""
        self._step("open")
        descriptor = os.open(path, flags, mode)
        self.names[descriptor] = path
        if flags & os.O_CREAT:
            self.diary.append(("create", path))
        return descriptor

    def write(self, descriptor, data):
        """Write at most one chunk."""
        self._step("write")
        written = os.write(descriptor, data[: self.chunk])
        self.diary.append(("write", self.names[descriptor], bytes(data[:written])))
        return written

    def fsync(self, descriptor):
        """Sync a file or a folder."""
        self._step("fsync")
        os.fsync(descriptor)
        self.diary.append(("fsync", self.names[descriptor]))

    def close(self, descriptor):
        """Close; a fault comes after, as on a network disk."""
        os.close(descriptor)
        self._step("close")

    def replace(self, source, target):
        """Rename."""
        self._step("replace")
        os.replace(source, target)
        self.diary.append(("replace", source, target))


def run_save(monkeypatch, path, system):
    with monkeypatch.context() as patch:
        patch.setattr(durable, "os", system)
        save(NEW, path)
    return system


@pytest.fixture
def path(tmp_path):
    save(OLD, tmp_path / "a.sketch")
    return tmp_path / "a.sketch"


def count_calls(monkeypatch, path, chunk=400):
    system = run_save(monkeypatch, path, System(chunk=chunk))
    save(OLD, path)
    return system.calls


FAULTS = [
    OSError(errno.ENOSPC, "disk full"),
    OSError(errno.EIO, "disk broken"),
    OSError(errno.EACCES, "forbidden"),
    KeyboardInterrupt(),
    MemoryError(),
]


@pytest.mark.parametrize("fault", FAULTS, ids=repr)
def test_a_fault_at_any_call_leaves_the_old_file_and_no_litter(
    monkeypatch, path, fault
):
    calls = count_calls(monkeypatch, path)
    assert calls >= 10
    for at in range(calls):
        save(OLD, path)
        system = System(fault, at, chunk=400)
        with pytest.raises(type(fault)):
            run_save(monkeypatch, path, system)

        replaced = any(entry[0] == "replace" for entry in system.diary)
        assert load(path) == (NEW if replaced else OLD)
        assert os.listdir(path.parent) == ["a.sketch"]


def test_only_the_sync_of_the_folder_can_fail_after_the_file_is_new(monkeypatch, path):
    calls = count_calls(monkeypatch, path)
    late = 0
    for at in range(calls):
        system = System(OSError(errno.EIO, ""), at, chunk=400)
        with pytest.raises(OSError, match="5"):
            run_save(monkeypatch, path, system)
        late += system.diary[-1:] != [] and system.diary[-1][0] == "replace"

    assert late == 2  # opening and syncing the folder; its close comes after


def test_an_interrupted_call_is_repeated(monkeypatch, path):
    calls = count_calls(monkeypatch, path)
    finished = 0
    for at in range(calls):
        save(OLD, path)
        system = System(InterruptedError(), at, chunk=400)
        # stat and close are not repeated: the first by nature, the second because
        # the descriptor is gone.
        with contextlib.suppress(InterruptedError):
            run_save(monkeypatch, path, system)
            assert load(path) == NEW
            finished += 1
        assert os.listdir(path.parent) == ["a.sketch"]

    assert finished == calls - 3


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_short_writes_are_continued(monkeypatch, path, chunk):
    run_save(monkeypatch, path, System(chunk=chunk))

    assert path.read_bytes() == dumps(NEW)


def test_faults_of_the_real_system_pass_through(tmp_path):
    with pytest.raises(FileNotFoundError):
        save(NEW, tmp_path / "missing" / "a.sketch")
    assert os.listdir(tmp_path) == []


def test_a_folder_or_a_pipe_is_not_replaced_by_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for bad in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(SketchFileError, match="not a regular file"):
            save(NEW, bad)
    assert os.listdir(tmp_path) == ["pipe"]
    assert (tmp_path / "pipe").is_fifo()


def test_old_litter_of_the_same_name_is_removed_at_the_next_save(path):
    litter = f".a.sketch.{'0' * 16}.tmp"
    others = [f".b.sketch.{'0' * 16}.tmp", ".a.sketch.mine.tmp"]
    recent = f".a.sketch.{'1' * 16}.tmp"
    for name in [litter, recent, *others]:
        (path.parent / name).touch()
    for name in [litter, *others]:
        os.utime(path.parent / name, (0, time.time() - 3700))
    os.utime(path.parent / recent, (0, time.time() - 3400))  # may still be written to
    save(NEW, path)

    assert sorted(os.listdir(path.parent)) == sorted([recent, *others, "a.sketch"])


# Power cuts: what was not synced may or may not be on the disk.


def visible_files(diary, path, old):
    """Every content ``path`` can have after a power cut at the end of ``diary``."""
    certain = set()
    for place, entry in enumerate(diary):
        if entry[0] == "fsync":
            in_folder = entry[1] == str(Path(path).parent)
            kinds = ("create", "replace") if in_folder else ("write",)
            certain |= {
                i
                for i, earlier in enumerate(diary[:place])
                if earlier[0] in kinds and (in_folder or earlier[1] == entry[1])
            }
    effects = [i for i, entry in enumerate(diary) if entry[0] != "fsync"]
    unsure = [i for i in effects if i not in certain]
    for size in range(len(unsure) + 1):
        for lost in itertools.combinations(unsure, size):
            yield replay(diary, set(lost), path, old)


def replay(diary, lost, path, old):
    contents, offsets, seen = {}, {}, old
    for place, entry in enumerate(diary):
        if entry[0] == "write":
            start = offsets.get(entry[1], 0)
            offsets[entry[1]] = start + len(entry[2])
            if place not in lost:
                disk = contents.setdefault(entry[1], bytearray())
                disk.extend(bytes(max(0, offsets[entry[1]] - len(disk))))
                disk[start : offsets[entry[1]]] = entry[2]
        if entry[0] == "replace" and place not in lost:
            assert entry[2] == str(path)
            seen = entry[1]
    return old if seen is old else bytes(contents.get(seen, b""))


def test_a_power_cut_shows_the_old_file_or_the_new_one(monkeypatch, path):
    old, new = dumps(OLD), dumps(NEW)
    diary = run_save(monkeypatch, path, System(chunk=len(new) // 5)).diary
    worlds = 0
    for length in range(len(diary) + 1):
        for content in visible_files(diary[:length], path, old):
            assert content in (old, new)
            worlds += 1

    assert worlds > 100
    assert list(visible_files(diary, path, old)) == [new]


def test_the_model_of_power_cuts_finds_a_save_that_does_not_sync(monkeypatch, path):
    old, new = dumps(OLD), dumps(NEW)
    diary = run_save(monkeypatch, path, System(chunk=len(new) // 5)).diary
    careless = [entry for entry in diary if entry[0] != "fsync"]
    seen = set(visible_files(careless, path, old))

    assert seen - {old, new}


# Kills.

KILLER = """
import os, random, signal, sys, time
from sketchlearn.storage.sketches import load, save
path, first, second = sys.argv[1], load(sys.argv[2]), load(sys.argv[3])
kills = int(sys.argv[4])
rng = random.Random(0)
seen = [0, 0]
for _ in range(kills):
    child = os.fork()
    if child == 0:
        while True:
            save(first, path)
            save(second, path)
    time.sleep(rng.uniform(0.002, 0.02))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    seen[[first.digest, second.digest].index(load(path).digest)] += 1
print(seen[0], seen[1], len(os.listdir(os.path.dirname(path))) - 1)
"""


def kill_saves(tmp_path, kills):
    """Kill as many saves; how often each sketch was found, and the litter left."""
    phi = FourierFeatures(n_features=2, sketch_size=1000, seed=0)
    save(sketch_rows(ROWS[:10], phi), tmp_path / "first")
    save(sketch_rows(ROWS, phi), tmp_path / "second")
    (tmp_path / "folder").mkdir()
    path = tmp_path / "folder" / "a.sketch"
    save(sketch_rows(ROWS, phi), path)
    files = [str(path), str(tmp_path / "first"), str(tmp_path / "second")]
    source = str(Path(storage.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", KILLER, *files, str(kills)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": source, "OPENBLAS_NUM_THREADS": "1"},
    )
    return [int(word) for word in done.stdout.split()]


def test_a_killed_save_leaves_a_whole_file(tmp_path):
    first, second, _ = kill_saves(tmp_path, QUICK_KILLS)

    assert first + second == QUICK_KILLS


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_two_thousand_killed_saves_leave_whole_files(tmp_path):
    first, second, _ = kill_saves(tmp_path, FULL_KILLS)

    assert first + second == FULL_KILLS
