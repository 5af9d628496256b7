r"""The paper's networks for PCA and ridge at every sketch size, out of one basis.

A linear Sketch Network of outer products, pooled by the mean, and a linear Query
Network see the second moment through a projection. With orthonormal rows
:math:`b_1, b_2, \dots`, the most important first, the networks of size m are

.. math::
    z = B_m \,\mathrm{vec}_{LT}(R) - B_m \mu, \qquad
    \mathrm{vec}_{LT}(\hat R) = B_m^\top z + \mu,

so one matrix holds all sizes. How the rows are found is not known here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isqrt
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.decoders.moments.sketch_prior import SketchPrior
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.fields import SIZE, require_fields
from sketchlearn.features.network import (
    FEATURE_PREFIX,
    LAST_BIAS,
    LAST_WEIGHT,
    ModelReference,
)
from sketchlearn.files.weights import (
    AbstractLearned,
    Weights,
    load_weights,
    save_weights,
)
from sketchlearn.networks.forward import frozen_tensors
from sketchlearn.sqnet import DECODER_PREFIX, SQNet
from sketchlearn.sqnet_spec import SQNetSpec

__all__ = ["NestedSQNet"]
__public__ = ["NestedSQNet"]

_ROWS_TENSOR = FEATURE_PREFIX + LAST_WEIGHT
_SHIFT_TENSOR, _MEAN_TENSOR = FEATURE_PREFIX + LAST_BIAS, DECODER_PREFIX + LAST_BIAS


@final
@dataclass(frozen=True, eq=False)
class NestedSQNet(AbstractLearned):
    r"""SQNets of the sizes 1, 2, ... as the first rows of one basis.

    Parameters
    ----------
    n_features : int
        Numbers in a row, d; narrower rows are padded with zeros.
    tensors : mapping of arrays
        ``feature.layers.last.weight``: the basis B of shape (sizes, d (d + 1) / 2),
        in numbers of half precision; ``feature.layers.last.bias``:
        :math:`-B\mu`; ``decoder.layers.last.bias``: :math:`\mu`. Kept as read-only
        float32 copies.
    model : ModelReference, optional
        The weights of the package these are.
    prior : SketchPrior, optional
        What its training knows of sketches of the largest size, for private ones.

    Examples
    --------
    >>> nested = NestedSQNet.from_basis(np.eye(3), mean=np.array([1.0, 0.0, 1.0]))
    >>> nested.sketch_size, nested.sized(2).spec.sketch_size
    (3, 2)
    >>> nested.sized(3).decoder_network(np.zeros(3)).tolist()
    [1.0, 0.0, 1.0]
    """

    weights_kind: ClassVar = "nested-sqnet"

    n_features: int
    tensors: Mapping[str, NDArray[np.float32]]
    model: ModelReference | None = None
    prior: SketchPrior | None = None

    def __post_init__(self) -> None:
        spec = SQNetSpec(self.n_features, 1, inputs="outer", output="symmetric")
        rows = (*np.shape(self.tensors.get(_ROWS_TENSOR, 0)), 0)[0]
        n = spec.feature_network.n_inputs
        shapes = {_ROWS_TENSOR: (rows, n), _SHIFT_TENSOR: (rows,), _MEAN_TENSOR: (n,)}
        if not 0 < rows <= n:
            raise FeatureMapError(
                f"a basis for rows of {self.n_features} numbers has 1 to {n} rows; got "
                f"{rows}."
            )
        kept = frozen_tensors(self.tensors, shapes.items())
        object.__setattr__(self, "tensors", kept)
        if self.prior is not None and len(self.prior.low) != rows:
            raise FeatureMapError(
                f"this prior is one of {len(self.prior.low)} numbers, and the basis "
                f"has {rows} rows."
            )

    @classmethod
    def from_basis(
        cls, basis: NDArray[np.floating], mean: NDArray[np.floating]
    ) -> NestedSQNet:
        """Networks that project on the rows of a basis, around a mean.

        Parameters
        ----------
        basis : array of shape (sizes, d (d + 1) / 2)
            Orthonormal rows, the most important first; rounded to half precision.
        mean : array of shape (d (d + 1) / 2,)
            What is decoded from a sketch of no numbers.
        """
        half = np.asarray(basis, np.float16).astype(np.float64)
        tensors = {
            _ROWS_TENSOR: half,
            _SHIFT_TENSOR: -half @ mean,
            _MEAN_TENSOR: np.asarray(mean),
        }
        n_features = (isqrt(8 * len(mean) + 1) - 1) // 2
        return cls(n_features, {n: a.astype(np.float32) for n, a in tensors.items()})

    @override
    def __repr__(self) -> str:
        return (
            f"NestedSQNet(n_features={self.n_features}, sketch_size={self.sketch_size})"
        )

    @property
    def sketch_size(self) -> int:
        """The largest size."""
        return len(self.basis)

    @property
    def basis(self) -> NDArray[np.float32]:
        """B, shape (largest size, d (d + 1) / 2)."""
        return self.tensors[_ROWS_TENSOR]

    @property
    def mean(self) -> NDArray[np.float32]:
        """μ, shape (d (d + 1) / 2,)."""
        return self.tensors[_MEAN_TENSOR]

    def sized(self, sketch_size: int) -> SQNet:
        """The networks of one size.

        Parameters
        ----------
        sketch_size : int
            1 to the largest size. The networks of a smaller size are the first rows
            of those of a larger one.
        """
        is_whole = isinstance(sketch_size, int | np.integer) and sketch_size is not True
        if not is_whole or not 0 < sketch_size <= self.sketch_size:
            raise FeatureMapError(
                f"this basis has the sizes 1 to {self.sketch_size}; got "
                f"{sketch_size!r}. Train a larger one: sketchlearn train "
                "pca-sqnet, with a larger sketch_size."
            )
        sketch_size = int(sketch_size)
        spec = SQNetSpec(
            self.n_features, sketch_size, inputs="outer", output="symmetric"
        )
        rows = self.basis[:sketch_size]
        tensors = {
            _ROWS_TENSOR: rows,
            _SHIFT_TENSOR: self.tensors[_SHIFT_TENSOR][:sketch_size],
            DECODER_PREFIX + LAST_WEIGHT: rows.T,
            _MEAN_TENSOR: self.mean,
        }
        prior = self.prior and self.prior.first(sketch_size)
        return SQNet(spec, tensors, self.model, prior)

    @override
    def to_weights(self, card: Mapping[str, Any] | None = None) -> Weights:
        spec = {"n_features": self.n_features}
        prior = self.prior.to_tensors() if self.prior else {}
        tensors = {**self.tensors, **prior}
        return Weights(
            self.weights_kind, spec, tensors, card or {}, half=[_ROWS_TENSOR]
        )

    @classmethod
    @override
    def _build(cls, weights: Weights) -> NestedSQNet:
        fields = {"n_features": SIZE}
        require_fields(weights.spec, fields, "the spec of networks of all sizes")
        tensors, prior = SketchPrior.split(weights.tensors)
        net = cls(weights.spec["n_features"], tensors, prior=prior)
        model = ModelReference(weights.model, weights.digest) if weights.model else None
        return replace(net, model=model)

    def save(
        self, path: str | os.PathLike[str], *, card: Mapping[str, Any] | None = None
    ) -> None:
        """Write width, tensors and model card to a file, all of it or nothing."""
        save_weights(self.to_weights(card), path)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, checksum: str | None = None
    ) -> NestedSQNet:
        """Read what :meth:`save` wrote; no code of the file is ever run."""
        return cls.from_weights(load_weights(path, checksum=checksum))
