"""Iterative CKM is learned on some datasets, and serves others of any width."""

import numpy as np
import pytest
import torch

from sketchlearn import sketch_rows
from sketchlearn.decoders.iterative_ckm import CKMSpec, IterativeCKM, draw_units
from sketchlearn.decoders.unrolled import kmeans_loss
from sketchlearn.errors import ConfigError, FeatureMapError, RowsError
from sketchlearn.mechanisms import gaussian_sigma
from sketchlearn.meta.clustering import (
    ClusteringConfig,
    ClusteringProblem,
    build_ckm,
    evolve_ckm,
)
from sketchlearn.meta.config import RunConfig, TrainConfig
from sketchlearn.meta.datasets import MetaDataset
from sketchlearn.meta.runs import TASKS
from sketchlearn.meta.trainer import train
from sketchlearn.registry import load_card, load_model


def blobs(name, n_features, seed):
    """Four tight clusters with a constant feature beside."""
    rng = np.random.default_rng(seed)
    centres = rng.uniform(-3, 7, size=(4, n_features))
    rows = centres[rng.integers(4, size=300)] + 0.3 * rng.normal(size=(300, n_features))
    return MetaDataset.from_arrays(name, np.column_stack([rows, np.full(300, 5.0)]))


TRAINING = [blobs("a", 2, 0), blobs("b", 3, 1), blobs("c", 5, 2)]
HELD_OUT = [blobs("d", 3, 3), blobs("e", 4, 4)]
SMALL = {"episodes": 2, "n_rows": 64, "clusters": (4, 4), "sizes": (40, 60)}


def make_problem(**settings):
    return ClusteringProblem(TRAINING, HELD_OUT, ClusteringConfig(**SMALL | settings))


def draw(problem, seed=0):
    return problem.draw(np.random.default_rng(seed))


def test_an_episode_has_scaled_rows_without_constant_features_padded_to_one_width():
    batch = draw(make_problem(episodes=3))
    assert batch.n_features.tolist() == [2, 3, 5]
    assert batch.support.shape == batch.query.shape == (3, 64, 5)
    assert batch.support.abs().max() <= 1
    for i, d in enumerate([2, 3, 5]):
        assert batch.support[i, :, :d].std(dim=0).min() > 0
        for padded in (batch.support[i].T, batch.directions[i], batch.start[i].T):
            assert not padded[d:].any()
        assert torch.allclose(batch.directions[i].norm(dim=0), torch.ones(1))


def test_every_batch_has_narrow_and_wide_datasets():
    problem = make_problem()
    widths = [draw(problem, seed).n_features.tolist() for seed in range(20)]
    assert {tuple(pair) for pair in widths} == {(2, 5), (3, 5)}


def test_no_row_is_both_sketched_and_judged():
    rows = np.arange(200.0)[:, None]
    ramp = MetaDataset.from_arrays("ramp", rows)
    problem = ClusteringProblem([ramp], HELD_OUT, ClusteringConfig(**SMALL))
    batch = draw(problem)
    support, query = (
        set(part.ravel().tolist()) for part in (batch.support, batch.query)
    )
    assert len(support) == len(query) == 64
    assert not support & query


def test_lloyds_own_centroids_have_loss_zero(monkeypatch):
    problem = make_problem()
    batch = draw(problem)
    model = IterativeCKM(CKMSpec())
    monkeypatch.setattr(problem, "_decode", lambda model, batch: batch.reference)
    assert float(problem.loss(model, batch)) == pytest.approx(0, abs=1e-6)


def test_the_hungarian_loss_is_added_with_its_weight():
    """Far from the reference both terms are known in closed form: k = 1 here."""
    losses = []
    for weight in (0.0, 1.0, 3.0):
        problem = make_problem(clusters=(1, 1), hungarian=weight)
        batch = draw(problem)
        with torch.no_grad():
            losses.append(float(problem.loss(IterativeCKM(CKMSpec(n_steps=1)), batch)))
            found = problem._decode(IterativeCKM(CKMSpec(n_steps=1)), batch)
    away = (found - batch.reference).square().sum(dim=(1, 2))
    expected = float((away / kmeans_loss(batch.query, batch.reference)).mean())
    assert losses[1] - losses[0] == pytest.approx(expected, rel=1e-4)
    assert losses[2] - losses[0] == pytest.approx(3 * expected, rel=1e-4)


def test_noise_is_that_of_a_release_of_the_imitated_size():
    problem = make_problem(epsilon=0.5, delta=0.01, released_rows=1000)
    means = torch.zeros(50, 400)
    noise = problem._release(means, 200, seed=0)
    sigma = gaussian_sigma(200**0.5, 0.5, 0.01) / 1000
    assert float(noise.std()) == pytest.approx(sigma, rel=0.03)
    assert torch.equal(noise, problem._release(means, 200, seed=0))


def test_decoding_padded_episodes_equals_decoding_each_alone():
    problem = make_problem(episodes=3)
    batch, model = draw(problem), IterativeCKM(CKMSpec())
    with torch.no_grad():
        together = problem._decode(model, batch)
        for i, d in enumerate([2, 3, 5]):
            units = model.spec.n_units(batch.directions.shape[-1])
            matrix = model.matrix(
                batch.directions[i, :d, :units],
                batch.positions[i, :units],
                torch.tensor(float(d)),
            )
            phases = batch.support[i, :, :d] @ matrix
            target = torch.cat([phases.cos(), phases.sin()], dim=1).mean(dim=0)
            alone = model.decode(target, matrix, batch.start[i, :, :d])
            assert torch.allclose(together[i, :, :d], alone, atol=0.02)
            assert not together[i, :, d:].any()


