"""Iterative CKM is learned on some datasets, and serves others of any width."""

import os
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch

from sketchlearn import sketch_rows
from sketchlearn.decoders.clusters.ckm_descent import CKMSpec
from sketchlearn.decoders.clusters.ckm_units import MatrixLaw
from sketchlearn.errors import ConfigError, FeatureMapError, RowsError, TrainingError
from sketchlearn.files.weights import save_weights
from sketchlearn.meta.ckm import TrainableCKM
from sketchlearn.meta.ckm_search import evolve_ckm
from sketchlearn.meta.clustering import ClusteringConfig, draw_episodes
from sketchlearn.meta.config import DataConfig, RunConfig, TrainConfig
from sketchlearn.meta.datasets import MetaDataset
from sketchlearn.meta.descent import kmeans_loss
from sketchlearn.meta.runs import train_run
from sketchlearn.meta.tasks.base import find_tasks
from sketchlearn.meta.tasks.iterative_ckm import ClusteringProblem, build_ckm
from sketchlearn.meta.trainer import train
from sketchlearn.privacy.mechanisms import gaussian_sigma
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
    model = TrainableCKM(CKMSpec())
    monkeypatch.setattr(problem, "_decode", lambda model, batch: batch.reference)
    assert float(problem.loss(model, batch)) == pytest.approx(0, abs=1e-6)


def test_the_hungarian_loss_is_added_with_its_weight():
    """Far from the reference both terms are known in closed form: k = 1 here."""
    losses = []
    for weight in (0.0, 1.0, 3.0):
        problem = make_problem(clusters=(1, 1), hungarian=weight)
        batch = draw(problem)
        with torch.no_grad():
            losses.append(float(problem.loss(TrainableCKM(CKMSpec(n_steps=1)), batch)))
            found = problem._decode(TrainableCKM(CKMSpec(n_steps=1)), batch)
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
    batch, model = draw(problem), TrainableCKM(CKMSpec(n_steps=40))
    with torch.no_grad():
        together = problem._decode(model, batch)
        for i, d in enumerate([2, 3, 5]):
            units, n_features = batch.directions.shape[-1] // 2, torch.tensor(float(d))
            matrix = model.matrix(
                batch.directions[i, :d, :units], batch.positions[i, :units], n_features
            )
            phases = batch.support[i, :, :d] @ matrix
            target = torch.cat([phases.cos(), phases.sin()], dim=1).mean(dim=0)
            start = batch.start[i, :, :d]
            alone = model.fit(target, matrix, start, n_features=n_features).centroids
            assert torch.allclose(together[i, :, :d], alone, atol=0.02)
            assert not together[i, :, d:].any()


def test_narrow_and_wide_episodes_are_decoded_apart_and_keep_their_places():
    datasets = [blobs("f", 60, 5), blobs("g", 3, 6), blobs("h", 70, 7)]
    options = {"n_rows": 64, "n_clusters": 4, "size": 40}
    batch = draw_episodes(datasets, **options, rng=np.random.default_rng(0))
    problem, model = make_problem(), TrainableCKM(CKMSpec(n_steps=20))
    parts = [(places.tolist(), part.support.shape[2]) for places, part in batch.parts()]
    assert parts == [([1], 3), ([0, 2], 70)]
    with torch.no_grad():
        together = problem._decode(model, batch)
        padded = problem._decode_part(model, batch)
    assert together.shape == (3, 4, 70)
    assert torch.allclose(together, padded, atol=1e-3)


def test_gradients_reach_every_number_through_the_whole_descent():
    problem = make_problem(backward_steps=20)
    model = TrainableCKM(CKMSpec(n_steps=20))
    problem.loss(model, draw(problem)).backward()
    for value in model.numbers.values():
        assert torch.isfinite(value.grad)
        assert value.grad != 0


def test_gradients_through_the_last_steps_leave_the_start_out():
    problem, model = make_problem(backward_steps=3), TrainableCKM(CKMSpec(n_steps=20))
    problem.loss(model, draw(problem)).backward()
    assert model.numbers["initial_std"].grad is None
    assert model.numbers["radius"].grad != 0


def test_gaussian_clusters_are_trained_on_and_others_of_them_held_out():
    problem = make_problem(synthetic=5)
    drawn = [data.name for data in problem.datasets if not data.real]
    assert len(drawn) == 5
    assert sum(len(case.support) for case in problem._cases) == 3 * (len(HELD_OUT) + 2)
    again = make_problem(synthetic=5)
    assert [data.name for data in again.datasets if not data.real] == drawn


