"""PCA from private sketches: log relative error against epsilon and sketch size.

Each set has up to 196 features at random, in public units. A sketch of m numbers is
released with delta = 1e-5, and R = E[xxᵀ] is decoded from it; LRE is the log ratio of
the reconstruction error of its components on the private rows to that of exact PCA.
The full second moment, d (d + 1) / 2 numbers, is what one would release without
sketching. What is public is told in :mod:`sketchlearn.experiments.pca.public`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.errors import PrivacyWarning, TooNoisy
from sketchlearn.experiments.pca.private_methods import (
    ALL_OF_R,
    FULL,
    PRIVATE_METHODS,
    Plan,
    full_plan,
    sketch_plans,
)
from sketchlearn.experiments.pca.public import PrivateSet, private_set
from sketchlearn.experiments.protocol import DELTA, EPSILONS
from sketchlearn.metrics import leading_components, pca_log_relative_error
from sketchlearn.privacy.charge import CountMode, Neighbours
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.report import format_table
from sketchlearn.sketching.sketch import Sketch
from sketchlearn.testing import release_seeded

__all__ = [
    "PRIVACY_SIZES",
    "SETTINGS",
    "PrivacyCurves",
    "mean_curves",
    "measure_privacy",
    "noisy_moment",
    "privacy_table",
]

PRIVACY_SIZES = (20, 100, 500)


class _Promise(TypedDict, total=False):
    neighbours: Neighbours
    count: CountMode


SETTINGS: dict[str, _Promise] = {
    "one row replaced, the count is public": {
        "neighbours": "replace",
        "count": "public",
    },
    "one row more or less, the count is private": {},
}


@final
@dataclass(frozen=True, eq=False)
class PrivacyCurves:
    """What privacy costs on one set."""

    name: str
    n_rows: int
    n_features: int
    random: float
    """LRE of a basis that knows nothing of the rows."""

    norm_bounds: dict[str, dict[int, float]]
    """S by method and sketch size."""

    lre: dict[str, dict[int, list[float]]]
    """By method and sketch size: one value for each epsilon, then without noise; NaN
    where a release is too noisy to have a mean."""


def measure_privacy(
    folder: str | os.PathLike[str],
    name: str,
    *,
    sizes: Sequence[int] = PRIVACY_SIZES,
    n_releases: int = 3,
    setting: str = next(iter(SETTINGS)),
    weights: str | os.PathLike[str] | None = None,
) -> PrivacyCurves:
    """Release sketches of one set at every size and epsilon, and judge their PCA.

    Parameters
    ----------
    folder : path
        Holds ``data/MANIFEST.json``.
    name : str
        One of :data:`~sketchlearn.experiments.pca.public.PUBLIC`.
    sizes : sequence of int
        Sketch sizes.
    n_releases : int
        Releases to take the mean of. They are seeded, so nothing here is private.
    setting : str
        One of :data:`SETTINGS`.
    weights : path, optional
        Folder with weights of the paper's SQNet.
    """
    data = private_set(folder, name)
    moment = data.second_moment
    lre: dict[str, dict[int, list[float]]] = {}
    bounds: dict[str, dict[int, float]] = {}
    plans = [
        (size, plan) for size in sizes for plan in sketch_plans(data, size, weights)
    ]
    for size, plan in [*plans, (FULL, full_plan(data))]:
        sketch = _sketch(data, plan)
        for method, values in _errors(
            moment, plan, sketch, n_releases, setting
        ).items():
            lre.setdefault(method, {})[size] = values
            bounds.setdefault(method, {})[size] = plan.feature_map.norm_bound or np.nan
    n_rows, d = data.rows.shape
    return PrivacyCurves(name, n_rows, d, _random_lre(moment), bounds, lre)


def noisy_moment(
    data: PrivateSet, plan: Plan, method: str, epsilon: float | None
) -> NDArray[np.float64]:
    """R of a private set as one release tells it, or its sketch without noise."""
    sketch = _sketch(data, plan)
    promise = next(iter(SETTINGS.values()))
    seen = sketch if epsilon is None else _release(sketch, 0, epsilon, promise)
    d = data.rows.shape[1]
    return plan.decoders[method](seen)[:d, :d]


def mean_curves(
    curves: Sequence[PrivacyCurves],
) -> dict[str, dict[int, list[float]]]:
    """Means over sets by method and size, for each epsilon and without noise."""
    first = curves[0].lre
    return {
        method: {
            size: np.mean([one.lre[method][size] for one in curves], axis=0).tolist()
            for size in first[method]
        }
        for method in first
    }


def privacy_table(
    scores: Mapping[str, Mapping[int, Sequence[float]]], *, title: str
) -> str:
    """LRE by method, size and epsilon as text."""
    heads = ["method", "numbers", *(f"eps={value:g}" for value in EPSILONS), "no noise"]
    rows = [
        [
            PRIVATE_METHODS[method],
            "all" if method == ALL_OF_R else str(size),
            *("too noisy" if np.isnan(value) else value for value in values),
        ]
        for method, by_size in scores.items()
        for size, values in by_size.items()
    ]
    return format_table(heads, rows, title=title)


def _sketch(data: PrivateSet, plan: Plan) -> Sketch:
    rows = np.pad(data.rows, ((0, 0), (0, plan.pad)))
    return sketch_rows(rows, plan.feature_map, progress=False)


def _errors(
    moment: NDArray[np.float64],
    plan: Plan,
    sketch: Sketch,
    n_releases: int,
    setting: str,
) -> dict[str, list[float]]:
    """LRE of all decoders of a plan, for each epsilon and without noise."""
    found: dict[str, list[float]] = {name: [] for name in plan.decoders}
    for epsilon in EPSILONS:
        releases = [
            _release(sketch, seed, epsilon, SETTINGS[setting])
            for seed in range(n_releases)
        ]
        for name, decode in plan.decoders.items():
            scores = [_lre(moment, decode, one) for one in releases]
            found[name].append(float(np.mean(scores)))
    for name, decode in plan.decoders.items():
        found[name].append(_lre(moment, decode, sketch))
    return found


def _lre(
    moment: NDArray[np.float64],
    decode: Callable[[Sketch | PrivateSketch], NDArray[np.float64]],
    sketch: Sketch | PrivateSketch,
) -> float:
    d = len(moment)
    try:  # what drowns in noise is judged too, so decoded and not fitted
        found = leading_components(decode(sketch)[:d, :d])
    except TooNoisy:
        return float("nan")
    return pca_log_relative_error(moment, found)


def _release(
    sketch: Sketch, seed: int, epsilon: float, promise: _Promise
) -> PrivateSketch:
    with warnings.catch_warnings():
        # DELTA is more than a tenth of one over the rows: said in the docstring.
        warnings.simplefilter("ignore", PrivacyWarning)
        return release_seeded(sketch, seed, epsilon=epsilon, delta=DELTA, **promise)


def _random_lre(moment: NDArray[np.float64]) -> float:
    rng = np.random.default_rng(0)
    bases = [np.linalg.qr(rng.normal(size=moment.shape))[0] for _ in range(20)]
    return float(np.mean([pca_log_relative_error(moment, basis) for basis in bases]))
