"""What every implementation of an interface must do."""

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.blocks import BLOCK_ROWS
from sketchlearn.features.build import build_map
from sketchlearn.features.description import decode_description
from sketchlearn.meta.config import RunConfig
from sketchlearn.meta.datasets import MetaDataset
from sketchlearn.meta.runs import build_run, train_run
from sketchlearn.meta.steps import GradientSteps
from sketchlearn.registry import find_builders


def check_feature_map(feature_map: AbstractFeatureMap, rows: np.ndarray) -> None:
    """A feature map is a value: same row, same bits; same description, same map."""
    features = feature_map(rows)
    assert features.shape == (len(rows), feature_map.sketch_size)
    assert np.isfinite(features).all()
    assert np.abs(features).max() <= feature_map.value_bound * (1 + 1e-6)
    _check_norm(feature_map, features)
    _check_bits(feature_map, rows, features)
    _check_sum(feature_map, rows)
    _check_identity(feature_map)
    _check_parts(feature_map)
    _check_sketch(feature_map, rows[:40])
    with pytest.raises(FeatureMapError, match="takes rows of"):
        feature_map(np.zeros((3, feature_map.n_features + 1)))


def _check_norm(feature_map, features):
    if feature_map.norm_bound is not None:
        norms = np.linalg.norm(features.astype(np.float64), axis=1)
        assert norms.max() <= feature_map.norm_bound * (1 + 1e-12)


def _check_bits(feature_map, rows, features):
    order = np.random.default_rng(0).permutation(len(rows))
    for size in (1, 5, 64, 100, 192):
        for start in range(0, len(rows), size):
            chosen = order[start : start + size]
            assert np.array_equal(feature_map(rows[chosen]), features[chosen])


def _check_sum(feature_map, rows):
    """Sums are additive to the bit, and are sums of the features."""
    rows = np.concatenate([rows] * 3)[: BLOCK_ROWS + 100]
    total = feature_map.batch_sum(rows)
    singles = [feature_map.batch_sum(row[None]).to_ints() for row in rows]
    assert total.to_ints() == [sum(column) for column in zip(*singles, strict=True)]
    unit = 2.0**-feature_map.frac_bits
    sums = np.array([float(value) for value in total.to_ints()]) * unit
    features = feature_map(rows)
    assert features.dtype == np.float64
    np.testing.assert_allclose(
        sums, features.sum(axis=0), rtol=1e-12, atol=1e-12 * feature_map.value_bound
    )


def _check_identity(feature_map):
    description = feature_map.description
    weights = {name: feature_map.weights()[name] for name in feature_map.stored_weights}
    again = build_map(description, weights)
    assert again == feature_map
    assert hash(again) == hash(feature_map)
    assert again.fingerprint == feature_map.fingerprint
    assert len(feature_map.fingerprint) == 64
    assert decode_description(description)["kind"] == feature_map.kind
    assert feature_map.origin == feature_map.spec.origin == again.origin
    assert type(feature_map).__name__ in repr(feature_map)


def _check_parts(feature_map):
    """The plain maps inside fill the whole vector."""
    ends = [0]
    for part in feature_map.parts():
        assert part.where == slice(ends[-1], ends[-1] + part.feature_map.sketch_size)
        assert part.feature_map.parts() == (
            type(part)(part.feature_map, slice(0, part.feature_map.sketch_size)),
        )
        ends.append(part.where.stop)
    assert ends[-1] == feature_map.sketch_size


def _check_sketch(feature_map, rows):
    """Totals are possible, what was added can be taken away, and all is pickled."""
    whole = sketch_rows(rows, feature_map)
    part = sketch_rows(rows[7:], feature_map)
    assert whole.is_possible
    assert whole - part == sketch_rows(rows[:7], feature_map)
    twin, again = pickle.loads(pickle.dumps((feature_map, whole)))
    assert twin.fingerprint == feature_map.fingerprint == again.features.fingerprint
    assert np.array_equal(twin(rows), feature_map(rows))
    assert again == whole
    assert again.with_map(twin) == whole


def check_task(config: RunConfig, datasets: list[MetaDataset], folder: Path) -> None:
    """A task trains a module that is saved and built again, and resumes exactly."""
    run = build_run(config, datasets)
    batch = run.problem.draw(np.random.default_rng(0))
    losses = [run.problem.loss(run.model, batch).detach() for _ in range(2)]
    assert losses[0].shape == ()
    assert np.isfinite(float(losses[0]))
    assert losses[0] == losses[1]
    with torch.no_grad():
        figures = run.problem.validate(run.model.eval())
    assert np.isfinite(figures["score"])
    _check_step(build_run(config, datasets), config)
    _check_resuming(config, datasets, folder)


def _check_step(run, config):
    """A step changes the weights."""
    before = [weight.detach().clone() for weight in run.model.parameters()]
    steps = GradientSteps(run.model, run.problem, config.train)
    assert steps.step(np.random.default_rng(0), config.train.learning_rate) is not None
    pairs = zip(before, run.model.parameters(), strict=True)
    assert any(not torch.equal(old, new) for old, new in pairs)


def _check_resuming(config, datasets, folder):
    """Two steps are two steps, with or without a pause; the outcome can be loaded."""
    first = replace(config, train=replace(config.train, steps=1))
    second = replace(config, train=replace(config.train, steps=2))
    train_run(first, datasets, folder=folder)
    resumed, whole = (
        train_run(second, datasets, folder=where) for where in (folder, None)
    )
    assert [record["step"] for record in resumed.result.history] == [0, 1, 2]
    losses = [done.result.history[-1]["loss"] for done in (resumed, whole)]
    assert losses[0] == losses[1]
    weights, same = (done.model.to_weights(done.card) for done in (resumed, whole))
    assert weights.tensors.keys() == same.tensors.keys()
    for name, tensor in weights.tensors.items():
        assert np.array_equal(tensor, same.tensors[name])
    assert find_builders()[weights.kind].from_weights(weights) is not None
