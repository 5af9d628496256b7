"""Maps and sketches have the digests they had when they were first computed."""

import json
from pathlib import Path

import pytest

from portable.digests import forget_digests, form_digests
from portable.maps import NAMES, feature_map, golden_rows
from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.features.build import build_map

GOLDEN = json.loads(Path(__file__).with_name("golden.json").read_text())


def test_every_map_has_golden_digests():
    assert sorted(GOLDEN) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_fingerprint_of_a_map_is_golden(name):
    phi = feature_map(name)
    assert phi.fingerprint == GOLDEN[name]["fingerprint"]
    stored = {key: phi.weights()[key] for key in phi.stored_weights}
    assert build_map(phi.description, stored).fingerprint == phi.fingerprint


@pytest.mark.parametrize("name", NAMES)
def test_the_digest_of_a_sketch_is_golden(name):
    rows = golden_rows(name)
    assert sketch_rows(rows, feature_map(name)).digest == GOLDEN[name]["digest"]


def test_all_forms_of_the_same_rows_have_one_digest():
    for name, digests in form_digests().items():
        assert len(set(digests.values())) == 1, name


def test_forgetting_a_row_is_never_having_seen_it():
    for name, pairs in forget_digests().items():
        for left, right in pairs.values():
            assert left == right, name
