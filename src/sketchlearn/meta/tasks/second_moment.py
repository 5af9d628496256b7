r"""The paper's networks for PCA and ridge, learned without ever drawing a row.

The sketch of outer products is a function of :math:`R = E[xx^\top]` alone, so the
correlations of every dataset are computed once, and an episode is a random choice of
features of a dataset, in its order. Networks begin where the least squared error over
episodes is (:mod:`sketchlearn.meta.moment_basis`) and may go on with the paper's loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.decoders.moments.covariance.dense import symmetric_matrix
from sketchlearn.errors import ConfigError
from sketchlearn.meta.backend import Tensor, nn, torch
from sketchlearn.meta.config import RunConfig
from sketchlearn.meta.correlation_matrices import dataset_correlations
from sketchlearn.meta.datasets import MetaDataset
from sketchlearn.meta.moment_basis import MomentBasis, fit_basis
from sketchlearn.meta.nested_sqnet import TrainableNestedSQNet
from sketchlearn.meta.noise import SimulatedRelease
from sketchlearn.meta.problems import AbstractProblem, beside, device_of
from sketchlearn.meta.settings import require_at_least, require_settings
from sketchlearn.meta.sketch_priors import learn_prior
from sketchlearn.meta.sqnet import TrainableSQNet
from sketchlearn.meta.tasks.base import Task
from sketchlearn.metrics import leading_components, pca_log_relative_error
from sketchlearn.nested_sqnet import NestedSQNet
from sketchlearn.networks.forward import spec_from_dict
from sketchlearn.sqnet import SQNet
from sketchlearn.sqnet_spec import SQNetSpec

__all__ = ["MomentEpisodes", "PaddedMomentProblem"]

SIMULATED = "simulated"

_N_FIRST, _FIRST_POWER, _POWER = 2, 1.0, 4.0
"""The mean and the first directions are those of episodes weighted by the inverse of
their norm, all others by its fourth power. Narrow held-out datasets gain with every
power up to 5; wide ones differ little from 3 on (docs/meta-learning.md)."""

_FIRST_EPISODES = 1500
"""Enough for two directions."""

_NESTED_SHARES = (1.0, 0.25, 0.0625)
"""Sizes at which a basis is trained and judged, by the largest."""

_PRIOR_BATCHES, _PRIOR_ROWS = 16, 8
"""Batches of 128 episodes, and rows of each, that a prior of sketches is learned from:
S of half as many differs by 3 %."""


class MomentEpisodes(NamedTuple):
    """A batch: lower triangles, (episodes, d (d + 1) / 2), and a seed of noise."""

    triangles: Tensor
    noise_seed: int = 0


@final
class PaddedMomentProblem(AbstractProblem):
    r"""The paper's own problem: :math:`\lVert \mathrm{vec}_{LT}(R) - \psi(z)\rVert_1`.

    Standardised datasets of at most ``n_features`` random features, in the order of
    the dataset and without those that never vary, padded with zeros (paper, eq.
    comp-pca-neural-loss). Of a dataset that has no more, at least half are taken.

    Parameters
    ----------
    training, held_out : sequences of MetaDataset
        Their correlations are computed now.
    n_features : int
        Width of a padded row, 196 in the paper.
    episodes : int
        Datasets in a batch, 64 in the paper.
    shares : mapping of str to float, optional
        Share of each kind of dataset, with ``"simulated"`` for all that are not real;
        all datasets alike by default.
    release : SimulatedRelease, optional
        Noise of a release on the sketches that networks are trained and judged on.
        Clipped rows are not drawn: S is long enough for most.
    """

    def __init__(
        self,
        training: Sequence[MetaDataset],
        held_out: Sequence[MetaDataset],
        *,
        n_features: int = 196,
        episodes: int = 64,
        shares: Mapping[str, float] | None = None,
        release: SimulatedRelease | None = None,
    ) -> None:
        if not training or not held_out:
            raise ConfigError("give datasets to train on and datasets to hold out.")
        self._d, self._episodes, self._release = n_features, episodes, release
        self._datasets = training
        self._places = np.tril_indices(n_features)
        self._shares = _dataset_shares(training, shares or {})
        self._training = [
            dataset_correlations(data, active_only=True) for data in training
        ]
        rng = np.random.default_rng(0)
        matrices = [dataset_correlations(data, active_only=True) for data in held_out]
        self._held_out = [
            _sub_matrix(matrix, min(n_features, len(matrix)), rng)
            for matrix in matrices
        ]

    @override
    def draw(self, rng: np.random.Generator) -> MomentEpisodes:
        triangles = torch.from_numpy(self.triangles(self._episodes, rng))
        return MomentEpisodes(triangles, int(rng.integers(2**63)))

    def triangles(self, count: int, rng: np.random.Generator) -> NDArray[np.float32]:
        """Lower triangles of episodes, (count, d (d + 1) / 2)."""
        found = np.empty((count, len(self._places[0])), np.float32)
        for row in found:
            matrix = self._training[rng.choice(len(self._training), p=self._shares)]
            d = len(matrix)
            size = self._d if d > self._d else int(rng.integers((d + 1) // 2, d + 1))
            row[:] = self._triangle(_sub_matrix(matrix, size, rng))
        return found

    def row_triangles(
        self, count: int, rng: np.random.Generator
    ) -> NDArray[np.float32]:
        """Products of some rows of as many episodes, (rows, d (d + 1) / 2)."""
        found = []
        for _ in range(count):
            data = self._datasets[rng.choice(len(self._datasets), p=self._shares)]
            columns = np.sort(rng.permutation(data.varying)[: self._d])
            chosen = rng.integers(data.n_rows, size=_PRIOR_ROWS)
            rows = data.take(chosen, columns)
            found.append(np.pad(rows, ((0, 0), (0, self._d - len(columns)))))
        whole = np.concatenate(found)
        i, j = self._places
        return np.asarray(whole[:, i] * whole[:, j])

    def closed_form(self, size: int, episodes: int, seed: int) -> MomentBasis:
        """Principal directions of episodes, weighted by powers of their norms.

        Without weights a dataset whose features are alike, or many, counts hundreds of
        times as much as another, while their log relative errors count the same.
        """
        vectors = self.triangles(episodes, np.random.default_rng(seed))
        norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors).astype(np.float64))
        few = slice(_FIRST_EPISODES)
        first = fit_basis(
            vectors[few], norms[few] ** -_FIRST_POWER, min(_N_FIRST, size)
        )
        if size <= _N_FIRST:
            return first
        return fit_basis(vectors, norms**-_POWER, size, after=first)

    @override
    def loss(self, model: nn.Module, batch: MomentEpisodes) -> Tensor:
        truth = batch.triangles
        found = [(part - truth).abs().mean() for part in self._decoded(model, batch)]
        return torch.stack(found).mean()

    @override
    def validate(self, model: nn.Module) -> dict[str, float]:
        """Mean absolute error, which decides, and LRE on held-out datasets."""
        triangles = np.stack([self._triangle(matrix) for matrix in self._held_out])
        batch = beside(model, MomentEpisodes(torch.from_numpy(triangles)))
        scores = [
            _log_relative_error(full, matrix)
            for found in self._decoded(model, batch)
            for full, matrix in zip(
                symmetric_matrix(found.double().cpu().numpy()),
                self._held_out,
                strict=True,
            )
        ]
        error = float(self.loss(model, batch))
        return {"score": error, "lre": float(np.mean(scores))}

    def _decoded(self, model: nn.Module, batch: MomentEpisodes) -> list[Tensor]:
        """What a network makes of sketches; networks of all sizes at some."""
        assert isinstance(model, TrainableNestedSQNet | TrainableSQNet)
        sketch, prior = model.sketch_triangles(batch.triangles), model.prior
        sizes = [sketch.shape[-1]]
        if isinstance(model, TrainableNestedSQNet):
            sizes = [max(1, int(model.sketch_size * share)) for share in _NESTED_SHARES]
        parts = [sketch[:, :size] for size in sizes]
        if self._release is not None and prior is not None:
            parts = [
                self._release.clean_means(
                    part, prior.first(size), noise_seed=batch.noise_seed
                )
                for size, part in zip(sizes, parts, strict=True)
            ]
        return [model.decode(part) for part in parts]

    def _triangle(self, matrix: NDArray[np.float32]) -> NDArray[np.float32]:
        """The lower triangle of a matrix padded with zeros."""
        padded = np.pad(matrix, (0, self._d - len(matrix)))
        return np.asarray(padded[self._places])


def _dataset_shares(
    training: Sequence[MetaDataset], shares: Mapping[str, float]
) -> NDArray[np.float64]:
    """Chance of each dataset to be drawn."""
    kinds = [data.kind if data.real else SIMULATED for data in training]
    for kind in shares:
        if kind not in kinds:
            raise ConfigError(
                f"no dataset is of kind {kind!r}; there are "
                f"{', '.join(sorted(set(kinds)))}."
            )
    if not shares:
        return np.full(len(training), 1 / len(training))
    found = np.array([shares.get(kind, 0.0) / kinds.count(kind) for kind in kinds])
    return np.asarray(found / found.sum())


def _sub_matrix(
    matrix: NDArray[np.float32], size: int, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Random features of a dataset, in its order."""
    chosen = np.sort(rng.permutation(len(matrix))[:size])
    return np.asarray(matrix[np.ix_(chosen, chosen)])


