"""k-means from private sketches of MNIST: inertia ratio against epsilon.

196 pixels at random, divided by 255. One row replaced is the promise, the count is
public, delta = 1e-5. Public, and read from EMNIST digits: the bounds (mean of each
pixel plus or minus 1) and the norm bound S of each map (99th percentile of the norms
of its features). Two rounds spend half of epsilon and of delta each. Iterative CKM is
released in the same way, in one round, once trained without noise and once with that of
(0.01, 0.01). Centers are brought back into the bounds.
"""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.decoders.clusters.iterative_ckm import IterativeCKM
from sketchlearn.decoders.clusters.kmeans import solve_kmeans
from sketchlearn.decoders.density.decoder import DensityDecoder
from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.errors import (
    ConvergenceWarning,
    PrivacyWarning,
    RowsError,
    TooNoisy,
)
from sketchlearn.estimators.kmeans import CompressiveKMeans
from sketchlearn.experiments.kmeans.sets import N_CLUSTERS, ClusterSet
from sketchlearn.experiments.protocol import DELTA, EPSILONS, random_features
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.clipping import clipped
from sketchlearn.features.scaling import Scaling
from sketchlearn.meta.datasets import load_folder
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.registry import load_model
from sketchlearn.sketching.sketch import Sketch
from sketchlearn.testing import release_seeded

__all__ = [
    "CKM",
    "PRIVATE",
    "PRIVATE_SIZES",
    "PUBLIC_TWIN",
    "PrivateRatios",
    "measure_private_ratios",
]

PRIVATE, PUBLIC_TWIN = "MNIST", "EMNIST-digits"
"""Private set of the test split, and the training set that nobody protects."""

CKM = {
    "kmeans-ckm": "Iterative CKM, regular",
    "kmeans-ckm-private": "Iterative CKM, privacy-aware",
}
"""Labels of the models whose descents are compared."""

PRIVATE_SIZES = (500, 1000, 2000)
_BRIGHTEST = 255.0


@final
@dataclass(frozen=True, eq=False)
class PrivateRatios:
    """What privacy costs, by method and sketch size."""

    n_rows: int
    mean: float
    """Ratio of all centers at the mean."""

    ratios: dict[str, dict[int, list[float | None]]]
    """One value for each epsilon, then without noise; None where too noisy."""


def measure_private_ratios(
    folder: str | os.PathLike[str],
    *,
    sizes: Sequence[int] = PRIVATE_SIZES,
    n_releases: int = 3,
    say: Callable[[str], object] = lambda text: None,
) -> PrivateRatios:
    """Release sketches of MNIST at every size and epsilon, and judge their centers.

    Parameters
    ----------
    folder : path
        Holds ``data/MANIFEST.json``.
    sizes : sequence of int
        Sketch sizes.
    n_releases : int
        Releases to take the mean of. They are seeded, so nothing here is private.
    say : callable
        Receives lines of progress.
    """
    data = ClusterSet(PRIVATE, _read(folder, PRIVATE, "test"))
    public = _read(folder, PUBLIC_TWIN, "train")
    sessions: dict[str, Callable[[int], _AbstractSession]] = {
        "1 round": partial(_Rounds, data, public, rounds=1),
        "2 rounds": partial(_Rounds, data, public, rounds=2),
        **{
            label: partial(_Descent, data, public, model=model)
            for model, label in CKM.items()
        },
    }
    ratios: dict[str, dict[int, list[float | None]]] = {}
    for label, begin in sessions.items():
        found = ratios.setdefault(label, {})
        for size in sizes:
            session = begin(size)
            noisy = [session.mean_ratio(value, n_releases) for value in EPSILONS]
            found[size] = [*noisy, session.ratio(None, 0)]
            say(f"private, {label}, size {size}: {found[size]}")
    at_mean = data.ratio(data.rows.mean(axis=0, keepdims=True))
    return PrivateRatios(len(data.rows), at_mean, ratios)


