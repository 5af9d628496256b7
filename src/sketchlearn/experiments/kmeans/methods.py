r"""Every way to get k centers from m numbers: ours, and the classical decoders.

All of them see rows in [0, 1]; ours keeps means and variances beside the m numbers. The
scale of the classical sketches is estimated from the rows, which is not counted. The
landmarks of Nyström sketches are whole rows and counted as such (paper, section 4.2):
n of them and their n features are n (d + 1) numbers, but there is one at least. In d
dimensions, rows of a cluster are :math:`\sqrt d` of its width apart, so that Gaussian
kernels are made wider by as much; frequencies of adapted radius need no such
correction.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.base import AbstractDecoder
from sketchlearn.decoders.baselines.cl_amp import CLAMPDecoder
from sketchlearn.decoders.baselines.cl_ompr import CLOMPRDecoder
from sketchlearn.decoders.baselines.unrolled import UnrolledDecoder
from sketchlearn.decoders.clusters.atomic_sketch import FittedAtoms
from sketchlearn.decoders.clusters.iterative_ckm import IterativeCKM
from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.errors import ConvergenceWarning
from sketchlearn.estimators.kmeans import CompressiveKMeans
from sketchlearn.experiments.kmeans.sets import N_CLUSTERS
from sketchlearn.features.fourier import FourierFeatures
from sketchlearn.features.frequencies import FrequencyLaw
from sketchlearn.features.kernel_scale import estimate_scale
from sketchlearn.features.nystrom import NystromFeatures
from sketchlearn.features.scaling import Scaling
from sketchlearn.registry import load_model

__all__ = [
    "KMEANS_METHODS",
    "LLOYD_LABEL",
    "OUR_KMEANS",
    "ClusterMethod",
    "fourier_plan",
    "kmeans_method",
]

OUR_KMEANS = "ours"

KMEANS_METHODS: dict[str, str] = {
    OUR_KMEANS: "CompressiveKMeans (ours)",
    "one-round": "CompressiveKMeans, 1 round",
    "ompr-gaussian": "CL-OMPR, Gaussians, adapted radius",
    "ompr-gaussian-rff": "CL-OMPR, Gaussians, Gaussian law",
    "ompr-dirac": "CL-OMPR, points, adapted radius",
    "ompr-dirac-rff": "CL-OMPR, points, Gaussian law",
    "ompr-nystrom": "CL-OMPR, Gaussians, Nyström (landmarks counted)",
    "amp": "CL-AMP, adapted radius",
    "unrolled": "Iterative CKM, not trained",
    "ckm-paper": "Iterative CKM as printed",
    "ckm": "Iterative CKM, learned law and Gaussians",
    "mean": "all centers at the mean",
}
"""Labels of all methods by name."""

LLOYD_LABEL = "Lloyd's algorithm"
"""What they are compared with, which sees all rows."""

_FAST = (OUR_KMEANS, "one-round", "ckm", "ckm-paper", "mean")
_LARGEST_SIZES = {"ckm-paper": 500}
_SCALE_ROWS = 5000
_UNROLLED_STARTS = 4
_LEAST_SCALE = 0.7
"""Of the spread of the rows: the estimate alone is far too small on some training sets.
Of 0, 0.2, 0.35, 0.5, 0.7 and 1, chosen for CL-OMPR with Gaussians and adapted radius on
five training sets, one draw each; the other methods take it as it is."""

Rows = NDArray[np.float64]


@final
@dataclass(frozen=True, eq=False)
class ClusterMethod:
    """One line of the tables."""

    name: str
    """What the command line calls it."""

    centers: Callable[[Rows, int, int], NDArray[np.float64]]
    """Sketches rows with a size and a seed, and decodes k centers."""

    is_slow: bool
    """Whether decoding a wide set takes minutes."""

    largest_size: int | None = None
    """The largest sketch it was trained for, if there is one."""


def kmeans_method(name: str) -> ClusterMethod:
    """A method by its name, one of :data:`KMEANS_METHODS`.

    Examples
    --------
    >>> kmeans_method("mean").centers(np.array([[0.0], [1.0]]), 100, 0)
    array([[0.5]])
    """
    searches: dict[str, Callable[[Rows, int, int], NDArray[np.float64]]] = {
        OUR_KMEANS: partial(_ours, rounds=None),
        "one-round": partial(_ours, rounds=1),
        "ompr-gaussian": partial(_fourier, law="adapted", decoder=_gaussians),
        "ompr-gaussian-rff": partial(_fourier, law="gaussian", decoder=_gaussians),
        "ompr-dirac": partial(_fourier, law="adapted", decoder=_points),
        "ompr-dirac-rff": partial(_fourier, law="gaussian", decoder=_points),
        "ompr-nystrom": _nystrom,
        "amp": partial(_fourier, law="adapted", decoder=_messages),
        "unrolled": partial(_fourier, law="gaussian", decoder=_unrolled),
        "ckm": partial(_trained, model="kmeans-ckm"),
        "ckm-paper": partial(_trained, model="kmeans-ckm-paper"),
        "mean": _mean,
    }
    return ClusterMethod(
        name, searches[name], name not in _FAST, largest_size=_LARGEST_SIZES.get(name)
    )


def fourier_plan(
    rows: Rows, size: int, *, law: FrequencyLaw = "adapted", seed: int = 0
) -> FourierFeatures:
    """The map of the classical methods, for rows in [0, 1]."""
    scaling, d = _unit_scaling(rows), rows.shape[1]
    widening = d**0.5 if law == "gaussian" else 1.0
    return FourierFeatures(
        d,
        size // 2 * 2,
        scale=widening * _scale(rows, scaling, seed),
        law=law,
        seed=seed,
        scaling=scaling,
    )


def _ours(
    rows: Rows, size: int, seed: int, *, rounds: int | None
) -> NDArray[np.float64]:
    search = CompressiveKMeans(
        N_CLUSTERS, sketch_size=size, rounds=rounds, random_state=seed
    )
    with warnings.catch_warnings():
        # How bad a sketch that is too small makes it is what is measured here.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return search.fit(rows).cluster_centers_


def _fourier(
    rows: Rows,
    size: int,
    seed: int,
    *,
    law: FrequencyLaw,
    decoder: Callable[[int], AbstractDecoder[FittedAtoms]],
) -> NDArray[np.float64]:
    sketch = sketch_rows(
        rows, fourier_plan(rows, size, law=law, seed=seed), progress=False
    )
    return decoder(seed).decode(sketch).params.centers


def _nystrom(rows: Rows, size: int, seed: int) -> NDArray[np.float64]:
    scaling, d = _unit_scaling(rows), rows.shape[1]
    distinct = np.unique(rows, axis=0)
    n_landmarks = max(1, size // (d + 1))
    landmarks = np.random.default_rng(seed).permutation(distinct)[:n_landmarks]
    scale = d**0.5 * _scale(rows, scaling, seed)
    feature_map = NystromFeatures(landmarks, scale=scale, scaling=scaling)
    sketch = sketch_rows(rows, feature_map, progress=False)
    return _gaussians(seed).decode(sketch).params.centers


def _trained(rows: Rows, size: int, seed: int, *, model: str) -> NDArray[np.float64]:
    ckm: IterativeCKM = load_model(model)
    plan = ckm.feature_map(rows.shape[1], size // 2 * 2, seed)
    sketch = sketch_rows(rows, plan, progress=False)
    decoder = ckm.decoder(N_CLUSTERS, n_starts=_UNROLLED_STARTS, seed=seed)
    return decoder.decode(sketch).params.centers


def _mean(rows: Rows, size: int, seed: int) -> NDArray[np.float64]:
    center: NDArray[np.float64] = rows.mean(axis=0, keepdims=True)
    return center


def _gaussians(seed: int) -> CLOMPRDecoder:
    return CLOMPRDecoder(N_CLUSTERS, atoms="gaussian", n_restarts=1, seed=seed)


def _points(seed: int) -> CLOMPRDecoder:
    return CLOMPRDecoder(N_CLUSTERS, atoms="dirac", n_restarts=1, seed=seed)


def _messages(seed: int) -> CLAMPDecoder:
    return CLAMPDecoder(N_CLUSTERS, n_starts=2, seed=seed)


def _unrolled(seed: int) -> UnrolledDecoder:
    return UnrolledDecoder(N_CLUSTERS, n_starts=_UNROLLED_STARTS, seed=seed)


def _unit_scaling(rows: Rows) -> Scaling:
    d = rows.shape[1]
    return Scaling.from_bounds(np.zeros(d), np.ones(d))


def _scale(rows: Rows, scaling: Scaling, seed: int) -> float:
    """Width of the kernel in scaled units, from some of the rows."""
    rng = np.random.default_rng(seed)
    some = rows[rng.permutation(len(rows))[:_SCALE_ROWS]]
    scaled = scaling(some)
    found = estimate_scale(scaled, n_clusters=N_CLUSTERS, seed=seed)
    return max(found, _LEAST_SCALE * float(np.sqrt(scaled.var(axis=0).mean())))
