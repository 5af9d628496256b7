r"""Random quadratic features: A vec(xxᵀ), the sketch of compressive PCA.

Their mean is A vec(R), a few random linear measurements of the second moment
(paper, eq. comp-pca-sketch).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import sqrt
from typing import Any, ClassVar, Literal, final, get_args

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.arithmetic.draws import Draws
from sketchlearn.arithmetic.elementary import ceil_log2
from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.arithmetic.products import WholeMatrix
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.arguments import require_bound
from sketchlearn.features.base import (
    AbstractFeatureMap,
    require_in_range,
    sum_features,
)
from sketchlearn.features.cost import LOOP, Cost, Declared
from sketchlearn.features.fields import NUMBER, SEED, SIZE, WORD, Field
from sketchlearn.features.lattice import RowLattice
from sketchlearn.features.scaling import Scaling

__all__ = ["QuadraticFeatures", "QuadraticLaw"]
__public__ = ["QuadraticFeatures"]

QuadraticLaw = Literal["gaussian", "chi", "unit"]

_QUADRATIC_ROW_BITS = 24
"""Scaled rows, and products of them, are rounded to ``2**-24``."""

_QUADRATIC_WEIGHT_BITS = {"gaussian": 16, "chi": 22, "unit": 22}
"""Entries of A, or of a, are rounded to so many bits: they are random anyway."""

_QUADRATIC_LIMIT = 2.0**34
_QUADRATIC_ROOT_BITS = 25
"""Square roots of features are whole numbers of at most this many bits."""


@final
class QuadraticFeatures(AbstractFeatureMap):
    r"""Random linear combinations of the products :math:`x_p x_q`.

    .. math::
        \varphi(x) = A\,\mathrm{vec}_{LT}(x x^\top)

    * ``"gaussian"``: :math:`A` has independent :math:`\mathcal{N}(0, 1/d)` entries on
      the lower triangle;
    * ``"chi"``: :math:`\varphi_j(x) = (a_j^\top x)^2` with
      :math:`a_j \sim \mathcal{N}(0, I)`;
    * ``"unit"``: the same with :math:`a_j` uniform on the unit sphere.

    For the rank-one laws the row of :math:`A` is :math:`a_p a_q` with off-diagonal
    entries doubled. Rows, and products :math:`x_p x_q` of rounded rows, are rounded to
    :math:`2^{-24}`, :math:`a` to :math:`2^{-22}` and :math:`A` to :math:`2^{-16}`;
    :math:`a_j^\top x` is rounded once more before it is squared. Scaled values beyond
    1024 are refused.

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
    fields: ClassVar[Mapping[str, Field]] = {
        "n_features": SIZE,
        "sketch_size": SIZE,
        "law": WORD,
        "seed": SEED,
        "value_bound": NUMBER,
    }

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
        # Squares are kept on a lattice whose step is a square too.
        exponent = ceil_log2(require_bound("value_bound", value_bound))
        root_bits = _QUADRATIC_ROOT_BITS - -(-exponent // 2)
        super().__init__(
            n_features=n_features,
            sketch_size=sketch_size,
            scaling=scaling,
            value_bound=value_bound,
            norm_bound=None,
            frac_bits=2 * root_bits,
        )
        self.require_affordable(n_features=n_features, sketch_size=sketch_size, law=law)
        self.law, self.seed = law, int(seed)
        self._lattice = RowLattice(scaling, _QUADRATIC_ROW_BITS, _QUADRATIC_LIMIT)
        self._weight_bits = _QUADRATIC_WEIGHT_BITS[law]
        self._whole = np.rint(self._draw() * 2.0**self._weight_bits) + 0.0
        self._matrix = WholeMatrix(self._whole)

    @cached_property
    def _lower(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Factors of the products, row by row."""
        return np.tril_indices(self.n_features)

    def _draw(self) -> NDArray[np.float64]:
        """A transposed: (pairs, m) for the Gaussian law, else (d, m)."""
        draws, (d, m) = Draws(self.seed), (self.n_features, self.sketch_size)
        if self.law == "gaussian":
            return draws.normal(d * (d + 1) // 2, m) / sqrt(d)
        return draws.directions(d, m) if self.law == "unit" else draws.normal(d, m)

    @cached_property
    def directions(self) -> NDArray[np.float64]:
        """A transposed, (pairs, m), for the Gaussian law; else the a, (d, m)."""
        return self._whole * 2.0**-self._weight_bits

    @property
    def matrix(self) -> NDArray[np.float64]:
        """A on the lower triangle, shape (sketch_size, d (d + 1) / 2)."""
        directions = self.directions
        if self.law == "gaussian":
            return directions.T
        i, j = self._lower
        doubled: NDArray[np.float64] = np.where(i == j, 1.0, 2.0)
        return directions.T[:, i] * directions.T[:, j] * doubled

    @classmethod
    @override
    def cost_of(cls, given: Declared) -> Cost:
        d, m = given["n_features"], given["sketch_size"]
        pairs = d * (d + 1) // 2 if given.fields.get("law") == "gaussian" else 0
        drawn = (pairs or d) * m
        numbers = 8 * drawn + 6 * (pairs + m)
        return Cost(d, m, numbers, 100 * drawn + LOOP * d)

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
        return {"directions": self._whole}

    @property
    @override
    def widest(self) -> int:
        return int(self._whole.shape[0]) + self.sketch_size

    @override
    def evaluate(
        self, rows: NDArray[np.floating], first_row: int = 0
    ) -> NDArray[np.float64]:
        x, largest = self._lattice.round(rows, first_row)
        if self.law == "gaussian":
            i, j = self._lower
            x = np.rint(x[:, i] * x[:, j] * 2.0**-_QUADRATIC_ROW_BITS)
            step, largest = (
                2.0**self.frac_bits,
                largest**2 * 2.0**-_QUADRATIC_ROW_BITS + 1,
            )
        else:
            step = 2.0 ** (self.frac_bits // 2)
        unit = 2.0 ** -(_QUADRATIC_ROW_BITS + self._weight_bits)
        sums = self._matrix.product(x, largest) * (unit * step)
        features: NDArray[np.float64] = np.rint(sums) / step
        if self.law != "gaussian":
            features *= features
        require_in_range(features, self.value_bound, first_row)
        return features

    @override
    def batch_sum(self, rows: NDArray[np.floating], first_row: int = 0) -> Int128Array:
        return sum_features(self, rows, first_row)
