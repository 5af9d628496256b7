"""How rows are shared out between threads changes nothing but the time."""

from threading import Event, Thread, get_ident

import numpy as np
import pytest
import torch

from sketchlearn import (
    CellFeatures,
    ConcatenatedFeatures,
    FourierFeatures,
    HarmonicFeatures,
    MomentFeatures,
    sketch_rows,
)
from sketchlearn.errors import RowRangeError
from sketchlearn.threads import RowThreads


@pytest.fixture
def four_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("four_threads")
@pytest.mark.parametrize("n_rows", [1, 2047, 4096, 9001, 50_000])
def test_parts_are_consecutive_and_start_at_multiples(n_rows):
    rows = np.arange(n_rows, dtype=float)[:, None]
    with RowThreads() as threads:
        parts = threads.map(lambda part, first: (first, part), rows, multiple=512)
    assert [first % 512 for first, _ in parts] == [0] * len(parts)
    assert all(part[0, 0] == first for first, part in parts)
    assert np.array_equal(np.concatenate([part for _, part in parts]), rows)
    assert len(parts) == max(1, min(4, n_rows // 2048))


@pytest.mark.usefixtures("four_threads")
def test_rows_are_shared_between_threads_that_compute_with_one_torch_thread_each():
    with RowThreads() as threads:
        seen = threads.map(
            lambda rows, first: (get_ident(), torch.get_num_threads()),
            np.zeros((100_000, 1)),
            multiple=512,
        )
    assert get_ident() not in {thread for thread, _ in seen}
    assert {count for _, count in seen} == {1}
    assert torch.get_num_threads() == 4


@pytest.mark.usefixtures("four_threads")
def test_the_number_of_torch_threads_comes_back_after_nested_use_and_errors():
    with RowThreads() as outer, RowThreads() as inner:
        assert (outer.count, inner.count) == (4, 1)
    assert torch.get_num_threads() == 4
    with pytest.raises(ZeroDivisionError), RowThreads() as threads:
        threads.map(lambda rows, first: 1 // 0, np.zeros((9, 1)), multiple=512)
    assert torch.get_num_threads() == 4


@pytest.mark.usefixtures("four_threads")
def test_a_sketch_that_ends_while_another_goes_on_puts_its_own_threads_back():
    started, ended, seen = Event(), Event(), []

    def sketch_slowly():
        torch.set_num_threads(4)
        with RowThreads():
            started.set()
            ended.wait(10)
        seen.append(torch.get_num_threads())

    other = Thread(target=sketch_slowly)
    with RowThreads():
        other.start()
        assert started.wait(10)
    assert torch.get_num_threads() == 4
    ended.set()
    other.join()
    assert seen == [4]


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
    torch.set_num_threads(1)
    assert sketch_rows(rows, phi).digest == together.digest


@pytest.mark.usefixtures("four_threads")
def test_an_error_names_the_first_row_that_is_wrong():
    rows = np.zeros((40_000, 2))
    rows[[15_000, 39_000]] = 1e30
    with pytest.raises(RowRangeError, match="row 15000 "):
        sketch_rows(rows, FourierFeatures(2, 8))
