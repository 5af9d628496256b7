"""Nets of counts learn from sets: of a law, or of the rows of one dataset."""

import dataclasses
import re

import numpy as np
import pytest
import torch

from sketchlearn import SQNet, SQNetSpec, sketch_rows
from sketchlearn.decoders.counts.zipf import zipf_probabilities
from sketchlearn.errors import ConfigError, FeatureMapError
from sketchlearn.meta.config import RunConfig, TrainConfig
from sketchlearn.meta.count_networks import CountNetwork, paired_kind, with_network
from sketchlearn.meta.count_sets import CountProblem, RowSets
from sketchlearn.meta.fine_tuning import fine_tune
from sketchlearn.meta.matched_start import MatchedTuning, start_matched
from sketchlearn.meta.runs import build_run, train_run
from sketchlearn.meta.sqnet import TrainableSQNet
from sketchlearn.meta.zipf_sets import CHECKED_ALPHAS, ZipfSets
from sketchlearn.registry import load_card, load_model

RNG = np.random.default_rng
SETS = ZipfSets(n_features=30, batch=12, group=4, max_rows=6, checked_sets=3)
DECODER = {"kind": "transformer", "depth": 1, "width": 16, "head": "sigmoid"}
CONFIG = RunConfig(
    task="frequency",
    model={"sketch_size": 5, "decoder": DECODER},
    problem={"n_features": 30, "batch": 12, "group": 4, "max_rows": 6},
    train=TrainConfig(steps=2, validate_every=1),
)
NETWORKS = {
    "linear": {},
    "ternary": {},
    "binary": {},
    "non-linear": {},
    "parallel": {"sketch_size": 10},
    "random": {"activation": "gelu"},
}


def test_counts_of_sets_are_those_of_their_rows():
    for group in SETS.draw(RNG(0), with_rows=True):
        assert group.rows.shape == (4, group.n_rows, 30)
        assert np.array_equal(group.rows.sum(axis=1), group.counts)
        assert 1 <= group.n_rows <= 6


@pytest.mark.parametrize("with_rows", [False, True])
def test_sets_follow_the_law_in_any_order(with_rows):
    sets = ZipfSets(n_features=30, max_rows=200, min_rows=200, checked_sets=40)
    groups = sets.validation(with_rows=with_rows)
    assert list(groups) == [f"{alpha:g}" for alpha in CHECKED_ALPHAS]
    for alpha in (0.5, 1.5):
        (group,) = groups[f"{alpha:g}"]
        falling = -np.sort(-group.counts, axis=1) / group.n_rows
        law = zipf_probabilities(30, alpha, 1.0)
        assert np.abs(falling.mean(axis=0) - law).max() < 0.05
        assert len(np.unique(group.counts.argmax(axis=1))) > 5


def test_a_share_of_groups_is_drawn_where_it_is_hardest():
    steep = ZipfSets(n_features=500, batch=40, group=1, max_rows=1, emphasised=1.0)
    sizes = [g.counts.sum() for g in steep.draw(RNG(0), with_rows=False)]
    # alpha in [0.75, 1.5]: a row has 2.6 to about 18 items on the mean
    assert 1 <= np.mean(sizes) < 30


def test_networks_that_need_rows_may_have_smaller_batches():
    sets = dataclasses.replace(SETS, row_batch=4)
    assert len(sets.draw(RNG(0), with_rows=True)) == 1
    assert len(sets.draw(RNG(0), with_rows=False)) == 3


@pytest.mark.parametrize("pooling", ["mean", "min", "max", "log-sum-exp", "p-norm:2"])
def test_sets_of_several_sizes_are_sketched_each_for_itself(pooling):
    feature = {"kind": "transformer", "depth": 1, "width": 8}
    spec = SQNetSpec(30, 5, feature=feature, pooling=pooling)
    net = TrainableSQNet(spec).eval()
    groups = SETS.draw(RNG(0), with_rows=True)
    problem = CountProblem("frequency", SETS, with_rows=True)
    batch = problem.draw(RNG(0))
    found = net.sketch_sets(batch.inputs.float(), batch.sizes)
    expected = [net.sketch(torch.from_numpy(g.rows).float()) for g in groups]
    assert torch.allclose(found, torch.cat(expected), atol=1e-5)


