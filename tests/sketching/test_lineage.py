"""Lineage knows exactly which passes are in a sketch, however many, in little room."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.errors import PrivacyError, SketchFileError
from sketchlearn.features.clipping import clipped
from sketchlearn.features.hashing import CountMinFeatures
from sketchlearn.features.moments import MomentFeatures
from sketchlearn.files import container
from sketchlearn.privacy.charge import recorded_runs
from sketchlearn.privacy.ledger import Ledger
from sketchlearn.privacy.release import release
from sketchlearn.sketching.lineage import (
    Lineage,
    format_lineage,
    gathered_lineage,
    merged_lineage,
    parse_lineage,
    remaining_lineage,
)
from sketchlearn.sketching.passes import Passes, new_lineage, new_run, part_of_run
from sketchlearn.sketching.sketch import add_sketches
from sketchlearn.storage.sketches import dumps, load, loads

PHI = clipped(MomentFeatures(2, order="mean"), norm_bound=2.0)
ONE = sketch_rows(np.ones((1, 2)), PHI)
RUNS = [f"{n:032x}" for n in (0, 1, 2**128 - 1)]
PARTS = [0, 1, 2, 5, 2**63, 2**63 + 1, 2**64 - 3]
REST = 2**64 - 2
"""The last part of a run, which only the whole run has here."""

names = st.one_of(
    st.sampled_from(RUNS),
    st.tuples(st.sampled_from(RUNS), st.sampled_from(PARTS)).map(
        lambda pair: f"{pair[0]}{pair[1]:016x}"
    ),
)
steps = st.lists(st.tuples(names, st.sampled_from([1, -1])), max_size=12)


class Plain:
    """The law, spelled out: how often each part of each run counts."""

    def __init__(self, counts=None):
        self.counts = counts or {(r, p): 0 for r in RUNS for p in (*PARTS, REST)}

    def plus(self, name, sign):
        """One name more or less; None if a part would then count twice."""
        counts = dict(self.counts)
        for run, part in counts:
            if run == name[:32] and name[32:] in ("", f"{part:016x}"):
                counts[run, part] += sign
        for (run, _), count in counts.items():
            whole = counts[run, REST]
            if abs(count) > 1 or (whole and count == -whole):
                return None
        return Plain(counts)


def levels_in(lineage):
    """The same as a lineage has it."""
    found = {}
    for run, part in Plain().counts:
        one = Lineage.of([f"{run}{part:016x}"])
        minus = Lineage.of([f"-{run}{part:016x}"])
        found[run, part] = int(one <= lineage) - int(minus <= lineage)
    return found


@given(steps)
def test_every_step_is_taken_or_refused_as_the_counts_say(steps):
    lineage, plain = Lineage(), Plain()
    for name, sign in steps:
        act = merged_lineage if sign > 0 else remaining_lineage
        wanted = plain.plus(name, sign)
        if wanted is None:
            with pytest.raises(PrivacyError, match=f"run {name[:6]}"):
                act(lineage, Lineage.of([name]))
        else:
            lineage, plain = act(lineage, Lineage.of([name])), wanted
    assert levels_in(lineage) == plain.counts
    assert parse_lineage(format_lineage(lineage)) == lineage == Lineage.of(lineage)
    assert bool(lineage) == any(plain.counts.values())


@given(steps, steps)
def test_sums_undo_differences_and_order_does_not_matter(left, right):
    def taken(steps):
        lineage, plain = Lineage(), Plain()
        for name, sign in steps:
            wanted = plain.plus(name, sign)
            if wanted is not None:
                act = merged_lineage if sign > 0 else remaining_lineage
                lineage, plain = act(lineage, Lineage.of([name])), wanted
        return lineage

    a, b = taken(left), taken(right)
    assert remaining_lineage(a, a) == Lineage()
    try:
        both = merged_lineage(a, b)
    except PrivacyError:
        for act in (lambda: merged_lineage(b, a), lambda: gathered_lineage([a, b])):
            with pytest.raises(PrivacyError):
                act()
        return
    assert both == merged_lineage(b, a) == gathered_lineage([b, a], are_all=False)
    assert remaining_lineage(both, b) == a
    assert remaining_lineage(both, a) == b
    assert a.unsigned <= a.unsigned | b.unsigned
    assert a.added <= a


@given(st.lists(st.integers(0, 30), unique=True, min_size=2), st.booleans())
def test_parts_of_a_job_are_the_job_once_they_are_together(numbers, drawn):
    run = new_run()
    parts = [
        Lineage.of([part_of_run(run, None if drawn else number)]) for number in numbers
    ]
    some = gathered_lineage(parts, are_all=False)
    whole = gathered_lineage([some], are_all=True)
    assert set(whole) == {run}
    assert gathered_lineage(parts[:1]) == parts[0]
    for part in parts:
        assert part <= some
        for sum_ in (some, whole):
            with pytest.raises(PrivacyError, match="share the run"):
                merged_lineage(sum_, part)
            rest = remaining_lineage(sum_, part)
            assert merged_lineage(rest, part) == sum_
    with pytest.raises(PrivacyError, match="taken out of this sketch before"):
        remaining_lineage(rest, part)


def test_passes_of_a_process_are_never_taken_for_a_whole_job():
    a, b, c = (new_lineage() for _ in range(3))
    assert merged_lineage(gathered_lineage([a, b]), c) == gathered_lineage([a, b, c])


def test_a_stream_takes_as_little_room_as_one_pass():
    passes, lineage = Passes(), Lineage()
    first = passes.next()
    for _ in range(5000):
        lineage = merged_lineage(lineage, passes.next())
    assert len(lineage) == 1
    assert len(lineage.points) == 2
    assert merged_lineage(lineage, first) == merged_lineage(first, lineage)
    assert len(dumps(replace(ONE, lineage=lineage))) < len(dumps(ONE)) + 32


def test_a_run_of_numbers_ends_and_another_begins(monkeypatch):
    monkeypatch.setattr("sketchlearn.sketching.passes.PASSES_END", 3)
    passes = Passes()
    names = [text for _ in range(7) for text in passes.next()]
    assert len(set(names)) == 7
    assert len({name[:32] for name in names}) == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing to fork")
def test_a_forked_process_names_its_passes_anew():
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(write, format_lineage(new_lineage()).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(read, 1000).decode()
    os.close(read)
    os.close(write)
    assert len(theirs) == 48
    assert theirs[:32] != next(iter(new_lineage()))[:32]


# However many.


@pytest.fixture(scope="module")
def many():
    """Sketches of 20,000 runs that have nothing to do with each other."""
    return [replace(ONE, lineage=Lineage.of([new_run()])) for _ in range(20_000)]


@pytest.fixture(scope="module")
def whole(many):
    return add_sketches(many)


def test_thousands_of_strange_runs_are_known_one_by_one(many, whole):
    assert len(whole.lineage) == 20_000
    assert whole.lineage.points.nbytes + whole.lineage.levels.nbytes <= 50 * 20_000
    for part in many[::1999]:
        with pytest.raises(PrivacyError, match="share the run"):
            whole + part
        rest = whole - part
        assert (rest + part).lineage == whole.lineage
        assert not part.lineage <= rest.lineage
    assert (whole - add_sketches(many[1:])).lineage == many[0].lineage


@pytest.mark.parametrize("by_process", [False, True])
def test_the_sum_of_thousands_is_saved_and_released(many, whole, by_process):
    if by_process:
        whole = add_sketches(ONE.with_new_lineage() for _ in range(20_000))
        assert len(whole.lineage) == 1
    back = loads(dumps(whole))
    assert back.lineage == whole.lineage
    assert len(dumps(whole)) < 34 * 20_000 + 2000
    book = Ledger.ephemeral(epsilon=1.0, delta=1e-9)
    private = release(back, epsilon=1.0, delta=1e-9, ledger=book)
    (name,) = book.charges[0].lineage
    assert (name,) == recorded_runs(whole.lineage)
    assert name.startswith("sha256:") != by_process
    said = dumps(private)
    assert len(said) < 3000
    for run in [*whole.lineage][:1000]:
        assert run[:32].encode() not in said


# In files.


def test_what_earlier_libraries_can_read_is_written_as_they_write():
    run, part = f"{7:032x}", f"{2**63:016x}"
    for texts in (
        ["-" + run],
        [run, f"-{run}{part}"],
        [f"{run}{part}", "-" + "f" * 32],
    ):
        made = replace(ONE, lineage=Lineage.of(texts))
        assert b'"version":"2"' in dumps(made)
        assert ",".join(sorted(texts)).encode() in dumps(made)
        assert loads(dumps(made)).lineage == made.lineage


@pytest.mark.parametrize(("counts", "version"), [(False, 5), (True, 6)])
def test_an_earlier_library_refuses_intervals_by_their_version(
    monkeypatch, counts, version
):
    one = (
        sketch_rows(np.eye(2), CountMinFeatures(2, width=4, depth=2)) if counts else ONE
    )
    made = one.with_new_lineage() + one.with_new_lineage()
    data = dumps(made)
    assert f'"version":"{version}"'.encode() in data
    assert loads(data).lineage == made.lineage
    monkeypatch.setattr(container, "NEWEST", 3)
    with pytest.raises(SketchFileError, match=f"file version {version} .* reads 1-3"):
        loads(data)


def test_sketches_of_the_first_version_are_added_and_saved_too():
    old = load(Path(__file__).parents[1] / "golden" / "fourier_v1.sketch")
    both = old.with_new_lineage() + old.with_new_lineage()
    assert b'"version":"4"' in dumps(both)
    back = loads(dumps(both))
    assert (back, back.lineage, back.features) == (both, both.lineage, old.features)


@pytest.mark.parametrize(
    "text",
    [
        "0" * 31,
        "0" * 47,
        "0" * 48 + ":",
        "0" * 48 + ":" + "0" * 16,  # nothing
        "0" * 47 + "1:" + "0" * 16,  # backwards
        "f" * 48,  # no part has this number
        "0" * 32 + "," + "0" * 32,
        "0" * 32 + "," + "0" * 48,  # a run and a part of it
        "0" * 32 + ",-" + "0" * 48 + ",-" + "0" * 48,
    ],
)
def test_what_is_no_lineage_is_refused(text):
    with pytest.raises(SketchFileError, match="malformed lineage"):
        parse_lineage(text)
