r"""Meta-learning Iterative CKM: a law of features whose descent ends at good centroids.

An episode is a dataset with features in [-1, 1], a sketch of some rows, the unrolled
descent on it, and the k-means loss of the outcome on fresh rows relative to Lloyd's.
NGOpt chooses activation and optimiser and the learned numbers (paper, section 4.2);
gradients through the last steps of the unroll can refine them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast, final

import numpy as np
from typing_extensions import override

from sketchlearn.decoders.clusters.ckm_descent import CKMSpec
from sketchlearn.errors import ConfigError, FeatureMapError
from sketchlearn.meta.backend import Tensor, nn, torch
from sketchlearn.meta.ckm import TrainableCKM
from sketchlearn.meta.ckm_search import AbstractClustering, evolve_ckm
from sketchlearn.meta.clustering import (
    ClusteringConfig,
    ClusteringEpisodes,
    draw_episodes,
    gaussian_dataset,
    log_uniform,
    padded_width,
)
from sketchlearn.meta.config import RunConfig
from sketchlearn.meta.datasets import MetaDataset, require_apart
from sketchlearn.meta.descent import hungarian_loss, kmeans_loss
from sketchlearn.meta.differentiable import activate
from sketchlearn.meta.noise import simulate_release_noise
from sketchlearn.meta.problems import beside
from sketchlearn.meta.tasks.base import Task
from sketchlearn.networks.forward import spec_from_dict

__all__ = ["ClusteringProblem", "build_ckm"]


@final
class ClusteringProblem(AbstractClustering):
    """k-means of any dataset from its sketch alone, judged on fresh rows.

    Parameters
    ----------
    training, held_out : sequences of MetaDataset
        Nothing of one is in the other.
    config : ClusteringConfig
        How episodes are drawn.
    """

    def __init__(
        self,
        training: Sequence[MetaDataset],
        held_out: Sequence[MetaDataset],
        config: ClusteringConfig,
    ) -> None:
        require_apart(training, held_out)
        self.config = config
        rng, n_held_out = np.random.default_rng(0), -(-config.synthetic // 4)
        drawn = [gaussian_dataset(rng) for _ in range(config.synthetic + n_held_out)]
        self.datasets = sorted([*training, *drawn[n_held_out:]], key=padded_width)
        middle = round(math.sqrt(math.prod(config.sizes))) // 2 * 2
        ordered = sorted([*held_out, *drawn[:n_held_out]], key=padded_width)
        n_clusters = round(math.sqrt(math.prod(config.clusters)))
        self._cases = [
            draw_episodes(
                ordered[i : i + config.episodes],
                n_rows=config.n_rows,
                n_clusters=n_clusters,
                size=size,
                rng=np.random.default_rng([i, size]),
            )
            for size in sorted({*config.sizes, middle})
            for i in range(0, len(ordered), config.episodes)
        ]

    @override
    def draw(self, rng: np.random.Generator) -> ClusteringEpisodes:
        config = self.config
        count = min(config.episodes, len(self.datasets))
        parts = np.array_split(np.arange(len(self.datasets)), count)
        drawn = [self.datasets[int(rng.choice(part))] for part in parts]
        n_clusters = log_uniform(*config.clusters, rng)
        size = log_uniform(*config.sizes, rng) // 2 * 2
        return draw_episodes(
            drawn, n_rows=config.n_rows, n_clusters=n_clusters, size=size, rng=rng
        )

    @override
    def loss(self, model: nn.Module, batch: ClusteringEpisodes) -> Tensor:
        centroids = self._decode(cast(TrainableCKM, model), batch)
        loss = self.config.kmeans * _excess(centroids, batch).mean()
        if self.config.hungarian:
            scale = kmeans_loss(batch.query, batch.reference)
            apart = hungarian_loss(centroids, batch.reference) / scale
            loss = loss + self.config.hungarian * apart.mean()
        return loss

    @override
    def validate(self, model: nn.Module) -> dict[str, float]:
        """Inertia relative to Lloyd's on held-out datasets; the score is its log."""
        module = cast(TrainableCKM, model)
        cases = beside(model, self._cases)
        excess = torch.cat([_excess(self._decode(module, c), c) for c in cases])
        ratios = excess.exp()
        return {
            "score": float(excess.mean()),
            "median_ratio": float(ratios.median()),
            "mean_ratio": float(ratios.mean()),
        }

    def _decode(self, model: TrainableCKM, batch: ClusteringEpisodes) -> Tensor:
        """Centroids from sketches; gradients, where wanted, of the last steps."""
        width = batch.support.shape[-1]
        found, places = [], []
        for where, part in batch.parts():
            centroids = self._decode_part(model, part)
            found.append(nn.functional.pad(centroids, (0, width - centroids.shape[-1])))
            places.append(where)
        return torch.cat(found)[torch.cat(places).argsort()]

    def _decode_part(self, model: TrainableCKM, batch: ClusteringEpisodes) -> Tensor:
        n_units = model.spec.n_units(batch.directions.shape[-1])
        matrix = model.matrix(
            batch.directions[..., :n_units],
            batch.positions[..., :n_units],
            batch.n_features,
        )
        target = activate(batch.support @ matrix, model.spec.activation).mean(dim=-2)
        if self.config.epsilon is not None:
            target = self._release(target, n_units, batch.noise_seed)
        tracked = self.config.backward_steps if torch.is_grad_enabled() else 0
        fit = model.fit(
            target,
            matrix,
            batch.start,
            n_features=batch.n_features,
            backward_steps=tracked,
        )
        return fit.centroids

    def _release(self, means: Tensor, n_units: int, seed: int) -> Tensor:
        config = self.config
        assert config.epsilon is not None
        return simulate_release_noise(
            means * config.released_rows,
            means.new_full((len(means),), config.released_rows),
            norm_bound=math.sqrt(n_units),
            epsilon=config.epsilon,
            delta=config.delta,
            generator=torch.Generator(means.device).manual_seed(seed),
        )


def build_ckm(
    config: RunConfig, training: Sequence[MetaDataset], held_out: Sequence[MetaDataset]
) -> tuple[TrainableCKM, ClusteringProblem]:
    """Iterative CKM, neither searched nor trained yet, and its problem."""
    try:
        spec = spec_from_dict(CKMSpec, config.model)
    except FeatureMapError as error:
        raise ConfigError(f"[model]: {error}") from error
    settings = ClusteringConfig.from_dict(config.problem)
    if spec.sketch_size and spec.sketch_size < settings.sizes[1]:
        raise ConfigError(
            f"sizes go up to {settings.sizes[1]}, but sketch_size in [model] is "
            f"{spec.sketch_size}: W has no units for larger sketches. Lower sizes."
        )
    problem = ClusteringProblem(training, held_out, settings)
    return TrainableCKM(spec, seed=config.train.seed), problem


def _excess(centroids: Tensor, batch: ClusteringEpisodes) -> Tensor:
    """Log of the k-means loss over that of Lloyd's centroids, (episodes,)."""
    best = kmeans_loss(batch.query, batch.reference)
    return torch.log((kmeans_loss(batch.query, centroids) + 1e-6) / (best + 1e-6))


TASK = Task("iterative-ckm", build_ckm, evolve_ckm)
