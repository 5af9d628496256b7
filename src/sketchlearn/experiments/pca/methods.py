r"""Every way to get a second moment from m numbers that the paper compares, and ours.

All of them see standardised rows; means and variances are kept beside the m numbers.
The classical decoders of quadratic sketches are told which features vary and that those
have variance 1, which makes them better than as published. The paper's SQNet gets rows
padded with zeros and is judged by the features that the rows have: its printed errors
of `car` and `balance-scale` are those of exact PCA at every size, which no network
reaches that is asked where the padding begins. Quadratic sketches are taken of d rows
that have the second moment of all: they depend on nothing else.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.base import AbstractDecoder
from sketchlearn.decoders.baselines.factorized import (
    AcceleratedDecoder,
    ExponentialDecoder,
    RobustDecoder,
)
from sketchlearn.decoders.baselines.pseudo_inverse import PseudoInverseDecoder
from sketchlearn.decoders.baselines.reduced_rows import (
    ReducedRows,
    project_rows,
    sample_rows,
)
from sketchlearn.decoders.moments.covariance.dense import symmetric_matrix
from sketchlearn.decoders.moments.query_network import QueryNetwork
from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.errors import ConvergenceWarning
from sketchlearn.estimators.pca import CompressivePCA
from sketchlearn.estimators.ridge import CompressiveRidge
from sketchlearn.experiments.pca.sets import Estimate, EvaluationSet
from sketchlearn.experiments.protocol import N_FEATURES
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.quadratic import QuadraticFeatures, QuadraticLaw
from sketchlearn.meta.moment_basis import MomentBasis
from sketchlearn.nested_sqnet import NestedSQNet
from sketchlearn.plans.moments import LEARNED, moment_decoder
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.registry import list_models, load_model
from sketchlearn.sketching.sketch import Sketch
from sketchlearn.sqnet import SQNet

__all__ = [
    "LARGEST_LEARNED",
    "OUR_PCA",
    "PCA_METHODS",
    "SQNET",
    "Method",
    "paper_network",
    "pca_method",
    "weights_file",
]

SQNET, OUR_PCA = "sqnet", "learned"

_SQNET_MODEL = "pca-sqnet"
_TRIANGLE = N_FEATURES * (N_FEATURES + 1) // 2
_DRAWN_ONCE = (SQNET, "pinv-gaussian", "robust", "accelerated", "exponential")
_PSEUDO_INVERSE = PseudoInverseDecoder(known_diagonal=1.0)

LARGEST_LEARNED = 2000
"""Directions of a basis beyond this are not learned but completed; beyond it a sketch
holds all of most test sets, and only the paper's network is shown."""

_VALUE_BOUND = 2.0**30
"""The d rows that stand for all are longer than rows of data."""

Estimator = Callable[[EvaluationSet, int, int], Estimate]
"""From a set, a sketch size and a seed to an estimate."""


@final
@dataclass(frozen=True, eq=False)
class Method:
    """One line of the tables."""

    name: str
    """What the command line calls it."""

    estimate: Estimator
    """Sketches a set with a size and a seed, and decodes the sketch."""

    draws_once: bool = False
    """Whether one draw of its sketch has to do: nothing in it is random, or it takes
    seconds for a set."""

    missing: Callable[[int], str | None] = lambda size: None
    """Why it cannot run at a size, if weights for it are missing."""

    sizes: tuple[int, int] = (4, LARGEST_LEARNED)
    """Smallest and largest size at which it is shown."""

    def runs_at(self, size: int) -> bool:
        """Whether there is an estimate at a size."""
        smallest, largest = self.sizes
        return smallest <= size <= largest and self.missing(size) is None


