"""Episodes sketch some rows of a dataset and are judged on others of the same one."""

import numpy as np
import pytest
import torch
from torch import nn

from sketchlearn.errors import ConfigError, RowsError
from sketchlearn.meta.config import TrainConfig
from sketchlearn.meta.datasets import MetaDataset
from sketchlearn.meta.episodes import AbstractRowTask, EpisodeConfig, RowProblem
from sketchlearn.meta.sqnet import TrainableSQNet
from sketchlearn.meta.trainer import train
from sketchlearn.privacy.mechanisms import gaussian_sigma
from sketchlearn.sqnet import SQNetSpec

RNG = np.random.default_rng(0)


def numbered(name, n_rows, n_features, offset):
    """Every cell says where it is: dataset, row and column can be read off it."""
    cells = offset + 100 * np.arange(n_rows)[:, None] + np.arange(n_features)
    return MetaDataset.from_arrays(name, cells.astype(np.float32))


WIDE = numbered("wide", 60, 9, offset=100_000)
NARROW = numbered("narrow", 40, 3, offset=200_000)
OTHER = numbered("other", 50, 4, offset=300_000)


class MeanTask(AbstractRowTask):
    def target(self, rows):
        return rows.mean(dim=1)

    def loss(self, prediction, target):
        return ((prediction - target) ** 2).mean()

    def metric(self, prediction, target):
        return (prediction - target).abs().mean(dim=1)


class MeanModule(nn.Module):
    """Sketch and decoder do nothing: the mean of the rows comes out."""

    def features(self, rows):
        return rows

    def decode(self, sketch):
        return sketch

    def forward(self, rows):
        return self.decode(self.features(rows).mean(dim=1))


def problem(**settings):
    base = {"n_features": 5, "episodes": 6, "min_rows": 4, "max_rows": 16}
    config = EpisodeConfig(**{**base, "standardize": False, **settings})
    return RowProblem(MeanTask(), [WIDE, NARROW], config, held_out=[OTHER])


