"""An autoencoder is adapted to a dataset by a sketch, and by nothing else."""

import numpy as np
import pytest

import sketchlearn as sl
from sketchlearn.decoders.autoencoders.conditional import ConditionalAutoencoder
from sketchlearn.decoders.autoencoders.conditional_spec import ConditionalSpec
from sketchlearn.errors import (
    FeatureMapError,
    FeatureMapMismatch,
    RowsError,
    SketchlearnError,
)
from sketchlearn.features.network import FEATURE_PREFIX
from sketchlearn.files.weights import Weights

ROWS = (np.random.default_rng(0).random((40, 9)) < np.linspace(0.1, 0.9, 9)) * 1.0
NONE = ConditionalSpec(12, 3, "none", 2, 16)
MEAN = ConditionalSpec(12, 3, "mean", 2, 16)
SKETCH = ConditionalSpec(12, 3, "sketch", 2, 16, 5, 3, 8, "tanh")
SPECS = [NONE, MEAN, SKETCH]


def family_of(spec):
    return ConditionalAutoencoder.initial(spec, seed=1)


def by_hand(family, rows):
    """Learned sketch and condition of rows, in floating point."""
    padded = family.padded(rows)
    learned = np.zeros(0)
    if family.spec.sketch is not None:
        learned = family.networks[FEATURE_PREFIX](padded).mean(axis=0)
    told = [] if family.spec.condition == "none" else [padded.mean(axis=0), learned]
    return learned, np.concatenate([np.zeros(0), *told])


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.condition)
def test_codes_and_scores_are_those_of_networks_of_inputs_and_condition(spec):
    family = family_of(spec)
    learned, z = by_hand(family, ROWS)
    adapted = family.adapted(ROWS.mean(axis=0), learned)
    beside = np.tile(z, (len(ROWS), 1))
    encoder, decoder = family.networks["encoder."], family.networks["decoder."]
    codes = encoder(np.hstack([family.padded(ROWS), beside]))
    logits = decoder(np.hstack([codes, beside]))[:, :9]
    share = ROWS.mean()
    assert np.allclose(adapted.encode(ROWS), codes)
    assert np.allclose(adapted.decode(codes), logits - np.log(share / (1 - share)))
    probability = 1 / (1 + np.exp(-logits))
    assert np.array_equal(adapted.reconstruct(ROWS), probability > share)
    assert (adapted.n_features, adapted.n_codes) == (9, 3)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.condition)
def test_an_exact_sketch_adapts_as_the_networks_do(spec):
    family = family_of(spec)
    sketch = sl.sketch_rows(family.padded(ROWS), family.feature_map())
    learned, _ = by_hand(family, ROWS)
    expected = family.adapted(ROWS.mean(axis=0), learned)
    found = family.adapt(sketch, n_features=9)
    assert np.abs(found.marginals - expected.marginals).max() < 1e-6
    assert np.abs(found.encode(ROWS) - expected.encode(ROWS)).max() < 1e-4
    codes = expected.encode(ROWS)
    assert np.abs(found.decode(codes) - expected.decode(codes)).max() < 1e-4


def test_halves_of_a_dataset_adapt_together_as_the_whole():
    family = family_of(SKETCH)
    phi, rows = family.feature_map(), family.padded(ROWS)
    parts = sl.sketch_rows(rows[:17], phi) + sl.sketch_rows(rows[17:], phi)
    one, two = (family.adapt(s) for s in (parts, sl.sketch_rows(rows, phi)))
    assert np.array_equal(one.condition, two.condition)


def test_all_entries_are_actual_ones_unless_told_otherwise():
    family = family_of(MEAN)
    sketch = sl.sketch_rows(family.padded(ROWS), family.feature_map())
    assert family.adapt(sketch).n_features == 12
    assert family.adapt(sketch, n_features=9).n_features == 9


def test_padding_is_zeros_at_the_end():
    padded = family_of(MEAN).padded(ROWS)
    assert padded.shape == (40, 12)
    assert np.array_equal(padded[:, :9], ROWS)
    assert not padded[:, 9:].any()


