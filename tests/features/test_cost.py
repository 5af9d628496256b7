"""What a map takes is added up before it is built, whoever asks for it."""

import contextlib
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

import sketchlearn as sl
from sketchlearn.errors import FeatureMapError, RowsError
from sketchlearn.features.activation import random_activations
from sketchlearn.features.registry import is_of_package, known_kinds, map_class
from sketchlearn.networks.forward import NetworkSpec, initial_tensors

HUGE = 2**47
SMALL_NETWORK = NetworkSpec(1, 1)
WINDOWS = NetworkSpec(HUGE, HUGE, windows=HUGE)

BOMBS = {
    "fourier": lambda: sl.FourierFeatures(10**6, 10**3),
    "harmonics": lambda: sl.HarmonicFeatures(10**6, 1200),
    "activation": lambda: random_activations(10**6, 10**4),
    "moments": lambda: sl.MomentFeatures(10**6),
    "cross-moments": lambda: sl.CrossMomentFeatures(10**6, 10**4),
    "quadratic": lambda: sl.QuadraticFeatures(10**4, 10**3, law="gaussian"),
    "nystrom": lambda: sl.NystromFeatures(np.zeros((20_000, 1))),
    "count-min": lambda: sl.CountMinFeatures(HUGE, width=10, depth=3),
    "count-sketch": lambda: sl.CountSketchFeatures(HUGE, width=10, depth=3),
    "joint-counts": lambda: sl.JointCountFeatures(HUGE, width=10, depth=3),
    "bloom": lambda: sl.BloomFeatures(10**9, width=10, depth=10**3),
    "counters": lambda: sl.CounterFeatures(HUGE),
    "network": lambda: sl.NetworkFeatures(WINDOWS, initial_tensors(SMALL_NETWORK)),
}
GIVEN = {"table", "cells", "clipped", "concatenated"}
"""Kinds that are as large as what they are built from."""

OTHERS = {
    "k-means": lambda: sl.CompressiveKMeans(2, bounds=(0, 1), sketch_size=10**9).plan(
        3
    ),
    "PCA": lambda: sl.CompressivePCA(2, bounds=(0, 1), sketch_size=10**9).plan(10**5),
    "counts": lambda: sl.FrequencyEstimator(HUGE, sketch_size=120).fit([1, 2, 3]),
    "membership": lambda: sl.MembershipEstimator(HUGE, sketch_size=120).fit([1, 2]),
    "packed": lambda: sl.pack_counters(np.eye(20), sketch_size=10**9, max_rows=5),
}


def test_every_kind_of_map_is_tried():
    ours = {kind for kind in known_kinds() if is_of_package(map_class(kind))}
    assert set(BOMBS) | GIVEN == ours


@pytest.mark.parametrize("name", [*BOMBS, *OTHERS])
def test_what_takes_too_much_is_refused_before_it_takes_anything(name):
    with contextlib.suppress(FeatureMapError):
        (BOMBS | OTHERS)[name]()  # imports what it needs
    tracemalloc.start()
    with pytest.raises(FeatureMapError, match=r"takes about \d+ bytes .*allow_bytes"):
        (BOMBS | OTHERS)[name]()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 2**20  # rows of bounds, for PCA


def test_whoever_means_it_allows_more_and_whoever_fears_it_less():
    with sl.allow_bytes(2**20), pytest.raises(FeatureMapError, match="takes about"):
        sl.FourierFeatures(1000, 1000)
    phi = sl.FourierFeatures(1000, 1000)
    with sl.allow_bytes(2**20), sl.allow_bytes(2**30):
        assert sl.FourierFeatures(1000, 1000) == phi
    with sl.allow_bytes(2**10):  # a file says itself how much it may take
        assert sl.loads(sl.dumps(phi)) == phi
    with pytest.raises(FeatureMapError, match="max_bytes= larger than"):
        sl.features.build.build_map(phi.description, max_bytes=2**20)


WIDE = sp.csr_array((np.ones(3), ([0, 1, 2], [5, 7, 10**9 - 1])), shape=(3, 10**9))


def test_rows_of_another_width_are_refused_before_they_are_written_out():
    fitted = sl.CompressivePCA(1, bounds=(0, 1)).fit(np.eye(2))
    for call, message in (
        (lambda: sl.sketch_rows(WIDE, sl.MomentFeatures(2)), "but 2 were expected"),
        (lambda: sl.open_rows(WIDE), "more than the 2"),
        (lambda: sl.CompressivePCA(1, bounds=(0, 1)).fit(WIDE), "more than the 2"),
        (lambda: fitted.transform(WIDE), "more than the 2"),
    ):
        tracemalloc.start()
        with pytest.raises(RowsError, match=message):
            call()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 8 * 2**20


def test_batches_of_wide_rows_are_few_rows():
    wide = sp.csr_array((3000, 2**20))
    batch = next(iter(sl.open_rows(wide[:, : 2**16])))
    assert batch.shape == (2048, 2**16)
    assert sl.open_rows(wide)._batch_rows == 128