def test_the_radii_follow_the_law_written_in_the_docstring():
    model = IterativeCKM(CKMSpec(activation="tanh"))
    values = {"radius": 0.3, "spread": -0.4, "by_features": 0.7, "by_size": -0.2}
    with torch.no_grad():
        for name, value in values.items():
            model.numbers[name].fill_(value)
    _, positions = draw_units(10, 64, np.random.default_rng(5))
    matrix = model.feature_map(10, 64, seed=5).matrix
    expected = np.exp(
        0.3 + 0.7 * np.log(10 / 32) - 0.2 * np.log(64 / 512)
        + np.exp(-0.4) * positions.numpy()
    )  # fmt: skip
    assert np.allclose(np.linalg.norm(matrix, axis=0), expected, rtol=1e-5)


def test_gradients_reach_the_law_and_the_rate_through_the_last_steps_only():
    problem, model = make_problem(backward_steps=3), IterativeCKM(CKMSpec())
    problem.loss(model, draw(problem)).backward()
    slopes = {name: value.grad for name, value in model.numbers.items()}
    assert slopes["initial_std"] is None
    for name in ("rate", "radius", "spread", "by_features", "by_size"):
        assert torch.isfinite(slopes[name])
        assert slopes[name] != 0


def test_a_rate_above_the_cap_is_capped_and_the_loss_stays_finite():
    problem, model = make_problem(), IterativeCKM(CKMSpec())
    with torch.no_grad():
        model.numbers["rate"].fill_(10.0)
        assert float(model.pace()[0]) == 0.5
        assert torch.isfinite(problem.loss(model, draw(problem)))


@pytest.mark.parametrize("learn", [evolve_ckm, train])
def test_ngopt_and_gradients_lower_the_score_on_held_out_datasets(learn):
    """One centroid, whose steps are too small to reach the mean at first."""
    problem = make_problem(
        clusters=(1, 1), search_steps=20, search_batches=1, optimisers=["adam"]
    )
    model = IterativeCKM(CKMSpec(n_steps=10))
    with torch.no_grad():
        model.numbers["rate"].fill_(-5.0)
        model.numbers["initial_std"].fill_(0.0)
        start = problem.validate(model)["score"]
    config = TrainConfig(steps=6, learning_rate=0.4, validate_every=6)
    assert learn(model, problem, config).best_score < start - 0.1


def test_every_choice_is_tried_and_the_best_is_in_the_spec():
    problem = make_problem(
        search_steps=4, activations=["fourier", "tanh"], optimisers=["adam", "sgd"]
    )
    model = IterativeCKM(CKMSpec(n_steps=5))
    result = evolve_ckm(model, problem, TrainConfig(steps=1))
    tried = {(record["activation"], record["optimiser"]) for record in result.history}
    assert len(tried) == 4
    best = (result.settings["activation"], result.settings["optimiser"])
    assert (model.spec.activation, model.spec.optimiser) == best


def test_the_task_builds_the_papers_form_with_one_matrix():
    config = RunConfig(
        task="iterative-ckm",
        train=TrainConfig(steps=1),
        model={"sketch_size": 20, "n_steps": 5},
        problem={**SMALL, "search_steps": 2, "activations": ["tanh", "fourier"]},
    )
    assert TASKS["iterative-ckm"] is build_ckm
    model, problem = build_ckm(config, TRAINING, HELD_OUT)
    assert model.weight.shape == (196, 10)
    assert draw(problem).directions.shape[-1] == 20
    narrow, wide = (model.feature_map(d, 20).matrix for d in (3, 196))
    assert np.array_equal(narrow, wide[:3])
    with pytest.raises(FeatureMapError, match="up to 196 features into 20 numbers"):
        model.feature_map(3, 22)


def test_weights_bring_back_the_same_map_and_decoder():
    model = IterativeCKM(CKMSpec(activation="tanh", optimiser="sgd", n_steps=7))
    with torch.no_grad():
        model.numbers["radius"].fill_(0.123)
    again = IterativeCKM.from_weights(model.to_weights())
    assert np.array_equal(
        again.feature_map(3, 9).matrix, model.feature_map(3, 9).matrix
    )
    assert again.decoder(4) == model.decoder(4)


def test_an_odd_fourier_sketch_is_refused():
    with pytest.raises(FeatureMapError, match="must be even"):
        IterativeCKM(CKMSpec()).feature_map(3, 9)


def test_datasets_must_not_be_on_both_sides_and_relu_has_no_private_form():
    with pytest.raises(RowsError, match="common: d"):
        ClusteringProblem(HELD_OUT, HELD_OUT[:1], ClusteringConfig())
    with pytest.raises(ConfigError, match="no norm bound"):
        ClusteringConfig(epsilon=1.0, activations=["relu"])


def test_the_shipped_model_beats_one_centroid_and_says_how_it_was_made_and_its_limits():
    rng = np.random.default_rng(0)
    centres = np.array([[0.1, 0.1, 0.2], [0.9, 0.2, 0.8], [0.4, 0.9, 0.5]])
    rows = centres[rng.integers(3, size=3000)] + 0.02 * rng.normal(size=(3000, 3))
    model = load_model("kmeans-ckm")
    sketch = sketch_rows(rows, model.feature_map(3, 300, seed=1))
    found = model.decoder(3).decode(sketch).params.centres
    left = ((rows[:, None] - found) ** 2).sum(axis=2).min(axis=1).mean()
    assert left < 0.25 * rows.var(axis=0).sum()
    card = load_card("kmeans-ckm")
    assert not set(card["train_datasets"]) & set(card["held_out_datasets"])
    assert {"command", "limits", "results", "search", "tries"} <= set(card)
