"""How rows are shared out between threads changes nothing but the time."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event, Thread, get_ident

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

from sketchlearn import (
    CellFeatures,
    ConcatenatedFeatures,
    FourierFeatures,
    HarmonicFeatures,
    MomentFeatures,
    open_rows,
    sketch_rows,
)
from sketchlearn.errors import RowRangeError, RowsError
from sketchlearn.sketching.threads import _SINGLE, RowThreads, cores

PARTS = [np.zeros((5, 1)), np.ones((5, 1))]


def blas_threads():
    found = ThreadpoolController().select(user_api="blas").info()
    return max(library["num_threads"] for library in found)


@pytest.fixture
def four_threads():
    with threadpool_limits(4, user_api="blas"):
        yield


@pytest.mark.usefixtures("four_threads")
@pytest.mark.parametrize("n_parts", [0, 1, 2, 3, 50])
def test_results_come_in_the_order_of_the_parts(n_parts):
    def slow_first(part):
        time.sleep(0.01 * (part % 4 == 0))
        return part

    with RowThreads() as threads:
        assert list(threads.stream(slow_first, range(n_parts))) == list(range(n_parts))


@pytest.mark.usefixtures("four_threads")
def test_few_parts_wait_and_the_first_error_ends_it():
    read = []

    def parts():
        for number in range(100):
            read.append(number)
            yield number

    def work(number):
        if number in (3, 5):
            raise ValueError(f"part {number}")

    with RowThreads() as threads, pytest.raises(ValueError, match="part 3"):
        list(threads.stream(work, parts()))
    assert len(read) < 15


@pytest.mark.usefixtures("four_threads")
@pytest.mark.parametrize("n_rows", [1, 2047, 4096, 9001, 50_000, 300_000])
def test_all_threads_have_some_rows_and_all_rows_a_thread(n_rows):
    rows = np.arange(n_rows, dtype=float)[:, None]
    parts = list(open_rows(rows).parts(4))
    found = [part.floats() for part in parts]
    assert [part.first_row for part in parts] == [int(one[0, 0]) for one in found]
    assert np.array_equal(np.concatenate(found), rows)
    assert len(parts) >= max(1, min(4, n_rows // 2048))


@pytest.mark.usefixtures("four_threads")
def test_rows_are_shared_between_threads_that_compute_with_one_blas_thread_each():
    with RowThreads() as threads:
        seen = list(threads.stream(lambda part: (get_ident(), blas_threads()), PARTS))
    assert get_ident() not in {thread for thread, _ in seen}
    assert {count for _, count in seen} == {1}
    assert blas_threads() == 4


@pytest.mark.usefixtures("four_threads")
@pytest.mark.parametrize(("n_jobs", "count"), [(None, 4), (1, 1), (3, 3)])
def test_threads_are_as_many_as_asked_for(n_jobs, count):
    with RowThreads(n_jobs) as threads:
        assert threads.count == count
        list(threads.stream(abs, [1, 2]))
        assert blas_threads() == 1  # theirs would come on top
    assert blas_threads() == 4
    with RowThreads(-1) as threads:
        assert threads.count == cores() >= 1


@pytest.mark.parametrize("n_jobs", [0, -2, 1.5, True, "2", 10**6])
def test_other_numbers_of_threads_are_refused(n_jobs):
    with pytest.raises(RowsError, match="n_jobs must be"):
        sketch_rows(PARTS, MomentFeatures(1), n_jobs=n_jobs)


@pytest.mark.usefixtures("four_threads")
def test_the_number_of_blas_threads_comes_back_after_nested_use_and_errors():
    with RowThreads() as outer:
        list(outer.stream(abs, [1, 2]))
        with RowThreads() as inner:
            assert (outer.count, inner.count) == (4, 1)
        assert blas_threads() == 1
    assert blas_threads() == 4
    with pytest.raises(ZeroDivisionError), RowThreads() as threads:
        list(threads.stream(lambda part: 1 // 0, PARTS))
    assert blas_threads() == 4


@pytest.mark.usefixtures("four_threads")
def test_a_sketch_that_ends_while_another_goes_on_leaves_the_threads_to_it():
    mapped, ended = Event(), Event()

    def sketch_slowly(threads):
        with threads:
            list(threads.stream(abs, [1, 2]))
            mapped.set()
            ended.wait(10)

    with RowThreads() as threads:
        other = Thread(target=sketch_slowly, args=[RowThreads()])
        list(threads.stream(abs, [1, 2]))
        other.start()
        assert mapped.wait(10)
    ended.set()
    other.join()
    assert blas_threads() == 4


def test_threads_that_go_on_living_leave_the_setting_as_it_was():
    before, both = blas_threads(), Barrier(2, timeout=10)

    def sketch(_):
        with RowThreads(1):
            both.wait()
            inside = blas_threads()
            both.wait()
        return inside

    with ThreadPoolExecutor(2) as pool:
        for _ in range(3):
            assert list(pool.map(sketch, range(2))) == [1, 1]
            assert blas_threads() == before
        with threadpool_limits(before + 1, user_api="blas"):  # others may set it again
            assert blas_threads() == before + 1
    assert blas_threads() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.usefixtures("four_threads")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child_sketches_while_its_parent_does():
    rows = np.random.default_rng(0).uniform(-1, 1, (20_000, 3))
    phi = FourierFeatures(3, 20)
    expected = sketch_rows(rows, phi).digest
    with RowThreads() as threads:
        list(threads.stream(abs, [1, 2]))
        child = os.fork()
        if child == 0:
            os._exit(sketch_rows(rows, phi).digest != expected)
        assert os.waitpid(child, 0)[1] == 0


CELLS = CellFeatures(np.eye(3), basis=np.eye(3), centre=np.zeros(3), n_crossed=2)


@pytest.mark.usefixtures("four_threads")
@pytest.mark.parametrize(
    "phi",
    [
        MomentFeatures(3),
        FourierFeatures(3, 20),
        HarmonicFeatures(3, 12),
        ConcatenatedFeatures([MomentFeatures(3), CELLS]),
    ],
)
def test_threads_do_not_change_a_bit_of_a_sketch(phi):
    rows = np.random.default_rng(0).uniform(-1, 1, (30_000, 3))
    together = sketch_rows(rows, phi)
    with threadpool_limits(1, user_api="blas"):
        assert sketch_rows(rows, phi).digest == together.digest


@pytest.mark.usefixtures("four_threads")
def test_an_error_names_the_first_row_that_is_wrong():
    rows = np.zeros((40_000, 2))
    rows[[15_000, 39_000]] = 1e30
    with pytest.raises(RowRangeError, match="row 15000 "):
        sketch_rows(rows, FourierFeatures(2, 8))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.usefixtures("four_threads")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_child_that_leaves_the_context_of_its_parent_can_enter_its_own():
    with RowThreads() as threads:
        list(threads.stream(abs, [1, 2]))
        child = os.fork()
        if child == 0:
            threads._stack.pop_all()  # the threads of the pool are the parent's
            _SINGLE.__exit__()
            with _SINGLE:
                inside = blas_threads()
            os._exit(not (inside == 1 and _SINGLE._users == 0))
        assert os.waitpid(child, 0)[1] == 0
