"""What version 1 wrote still loads, merges with version 1 and decodes.

Version 1 computed features in floating point; the files in ``golden/v1`` were written
by it and are never written again. Its maps sketch no more rows, and its sketches do not
meet those of version 2.
"""

import copy
import hashlib
import json
import pickle
from pathlib import Path

import numpy as np
import pytest

import sketchlearn as sl
from portable.maps import built_in_kinds
from sketchlearn.errors import (
    FeatureMapError,
    FeatureMapMismatch,
    PrivacyError,
    SketchlearnError,
)
from sketchlearn.features.build import build_map
from sketchlearn.features.cells import CellFeatures

GOLDEN = Path(__file__).parents[1] / "golden" / "v1"
FACTS = json.loads((GOLDEN / "facts.json").read_text())
GONE = "subspace-fourier"
"""A kind of map that no release computes any more."""

LATER = {"counters", "joint-counts", "table"}
"""Kinds that were never of version 1."""

READ = sorted(name for name in FACTS if not name.startswith(GONE))
MAPS = [name for name in READ if name.endswith(".map")]
SKETCHES = [name for name in READ if name.endswith(".sketch")]
WHOLE = [name for name in SKETCHES if name.endswith("-whole.sketch")]
ROWS = np.full((2, 3), 0.25)


def with_its_map(name):
    """A sketch with the map of its own file attached."""
    kind = name.rpartition("-")[0]
    return sl.load(GOLDEN / name, feature_map=sl.load(GOLDEN / f"{kind}.map"))


def test_every_kind_of_map_has_files():
    written = {name.removesuffix(".map") for name in MAPS}
    assert written >= set(built_in_kinds()) - LATER


def test_a_map_of_a_kind_that_is_gone_is_refused_in_a_sentence():
    with pytest.raises(SketchlearnError, match=f"unknown feature map '{GONE}'"):
        sl.load(GOLDEN / f"{GONE}.map")
    sketch = sl.load(GOLDEN / f"{GONE}-whole.sketch")
    with pytest.raises(FeatureMapError, match=f"unknown feature map '{GONE}'"):
        _ = sketch.feature_map


@pytest.mark.parametrize("name", [*MAPS, *SKETCHES])
def test_a_file_holds_what_it_held_and_is_written_as_it_was(name):
    raw, facts = (GOLDEN / name).read_bytes(), FACTS[name]
    obj = sl.load(GOLDEN / name)

    assert hashlib.sha256(raw).hexdigest() == facts["sha256"]
    assert sl.dumps(obj) == raw
    for field in ("fingerprint", "digest", "count"):
        if field in facts:
            assert getattr(obj, field) == facts[field]
    for field in ("mean", "pooled"):
        if field in facts:
            np.testing.assert_array_equal(getattr(obj, field), facts[field])


@pytest.mark.parametrize("name", WHOLE)
def test_sketches_merge_and_forget_with_their_map(name):
    whole = with_its_map(name)
    part = with_its_map(name.replace("whole", "part"))

    assert (whole + part) - part == whole
    assert (whole - part).count == 250
    assert whole.feature_map.version == part.features.version == 1


@pytest.mark.parametrize("name", MAPS)
def test_a_map_computes_no_features(name):
    old = sl.load(GOLDEN / name)
    for refused in (lambda: old(ROWS), lambda: sl.sketch_rows(ROWS, old)):
        with pytest.raises(FeatureMapError, match="is of version 1: its sketches load"):
            refused()


def test_the_versions_refuse_each_other_in_a_sentence():
    old = sl.load(GOLDEN / "moments-whole.sketch")
    fields = {"order": "covariance", "scaling": old.feature_map.scaling}
    new = sl.sketch_rows(ROWS, sl.MomentFeatures(3, **fields))
    for verb, mix in (("merge", old.__add__), ("subtract", old.__sub__)):
        with pytest.raises(
            FeatureMapMismatch, match=f"cannot {verb}: left is of a map"
        ):
            mix(new)


def test_an_old_sketch_is_not_released():
    old = with_its_map("clipped-whole.sketch")
    book = sl.Ledger.ephemeral(epsilon=1.0, delta=1e-6)
    with pytest.raises(PrivacyError, match="of version 1.*Sketch the rows again"):
        sl.release(old, epsilon=1.0, delta=1e-6, ledger=book)
    assert not book.charges


@pytest.mark.parametrize("kind", ["moments", "cross-moments"])
def test_principal_components_are_decoded(kind):
    facts = FACTS["decoded"][kind]
    pca = sl.CompressivePCA(2, decoder="nystrom")
    pca.fit_sketch(sl.load(GOLDEN / f"{kind}-whole.sketch"))

    np.testing.assert_allclose(pca.explained_variance_, facts["explained_variance"])
    np.testing.assert_allclose(pca.mean_, facts["mean"])


def test_clusters_are_decoded():
    sketch = sl.load(GOLDEN / "concatenated-whole.sketch")
    found = sl.CompressiveKMeans(3, random_state=0).fit_sketch(sketch)
    expected = FACTS["decoded"]["concatenated"]["centres"]
    np.testing.assert_allclose(
        sorted(found.cluster_centers_.tolist()), expected, atol=0.1
    )


@pytest.mark.parametrize("name", ["fourier.map", "moments.map"])
def test_no_new_map_is_made_of_an_old_one(name):
    old, new = sl.load(GOLDEN / name), sl.FourierFeatures(3, 4)
    short = sl.clipped(old, norm_bound=1.0)

    assert short.version == sl.ConcatenatedFeatures([old, old]).version == 1
    with pytest.raises(FeatureMapError, match="is of version 1"):
        sl.sketch_rows(ROWS, short)
    with pytest.raises(FeatureMapError, match="version 1 and 2 cannot be parts"):
        sl.ConcatenatedFeatures([old, new])


@pytest.mark.parametrize("name", MAPS)
def test_a_map_can_be_pickled_and_copied(name):
    old = sl.load(GOLDEN / name)
    for twin in (pickle.loads(pickle.dumps(old)), copy.deepcopy(old)):
        assert twin == old
        assert twin.version == 1


def test_what_version_1_allowed_beyond_the_limits_of_today_is_read():
    cells = sl.load(GOLDEN / "cells.map").description
    far = CellFeatures([[99.0, 0.0]], basis=np.eye(3, 2), centre=np.zeros(3))
    given = {**cells, "anchors": far.description["anchors"], "reach": 1e6}
    old = build_map(given)
    assert (old.anchors[0, 0], old.reach) == (99.0, 1e6)

    moments = sl.load(GOLDEN / "moments.map").description
    assert build_map({**moments, "reach": 65536.0}).reach == 65536.0
