r"""Meta-learning Iterative CKM: a law of features whose descent ends at good centroids.

An episode is a dataset with features in [-1, 1], a sketch of some rows, the unrolled
descent on it, and the k-means loss of the outcome on fresh rows relative to Lloyd's.
NGOpt chooses activation and optimiser and the learned numbers (paper, section 4.2);
gradients through the last steps of the unroll can refine them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self, cast, final, get_args

import numpy as np
from typing_extensions import override

from sketchlearn.decoders.clusters.ckm_descent import DAMPED, CKMSpec
from sketchlearn.decoders.clusters.descent import InnerOptimiser
from sketchlearn.errors import ConfigError, FeatureMapError
from sketchlearn.features.activation import UNBOUNDED, Activation
from sketchlearn.meta.backend import Tensor, nn, torch
from sketchlearn.meta.ckm import TrainableCKM
from sketchlearn.meta.clustering import (
    ClusteringEpisodes,
    draw_episodes,
    gaussian_dataset,
    log_uniform,
    padded_width,
)
from sketchlearn.meta.config import RunConfig, TrainConfig
from sketchlearn.meta.datasets import MetaDataset, require_apart
from sketchlearn.meta.descent import hungarian_loss, kmeans_loss
from sketchlearn.meta.differentiable import activate
from sketchlearn.meta.evolution import EvolveResult, SearchSpace, Setting, evolve
from sketchlearn.meta.noise import simulate_release_noise
from sketchlearn.meta.problems import AbstractProblem
from sketchlearn.meta.tasks.base import Task
from sketchlearn.networks.forward import spec_from_dict

__all__ = [
    "ClusteringConfig",
    "ClusteringProblem",
    "build_ckm",
    "evolve_ckm",
]


@final
@dataclass(frozen=True)
class ClusteringConfig:
    """How episodes of clustering are drawn and judged."""

    episodes: int = 4
    """Datasets in a batch, from the narrowest to the widest."""

    n_rows: int = 512
    """Rows sketched, and as many fresh rows for the loss."""

    clusters: tuple[int, int] = (4, 20)
    """Fewest and most centroids of a batch, drawn log-uniformly."""

    sizes: tuple[int, int] = (200, 2000)
    """Smallest and largest sketch of a batch, drawn log-uniformly; the paper's form
    has one size of its own."""

    synthetic: int = 0
    """Datasets of Gaussian clusters to train on beside the others; a quarter as many,
    and one at least, are added to those held out."""

    hungarian: float = 0.0
    """Weight of the Hungarian loss to Lloyd's centroids beside the k-means loss."""

    backward_steps: int = 10
    """Last steps of the descent that a gradient flows through."""

    epsilon: float | None = None
    """Train with the noise of a release at this ε; None for no noise."""

    delta: float = 0.01
    """δ of that release."""

    released_rows: int = 60_000
    """Rows of the dataset whose release is imitated."""

    search_steps: int = 0
    """Evaluations of NGOpt before any gradient step, over all choices."""

    search_batches: int = 6
    """Batches of one evaluation."""

    activations: Sequence[Activation] = ("fourier",)
    """What NGOpt chooses among; those without Gaussian atoms with points."""

    optimisers: Sequence[InnerOptimiser] = ("adam", "sgd")
    """What NGOpt chooses among."""

    def __post_init__(self) -> None:
        _require_known("activations", self.activations, get_args(Activation))
        _require_known("optimisers", self.optimisers, get_args(InnerOptimiser))
        for name in set(UNBOUNDED).intersection(self.activations):
            if self.epsilon is not None:
                raise ConfigError(
                    f"{name!r} has no norm bound: leave it out with epsilon."
                )

    @classmethod
    def from_dict(cls, fields: Mapping[str, object]) -> Self:
        """Build from a table of a TOML file; unknown keys are refused."""
        return spec_from_dict(cls, fields)


