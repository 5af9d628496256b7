r"""Random quadratic features: A vec(xxᵀ), the sketch of compressive PCA.

Their mean is A vec(R), a few random linear measurements of the second moment
(paper, eq. comp-pca-sketch).
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, final, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.errors import FeatureMapError
from sketchlearn.features.base import require_in_range, require_positive_int
from sketchlearn.features.tensor import (
    AbstractTensorFeatures,
    scaled_float32,
    stable_columns,
)
from sketchlearn.scaling import Scaling

__all__ = ["QuadraticFeatures", "QuadraticLaw"]

QuadraticLaw = Literal["gaussian", "chi", "unit"]


@final
class QuadraticFeatures(AbstractTensorFeatures):
    r"""Random linear combinations of the products :math:`x_p x_q`.

    .. math::
        \varphi(x) = A\,\mathrm{vec}_{LT}(x x^\top)

    * ``"gaussian"``: :math:`A` has independent :math:`\mathcal{N}(0, 1/d)` entries on
      the lower triangle;
    * ``"chi"``: :math:`\varphi_j(x) = (a_j^\top x)^2` with
      :math:`a_j \sim \mathcal{N}(0, I)`;
    * ``"unit"``: the same with :math:`a_j` uniform on the unit sphere.

    For the rank-one laws the row of :math:`A` is :math:`a_p a_q` with off-diagonal
    entries doubled.

    Parameters
    ----------
    n_features, sketch_size : int
        Numbers in a row and in the feature vector.
    law : {"gaussian", "chi", "unit"}
        Law of the rows of A.
    value_bound : float
        No feature may be larger in magnitude: a row beyond it is an error.
    seed : int
        Same seed, same A.
    scaling : Scaling, optional
        Applied to rows first.

    Examples
    --------
    >>> phi = QuadraticFeatures(n_features=3, sketch_size=5, law="unit", seed=0)
    >>> bool((phi(np.array([[1.0, 0.0, 0.0]])) <= 1).all())
    True
    """

    kind: ClassVar[str] = "quadratic"

    def __init__(
        self,
        n_features: int,
        sketch_size: int,
        *,
        law: QuadraticLaw = "chi",
        value_bound: float = 1024.0,
        seed: int = 0,
        scaling: Scaling | None = None,
    ) -> None:
        if law not in get_args(QuadraticLaw):
            raise FeatureMapError(
                f"law must be one of {', '.join(get_args(QuadraticLaw))}; got {law!r}."
            )
        super().__init__(
            n_features=n_features,
            sketch_size=sketch_size,
            scaling=scaling,
            value_bound=value_bound,
            norm_bound=None,
        )
        self.law, self.seed = law, int(seed)
        self._lower = np.tril_indices(require_positive_int("n_features", n_features))
        self._directions = self._draw()
        self._padded = stable_columns(self._directions)

    def _draw(self) -> NDArray[np.float32]:
        """A transposed: (pairs, m) for the Gaussian law, else (d, m)."""
        rng = np.random.default_rng(self.seed)
        d, m = self.n_features, self.sketch_size
        if self.law == "gaussian":
            return rng.standard_normal((d * (d + 1) // 2, m), np.float32) / np.float32(
                d**0.5
            )
        directions = rng.standard_normal((d, m))
        if self.law == "unit":
            directions /= np.linalg.norm(directions, axis=0)
        return directions.astype(np.float32)

    @property
    def matrix(self) -> NDArray[np.float64]:
        """A on the lower triangle, shape (sketch_size, d (d + 1) / 2)."""
        directions = self._directions.astype(np.float64)
        if self.law == "gaussian":
            return directions.T
        i, j = self._lower
        doubled: NDArray[np.float64] = np.where(i == j, 1.0, 2.0)
        return directions.T[:, i] * directions.T[:, j] * doubled

    @override
    def describe(self) -> dict[str, Any]:
        return {
            "n_features": self.n_features,
            "sketch_size": self.sketch_size,
            "law": self.law,
            "value_bound": self.value_bound,
            "seed": self.seed,
        }

    @override
    def weights(self) -> dict[str, NDArray[Any]]:
        return {"directions": self._directions}

    @override
    def evaluate_tensor(
        self, rows: NDArray[np.floating], first_row: int
    ) -> torch.Tensor:
        x = scaled_float32(rows, self.scaling, first_row)
        if self.law == "gaussian":
            i, j = self._lower
            features = (x[:, i] * x[:, j]) @ self._padded
        else:
            features = (x @ self._padded) ** 2
        features = features[:, : self.sketch_size]
        require_in_range(features.numpy(), self.value_bound, first_row)
        return features