class _AbstractSession(ABC):
    """One plan for one sketch size; sketches of its first round are made once."""

    def __init__(self, data: ClusterSet, public: NDArray[np.float64]) -> None:
        center = np.rint(public.mean(axis=0) * 32) / 32  # on the grid of the scaling
        self.data, self.public = data, public
        self.bounds = center - 1, center + 1

    @abstractmethod
    def centers(self, epsilon: float | None, seed: int) -> NDArray[np.float64]:
        """Decoded from one release, or without noise."""

    @final
    def mean_ratio(self, epsilon: float, n_releases: int) -> float | None:
        """Over some releases; None if one is too noisy to have a mean."""
        try:
            found = [self.ratio(epsilon, seed) for seed in range(n_releases)]
        except TooNoisy:
            return None
        return float(np.mean(found))

    @final
    def ratio(self, epsilon: float | None, seed: int) -> float:
        """Of the centers, brought back into the bounds."""
        with warnings.catch_warnings():
            # DELTA is more than a tenth of one over the rows: said above.
            warnings.simplefilter("ignore", PrivacyWarning)
            warnings.simplefilter("ignore", ConvergenceWarning)
            return self.data.ratio(self.centers(epsilon, seed).clip(*self.bounds))


@final
class _Rounds(_AbstractSession):
    """CompressiveKMeans."""

    def __init__(
        self, data: ClusterSet, public: NDArray[np.float64], size: int, *, rounds: int
    ) -> None:
        super().__init__(data, public)
        self.rounds = rounds
        self.search = CompressiveKMeans(
            N_CLUSTERS, sketch_size=size, rounds=rounds, bounds=self.bounds
        )
        self.first = self._sketch(self.search.plan(data.n_features))

    @override
    def centers(self, epsilon: float | None, seed: int) -> NDArray[np.float64]:
        last = _release(self.first, epsilon, 2 * seed, n_rounds=self.rounds)
        if self.rounds == 2:
            plan = self.search.plan(self.data.n_features, first=last)
            if plan is not last.feature_map:  # the first round may be all there is
                second = self._sketch(plan)
                last = _release(second, epsilon, 2 * seed + 1, n_rounds=self.rounds)
        # The estimator would refuse what is mostly noise, which is measured here.
        density = DensityDecoder(seed=0).decode(last).params
        rng = np.random.default_rng([0, 3])
        return solve_kmeans(density, N_CLUSTERS, rng=rng, n_init=10).centers

    def _sketch(self, plan: AbstractFeatureMap) -> Sketch:
        norms = np.linalg.norm(plan(self.public), axis=1)
        bounded = clipped(plan, norm_bound=float(np.quantile(norms, 0.99)))
        return sketch_rows(self.data.rows, bounded, progress=False)


@final
class _Descent(_AbstractSession):
    """Iterative CKM: all its feature vectors have one norm, nothing is clipped."""

    def __init__(
        self, data: ClusterSet, public: NDArray[np.float64], size: int, *, model: str
    ) -> None:
        super().__init__(data, public)
        ckm: IterativeCKM = load_model(model)
        scaling = Scaling.from_bounds(*self.bounds)
        plan = ckm.feature_map(data.n_features, size, scaling=scaling)
        self.sketch = sketch_rows(data.rows, plan, progress=False)
        self.decoder = ckm.decoder(N_CLUSTERS)

    @override
    def centers(self, epsilon: float | None, seed: int) -> NDArray[np.float64]:
        released = _release(self.sketch, epsilon, seed, n_rounds=1)
        return self.decoder.decode(released).params.centers


def _release(
    sketch: Sketch, epsilon: float | None, seed: int, *, n_rounds: int
) -> Sketch | PrivateSketch:
    if epsilon is None:
        return sketch
    return release_seeded(
        sketch,
        seed,
        epsilon=epsilon / n_rounds,
        delta=DELTA / n_rounds,
        neighbours="replace",
        count="public",
    )


def _read(
    folder: str | os.PathLike[str], name: str, split: Literal["train", "test"]
) -> NDArray[np.float64]:
    for data in load_folder(folder, split=split):
        if data.name == name:
            rows = data.rows[:, random_features(data)].astype(np.float64)
            return np.asarray(rows / _BRIGHTEST)
    raise RowsError(f"the folder has no set {name!r} in its split {split!r}.")