@pytest.mark.parametrize("learn", [evolve_ckm, train])
def test_ngopt_and_gradients_lower_the_score_on_held_out_datasets(learn):
    """One centroid, whose steps are too small to reach the mean at first."""
    problem = make_problem(
        clusters=(1, 1), search_steps=20, search_batches=1, optimisers=["adam"]
    )
    model = TrainableCKM(CKMSpec(n_steps=10))
    with torch.no_grad():
        model.numbers["rate"].fill_(-7.0)
        model.numbers["initial_std"].fill_(0.0)
        start = problem.validate(model)["score"]
    config = TrainConfig(steps=4, learning_rate=0.6, validate_every=4)
    assert learn(model, problem, config).best_score < start - 0.1


def test_every_choice_is_tried_and_the_best_is_in_the_spec():
    problem = make_problem(
        search_steps=4, activations=["fourier", "tanh"], optimisers=["adam", "sgd"]
    )
    model = TrainableCKM(CKMSpec(n_steps=5))
    result = evolve_ckm(model, problem, TrainConfig(steps=1))
    tried = {(record["activation"], record["optimiser"]) for record in result.history}
    assert len(tried) == 4
    best = (result.settings["activation"], result.settings["optimiser"])
    assert (model.spec.activation, model.spec.optimiser) == best


@pytest.mark.parametrize("order", [["tanh", "fourier"], ["fourier", "tanh"]])
def test_a_search_leaves_the_model_it_scored(order):
    """Units of tanh have points for atoms; Fourier units keep Gaussians."""
    problem = make_problem(search_steps=2, activations=order, optimisers=["adam"])
    model = TrainableCKM(CKMSpec(n_steps=100))
    result = evolve_ckm(model, problem, TrainConfig(steps=1))
    assert model.spec.activation == "fourier"
    assert model.spec.atoms == "gaussian"
    with torch.no_grad():
        assert problem.validate(model)["score"] == result.best_score


@pytest.mark.parametrize(
    ("table", "settings"),
    [
        ("problem", {"activations": ["fourier", "swish"]}),
        ("problem", {"activations": "fourier"}),
        ("problem", {"optimisers": ["lion"]}),
        ("model", {"activation": "swish"}),
        ("model", {"activation": "swish", "atoms": "point"}),
        ("model", {"optimiser": "lion"}),
        ("model", {"atoms": "box"}),
    ],
)
def test_names_that_nobody_knows_are_errors_of_the_configuration(table, settings):
    given = {"model": {}, "problem": SMALL, table: {**SMALL, **settings}}
    given["model"] = settings if table == "model" else {}
    config = RunConfig(task="iterative-ckm", train=TrainConfig(steps=1), **given)
    with pytest.raises(ConfigError, match=r"must be .* of .*; got \W*\w+"):
        build_ckm(config, TRAINING, HELD_OUT)


def run_config(**problem):
    return RunConfig(
        task="iterative-ckm",
        train=TrainConfig(steps=1, validate_every=1),
        data=DataConfig(held_out=["d", "e"]),
        model={"n_steps": 5},
        problem={**SMALL, "search_steps": 6, "search_batches": 1, **problem},
    )


def test_ctrl_c_in_the_search_ends_the_run_which_goes_on_with_the_rest(
    tmp_path, monkeypatch
):
    datasets, config = [*TRAINING, *HELD_OUT], run_config()
    whole = train_run(config, datasets)
    loss, calls = ClusteringProblem.loss, []

    def interrupted(self, model, batch):
        calls.append(1)
        if len(calls) == 4:
            os.kill(os.getpid(), signal.SIGINT)
        return loss(self, model, batch)

    monkeypatch.setattr(ClusteringProblem, "loss", interrupted)
    stopped = train_run(config, datasets, folder=tmp_path)
    assert stopped.result.stopped == "interrupt"
    assert stopped.result.steps == 0
    assert len(calls) == 4
    resumed = train_run(config, datasets, folder=tmp_path)
    assert resumed.result.stopped == "steps"
    assert len(calls) == 7  # the other two of the search, and one step
    assert resumed.card["search"]["evaluations"] == 6
    assert resumed.model.spec == whole.model.spec
    one, two = (done.model.freeze().tensors for done in (whole, resumed))
    assert all(np.array_equal(one[name], two[name]) for name in one)


