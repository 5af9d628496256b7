"""Episodes of randomised rows, their loss, and the stages of their training."""

import json

import numpy as np
import pytest
import torch

from sketchlearn.decoders.autoencoders.conditional_spec import ConditionalSpec
from sketchlearn.errors import ConfigError, RowsError
from sketchlearn.meta.conditional_autoencoder import TrainableAutoencoder
from sketchlearn.meta.config import TrainConfig
from sketchlearn.meta.reconstruction import (
    BinaryTables,
    ReconstructionConfig,
    ReconstructionProblem,
)
from sketchlearn.meta.trainer import train

RNG = np.random.default_rng(0)
SHARES = np.linspace(0.05, 0.95, 9)
TABLE = (RNG.random((100, 9)) < SHARES).astype(np.uint8)
SPEC = ConditionalSpec(12, 2, "sketch", 1, 8, 3, 1, 8)


def problem(table=TABLE, **settings):
    config = ReconstructionConfig.from_dict({"n_rows": 10, "support": [5], **settings})
    return ReconstructionProblem(BinaryTables.split([table], 12, share=0.2), config)


def test_held_out_rows_are_apart():
    rows = np.arange(256, dtype=np.uint8)[:, None]
    tables = BinaryTables.split([rows], 1, share=0.25)
    (training,), (held_out,) = tables.training, tables.held_out
    assert (len(training), len(held_out)) == (192, 64)
    assert not set(training[:, 0]) & set(held_out[:, 0])


def test_an_episode_has_the_columns_of_its_dataset_somewhere_and_zeros_elsewhere():
    batch = problem(episodes=3).draw(np.random.default_rng(1))
    assert batch.support.shape == (3, 5, 12)
    assert batch.query.shape == (3, 10, 12)
    assert batch.actual.sum(dim=(1, 2)).tolist() == [9, 9, 9]
    assert not (batch.query * (1 - batch.actual)).any()
    places = {tuple(mask.flatten().tolist()) for mask in batch.actual}
    assert len(places) > 1


def test_columns_are_negated_at_random():
    ones = np.ones((50, 9), np.uint8)
    batch = problem(ones, episodes=4).draw(np.random.default_rng(1))
    constant = batch.query.mean(dim=1)
    assert set(constant.flatten().tolist()) == {0.0, 1.0}
    assert torch.equal(constant, batch.support.mean(dim=1))
    shares = (constant.sum(dim=1) / 9).tolist()
    assert 0.2 < np.mean(shares) < 0.8


def test_without_randomising_rows_are_those_of_the_table():
    batch = problem(randomize=False).draw(np.random.default_rng(1))
    known = {tuple(row) for row in TABLE.tolist()}
    rows = torch.cat([batch.support, batch.query], dim=1)[0]
    assert {tuple(row) for row in rows[:, :9].int().tolist()} <= known
    assert not rows[:, 9:].any()


def test_episodes_of_other_widths_have_their_padding_at_the_end():
    drawn = problem(episodes=60, columns=(3, 12)).draw(np.random.default_rng(1))
    masks = drawn.actual[:, 0].int()
    assert set(masks.sum(dim=1).tolist()) == set(range(3, 13))
    assert (masks.diff(dim=1) <= 0).all()


def test_the_share_of_negated_columns_is_drawn():
    ones = np.ones((50, 9), np.uint8)
    for share in (0.0, 1.0):
        batch = problem(ones, negated=(share, share)).draw(np.random.default_rng(1))
        assert torch.equal(batch.query[0, 0], (1 - share) * batch.actual[0, 0])


def test_rows_to_reconstruct_are_not_those_of_the_condition():
    rows = np.arange(128, dtype=np.uint8)[:, None] >> np.arange(7, dtype=np.uint8) & 1
    batch = problem(rows, randomize=False).draw(np.random.default_rng(1))
    told, asked = ({tuple(r) for r in part[0].tolist()} for part in
                   (batch.support, batch.query))  # fmt: skip
    assert len(told) == 5
    assert len(asked) == 10
    assert not told & asked


def test_the_loss_is_the_cross_entropy_of_actual_columns():
    own = problem(episodes=2)
    batch = own.draw(np.random.default_rng(1))
    model = TrainableAutoencoder(SPEC)
    logits = model(batch.query, model.condition(batch.support)).detach()
    p, x = torch.sigmoid(logits), batch.query
    entries = -(x * p.log() + (1 - x) * (1 - p).log())
    expected = entries[batch.actual.bool().expand_as(x)].mean()
    assert float(own.loss(model, batch).detach()) == pytest.approx(float(expected))


def test_validation_is_always_the_same_and_of_all_stages():
    one = problem(support=[2, 5])
    later = one.at_stage(1)
    model = TrainableAutoencoder(SPEC).eval()
    with torch.no_grad():
        figures = [p.validate(model) for p in (one, one, later)]
    assert figures[0] == figures[1] == figures[2]
    assert 0.3 < figures[0]["balanced_accuracy"] < 0.8


def test_each_stage_has_its_number_of_rows():
    own = problem(support=[2, 5])
    drawn = [own.at_stage(s).draw(np.random.default_rng(0)) for s in (0, 1)]
    assert [batch.support.shape[1] for batch in drawn] == [2, 5]
    assert own.at_stage(2) is None


def test_training_goes_through_the_stages(tmp_path):
    config = TrainConfig(steps=60, learning_rate=0.5, validate_every=1, patience=2)
    result = train(
        TrainableAutoencoder(SPEC), problem(support=[2, 5]), config, folder=tmp_path
    )
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    stages = [record for record in map(json.loads, lines) if record["event"] == "stage"]
    assert [record["stage"] for record in stages] == [1]
    assert result.stopped == "patience"


def test_training_lowers_the_loss():
    config = TrainConfig(steps=150, learning_rate=0.01, validate_every=50)
    own = problem(n_rows=32, support=[16], episodes=4)
    result = train(TrainableAutoencoder(SPEC), own, config)
    assert result.best_score < result.history[0]["score"] - 0.1


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"support": []}, ConfigError),
        ({"support": [0]}, ConfigError),
        ({"episodes": 0}, ConfigError),
        ({"n_rows": 1.5}, ConfigError),
        ({"held_out_rows": 1.0}, ConfigError),
        ({"columns": [-1, 3]}, ConfigError),
        ({"columns": [4, 3]}, ConfigError),
        ({"negated": [0.5]}, ConfigError),
        ({"rows": 3}, ConfigError),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, error):
    with pytest.raises(error):
        ReconstructionConfig.from_dict(settings)


def test_tables_that_do_not_fit_are_refused():
    with pytest.raises(RowsError, match="at most 8 columns"):
        BinaryTables.split([TABLE], 8, share=0.2)
    with pytest.raises(RowsError, match="cannot be split"):
        BinaryTables.split([TABLE[:1]], 9, share=0.2)
    with pytest.raises(RowsError, match="rows to hold out"):
        BinaryTables([TABLE], [], 9)