PCA_METHODS: dict[str, str] = {
    SQNET: "SQNet of the paper, our training",
    "pinv-gaussian": "pseudo-inverse, Gaussian A",
    "pinv-chi": "pseudo-inverse, CHI",
    "pinv-unit": "pseudo-inverse, UNIT",
    "robust": "ROBUST (CHI)",
    "accelerated": "AGD (CHI)",
    "exponential": "HUANG (CHI)",
    "row-sample": "row sampling",
    "row-gaussian": "Gaussian row projection",
    "row-sparse": "sparse row projection",
    "nystrom": "Nyström",
    OUR_PCA: "learned (ours)",
}
"""Labels of all methods by name."""


def pca_method(name: str, weights: str | os.PathLike[str] | None = None) -> Method:
    """A method by its name.

    Parameters
    ----------
    name : str
        One of :data:`PCA_METHODS`.
    weights : path, optional
        Folder with weights of the paper's SQNet, ``pca-sqnet-{size}.safetensors`` or
        ``pca-sqnet.safetensors`` with all sizes; what it does not have is looked for
        in the package.
    """
    folder = None if weights is None else Path(weights)
    chi = partial(_quadratic, law="chi")
    robust = RobustDecoder(known_diagonal=1.0)
    accelerated = AcceleratedDecoder(known_diagonal=1.0)
    exponential = ExponentialDecoder(known_diagonal=1.0)
    estimates: dict[str, Estimator] = {
        SQNET: partial(_sqnet, folder),
        "pinv-gaussian": partial(_quadratic, law="gaussian"),
        "pinv-chi": chi,
        "pinv-unit": partial(_quadratic, law="unit"),
        "robust": partial(chi, decoder=robust),
        "accelerated": partial(chi, decoder=accelerated),
        "exponential": partial(chi, decoder=exponential),
        "row-sample": partial(_reduced, law="sample"),
        "row-gaussian": partial(_reduced, law="gaussian"),
        "row-sparse": partial(_reduced, law="sparse"),
        "nystrom": partial(_ours, decoder="nystrom"),
        OUR_PCA: partial(_ours, decoder="learned"),
    }
    missing: dict[str, Callable[[int], str | None]]
    missing = {SQNET: partial(_sqnet_missing, folder), OUR_PCA: _learned_missing}
    return Method(
        name,
        estimates[name],
        draws_once=name in _DRAWN_ONCE,
        missing=missing.get(name, lambda size: None),
        sizes=(1, _TRIANGLE) if name == SQNET else (4, LARGEST_LEARNED),
    )


def weights_file(size: int | None = None) -> str:
    """Name of the file with the paper's SQNet of one size, or of all sizes."""
    return (
        f"{_SQNET_MODEL}.safetensors"
        if size is None
        else f"{_SQNET_MODEL}-{size}.safetensors"
    )


def _quadratic(
    data: EvaluationSet,
    size: int,
    seed: int,
    *,
    law: QuadraticLaw,
    decoder: AbstractDecoder[NDArray[np.float64]] = _PSEUDO_INVERSE,
) -> Estimate:
    features = _quadratic_features(data.n_features, size, law, seed)
    sketch = sketch_rows(data.few_rows, features, progress=False)
    return Estimate(decoder.decode(sketch).params)


@lru_cache(maxsize=1)
def _quadratic_features(
    n_features: int, size: int, law: QuadraticLaw, seed: int
) -> QuadraticFeatures:
    """Kept for the next set of the same width: A can take seconds to draw."""
    return QuadraticFeatures(
        n_features, size, law=law, seed=seed, value_bound=_VALUE_BOUND
    )


def _reduced(
    data: EvaluationSet,
    size: int,
    seed: int,
    *,
    law: Literal["sample", "gaussian", "sparse"],
) -> Estimate:
    n_rows = size // data.n_features
    if not n_rows:  # not even one row fits: nothing is known
        return Estimate(np.eye(data.n_features))
    reduced: ReducedRows
    if law == "sample":
        reduced = sample_rows(data.rows, n_rows, seed=seed)
    else:
        reduced = project_rows(data.rows, n_rows, law=law, seed=seed)
    return Estimate(reduced.second_moment)