def test_a_private_sketch_of_the_same_map_is_taken(tmp_path):
    family = family_of(SKETCH)
    rows = family.padded(np.tile(ROWS, (50, 1)))
    sketch = sl.sketch_rows(rows, family.feature_map())
    ledger = sl.Ledger(tmp_path / "ledger", epsilon=50.0, delta=1e-5)
    released = sl.release(sketch, epsilon=50.0, delta=1e-5, ledger=ledger)
    exact, noisy = (family.adapt(s, n_features=9) for s in (sketch, released))
    assert (noisy.marginals >= 0).all()
    assert (noisy.marginals <= 1).all()
    assert 0 < np.abs(noisy.condition - exact.condition).max() < 0.1


def test_a_clipped_map_is_still_the_map():
    family = family_of(SKETCH)
    phi = sl.clipped(family.feature_map(), norm_bound=100.0)
    plain = sl.sketch_rows(family.padded(ROWS), family.feature_map())
    clipped = sl.sketch_rows(family.padded(ROWS), phi)
    one, two = family.adapt(plain), family.adapt(clipped)
    assert np.abs(one.condition - two.condition).max() < 1e-5


def test_sketches_of_other_maps_are_refused():
    family = family_of(SKETCH)
    other = ConditionalAutoencoder.initial(SKETCH, seed=2)
    for phi in (other.feature_map(), family_of(MEAN).feature_map()):
        sketch = sl.sketch_rows(family.padded(ROWS), phi)
        with pytest.raises(FeatureMapMismatch, match="not of the map of this"):
            family.adapt(sketch)


def test_weights_without_a_condition_serve_any_dataset():
    family = family_of(NONE)
    plain = family.plain(9, share=0.3)
    assert plain.threshold == pytest.approx(np.log(0.3 / 0.7))
    assert family.plain().threshold == 0
    assert np.array_equal(plain.encode(ROWS), family.plain(9).encode(ROWS))
    with pytest.raises(FeatureMapError, match="take a condition"):
        family_of(MEAN).plain(9)


def test_columns_that_are_all_ones_have_a_finite_threshold():
    for share in (0.0, 1.0):
        scores = family_of(MEAN).adapted(np.full(9, share)).decode(np.zeros((1, 3)))
        assert np.isfinite(scores).all()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda family: family.padded(np.zeros((2, 13))),
        lambda family: family.padded(np.zeros(12)),
        lambda family: family.adapted(np.zeros(13), np.zeros(5)),
        lambda family: family.adapted(np.zeros((2, 9)), np.zeros(5)),
        lambda family: family.adapted([], np.zeros(5)),
        lambda family: family.adapted(np.zeros(9)),
        lambda family: family.adapted(np.zeros(9), np.zeros(5)).encode(
            np.zeros((2, 8))
        ),
        lambda family: family.adapted(np.zeros(9), np.zeros(5)).encode(np.zeros(9)),
        lambda family: family.adapted(np.zeros(9), np.zeros(5)).decode(
            np.zeros((2, 4))
        ),
    ],
)
def test_what_does_not_fit_is_refused(wrong):
    with pytest.raises(RowsError):
        wrong(family_of(SKETCH))


@pytest.mark.parametrize(
    "fields",
    [
        {"condition": "class"},
        {"condition": "sketch"},
        {"condition": "mean", "sketch_size": 4},
        {"width": 0},
        {"n_features": 0},
        {"n_components": 2.5},
        {"layers": 3},
    ],
)
def test_specs_that_make_no_network_are_refused(fields):
    with pytest.raises(SketchlearnError):
        ConditionalSpec.from_dict(fields)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.condition)
def test_weights_bring_the_autoencoder_back(spec):
    family = family_of(spec)
    again = ConditionalAutoencoder.from_weights(family.to_weights({"seed": 1}))
    assert again.spec == spec
    assert again.tensors.keys() == family.tensors.keys()
    for name, array in family.tensors.items():
        assert np.array_equal(again.tensors[name], array)


def test_weights_of_something_else_are_refused():
    with pytest.raises(FeatureMapError, match="of kind 'sqnet'"):
        ConditionalAutoencoder.from_weights(Weights("sqnet", {}, {}))
    family = family_of(MEAN)
    extra = {**family.tensors, "other": np.zeros(3, np.float32)}
    with pytest.raises(FeatureMapError, match="belong to no part"):
        ConditionalAutoencoder(MEAN, extra)
    with pytest.raises(FeatureMapError, match="do not fit the network"):
        ConditionalAutoencoder(SKETCH, family.tensors)