def _log_relative_error(
    found: NDArray[np.float64], matrix: NDArray[np.float32]
) -> float:
    """LRE of components of the features that a dataset has."""
    d = len(matrix)
    components = leading_components(found[:d, :d])
    return pca_log_relative_error(matrix.astype(np.float64), components)


def _build(
    config: RunConfig, training: Sequence[MetaDataset], held_out: Sequence[MetaDataset]
) -> tuple[TrainableSQNet | TrainableNestedSQNet, PaddedMomentProblem]:
    numbers = dict.fromkeys(("n_features", "episodes", "start_episodes"), int)
    tables = {"shares": Mapping[str, float], "release": Mapping[str, Any]}
    require_settings(config.problem, None, "[problem]", **numbers, **tables)
    settings = dict(config.problem)
    episodes, seed = settings.pop("start_episodes", 0), config.train.seed
    if "release" in settings:
        settings["release"] = spec_from_dict(SimulatedRelease, settings["release"])
    width = settings.get("n_features", 196)
    require_at_least(1, n_features=width)
    problem = PaddedMomentProblem(training, held_out, **settings)
    model = _start(problem, config.model, width, episodes, seed)
    if "release" in settings:
        _learn_prior(model, problem)
    return model, problem


def _start(
    problem: PaddedMomentProblem,
    settings: Mapping[str, Any],
    width: int,
    episodes: int,
    seed: int,
) -> TrainableSQNet | TrainableNestedSQNet:
    """Networks of all sizes or of one, from the closed form if there are episodes."""
    model = dict(settings)
    if model.pop("nested", False):
        given = {"sketch_size": None, **model}  # one that is missing is refused, too
        require_settings(given, None, "[model] with nested", sketch_size=int)
        basis = problem.closed_form(model["sketch_size"], episodes, seed)
        return TrainableNestedSQNet(basis)
    spec = SQNetSpec.from_dict({"n_features": width, **model})
    if not episodes:
        return TrainableSQNet(spec, seed=seed)
    basis = problem.closed_form(spec.sketch_size, episodes, seed)
    return TrainableSQNet.thaw(_started(spec, basis))


def _started(spec: SQNetSpec, basis: MomentBasis) -> SQNet:
    """An SQNet that projects; a head is put behind as it is."""
    net = NestedSQNet.from_basis(basis.rows, basis.mean).sized(spec.sketch_size)
    return SQNet(spec, net.tensors)


def _learn_prior(
    model: TrainableSQNet | TrainableNestedSQNet, problem: PaddedMomentProblem
) -> None:
    """S, range and variances of sketches of training datasets, as the weights are."""

    def batches(
        draw: Callable[[int, np.random.Generator], NDArray[np.float32]], count: int
    ) -> Iterator[NDArray[np.float32]]:
        rng = np.random.default_rng(0)
        return (draw(count, rng) for _ in range(_PRIOR_BATCHES))

    model.prior = learn_prior(
        model.sketch_triangles,
        batches(problem.triangles, 128),
        batches(problem.row_triangles, 128 // _PRIOR_ROWS),
        device=device_of(model),
    )


TASK = Task("second-moment", _build, finish=_learn_prior)