def test_an_affine_net_sees_the_same_in_counts_as_in_rows():
    net = TrainableSQNet(SQNetSpec(30, 5, decoder={"head": "sigmoid"}))
    by_rows = CountProblem("frequency", SETS, with_rows=True)
    by_means = CountProblem("frequency", SETS, with_rows=False)
    batch = by_rows.draw(RNG(0))
    means = dataclasses.replace(batch, inputs=batch.target)
    same = by_rows.loss(net, batch), by_means.loss(net, means)
    assert torch.allclose(*same, rtol=1e-5)
    with pytest.raises(FeatureMapError, match="mean of rows"):
        TrainableSQNet(SQNetSpec(30, 5, pooling="max")).sketch_means(batch.target)


def test_membership_is_whether_an_item_occurs():
    frequency = CountProblem("frequency", SETS, with_rows=False).draw(RNG(0))
    membership = CountProblem("membership", SETS, with_rows=False).draw(RNG(0))
    assert torch.equal(membership.target, (frequency.target > 0).float())


@pytest.mark.parametrize("name", NETWORKS)
def test_a_named_network_is_trained_saved_and_used_without_torch(name, tmp_path):
    config = with_network(CONFIG, name, **NETWORKS[name])
    done = train_run(config, [])
    path = tmp_path / "net.safetensors"
    done.model.freeze().save(path)
    net = SQNet.load(path)
    rows = RNG(1).integers(0, 2, (7, 30))
    sketch = sketch_rows(rows.astype(float), net.feature_map())
    found = net.decoder().decode(sketch).params
    assert found.shape == (30,)
    assert ((found >= 0) & (found <= 1)).all()
    with torch.no_grad():
        expected = done.model(torch.from_numpy(rows).float()[None])[0]
    assert np.allclose(found, expected, atol=1e-4)


def test_names_and_pairings_are_those_of_the_paper():
    assert set(NETWORKS) == set(CountNetwork.__args__)
    assert paired_kind("frequency", "max") == "resnet"
    for pooling in ("mean", "min", "max", "log-sum-exp"):
        assert paired_kind("membership", pooling) == "transformer"
    assert paired_kind("membership", "p-norm:4") == "resnet"
    with pytest.raises(ConfigError, match="network must be one of"):
        with_network(CONFIG, "quadratic")


def test_a_matched_start_reads_an_item_where_it_is_written():
    decoder = {**DECODER, "width": 64}
    net = start_matched(SQNet.initial(SQNetSpec(30, 25, decoder=decoder), seed=1))
    alone = net.decoder_network(net.feature_network(np.eye(30)))
    assert np.array_equal(alone.argmax(axis=1), np.arange(30))
    narrow = SQNet.initial(SQNetSpec(30, 25, decoder=DECODER))
    with pytest.raises(ConfigError, match="width of at least 50"):
        start_matched(narrow)


@pytest.mark.parametrize("pooling", ["min", "max"])
def test_a_start_for_extremes_puts_each_item_into_few_numbers(pooling):
    feature = {"kind": "transformer", "depth": 1, "width": 32}
    decoder = {**DECODER, "width": 64}
    spec = SQNetSpec(30, 25, feature=feature, decoder=decoder, pooling=pooling)
    net = start_matched(SQNet.initial(spec, seed=1))
    hashed = net.tensors["feature.layers.first.weight"][:25]
    assert np.array_equal(hashed.sum(axis=0), np.full(30, 4.0))
    change = net.feature_network(np.eye(30)) - net.feature_network(np.zeros((1, 30)))
    sign = -1 if pooling == "min" else 1
    hit = hashed.T > 0
    assert (sign * change)[hit].min() > (sign * change)[~hit].max()


