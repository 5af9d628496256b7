"""PCA from private sketches: log relative error against epsilon and sketch size.

Each set has 196 features at random. A sketch of m numbers (beside means and variances)
is released with delta = 1e-5, and PCA is decoded from it; LRE is the log ratio of its
reconstruction error on the private rows to that of exact PCA. The full second moment,
d (d + 1) / 2 numbers, is what one would release without sketching.

Public, fixed before the private rows are read: for images, the bounds (mean of each
pixel of a public set, plus or minus 255); for genotypes, the bounds 0 and 1; for both,
the norm bound S of each map, the 99th percentile of the norms of its features on the
public set. Rows are not standardised: variances of private rows are private.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchlearn.decoders.moments.nystrom import NystromDecoder
from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.errors import PrivacyWarning, RowsError, TooNoisy
from sketchlearn.estimators.pca import CompressivePCA
from sketchlearn.experiments.protocol import (
    DELTA,
    EPSILONS,
    N_FEATURES,
    random_features,
)
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.clipping import clipped
from sketchlearn.meta.datasets import load_folder
from sketchlearn.metrics import leading_components, pca_log_relative_error
from sketchlearn.privacy.charge import CountMode, Neighbours
from sketchlearn.sketching.sketch import Sketch
from sketchlearn.testing import release_seeded

__all__ = [
    "FULL",
    "PUBLIC_TWINS",
    "SETTINGS",
    "PRIVACY_SIZES",
    "PrivacyCurves",
    "measure_privacy",
]

FULL = N_FEATURES * (N_FEATURES + 1) // 2
"""Numbers of a whole second moment."""

PRIVACY_SIZES = (200, 500, 1000, 2000, FULL)
PUBLIC_TWINS = {"MNIST": "EMNIST-digits", "hapmap31": "hapmap1"}
"""Private set of the test split, and the training set that nobody protects."""


class _Promise(TypedDict, total=False):
    neighbours: Neighbours
    count: CountMode


SETTINGS: dict[str, _Promise] = {
    "one row more or less, the count is private": {},
    "one row replaced, the count is public": {
        "neighbours": "replace",
        "count": "public",
    },
}


@final
@dataclass(frozen=True, eq=False)
class PrivacyCurves:
    """What privacy costs on one set."""

    name: str
    n_rows: int
    random: float
    """LRE of a basis that knows nothing of the rows."""

    norm_bounds: dict[int, float]
    """S by sketch size."""

    lre: dict[str, dict[int, list[float]]]
    """By setting and sketch size: one value for each epsilon, then without noise; NaN
    where a release is too noisy to have a mean."""


def measure_privacy(
    folder: str | os.PathLike[str],
    name: str,
    *,
    sizes: Sequence[int] = PRIVACY_SIZES,
    n_releases: int = 3,
) -> PrivacyCurves:
    """Release sketches of one set at every size and epsilon, and judge their PCA.

    Parameters
    ----------
    folder : path
        Holds ``data/MANIFEST.json``.
    name : str
        One of :data:`PUBLIC_TWINS`.
    sizes : sequence of int
        Sketch sizes.
    n_releases : int
        Releases to take the mean of. They are seeded, so nothing here is private.
    """
    rows = _read(folder, name, "test")
    public = _read(folder, PUBLIC_TWINS[name], "train")
    moment, bounds = np.cov(rows.T, bias=True), _public_bounds(public)
    lre: dict[str, dict[int, list[float]]] = {setting: {} for setting in SETTINGS}
    norm_bounds = {}
    for size in sizes:
        pca = CompressivePCA(sketch_size=size, bounds=bounds)
        plan = pca.plan(rows.shape[1])
        norm_bounds[size] = _public_norm_bound(plan, public)
        feature_map = clipped(plan, norm_bound=norm_bounds[size])
        sketch = sketch_rows(rows, feature_map, progress=False)
        found = pca.fit_sketch(sketch).components_
        exact = pca_log_relative_error(moment, found)
        for setting, promise in SETTINGS.items():
            noisy = [
                _noisy_lre(moment, sketch, epsilon, promise, n_releases)
                for epsilon in EPSILONS
            ]
            lre[setting][size] = [*noisy, exact]
    return PrivacyCurves(name, len(rows), _random_lre(moment), norm_bounds, lre)


def _random_lre(moment: NDArray[np.float64]) -> float:
    rng = np.random.default_rng(0)
    bases = [np.linalg.qr(rng.normal(size=moment.shape))[0] for _ in range(20)]
    return float(np.mean([pca_log_relative_error(moment, basis) for basis in bases]))


def _noisy_lre(
    moment: NDArray[np.float64],
    sketch: Sketch,
    epsilon: float,
    promise: _Promise,
    n_releases: int,
) -> float:
    scores = []
    for seed in range(n_releases):
        with warnings.catch_warnings():
            # DELTA is more than a tenth of one over the rows: said in the docstring.
            warnings.simplefilter("ignore", PrivacyWarning)
            private = release_seeded(
                sketch, seed, epsilon=epsilon, delta=DELTA, **promise
            )
            try:  # what drowns in noise is judged too, so decoded and not fitted
                moments = NystromDecoder().decode(private).params
            except TooNoisy:
                return float("nan")
            found = leading_components(moments.covariance)
            scores.append(pca_log_relative_error(moment, found))
    return float(np.mean(scores))


def _read(
    folder: str | os.PathLike[str], name: str, split: Literal["train", "test"]
) -> NDArray[np.float64]:
    for data in load_folder(folder, split=split):
        if data.name == name:
            return data.rows[:, random_features(data)].astype(np.float64)
    raise RowsError(f"the folder has no set {name!r} in its split {split!r}.")


def _public_bounds(public: NDArray[np.float64]) -> tuple[ArrayLike, ArrayLike]:
    if public.max() <= 1:
        return 0, 1
    center = 8 * np.rint(public.mean(axis=0) / 8)  # on the grid of Scaling.from_bounds
    return center - 255, center + 255


def _public_norm_bound(
    feature_map: AbstractFeatureMap, public: NDArray[np.float64]
) -> float:
    """S: longer than 99 % of the feature vectors of public rows."""
    blocks = np.array_split(public, -(-len(public) // 256))
    norms = [np.linalg.norm(feature_map(block), axis=1) for block in blocks]
    return float(np.quantile(np.concatenate(norms), 0.99))
