"""Second-moment decoders learn from correlations of training datasets alone.

Losses are what their formulas say, episodes are correlation matrices, and no number of
a held-out dataset is ever drawn.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from torch import nn

from sketchlearn.decoders.moments.covariance.dense import symmetric_matrix
from sketchlearn.decoders.moments.equivariant import EquivariantDecoder
from sketchlearn.errors import ConfigError, FeatureMapError
from sketchlearn.features.cross_moments import random_groups
from sketchlearn.meta.config import DataConfig, RunConfig, TrainConfig
from sketchlearn.meta.correlation_losses import log_area_ratio, stein_loss
from sketchlearn.meta.datasets import MetaDataset
from sketchlearn.meta.prior import PriorNetwork
from sketchlearn.meta.runs import build_run, train_run
from sketchlearn.meta.sqnet import TrainableSQNet
from sketchlearn.meta.tasks.correlations import CorrelationConfig, CorrelationProblem
from sketchlearn.meta.tasks.second_moment import PaddedMomentProblem
from sketchlearn.metrics import log_relative_error, pca_reconstruction_error
from sketchlearn.nested_sqnet import NestedSQNet
from sketchlearn.sqnet import SQNetSpec


def alike(name, d, correlation, *, constant=0):
    """A dataset whose features all have the same correlation, and constant ones."""
    rng = np.random.default_rng(d)
    rows = rng.normal(size=(200, d))
    rows -= rows.mean(axis=0)
    white = rows @ np.linalg.inv(np.linalg.cholesky(rows.T @ rows / 200)).T
    wanted = np.full((d, d), correlation) + (1 - correlation) * np.eye(d)
    mixed = white @ np.linalg.cholesky(wanted).T
    table = np.concatenate([mixed, np.full((200, constant), 5.0)], axis=1)
    return MetaDataset.from_arrays(name, table.astype(np.float32))


def mixed(name, d, seed):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(100, d)) @ rng.normal(size=(d, d))
    return MetaDataset.from_arrays(name, rows.astype(np.float32))


def off_diagonal(matrices):
    d = matrices.shape[-1]
    return matrices[..., ~np.eye(d, dtype=bool)]


def moments(d, seed, count=3):
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(count, d, 2 * d))
    return torch.from_numpy(roots @ roots.transpose(0, 2, 1) / (2 * d))


@pytest.mark.parametrize("d", [2, 5, 30])
def test_the_log_ratio_of_areas_is_the_log_relative_error_of_pca(d):
    found, truth = moments(d, 0), moments(d, 1)
    ratios = log_area_ratio(found, truth).numpy()
    for ratio, one, other in zip(ratios, found.numpy(), truth.numpy(), strict=True):
        error, least = (
            pca_reconstruction_error(other, np.linalg.eigh(matrix)[1][:, ::-1].T, d)
            for matrix in (one, other)
        )
        assert ratio == pytest.approx(log_relative_error(error, least), abs=1e-9)
        assert ratio > 0


def test_the_gradient_of_the_log_ratio_is_that_of_finite_differences():
    truth = moments(5, 1)
    found = (moments(5, 0) + torch.diag(torch.arange(5.0))).requires_grad_()
    assert torch.autograd.gradcheck(lambda a: log_area_ratio(a, truth, 1e-9), found)


def test_equal_eigenvalues_have_a_finite_gradient():
    found = torch.eye(4, dtype=torch.float64)[None].requires_grad_()
    log_area_ratio(found, moments(4, 0, 1)).sum().backward()
    assert torch.isfinite(found.grad).all()


@pytest.mark.parametrize("d", [1, 4, 9])
def test_steins_loss_is_the_gaussian_likelihood(d):
    rng = np.random.default_rng(d)
    rows = rng.normal(size=(50, d)) @ rng.normal(size=(d, d))
    truth, found = torch.from_numpy(rows.T @ rows / 50)[None], moments(d, 2, 1)
    model = multivariate_normal(np.zeros(d), found[0].numpy() + 0.01 * np.eye(d))
    expected = -2 * np.mean(model.logpdf(rows)) / d - np.log(2 * np.pi)
    assert stein_loss(found, truth).item() == pytest.approx(expected, rel=1e-9)


SETTINGS = CorrelationConfig(episodes=2, max_features=30, max_numbers=300.0)
PLAIN = replace(SETTINGS, augment=0.0, flips=0.0)


def test_only_training_datasets_are_drawn():
    training = [alike("a", 30, 0.5), alike("b", 35, 0.2, constant=3)]
    problem = CorrelationProblem(training, [alike("c", 30, 0.8)], PLAIN)
    drawn = set()
    for seed in range(20):
        matrices = problem.draw(np.random.default_rng(seed)).matrices
        values = off_diagonal(matrices.numpy())
        assert np.abs(values - values[:, :1]).max() < 1e-4  # one dataset each
        drawn |= set(np.round(values[:, 0], 2).tolist())
    assert {round(value, 2) for value in drawn} == {0.2, 0.5}


def test_an_episode_is_a_sub_matrix_of_a_dataset():
    data = mixed("a", 30, 0)
    whole = np.corrcoef(data.rows.T.astype(np.float64))
    problem = CorrelationProblem([data], [], PLAIN)
    known = np.sort(off_diagonal(whole))
    for seed in range(10):
        values = off_diagonal(problem.draw(np.random.default_rng(seed))[0].numpy())
        place = np.clip(np.searchsorted(known, values), 1, len(known) - 1)
        nearest = np.minimum(
            np.abs(known[place] - values), np.abs(known[place - 1] - values)
        )
        assert nearest.max() < 1e-5


@pytest.mark.parametrize("augment", [0.0, 1.0])
@pytest.mark.parametrize("flips", [0.0, 1.0])
def test_every_episode_is_a_correlation_matrix(augment, flips):
    shares = {"image": 0.5, "synthetic": 0.5}
    config = replace(SETTINGS, augment=augment, flips=flips, shares=shares)
    data = replace(mixed("a", 40, 0), kind="image")
    problem = CorrelationProblem([data], [], config)
    for seed in range(10):
        matrices, omega = problem.draw(np.random.default_rng(seed))[:2]
        assert matrices.dtype == omega.dtype == torch.float32
        assert torch.allclose(
            torch.diagonal(matrices, dim1=1, dim2=2), torch.ones(()), atol=1e-5
        )
        assert torch.allclose(matrices, matrices.mT, atol=1e-6)
        assert torch.linalg.eigvalsh(matrices.double()).min() > -1e-4


def test_a_batch_is_a_sketch_that_does_not_hold_all_and_is_repeatable():
    problem = CorrelationProblem([mixed("a", 30, 0)], [], SETTINGS)
    shapes = set()
    for seed in range(20):
        matrices, omega = problem.draw(np.random.default_rng(seed))[:2]
        d, columns = omega.shape[1:]
        assert matrices.shape == (len(omega), d, d)
        assert d * columns < d * (d + 1) / 2
        again = problem.draw(np.random.default_rng(seed))
        assert torch.equal(matrices, again[0])
        assert torch.equal(omega, again[1])
        shapes.add((d, columns))
    assert len(shapes) > 5


def test_shares_choose_the_kinds_and_unknown_kinds_are_refused():
    image = replace(alike("a", 30, 0.5), kind="image")
    made = replace(alike("b", 30, 0.2), kind="image", real=False)
    for kind, expected in (("image", 0.5), ("simulated", 0.2)):
        config = replace(PLAIN, shares={kind: 1.0})
        problem = CorrelationProblem([image, made], [], config)
        matrices = problem.draw(np.random.default_rng(0)).matrices
        values = off_diagonal(matrices.numpy())
        assert np.abs(values - expected).max() < 1e-4
    with pytest.raises(ConfigError, match="no dataset is of kind 'sound'; there are"):
        CorrelationProblem([image], [], replace(PLAIN, shares={"sound": 1.0}))


def test_a_kind_that_the_folder_lacks_leaves_its_share_to_the_others():
    image = replace(alike("a", 30, 0.5), kind="image")
    config = replace(PLAIN, shares={"image": 0.2, "genotype": 0.8})
    with pytest.warns(UserWarning, match="no dataset of the folder is genotype"):
        problem = CorrelationProblem([image], [], config)
    matrices = problem.draw(np.random.default_rng(0)).matrices
    assert np.abs(off_diagonal(matrices.numpy()) - 0.5).max() < 1e-4
    with pytest.raises(ConfigError, match="no dataset is of kind 'genotype'"):
        CorrelationProblem([image], [], replace(PLAIN, shares={"genotype": 1.0}))


ORDERED = replace(SETTINGS, shuffled=0.0, augment=0.0, flips=0.0, uneven=0.0)


def chain(d):
    """A dataset whose features are as alike as they are near."""
    rng = np.random.default_rng(d)
    rows = [rng.normal(size=4000)]
    for _ in range(d - 1):
        rows.append(0.9 * rows[-1] + 0.436 * rng.normal(size=4000))
    return MetaDataset.from_arrays("chain", np.stack(rows, 1).astype(np.float32))


def test_features_keep_their_order_unless_they_are_to_be_shuffled():
    for shuffled, expected in ((0.0, True), (1.0, False)):
        config = replace(ORDERED, shuffled=shuffled)
        problem = CorrelationProblem([chain(60)], [], config)
        for seed in range(5):
            matrices = problem.draw(np.random.default_rng(seed)).matrices.numpy()
            near = np.mean([np.diag(matrix, 1).mean() for matrix in matrices])
            assert (near > off_diagonal(matrices).mean() + 0.15) == expected


def test_features_without_room_are_spread_over_all_and_nothing_is_seen_of_them():
    config = replace(ORDERED, thinned=1.0)
    problem = CorrelationProblem([chain(60)], [], config)
    for seed in range(10):
        batch = problem.draw(np.random.default_rng(seed))
        d, p = batch.matrices.shape[1], len(batch.places)
        assert p <= d
        assert batch.omega.shape[1] == batch.seen.shape[1] == p
        gaps = np.diff(batch.places.numpy())
        assert gaps.min(initial=1) >= 1
        assert gaps.max(initial=1) <= 2 * -(-d // p)
        inner = batch.matrices[:, batch.places[:, None], batch.places]
        assert torch.allclose(batch.seen, inner @ batch.omega, atol=1e-5)


def test_noise_is_on_the_sketch_and_as_large_as_is_said():
    problem = CorrelationProblem([chain(60)], [], replace(ORDERED, noisy=1.0))
    levels = []
    for seed in range(30):
        batch = problem.draw(np.random.default_rng(seed))
        added = batch.seen - batch.matrices @ batch.omega
        levels.append((added.std(dim=(1, 2)) / batch.noise).numpy())
    assert 0.9 < np.concatenate(levels).mean() < 1.1


class Answer(nn.Module):
    """Gives one and the same correlation between all features."""

    def __init__(self, correlation):
        super().__init__()
        self.correlation = correlation

    def forward(self, omega, seen, *, places, n_features, noise=None):
        d = n_features
        one = torch.full((d, d), self.correlation, dtype=omega.dtype)
        return (one + (1 - self.correlation) * torch.eye(d)).expand(len(omega), d, d)


def test_validation_is_the_log_relative_error_on_held_out_datasets():
    training, held_out = [mixed("a", 30, 0)], [alike("b", 30, 0.5, constant=2)]
    problem = CorrelationProblem(training, held_out, SETTINGS)
    right, independent = (problem.validate(Answer(value)) for value in (0.5, 0.0))
    assert right["score"] == pytest.approx(0.0, abs=1e-5)
    # All eigenvalues but the first are 1/2, and 1 for axes: the areas are as 1 to 2.
    assert independent == pytest.approx(
        {"score": np.log(2), "lre_100": np.log(2)}, abs=1e-4
    )
    assert problem.validate(Answer(0.0)) == independent


def test_the_loss_is_the_log_ratio_and_a_share_of_steins():
    problem = CorrelationProblem([mixed("a", 30, 0)], [], replace(PLAIN, stein=0.3))
    batch = problem.draw(np.random.default_rng(0))
    matrices, d = batch.matrices, batch.matrices.shape[1]
    found = Answer(0.25)(batch.omega, batch.seen, places=batch.places, n_features=d)
    expected = log_area_ratio(found, matrices) + 0.3 * stein_loss(found, matrices)
    loss = problem.loss(Answer(0.25), batch)
    assert loss.item() == pytest.approx(expected.mean().item(), rel=1e-5)


def zero_net(d):
    net = TrainableSQNet(SQNetSpec(d, 4, inputs="outer", output="symmetric"))
    with torch.no_grad():
        for weight in net.parameters():
            weight.zero_()
    return net


def matrices(triangles):
    return symmetric_matrix(np.asarray(triangles, np.float64))


def test_narrow_datasets_are_padded_with_zeros_and_only_training_ones_drawn():
    training = [alike("a", 4, 0.5), alike("b", 9, 0.2, constant=2)]
    problem = PaddedMomentProblem(
        training, [alike("c", 6, 0.8)], n_features=6, episodes=40
    )
    drawn = problem.draw(np.random.default_rng(0)).triangles
    assert drawn.shape == (40, 21)
    batch = matrices(drawn)
    narrow = batch[:, 5, 5] == 0
    assert 0 < narrow.sum() < 40
    for matrix in batch:
        d = np.count_nonzero(np.diag(matrix))
        # at least half of four features, or as many of nine as fit
        assert d in (2, 3, 4, 6)
        assert not matrix[d:].any()
        expected = 0.2 if d == 6 else 0.5
        assert np.abs(off_diagonal(matrix[:d, :d]) - expected).max() < 1e-4
    again = problem.draw(np.random.default_rng(0))
    assert np.array_equal(drawn, again.triangles)


def test_features_keep_the_order_of_the_dataset():
    # Neighbours are alike: correlations fall along every row of a matrix in order.
    steps = np.random.default_rng(0).normal(size=(4000, 12))
    data = MetaDataset.from_arrays("walk", steps.cumsum(axis=1).astype(np.float32))
    problem = PaddedMomentProblem([data], [data], n_features=8, episodes=20)
    for matrix in matrices(problem.draw(np.random.default_rng(0)).triangles):
        assert (np.diff(matrix[0]) < 0).all()
        assert (np.diff(matrix[-1]) > 0).all()


def test_shares_say_how_often_a_kind_is_drawn():
    image = replace(alike("a", 6, 0.5), kind="image")
    made = replace(alike("b", 6, 0.2), kind="image", real=False)
    for kind, expected in (("image", 0.5), ("simulated", 0.2)):
        problem = PaddedMomentProblem(
            [image, made], [image], n_features=5, episodes=9, shares={kind: 1.0}
        )
        found = off_diagonal(matrices(problem.draw(np.random.default_rng(0)).triangles))
        assert np.abs(found - expected).max() < 1e-4
    with pytest.raises(ConfigError, match="no dataset is of kind 'sound'; there are"):
        PaddedMomentProblem([image], [image], shares={"sound": 1.0})


def test_the_padded_problem_counts_absolute_errors_of_the_lower_triangle():
    problem = PaddedMomentProblem(
        [alike("a", 5, 0.5)], [alike("b", 3, -0.25)], n_features=4, episodes=2
    )
    batch = problem.draw(np.random.default_rng(0))
    # A net of zeros misses 4 ones and 6 halves; of the held-out one 3 ones, 3 quarters.
    assert problem.loss(zero_net(4), batch).item() == pytest.approx(0.7, abs=1e-4)
    with torch.no_grad():
        validation = problem.validate(zero_net(4))
    assert validation["score"] == pytest.approx(3.75 / 10, abs=1e-4)
    assert np.isfinite(validation["lre"])


def test_networks_of_one_size_start_where_those_of_all_sizes_end():
    nested = replace(
        run_config("second-moment", start_episodes=60),
        model={"nested": True, "sketch_size": 12},
    )
    single = run_config("second-moment", start_episodes=60)
    one, all_sizes = (build_run(c, DATASETS).model for c in (single, nested))
    assert isinstance(all_sizes.freeze(), NestedSQNet)
    expected = all_sizes.freeze().sized(8).tensors
    found = one.freeze().tensors
    # A direction is the same whatever comes after it, up to rounding.
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, atol=2e-3)


def test_the_closed_form_beats_training_from_fresh_weights():
    fresh, start = (
        train_run(run_config("second-moment", start_episodes=n), DATASETS).result
        for n in (0, 60)
    )
    assert start.history[0]["score"] < 0.75 * fresh.best_score


def test_training_the_basis_goes_on_from_the_closed_form():
    config = replace(
        run_config("second-moment", start_episodes=60, episodes=16),
        model={"nested": True, "sketch_size": 8},
        train=TrainConfig(steps=60, validate_every=20, learning_rate=1e-3),
    )
    losses = [record["loss"] for record in train_run(config, DATASETS).result.history]
    assert losses[-1] < losses[1]
    stopped = replace(config, train=TrainConfig(steps=0))
    start, model = (
        train_run(stopped, DATASETS).model.freeze(),
        build_run(stopped, DATASETS).model.freeze(),
    )
    assert np.array_equal(start.basis, model.basis)


DATASETS = [mixed(name, 16, seed) for seed, name in enumerate("abcd")]
MODELS = {
    "correlations": {"width": 8, "depth": 1, "n_heads": 2, "rank": 2},
    "second-moment": {"sketch_size": 8, "inputs": "outer", "output": "symmetric"},
}
PROBLEMS = {
    "correlations": {"episodes": 2, "max_features": 16, "max_numbers": 130.0},
    "second-moment": {"episodes": 2, "n_features": 16},
}


def run_config(task, **problem):
    return RunConfig(
        task=task,
        train=TrainConfig(steps=4, validate_every=2, seed=1),
        data=DataConfig(held_out=["d"]),
        model=MODELS[task],
        problem={**PROBLEMS[task], **problem},
    )


@pytest.mark.parametrize("task", MODELS)
def test_a_few_steps_change_the_weights_and_are_repeatable(task):
    config = run_config(task)
    before = build_run(config, DATASETS).model.state_dict()
    one, two = (train_run(config, DATASETS) for _ in range(2))
    after, again = one.model.state_dict(), two.model.state_dict()
    assert all(torch.equal(after[name], again[name]) for name in after)
    assert any(not torch.equal(after[name], before[name]) for name in after)
    assert one.result.steps == 4
    assert np.isfinite(one.result.best_score)
    assert one.card["train_datasets"] == ["a", "b", "c"]
    assert one.card["held_out_datasets"] == ["d"]


def test_a_trained_prior_is_a_decoder():
    trained = train_run(run_config("correlations"), DATASETS)
    assert isinstance(trained.model, PriorNetwork)
    weights = trained.model.to_weights(trained.card)
    assert weights.card["task"] == "correlations"
    decoder = EquivariantDecoder.from_weights(weights)
    omega = random_groups(16, 3, seed=0)
    # Directions of equal strength have no order that all machines agree on.
    loadings = np.random.default_rng(0).uniform(0.2, 0.9, (16, 3)) / np.sqrt([1, 2, 4])
    truth = loadings @ loadings.T
    np.fill_diagonal(truth, 1.0)
    with torch.no_grad():
        tensors = torch.from_numpy(omega)[None], torch.from_numpy(truth @ omega)[None]
        expected = trained.model(*tensors)[0].numpy()
    assert np.allclose(decoder.correlate(truth @ omega, omega, 0.0), expected)


def test_training_lowers_the_loss():
    problem = CorrelationProblem(DATASETS[:3], [], CorrelationConfig.from_dict(
        {**PROBLEMS["correlations"], "augment": 0.0}
    ))  # fmt: skip
    config = replace(
        run_config("correlations", augment=0.0),
        train=TrainConfig(steps=40, validate_every=40, learning_rate=3e-3),
    )
    fresh, trained = build_run(config, DATASETS).model, train_run(config, DATASETS)
    with torch.no_grad():
        losses = [
            np.mean([
                problem.loss(model, problem.draw(np.random.default_rng(seed))).item()
                for seed in range(1000, 1010)
            ])
            for model in (fresh, trained.model)
        ]  # fmt: skip
    assert losses[1] < losses[0]


@pytest.mark.parametrize("task", MODELS)
def test_settings_a_task_does_not_know_are_refused(task):
    with pytest.raises((ConfigError, FeatureMapError), match="'colour'"):
        build_run(run_config(task, colour=1), DATASETS)


def nested_config(**problem):
    return replace(
        run_config("second-moment", start_episodes=60, **problem),
        model={"nested": True, "sketch_size": 8},
    )


@pytest.mark.parametrize("config", [run_config("second-moment"), nested_config()])
def test_training_ends_with_the_range_of_sketches_of_its_datasets(config):
    run = train_run(config, DATASETS)
    prior, frozen = run.model.prior, run.model.freeze()
    net = frozen.sized(8) if isinstance(frozen, NestedSQNet) else frozen
    whole = [np.corrcoef(data.rows.T)[np.tril_indices(16)] for data in DATASETS[:3]]
    with torch.no_grad():
        sketches = run.model.sketch_triangles(torch.tensor(np.array(whole)).float())
    # Episodes are parts of datasets: some may reach a little less far than the whole.
    width = prior.high - prior.low
    assert (sketches.numpy() >= prior.low - width).all()
    assert (sketches.numpy() <= prior.high + width).all()
    rows = np.concatenate([data.take(range(100), range(16)) for data in DATASETS[:3]])
    norms = np.linalg.norm(net.feature_map(value_bound=2.0**20)(rows), axis=1)
    assert np.mean(norms <= prior.norm_bound) == pytest.approx(0.75, abs=0.08)
    assert net.prior.norm_bound == prior.norm_bound
    assert "sketch.low" in run.model.to_weights().tensors


def test_no_number_of_a_held_out_dataset_is_in_the_range():
    far = mixed("d", 16, 9)
    priors = [
        train_run(nested_config(), [*DATASETS[:3], held]).model.prior
        for held in (DATASETS[3], far)
    ]
    for name, array in priors[0].to_tensors().items():
        np.testing.assert_array_equal(array, priors[1].to_tensors()[name])


@pytest.mark.parametrize("make", [run_config, None])
def test_noise_of_a_release_makes_the_loss_larger(make):
    release = {"epsilon": 1.0, "n_rows": 20}
    if make is None:
        quiet, noisy = nested_config(), nested_config(release=release)
    else:
        quiet, noisy = (
            make("second-moment", start_episodes=60, **extra)
            for extra in ({}, {"release": release})
        )
    losses = []
    for config in (quiet, noisy):
        run = build_run(config, DATASETS)
        batch = run.problem.draw(np.random.default_rng(0))
        losses.append(run.problem.loss(run.model, batch).item())
        assert run.problem.loss(run.model, batch).item() == losses[-1]
    assert losses[1] > 1.02 * losses[0]
    assert np.isfinite(train_run(noisy, DATASETS).result.best_score)
    with pytest.raises(FeatureMapError, match="colour"):
        build_run(nested_config(release={"colour": 1}), DATASETS)


def test_noise_is_that_of_the_weights_that_are_started_from(monkeypatch):
    noisy = nested_config(release={"epsilon": 1.0, "n_rows": 20})
    run = build_run(noisy, DATASETS)
    start = {name: 3 * part for name, part in run.model.state_dict().items()}
    bounds, validate = [], PaddedMomentProblem.validate

    def seen(problem, model):
        bounds.append(model.prior.norm_bound)
        return validate(problem, model)

    monkeypatch.setattr(PaddedMomentProblem, "validate", seen)
    ended = replace(noisy, train=replace(noisy.train, steps=0))
    done = train_run(ended, DATASETS, start_from=start)
    assert bounds[0] == pytest.approx(done.model.prior.norm_bound)
    assert bounds[0] > 2 * run.model.prior.norm_bound