def test_a_run_is_searched_or_starts_from_weights_but_not_both(tmp_path):
    datasets = [*TRAINING, *HELD_OUT]
    trained = train_run(run_config(search_steps=0), datasets)
    path = tmp_path / "ckm.safetensors"
    save_weights(trained.model.to_weights(), path)
    for start in (path, trained.model.state_dict()):
        with pytest.raises(ConfigError, match=r"Set search_steps = 0 in \[problem\]"):
            train_run(run_config(), datasets, start_from=start, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    again = train_run(run_config(search_steps=0), datasets, start_from=path)
    assert again.card["started_from"]["checksum"]


@pytest.mark.parametrize(
    ("change", "dropped", "named"),
    [
        ({"problem": run_config(search_steps=2, n_rows=50).problem}, (), "problem"),
        ({"model": {"n_steps": 6}}, (), "model"),
        ({"data": DataConfig(held_out=["d"])}, (), "data"),
        ({}, ("a",), "train_datasets"),
        ({}, ("e",), "held_out_datasets"),
    ],
)
@pytest.mark.filterwarnings("ignore:not in the folder")
def test_a_search_does_not_go_on_from_measurements_of_another_problem(
    tmp_path, change, dropped, named
):
    datasets, config = [*TRAINING, *HELD_OUT], run_config(search_steps=2)
    train_run(config, datasets, folder=tmp_path)
    rest = [data for data in datasets if data.name not in dropped]
    with pytest.raises(TrainingError, match=rf"other settings \(.*\b{named}\b"):
        train_run(replace(config, **change), rest, folder=tmp_path)


@pytest.mark.parametrize("search_steps", [0, 3])
def test_a_run_searches_before_it_trains_and_its_card_says_so(search_steps):
    config = RunConfig(
        task="iterative-ckm",
        train=TrainConfig(steps=0),
        data=DataConfig(held_out=["d", "e"]),
        model={"n_steps": 5},
        problem={**SMALL, "search_steps": search_steps, "search_batches": 1},
    )
    done = train_run(config, [*TRAINING, *HELD_OUT])
    if not search_steps:
        assert done.search is None
        assert "search" not in done.card
        return
    found = done.card["search"]
    assert found["evaluations"] == 2  # of each of two optimisers, one
    assert found["settings"]["optimiser"] == done.model.spec.optimiser
    with torch.no_grad():
        score = make_problem().validate(done.model)["score"]
    assert found["score"] == pytest.approx(score) == done.search.best_score


def test_the_task_builds_the_papers_form_with_one_matrix():
    config = RunConfig(
        task="iterative-ckm",
        train=TrainConfig(steps=1),
        model={"sketch_size": 20, "n_steps": 5},
        problem=SMALL | {"sizes": (10, 20)},
    )
    assert find_tasks()["iterative-ckm"].build is build_ckm
    model, problem = build_ckm(config, TRAINING, HELD_OUT)
    assert model.weight.shape == (196, 10)
    assert 10 <= draw(problem).directions.shape[-1] <= 20
    frozen = model.freeze()
    narrow, wide = (frozen.feature_map(d, 20).matrix for d in (3, 196))
    assert np.array_equal(narrow, wide[:3])
    assert np.array_equal(frozen.feature_map(3, 12).matrix, narrow[:, :6])
    with pytest.raises(FeatureMapError, match="up to 196 features into up to 20 num"):
        frozen.feature_map(3, 22)
    with pytest.raises(ConfigError, match="sizes go up to 60, but sketch_size"):
        build_ckm(replace(config, problem=SMALL), TRAINING, HELD_OUT)


PRINTED = {
    "activation": "tanh",
    "atoms": "point",
    "schedule": "constant",
    "is_pulled": False,
    "sketch_size": 20,
    "n_steps": 10,
}


def printed_problem(**settings):
    settings = {"activations": ["tanh", "relu"], "search_batches": 1, **settings}
    return make_problem(sizes=(10, 20), **settings)


def test_the_papers_form_is_searched_by_its_settings_and_then_entry_by_entry():
    problem = printed_problem(search_steps=40, matrix_steps=10)
    model = TrainableCKM(CKMSpec(**PRINTED))
    result = evolve_ckm(model, problem, TrainConfig(steps=0))
    assert result.evaluations == 50
    assert [len(cell) for cell in result.tried] == [3, 3, 3, 3, 2]
    assert result.tried[-1]["searched"] == "entries of W"
    best = min(cell["score"] for cell in result.tried)
    assert result.best_score == best == result.tried[-1]["score"]
    assert model.spec.activation == result.settings["activation"]
    assert model.spec.atoms == "point"
    with torch.no_grad():
        assert problem.validate(model)["score"] == result.best_score
    start, end = result.history[0], result.best_score
    assert end < start["score"]


def test_settings_alone_are_those_of_the_law_that_was_drawn_from():
    model = TrainableCKM(CKMSpec(**PRINTED))
    problem = printed_problem(search_steps=8)
    found = evolve_ckm(model, problem, TrainConfig(steps=0, seed=3)).settings
    names = ("radius", "spread", "falloff", "share", "length")
    law = MatrixLaw(**{name: found[name] for name in names})
    expected = law.draw(20, np.random.default_rng(3))
    assert np.allclose(model.weight.detach().numpy(), expected, rtol=1e-5)
    numbers = {name: value.exp().item() for name, value in model.numbers.items()}
    longer = 20 if found["optimiser"] == "sgd" else 1
    assert numbers["rate"] == pytest.approx(longer * found["rate"], rel=1e-5)
    assert numbers["initial_std"] == pytest.approx(found["initial_std"], rel=1e-5)


def test_one_matrix_is_searched_for_activations_of_as_many_units():
    with pytest.raises(ConfigError, match="Search 'fourier' on its own"):
        evolve_ckm(
            TrainableCKM(CKMSpec(**PRINTED)),
            printed_problem(activations=["tanh", "fourier"], search_steps=2),
            TrainConfig(steps=0),
        )


def test_the_printed_objective_is_the_distance_of_sketches_alone():
    """And its steps are of one size: two of plain descent by hand."""
    spec = CKMSpec(**PRINTED | {"optimiser": "sgd", "n_steps": 2})
    model = TrainableCKM(spec).freeze()
    rng = np.random.default_rng(0)
    matrix, target = rng.normal(size=(3, 6)), 0.1 * rng.normal(size=6)
    start = rng.normal(size=(1, 4, 3))
    theta = np.exp(model.learned["initial_std"]) * start[0]
    step = np.exp(model.learned["rate"]) * 4 / 6
    for _ in range(2):
        away = np.tanh(theta @ matrix).mean(axis=0) - target
        slope = (2 * away / 4 * (1 - np.tanh(theta @ matrix) ** 2)) @ matrix.T
        theta = theta - step * slope
    fit = model.fit(target, matrix, start)
    assert np.allclose(fit.centroids[0], theta.clip(-1, 1))
    assert np.array_equal(fit.objective, fit.misfit)
    away = np.tanh(theta.clip(-1, 1) @ matrix).mean(axis=0) - target
    assert fit.misfit == pytest.approx([away @ away])


def test_only_what_the_paper_learns_is_learned_in_its_form():
    names = {n for n, p in TrainableCKM(CKMSpec(**PRINTED)).named_parameters()
             if p.requires_grad}  # fmt: skip
    assert names == {"weight", "numbers.rate", "numbers.initial_std"}


def test_the_hungarian_loss_may_be_the_only_one():
    both, alone, kmeans = (
        printed_problem(kmeans=weights[0], hungarian=weights[1])
        for weights in ((1.0, 1.0), (0.0, 1.0), (1.0, 0.0))
    )
    model, batch = TrainableCKM(CKMSpec(**PRINTED)), draw(both)
    with torch.no_grad():
        losses = [float(one.loss(model, batch)) for one in (both, alone, kmeans)]
    assert losses[0] == pytest.approx(losses[1] + losses[2], rel=1e-5)
    assert losses[1] > 0


def test_datasets_must_not_be_on_both_sides_and_relu_has_no_private_form():
    with pytest.raises(RowsError, match="common: d"):
        ClusteringProblem(HELD_OUT, HELD_OUT[:1], ClusteringConfig())
    with pytest.raises(ConfigError, match="no norm bound"):
        ClusteringConfig(epsilon=1.0, activations=["relu"])


@pytest.mark.parametrize(
    ("name", "size"),
    [("kmeans-ckm", 300), ("kmeans-ckm-private", 300), ("kmeans-ckm-paper", 300)],
)
def test_shipped_models_find_far_clusters_and_say_how_they_were_made(name, size):
    rng = np.random.default_rng(0)
    centres = np.array([[0.1, 0.1, 0.2], [0.9, 0.2, 0.8], [0.4, 0.9, 0.5]])
    rows = centres[rng.integers(3, size=3000)] + 0.02 * rng.normal(size=(3000, 3))
    model = load_model(name)
    sketch = sketch_rows(rows, model.feature_map(3, size, seed=1))
    found = model.decoder(3).decode(sketch).params.centers
    # Steps of one size end about half a step away.
    near = 0.12 if model.spec.schedule == "constant" else 0.05
    assert np.linalg.norm(centres[:, None] - found, axis=2).min(axis=1).max() < near
    card = load_card(name)
    assert not set(card["train_datasets"]) & set(card["held_out_datasets"])
    assert {"command", "seed", "limits", "results"} <= set(card)