def test_a_start_for_means_is_nearly_affine():
    feature = {"kind": "resnet", "depth": 1, "width": 64}
    decoder = {**DECODER, "width": 64}
    spec = SQNetSpec(30, 25, feature=feature, decoder=decoder)
    quiet = MatchedTuning(other_units=0.0, mixing=0.0)
    phi = start_matched(SQNet.initial(spec, seed=1), quiet).feature_network
    x, y = RNG(0).integers(0, 2, (2, 9, 30))
    assert np.allclose(phi(x + y) + phi(0 * x), phi(x) + phi(y), atol=1e-6)
    assert np.linalg.matrix_rank(phi(np.eye(30)) - phi(np.zeros(30))) == 25


def test_fine_tuning_learns_the_rows_of_a_dataset_and_is_judged_on_others():
    pairs = np.repeat(np.eye(6), 2, axis=1)  # items come in pairs
    rows = pairs[RNG(0).integers(6, size=300)]
    net = SQNet.initial(SQNetSpec(20, 6, decoder={"head": "sigmoid"}))
    settings = TrainConfig(steps=150, learning_rate=0.05, validate_every=50)
    tuned = fine_tune(net, rows, "frequency", settings, set_rows=(1, 5), batch=50)
    first = tuned.result.history[0]["score"]
    assert tuned.result.best_score < 0.1 * first
    assert tuned.net.spec == net.spec


def test_rows_held_apart_are_never_drawn():
    rows = np.eye(40, dtype=np.uint8)
    sets = RowSets(rows, 40, set_rows=(3, 3), batch=400, held_apart=0.25)
    drawn = sum(g.counts.sum(axis=0) for g in sets.draw(RNG(0), with_rows=False))
    (judged,) = sets.validation(with_rows=False)["3_rows"]
    assert ((drawn > 0) != (judged.counts.sum(axis=0) > 0)).all()
    assert (drawn > 0).sum() == 30


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.full((5, 3), 2), "zeros and ones"),
        (np.zeros((5, 9)), "shape \\(5, 9\\)"),
        (np.zeros((1, 3)), "two rows"),
    ],
)
def test_rows_that_a_net_cannot_be_tuned_on_are_refused(rows, message):
    with pytest.raises(ConfigError, match=message):
        RowSets(rows, 5)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"batch": 0}, "batch"), ({"max_rows": 0}, "max_rows"), ({"sets": 1}, "sets")],
)
def test_settings_that_make_no_sense_are_refused(change, message):
    config = dataclasses.replace(CONFIG, problem={**CONFIG.problem, **change})
    with pytest.raises(ConfigError, match=message):
        build_run(config, [])


SHIPPED = {
    # name: largest mean square errors at alpha = 1, 1.5 and 2; a third above the card's
    "frequency-parallel-100": (4.9e-4, 8.5e-5, 3.0e-5),
    "frequency-parallel-ternary-100": (5.8e-4, 1.2e-4, 5.7e-5),
    "membership-parallel-100": (5.1e-2, 6.1e-3, 1.4e-3),
}


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_net_decodes_exact_sketches_as_well_as_its_card_says(name):
    net, card = load_model(name), load_card(name)
    goal = card["task"]
    assert re.match(f"sketchlearn train (configs/)?{goal}-sqnet", card["command"])
    assert card["seed"] == card["settings"]["train"]["seed"]
    assert card["limits"]
    n_rows, beta = (100, 1.0) if goal == "frequency" else (10, 0.5)
    (printed,) = [v for k, v in card["results"].items() if f"{n_rows} rows" in k][:1]
    phi, decoder = net.feature_map(), net.decoder()
    for alpha, most in zip(("1", "1.5", "2"), SHIPPED[name], strict=True):
        assert printed[alpha] < most
        sets = ZipfSets(
            min_rows=n_rows, max_rows=n_rows, alpha=(float(alpha),) * 2,
            beta=(beta, beta), batch=30, group=30,
        )  # fmt: skip
        (group,) = sets.draw(RNG(5), with_rows=True)
        found = [
            decoder.decode(sketch_rows(rows.astype(np.float32), phi)).params
            for rows in group.rows
        ]
        truth = group.counts / n_rows if goal == "frequency" else group.counts > 0
        assert np.square(found - truth).mean() < most
