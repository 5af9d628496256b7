"""The module that is trained and the autoencoder that is used compute the same."""

import numpy as np
import pytest
import torch

from sketchlearn.decoders.autoencoders.conditional import ConditionalAutoencoder
from sketchlearn.decoders.autoencoders.conditional_spec import ConditionalSpec
from sketchlearn.errors import TrainingError
from sketchlearn.features.network import FEATURE_PREFIX
from sketchlearn.meta.conditional_autoencoder import TrainableAutoencoder
from sketchlearn.meta.steps import copy_state, load_state
from sketchlearn.meta.tied_start import start_tied

NONE = ConditionalSpec(12, 3, "none", 2, 10)
MEAN = ConditionalSpec(12, 3, "mean", 2, 10)
SKETCH = ConditionalSpec(12, 3, "sketch", 2, 10, 5, 2, 8, "tanh")
SPECS = [NONE, MEAN, SKETCH]
ROWS = (np.random.default_rng(0).random((2, 30, 12)) < 0.4).astype(np.float32)


def outputs(model, rows=ROWS):
    tensor = torch.from_numpy(rows)
    with torch.no_grad():
        return model(tensor, model.condition(tensor)).numpy()


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.condition)
def test_the_frozen_twin_computes_the_same(spec):
    model = TrainableAutoencoder(spec, seed=3)
    frozen = model.freeze()
    for rows, logits in zip(ROWS, outputs(model), strict=True):
        learned = ()
        if spec.sketch is not None:
            learned = frozen.networks[FEATURE_PREFIX](rows).mean(axis=0)
        adapted = frozen.adapted(rows.mean(axis=0), learned)
        found = adapted.decode(adapted.encode(rows)) + adapted.threshold
        assert np.abs(found - logits).max() < 1e-5


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.condition)
def test_thawing_undoes_freezing(spec):
    model = TrainableAutoencoder(spec, seed=3)
    again = TrainableAutoencoder.thaw(model.freeze())
    assert np.array_equal(outputs(model), outputs(again))


def test_a_condition_is_the_mean_and_the_mean_of_what_is_learned():
    model = TrainableAutoencoder(SKETCH)
    support = torch.from_numpy(ROWS)
    with torch.no_grad():
        z, learned = model.condition(support), model.feature(support)
    assert torch.allclose(z[:, :12], support.mean(dim=1))
    assert torch.allclose(z[:, 12:], learned.mean(dim=1))


@pytest.mark.parametrize("smaller", [NONE, MEAN], ids=lambda spec: spec.condition)
def test_weights_of_a_smaller_condition_start_a_larger_one_unchanged(smaller):
    start, larger = TrainableAutoencoder(smaller, 1), TrainableAutoencoder(SKETCH, 2)
    own = copy_state(larger)
    load_state(larger, copy_state(start))
    # A product over more columns, all of them zero, may add up in another order.
    assert np.allclose(outputs(start), outputs(larger), rtol=0, atol=1e-5)
    for name, value in larger.state_dict().items():
        if name.startswith(FEATURE_PREFIX):
            assert torch.equal(value, own[name])


def test_what_was_not_told_is_learned_from_the_first_step():
    start, larger = TrainableAutoencoder(MEAN, 1), TrainableAutoencoder(SKETCH, 2)
    load_state(larger, copy_state(start))
    rows = torch.from_numpy(ROWS)
    larger(rows, larger.condition(rows)).square().mean().backward()
    gradient = larger.encoder.layers.first.weight.grad[:, -SKETCH.sketch_size :]
    assert gradient.abs().min() > 0


def test_weights_of_another_width_are_refused():
    other = ConditionalSpec(12, 3, "mean", 2, 9)
    with pytest.raises(TrainingError, match="do not fit"):
        load_state(TrainableAutoencoder(MEAN), TrainableAutoencoder(other).state_dict())
    with pytest.raises(TrainingError, match="do not fit"):
        load_state(TrainableAutoencoder(NONE), TrainableAutoencoder(MEAN).state_dict())


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.condition)
def test_a_tied_start_comes_back_better_than_chance(spec):
    start = ConditionalAutoencoder.initial(spec)
    model = TrainableAutoencoder.thaw(start_tied(start))
    right = ((outputs(model) > 0) == (ROWS > 0.5)).mean()
    assert right > 0.6
    assert right > ((outputs(TrainableAutoencoder(spec)) > 0) == (ROWS > 0.5)).mean()