def origins(episode):
    """Dataset, rows and columns an episode was made of."""
    cells = episode[:, episode[0] != 0].numpy().astype(int)
    datasets, rest = np.unique(cells // 100_000), cells % 100_000
    columns = rest % 100
    assert len(datasets) == 1
    assert (columns == columns[0]).all()
    return datasets[0], set((rest // 100)[:, 0]), list(columns[0])


def draw(made, seed):
    return made.draw(np.random.default_rng(seed))


def test_support_and_query_are_different_rows_and_the_same_columns():
    for seed in range(20):
        batch = draw(problem(), seed)
        for support, query in zip(batch.support, batch.query, strict=True):
            one, two = origins(support), origins(query)
            assert one[0] == two[0]
            assert one[2] == two[2]
            assert len(set(one[2])) == len(one[2])
            assert not one[1] & two[1]
            assert len(one[1]) == len(support)  # no row twice: there are enough


def test_only_training_datasets_are_drawn_and_all_of_them():
    drawn = {
        origins(episode)[0]
        for seed in range(10)
        for episode in draw(problem(), seed).support
    }
    assert drawn == {1, 2}


def test_narrow_datasets_are_padded_with_zeros():
    for episode in draw(problem(), 0).support:
        dataset, _, columns = origins(episode)
        assert len(columns) == {1: 5, 2: 3}[dataset]
        assert not episode[:, len(columns) :].any()


def test_without_padding_a_batch_is_as_wide_as_one_of_its_datasets():
    widths = set()
    for seed in range(20):
        batch = draw(problem(pad=False), seed)
        widths.add(batch.support.shape[2])
        for episode in batch.support:
            assert len(origins(episode)[2]) == batch.support.shape[2]
    assert widths == {3, 5}


def test_episode_sizes_are_mixed_within_their_range():
    rng = np.random.default_rng(0)
    made = problem(episodes=1)
    sizes = [made.draw(rng).support.shape[1] for _ in range(1000)]
    assert set(sizes) == set(range(4, 17))
    small = np.log(8 / 4) / np.log(17 / 4)  # log-uniform: 4 to 7 of 4 to 16
    assert np.mean(np.array(sizes) < 8) == pytest.approx(small, abs=0.06)


def test_a_small_dataset_repeats_the_rows_of_each_half():
    batch = draw(problem(min_rows=100, max_rows=100), 0)
    for support, query in zip(batch.support, batch.query, strict=True):
        (dataset, one, _), (_, two, _) = origins(support), origins(query)
        assert len(one) == len(two) == {1: 30, 2: 20}[dataset]
        assert not one & two


def test_the_loss_can_be_taken_on_the_rows_of_the_sketch():
    made = problem(fresh_rows=False)
    batch = draw(made, 0)
    assert torch.equal(batch.support, batch.query)
    assert float(made.loss(MeanModule(), batch)) == 0


def test_a_batch_is_a_function_of_its_generator():
    one, two, other = (draw(problem(), seed) for seed in (3, 3, 4))
    assert torch.equal(one.support, two.support)
    assert one.noise_seed == two.noise_seed != other.noise_seed


def test_validation_is_on_held_out_datasets_and_repeats():
    seen = []

    class Spy(MeanModule):
        def forward(self, rows):
            seen.append(rows)
            return super().forward(rows)

    made = problem()
    first, second = made.validate(Spy()), made.validate(Spy())
    assert first == second
    assert {origins(episode)[0] for rows in seen for episode in rows} == {3}
    assert torch.equal(seen[0], seen[1])
    assert first["score"] > 0


@pytest.mark.parametrize(
    ("training", "held_out", "message"),
    [
        ([], [OTHER], "got 0 and 1"),
        ([WIDE], [], "got 1 and 0"),
        ([WIDE, NARROW], [NARROW], "common: narrow"),
    ],
)
def test_training_and_held_out_datasets_never_overlap(training, held_out, message):
    with pytest.raises(RowsError, match=message):
        RowProblem(MeanTask(), training, EpisodeConfig(n_features=2), held_out=held_out)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_features": 0}, "n_features must be at least 1"),
        ({"n_features": 2, "max_rows": 3}, "max_rows must be at least min_rows = 64"),
        ({"n_features": 2, "rows": 3}, "unknown key 'rows' in .problem."),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        EpisodeConfig.from_dict(settings)


def test_noise_is_that_of_a_release_of_clipped_features():
    """Rows of norm ≫ S = 2 become unit directions times 2; the noise is σ/n."""
    made = problem(
        epsilon=1.0, delta=1e-5, norm_bound=2.0, min_rows=16, episodes=2000, pad=True
    )
    batch = draw(made, 0)
    noisy = made._judge(MeanModule(), batch)[0]
    unit = nn.functional.normalize(batch.support, dim=2)
    noise = noisy - (2 * unit).mean(dim=1)
    assert float(noise.std()) == pytest.approx(
        gaussian_sigma(2.0, 1.0, 1e-5) / 16, rel=0.03
    )
    assert float(noise.mean()) == pytest.approx(0, abs=0.01)
    assert torch.equal(noisy, made._judge(MeanModule(), batch)[0])


def test_features_within_the_bound_are_not_clipped():
    made = problem(
        epsilon=9.0, norm_bound=20.0, min_rows=16, episodes=2000, standardize=True
    )
    batch = draw(made, 0)
    assert float(batch.support.norm(dim=2).max()) < 20
    noise = made._judge(MeanModule(), batch)[0] - batch.support.mean(dim=1)
    expected = gaussian_sigma(20.0, 9.0, 1e-6) / 16
    assert float(noise.std()) == pytest.approx(expected, rel=0.03)


class SecondMomentTask(AbstractRowTask):
    """The lower triangle of E[xxᵀ], judged by its mean absolute error."""

    def target(self, rows):
        second_moment = rows.transpose(1, 2) @ rows / rows.shape[1]
        i, j = torch.tril_indices(rows.shape[2], rows.shape[2])
        return second_moment[:, i, j]

    def loss(self, prediction, target):
        return (prediction - target).abs().mean()

    def metric(self, prediction, target):
        return (prediction - target).abs().mean(dim=1)


@pytest.mark.parametrize("epsilon", [None, 5.0])
def test_an_sqnet_learns_second_moments_of_datasets_it_never_saw(epsilon):
    """Correlated columns: two hidden factors per dataset, standardised."""
    made = []
    for number in range(12):
        factors, loadings = RNG.normal(size=(600, 1)), np.ones((1, 4))
        rows = factors @ loadings + 0.7 * RNG.normal(size=(600, 4))
        made.append(MetaDataset.from_arrays(str(number), rows))
    config = EpisodeConfig(
        n_features=4, episodes=8, min_rows=64, max_rows=256, epsilon=epsilon,
        norm_bound=3.0,
    )  # fmt: skip
    problem = RowProblem(SecondMomentTask(), made[:9], config, held_out=made[9:])
    spec = SQNetSpec(4, 5, inputs="outer", output="symmetric", decoder={"head": "tanh"})
    model = TrainableSQNet(spec, seed=0)
    result = train(
        model, problem, TrainConfig(steps=80, learning_rate=0.03, validate_every=40)
    )
    losses = [record["validation_loss"] for record in result.history]
    assert losses[-1] < 0.5 * losses[0]
