"""How second moments are released and decoded: the paper's ways, ours, and all of R.

A plan is a map whose rows are bounded in norm, with every decoder of its releases. The
paper's SQNet is clipped to the S of its own training, other maps to one that public
rows tell.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.baselines.pseudo_inverse import PseudoInverseDecoder
from sketchlearn.estimators.pca import CompressivePCA
from sketchlearn.experiments.pca.methods import OUR_PCA, SQNET, paper_network
from sketchlearn.experiments.pca.public import REACH, PrivateSet
from sketchlearn.experiments.protocol import N_FEATURES
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.clipping import clipped
from sketchlearn.features.quadratic import QuadraticFeatures
from sketchlearn.plans.moments import moment_decoder
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = [
    "ALL_OF_R",
    "CLAMPED",
    "CPCA",
    "FULL",
    "PRIVATE_METHODS",
    "Plan",
    "full_plan",
    "sketch_plans",
]

CLAMPED, CPCA, ALL_OF_R = "sqnet-clamped", "cpca", "full"

PRIVATE_METHODS = {
    SQNET: "SQNet, noise-aware (Wiener)",
    CLAMPED: "SQNet of the paper (clamped)",
    CPCA: "random CPCA (Gaussian A)",
    "nystrom": "Nyström",
    OUR_PCA: "learned (ours)",
    ALL_OF_R: "all of R",
}
"""Labels of all methods by name."""

FULL = N_FEATURES * (N_FEATURES + 1) // 2
"""Numbers of a whole second moment."""

_PRIVATE_VALUE_BOUND = 2.0**20
"""Far beyond any feature of a row of values up to 4."""

SeenSketch = Sketch | PrivateSketch
DecodeMoment = Callable[[SeenSketch], NDArray[np.float64]]
"""From a sketch, released or not, to a second moment of at least its features."""


@final
@dataclass(frozen=True, eq=False)
class Plan:
    """A map of bounded norm, and decoders of its sketches by name."""

    feature_map: AbstractFeatureMap
    decoders: dict[str, DecodeMoment]
    pad: int = 0
    """Zeros to put behind every row."""


def sketch_plans(
    data: PrivateSet, size: int, weights: str | os.PathLike[str] | None = None
) -> list[Plan]:
    """All plans of one sketch size that there are weights for.

    Parameters
    ----------
    data : PrivateSet
        Only its width and its public rows are used.
    size : int
        Numbers in the sketch; those for our decoders have means and variances beside.
    weights : path, optional
        Folder with weights of the paper's SQNet.
    """
    d = data.public_rows.shape[1]
    quadratic = QuadraticFeatures(
        d, size, law="gaussian", value_bound=_PRIVATE_VALUE_BOUND
    )
    plans = [
        Plan(
            _bounded(quadratic, data),
            {CPCA: lambda sketch: PseudoInverseDecoder().decode(sketch).params},
        ),
        Plan(
            _bounded(_moments(d, size), data),
            {"nystrom": _decode("nystrom"), OUR_PCA: _decode(OUR_PCA)},
        ),
    ]
    net = paper_network(None if weights is None else Path(weights), size)
    if net is None or net.prior is None:
        return plans
    regular, aware = net.decoder(shrink=False), net.decoder()
    paper = Plan(
        net.releasable_map(),
        {
            SQNET: lambda sketch: aware.decode(sketch).params,
            CLAMPED: lambda sketch: regular.decode(sketch).params,
        },
        pad=net.spec.n_features - d,
    )
    return [paper, *plans]


def full_plan(data: PrivateSet) -> Plan:
    """What one would release without sketching."""
    d = data.public_rows.shape[1]
    return Plan(_bounded(_moments(d, FULL), data), {ALL_OF_R: _decode("nystrom")})


def _moments(d: int, size: int) -> AbstractFeatureMap:
    return CompressivePCA(sketch_size=size, bounds=(-REACH, REACH)).plan(d)


def _bounded(feature_map: AbstractFeatureMap, data: PrivateSet) -> AbstractFeatureMap:
    return clipped(feature_map, norm_bound=data.norm_bound(feature_map))


def _decode(name: Literal["nystrom", "learned"] | str) -> DecodeMoment:
    def decode(sketch: SeenSketch) -> NDArray[np.float64]:
        moments = moment_decoder(name, sketch).decode(sketch).params
        return np.asarray(moments.covariance + np.outer(moments.mean, moments.mean))

    return decode