def _ours(
    data: EvaluationSet, size: int, seed: int, *, decoder: Literal["learned", "nystrom"]
) -> Estimate:
    pca = CompressivePCA(
        sketch_size=size, standardize=True, decoder=decoder, random_state=seed
    )
    ridge = CompressiveRidge(sketch_size=size, decoder=decoder, random_state=seed)
    with warnings.catch_warnings():
        # How bad a sketch that is too small makes it is what is measured here.
        warnings.simplefilter("ignore", ConvergenceWarning)
        pca.fit(data.rows)
        ridge.fit(*data.regression)
        ridge.set_params(alpha=_penalty(decoder, ridge.sketch_))
        ridge.fit_sketch(ridge.sketch_)
    moment = (pca.components_.T * pca.explained_variance_) @ pca.components_
    return Estimate(moment, ridge.coef_)


def _penalty(decoder: str, sketch: Sketch | PrivateSketch) -> float:
    """The paper's penalty, as far as this sketch knows it."""
    moments = moment_decoder(decoder, sketch).decode(sketch).params
    return float(np.linalg.norm(moments.covariance[:-1, :-1])) * sketch.count


def _sqnet(folder: Path | None, data: EvaluationSet, size: int, seed: int) -> Estimate:
    d = data.n_features
    if size > LARGEST_LEARNED:
        return Estimate(_completed(folder, data, size)[:d, :d])
    features, decoder = _networks(folder, size)
    padded = np.pad(data.few_rows, ((0, 0), (0, features.n_features - d)))
    sketch = sketch_rows(padded, features, progress=False)
    return Estimate(decoder.decode(sketch).params[:d, :d])


def _completed(
    folder: Path | None, data: EvaluationSet, size: int
) -> NDArray[np.float64]:
    """What numbers beyond the learned ones add, without networks of a gigabyte."""
    basis, width = _completed_basis(folder)
    triangle = data.padded(width)[np.tril_indices(width)]
    return symmetric_matrix(basis.project(triangle, size))


@lru_cache(maxsize=1)
def _completed_basis(folder: Path | None) -> tuple[MomentBasis, int]:
    nested = _nested(folder)
    return MomentBasis(nested.basis, nested.mean), nested.n_features


@lru_cache(maxsize=1)
def _networks(
    folder: Path | None, size: int
) -> tuple[AbstractFeatureMap, QueryNetwork]:
    net = paper_network(folder, size)
    assert net is not None, "asked for at sizes that are there"
    return net.feature_map(value_bound=_VALUE_BOUND), net.decoder()


def paper_network(folder: Path | None, size: int) -> SQNet | None:
    """The paper's SQNet of one size from a folder or the package, if there is one."""
    path = None if folder is None else folder / weights_file(size)
    if path is not None and path.is_file():
        return SQNet.load(path)
    nested = _nested(folder)
    return nested.sized(size) if size <= nested.sketch_size else None


@lru_cache(maxsize=1)
def _nested(folder: Path | None) -> NestedSQNet:
    path = None if folder is None else folder / weights_file()
    if path is not None and path.is_file():
        return NestedSQNet.load(path)
    packaged: NestedSQNet = load_model(_SQNET_MODEL)
    return packaged


def _sqnet_missing(folder: Path | None, size: int) -> str | None:
    if folder is not None and (folder / weights_file(size)).is_file():
        return None
    if size > LARGEST_LEARNED or size <= _nested(folder).sketch_size:
        return None
    where = "the package" if folder is None else f"{str(folder)!r}"
    return (
        f"no weights {weights_file(size)!r} in {where}; train them with --train "
        "--weights FOLDER, or name a folder that has them"
    )


def _learned_missing(size: int) -> str | None:
    if any(model.name == LEARNED for model in list_models()):
        return None
    return f"the package has no weights {LEARNED!r}"
