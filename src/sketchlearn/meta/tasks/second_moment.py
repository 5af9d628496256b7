r"""The paper's Sketch-Query Network for PCA and ridge, from second moments.

The sketch of quadratic features is a function of :math:`R = E[xx^\top]` alone, so that
no row is ever drawn: an episode is a random choice of features of a dataset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.decoders.moments.covariance.dense import symmetric_matrix
from sketchlearn.errors import ConfigError
from sketchlearn.meta.backend import Tensor, nn, torch
from sketchlearn.meta.config import RunConfig, refuse_unknown
from sketchlearn.meta.correlation_matrices import dataset_correlations
from sketchlearn.meta.datasets import MetaDataset
from sketchlearn.meta.problems import AbstractProblem, beside
from sketchlearn.meta.sqnet import TrainableSQNet
from sketchlearn.meta.tasks.base import Task
from sketchlearn.metrics import leading_components, pca_log_relative_error
from sketchlearn.sqnet_spec import SQNetSpec

__all__ = ["PaddedMomentProblem"]


@final
class PaddedMomentProblem(AbstractProblem):
    r"""The paper's own problem: :math:`\lVert \mathrm{vec}_{LT}(R) - \psi(z)\rVert_1`.

    Standardised datasets of at most ``n_features`` random features, padded with
    zeros (paper, eq. comp-pca-neural-loss).

    Parameters
    ----------
    training, held_out : sequences of MetaDataset
        Their correlations are computed now.
    n_features : int
        Width of a padded row, 196 in the paper.
    episodes : int
        Datasets in a batch, 64 in the paper.
    """

    def __init__(
        self,
        training: Sequence[MetaDataset],
        held_out: Sequence[MetaDataset],
        *,
        n_features: int = 196,
        episodes: int = 64,
    ) -> None:
        if not training or not held_out:
            raise ConfigError("give datasets to train on and datasets to hold out.")
        self._d, self._episodes = n_features, episodes
        self._training = [dataset_correlations(data) for data in training]
        rng = np.random.default_rng(0)
        matrices = [dataset_correlations(data) for data in held_out]
        self._held_out = [_padded(matrix, n_features, rng) for matrix in matrices]

    @override
    def draw(self, rng: np.random.Generator) -> Tensor:
        chosen = rng.integers(len(self._training), size=self._episodes)
        parts = [_padded(self._training[index], self._d, rng) for index in chosen]
        return torch.from_numpy(np.stack(parts))

    @override
    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        assert isinstance(model, TrainableSQNet)
        i, j = np.tril_indices(self._d)
        found = model.decode(model.sketch_moments(batch))
        return (found - batch[:, i, j]).abs().mean()

    @override
    def validate(self, model: nn.Module) -> dict[str, float]:
        """Mean absolute error, which decides, and LRE on held-out datasets."""
        assert isinstance(model, TrainableSQNet)
        batch = beside(model, torch.from_numpy(np.stack(self._held_out)))
        found = model.decode(model.sketch_moments(batch)).double().cpu().numpy()
        scores = [
            pca_log_relative_error(matrix.astype(np.float64), leading_components(full))
            for full, matrix in zip(
                symmetric_matrix(found), self._held_out, strict=True
            )
        ]
        error = float(self.loss(model, batch))
        return {"score": error, "lre": float(np.mean(scores))}


def _padded(
    matrix: NDArray[np.float32], size: int, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Random features of a dataset, zeros for those it does not have."""
    chosen = rng.permutation(len(matrix))[:size]
    padded = np.zeros((size, size), np.float32)
    padded[: len(chosen), : len(chosen)] = matrix[np.ix_(chosen, chosen)]
    return padded


def _build(
    config: RunConfig, training: Sequence[MetaDataset], held_out: Sequence[MetaDataset]
) -> tuple[TrainableSQNet, PaddedMomentProblem]:
    refuse_unknown(config.problem, ["n_features", "episodes"], "[problem]")
    problem = PaddedMomentProblem(training, held_out, **config.problem)
    width = config.problem.get("n_features", 196)
    spec = SQNetSpec.from_dict({"n_features": width, **config.model})
    return TrainableSQNet(spec, seed=config.train.seed), problem


TASK = Task("second-moment", _build)
