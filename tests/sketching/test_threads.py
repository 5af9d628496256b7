"""How rows are shared out between threads changes nothing but the time."""

import os
from threading import Event, Thread, get_ident

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

from sketchlearn import (
    CellFeatures,
    ConcatenatedFeatures,
    FourierFeatures,
    HarmonicFeatures,
    MomentFeatures,
    sketch_rows,
)
from sketchlearn.errors import RowRangeError
from sketchlearn.sketching.threads import _SINGLE, RowThreads

ROWS = np.zeros((100_000, 1))


def blas_threads():
    found = ThreadpoolController().select(user_api="blas").info()
    return max(library["num_threads"] for library in found)


@pytest.fixture
def four_threads():
    with threadpool_limits(4, user_api="blas"):
        yield


@pytest.mark.usefixtures("four_threads")
@pytest.mark.parametrize("n_rows", [1, 2047, 4096, 9001, 50_000])
def test_parts_are_consecutive(n_rows):
    rows = np.arange(n_rows, dtype=float)[:, None]
    with RowThreads() as threads:
        parts = threads.map(lambda part, first: (first, part), rows)
    assert all(part[0, 0] == first for first, part in parts)
    assert np.array_equal(np.concatenate([part for _, part in parts]), rows)
    assert len(parts) == max(1, min(4, n_rows // 2048))


@pytest.mark.usefixtures("four_threads")
def test_rows_are_shared_between_threads_that_compute_with_one_blas_thread_each():
    with RowThreads() as threads:
        seen = threads.map(
            lambda rows, first: (get_ident(), blas_threads()), np.zeros((100_000, 1))
        )
    assert get_ident() not in {thread for thread, _ in seen}
    assert {count for _, count in seen} == {1}
    assert blas_threads() == 4


@pytest.mark.usefixtures("four_threads")
def test_the_number_of_blas_threads_comes_back_after_nested_use_and_errors():
    with RowThreads() as outer:
        outer.map(lambda rows, first: None, ROWS)
        with RowThreads() as inner:
            assert (outer.count, inner.count) == (4, 1)
        assert blas_threads() == 1
    assert blas_threads() == 4
    with pytest.raises(ZeroDivisionError), RowThreads() as threads:
        threads.map(lambda rows, first: 1 // 0, ROWS)
    assert blas_threads() == 4


@pytest.mark.usefixtures("four_threads")
def test_a_sketch_that_ends_while_another_goes_on_leaves_the_threads_to_it():
    mapped, ended = Event(), Event()

    def sketch_slowly(threads):
        with threads:
            threads.map(lambda rows, first: None, ROWS)
            mapped.set()
            ended.wait(10)

    with RowThreads() as threads:
        other = Thread(target=sketch_slowly, args=[RowThreads()])
        threads.map(lambda rows, first: None, ROWS)
        other.start()
        assert mapped.wait(10)
    ended.set()
    other.join()
    assert blas_threads() == 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.usefixtures("four_threads")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child_sketches_while_its_parent_does():
    rows = np.random.default_rng(0).uniform(-1, 1, (20_000, 3))
    phi = FourierFeatures(3, 20)
    expected = sketch_rows(rows, phi).digest
    with RowThreads() as threads:
        threads.map(lambda part, first: None, ROWS)
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
        threads.map(lambda part, first: None, ROWS)
        child = os.fork()
        if child == 0:
            threads._stack.pop_all()  # the threads of the pool are the parent's
            _SINGLE.__exit__()
            with _SINGLE:
                inside = blas_threads()
            os._exit(not (inside == 1 and _SINGLE._users == 0))
        assert os.waitpid(child, 0)[1] == 0