@final
class ClusteringProblem(AbstractProblem):
    """k-means of any dataset from its sketch alone, judged on fresh rows.

    Parameters
    ----------
    training, held_out : sequences of MetaDataset
        Nothing of one is in the other.
    config : ClusteringConfig
        How episodes are drawn.
    sketch_size : int
        Size of all sketches; 0 draws one for each batch.
    """

    def __init__(
        self,
        training: Sequence[MetaDataset],
        held_out: Sequence[MetaDataset],
        config: ClusteringConfig,
        *,
        sketch_size: int = 0,
    ) -> None:
        require_apart(training, held_out)
        self.config, self.sketch_size = config, sketch_size
        rng, n_held_out = np.random.default_rng(0), -(-config.synthetic // 4)
        drawn = [gaussian_dataset(rng) for _ in range(config.synthetic + n_held_out)]
        self.datasets = sorted([*training, *drawn[n_held_out:]], key=padded_width)
        sizes = (sketch_size,) if sketch_size else config.sizes
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
            for size in sizes
            for i in range(0, len(ordered), config.episodes)
        ]

    @override
    def draw(self, rng: np.random.Generator) -> ClusteringEpisodes:
        config = self.config
        count = min(config.episodes, len(self.datasets))
        parts = np.array_split(np.arange(len(self.datasets)), count)
        drawn = [self.datasets[int(rng.choice(part))] for part in parts]
        n_clusters = log_uniform(*config.clusters, rng)
        size = self.sketch_size or log_uniform(*config.sizes, rng) // 2 * 2
        return draw_episodes(
            drawn, n_rows=config.n_rows, n_clusters=n_clusters, size=size, rng=rng
        )

    @override
    def loss(self, model: nn.Module, batch: ClusteringEpisodes) -> Tensor:
        centroids = self._decode(cast(TrainableCKM, model), batch)
        loss = _excess(centroids, batch).mean()
        if self.config.hungarian:
            scale = kmeans_loss(batch.query, batch.reference)
            apart = hungarian_loss(centroids, batch.reference) / scale
            loss = loss + self.config.hungarian * apart.mean()
        return loss

    @override
    def validate(self, model: nn.Module) -> dict[str, float]:
        """Inertia relative to Lloyd's on held-out datasets; the score is its log."""
        module = cast(TrainableCKM, model)
        excess = torch.cat([_excess(self._decode(module, c), c) for c in self._cases])
        ratios = excess.exp()
        return {
            "score": float(excess.mean()),
            "median_ratio": float(ratios.median()),
            "mean_ratio": float(ratios.mean()),
        }

    def _decode(self, model: TrainableCKM, batch: ClusteringEpisodes) -> Tensor:
        """Centroids from sketches; gradients, where wanted, of the last steps."""
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
            generator=torch.Generator().manual_seed(seed),
        )


def build_ckm(
    config: RunConfig, training: Sequence[MetaDataset], held_out: Sequence[MetaDataset]
) -> tuple[TrainableCKM, ClusteringProblem]:
    """Iterative CKM, neither searched nor trained yet, and its problem."""
    try:
        spec = spec_from_dict(CKMSpec, config.model)
    except FeatureMapError as error:
        raise ConfigError(f"[model]: {error}") from error
    problem = ClusteringProblem(
        training,
        held_out,
        ClusteringConfig.from_dict(config.problem),
        sketch_size=spec.sketch_size,
    )
    return TrainableCKM(spec, seed=config.train.seed), problem


def evolve_ckm(
    model: TrainableCKM,
    problem: ClusteringProblem,
    config: TrainConfig,
    *,
    folder: str | os.PathLike[str] | None = None,
    resume: bool = True,
) -> EvolveResult | None:
    """Search activation, optimiser and learned numbers with NGOpt, in place.

    Parameters
    ----------
    model : TrainableCKM
        Where the search starts; has the best found at the end.
    problem : ClusteringProblem
        Its configuration says what to choose among, and for how long; None is returned
        if for no time.
    config : TrainConfig
        For its seed.
    folder : path, optional
        Keeps the record of the search, from which it goes on.
    resume : bool
        Go on from the record if there is one, or refuse it.
    """
    settings, spec = problem.config, model.spec
    if not settings.search_steps:
        return None
    # One matrix has the units of one activation; a law has those of any.
    activations = [spec.activation] if spec.sketch_size else settings.activations
    space = SearchSpace(
        choices={"activation": activations, "optimiser": settings.optimisers},
        weight_scale=0.3,
    )
    budget = TrainConfig(
        steps=settings.search_steps,
        accumulate=settings.search_batches,
        validate_every=10,
        seed=config.seed,
    )
    return evolve(
        model,
        problem,
        budget,
        space=space,
        configure=partial(_configure, first=spec),
        folder=folder,
        resume=resume,
    )


def _configure(
    model: nn.Module, settings: Mapping[str, Setting], *, first: CKMSpec
) -> None:
    """Apply choices to the spec that the search began with, not to the last one."""
    activation = cast(Activation, settings["activation"])
    cast(TrainableCKM, model).spec = replace(
        first,
        activation=activation,
        optimiser=cast(InnerOptimiser, settings["optimiser"]),
        atoms=first.atoms if activation in DAMPED else "point",
    )


def _require_known(name: str, found: Sequence[str], known: Sequence[str]) -> None:
    unknown = [value for value in found if value not in known]
    if isinstance(found, str) or unknown:
        got = found if isinstance(found, str) else unknown[0]
        raise ConfigError(
            f"{name} must be a list of some of {', '.join(known)}; got {got!r}."
        )


def _excess(centroids: Tensor, batch: ClusteringEpisodes) -> Tensor:
    """Log of the k-means loss over that of Lloyd's centroids, (episodes,)."""
    best = kmeans_loss(batch.query, batch.reference)
    return torch.log((kmeans_loss(batch.query, centroids) + 1e-6) / (best + 1e-6))


TASK = Task("iterative-ckm", build_ckm, evolve_ckm)
