r"""Features of a Gaussian kernel: random Fourier and Nyström.

The mean of random Fourier features is the characteristic function of the data at
random frequencies (paper, eq. rff); Nyström features use landmarks instead.
"""

from __future__ import annotations

from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from sketchlearn.arithmetic.elementary import ceil_log2, exp, floor_log2
from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.arithmetic.products import WholeMatrix
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.base import (
    AbstractFeatureMap,
    require_bound,
    require_in_range,
    sum_features,
)
from sketchlearn.features.lattice import RowLattice
from sketchlearn.features.scaling import Scaling
from sketchlearn.features.waves import (
    VALUE_BITS,
    AbstractWaveFeatures,
    FrequencyLaw,
    random_waves,
    require_pairs,
    wave_norm,
)

__all__ = ["FourierFeatures", "FrequencyLaw", "NystromFeatures"]
__public__ = ["FourierFeatures", "NystromFeatures"]

_KERNEL_BITS = 22
"""Values of the kernel are rounded to ``2**-22``."""

_ROOT_BITS = 26
"""And entries of the inverse root to ``2**-26``."""

_REACH_BITS = 8
"""Rows may lie ``2**8`` scales away from the middle of the landmarks, or twice as far
as the landmarks themselves."""


@final
class FourierFeatures(AbstractWaveFeatures):
    r"""Cosines and sines at random frequencies.

    .. math::
        \varphi(x) = \big(\cos \omega_1^\top x, \dots, \cos \omega_h^\top x,\;
        \sin \omega_1^\top x, \dots, \sin \omega_h^\top x\big),
        \qquad h = m / 2 .

    With :math:`u` uniform on the sphere and :math:`s` the ``scale`` (a length in the
    units of the scaled rows), the frequencies are :math:`\omega = R\,u / s` where

    * ``"gaussian"``: :math:`R \sim \chi_d`, that is
      :math:`\omega \sim \mathcal{N}(0, s^{-2} I)`, the Gaussian kernel;
    * ``"folded"``: :math:`R = |g|`, :math:`g \sim \mathcal{N}(0, 1)`;
    * ``"adapted"``: density :math:`\propto \sqrt{R^2 + R^4/4}\; e^{-R^2/2}`, drawn
      exactly as :math:`R = 2\sqrt{g/2 - 1}` with :math:`g \sim \Gamma(3/2)`
      conditioned on :math:`g \ge 2`.

    Parameters
    ----------
    n_features : int
        Numbers in a row.
    sketch_size : int
        Numbers in the feature vector; even.
    scale : float
        Length scale of the kernel.
    law : {"gaussian", "folded", "adapted"}
        Law of the frequencies' radii.
    seed : int
        Same seed, same frequencies.
    scaling : Scaling, optional
        Applied to rows first.

    Notes
    -----
    All in whole numbers: rows are rounded to multiples of :math:`2^{-b}`, :math:`b = 16
    + \lfloor\tfrac12\lceil\log_2 d\rceil\rfloor - \lfloor\log_2 s\rfloor`, phases to
    :math:`2^{-16}` of a turn and cosines to :math:`2^{-22}`. Rows more than
    :math:`2^{30}` scales away from the origin are refused.
    :math:`\lVert\varphi(x)\rVert = \sqrt{m/2}` up to rounding.

    Examples
    --------
    >>> phi = FourierFeatures(n_features=2, sketch_size=4, seed=0)
    >>> phi(np.zeros((1, 2)))
    array([[1., 1., 0., 0.]])
    """

    kind: ClassVar[str] = "fourier"

    def __init__(
        self,
        n_features: int,
        sketch_size: int,
        *,
        scale: float = 1.0,
        law: FrequencyLaw = "gaussian",
        seed: int = 0,
        scaling: Scaling | None = None,
    ) -> None:
        require_pairs(sketch_size)
        super().__init__(
            n_features=n_features,
            sketch_size=sketch_size,
            scaling=scaling,
            value_bound=1.0,
            norm_bound=wave_norm(sketch_size // 2),
            frac_bits=VALUE_BITS,
        )
        self.scale, self.law, self.seed = float(scale), law, int(seed)
        self._lattice, self._waves = random_waves(
            self.n_features,
            self.sketch_size // 2,
            scale=scale,
            law=law,
            seed=seed,
            scaling=scaling,
        )
        # radians per unit of the scaled row, shape (d, m / 2)
        self.frequencies = self._waves.frequencies

    @override
    def describe(self) -> dict[str, Any]:
        return {
            "n_features": self.n_features,
            "sketch_size": self.sketch_size,
            "scale": self.scale,
            "law": self.law,
            "seed": self.seed,
        }

    @override
    def weights(self) -> dict[str, NDArray[Any]]:
        return {"waves": self._waves.whole}

    @override
    def _round(
        self, rows: NDArray[np.floating], first_row: int
    ) -> tuple[NDArray[np.float64], float]:
        return self._lattice.round(rows, first_row)


@final
class NystromFeatures(AbstractFeatureMap):
    r"""Gaussian-kernel features through landmark rows.

    .. math::
        \varphi(x) = K^{-1/2}\, k(L, x), \qquad
        k(l, x) = e^{-\lVert x - l\rVert^2 / 2 s^2}, \quad K = k(L, L) + \epsilon I,

    for :math:`m` landmarks :math:`L` (Chatalic et al., AISTATS 2022). The norm is
    about one at most, but rounding does not guarantee it: clip the map to release it.

    Parameters
    ----------
    landmarks : array of shape (sketch_size, n_features)
        In the units of the rows. Landmarks taken from the data are raw rows: they
        stay in the map, and such a map is not private.
    scale : float
        Length scale of the kernel, in the units of the scaled rows.
    shift : float
        :math:`\epsilon`, for stability.
    root : array of shape (sketch_size, sketch_size), optional
        :math:`K^{-1/2}`. Computed here unless given; its last bits depend on the
        machine, so parties share the map's file rather than its landmarks.
    scaling : Scaling, optional
        Applied to rows and landmarks first.

    Notes
    -----
    Rows and landmarks are taken from the middle of the landmarks' range and rounded to
    whole numbers of up to 24 bits, fewer for many features, of which 8 are left of the
    scale (more if landmarks need them): farther rows are refused. Squared distances are
    exact; kernel values are rounded to :math:`2^{-22}` and entries of the root to
    :math:`2^{-26}`, or less for the large ones of an ill-conditioned kernel.

    Examples
    --------
    >>> phi = NystromFeatures([[0.0], [1.0]], scale=1.0)
    >>> bool(abs(np.linalg.norm(phi(np.array([[0.0]]))) - 1) < 1e-5)
    True
    """

    kind: ClassVar[str] = "nystrom"

    def __init__(
        self,
        landmarks: ArrayLike,
        *,
        scale: float = 1.0,
        shift: float = 1e-6,
        root: ArrayLike | None = None,
        scaling: Scaling | None = None,
    ) -> None:
        marks = np.array(landmarks, np.float64)
        if marks.ndim != 2 or not marks.size or not np.isfinite(marks).all():
            raise FeatureMapError(
                "landmarks must be a finite array of shape (sketch_size, n_features); "
                f"got shape {marks.shape}."
            )
        require_bound("scale", scale)
        require_bound("shift", shift)
        size, width = marks.shape
        super().__init__(
            n_features=width,
            sketch_size=size,
            scaling=scaling,
            value_bound=1024.0,
            norm_bound=None,
        )
        self.landmarks, self.scale, self.shift = marks, float(scale), float(shift)
        scaled = marks if scaling is None else scaling(marks)
        if root is None:
            root = _inverse_root(scaled / self.scale, self.shift)
        given = np.array(root, np.float64)
        if given.shape != (size, size) or not np.isfinite(given).all():
            raise FeatureMapError(
                f"root must be a finite square matrix of size {size}; got shape "
                f"{given.shape}."
            )
        # Sums of a column stay below 2**40, whatever the condition of the kernel.
        most = float(np.abs(given).max()) or 1.0
        self._root_bits = min(_ROOT_BITS, 40 - ceil_log2(size) - ceil_log2(most))
        whole = np.rint(np.ldexp(given, self._root_bits)) + 0.0
        self.root = np.ldexp(whole, -self._root_bits)
        # Sums of squares of whole numbers below 2**b stay below 2**51.
        limit_bits = min(24, (51 - ceil_log2(width)) // 2)
        middle = scaled.min(axis=0) / 2 + scaled.max(axis=0) / 2
        farthest = float(np.abs(scaled - middle).max()) / self.scale
        reach_bits = max(_REACH_BITS, ceil_log2(farthest) + 1 if farthest else 0)
        bits = limit_bits - reach_bits - floor_log2(self.scale)
        self._lattice = RowLattice(_around(scaling, middle), bits, 2.0**limit_bits)
        points, _ = self._lattice.round(marks)
        self._points = WholeMatrix(np.ascontiguousarray(points.T))
        self._squares = np.square(points).sum(axis=1)
        self._roots = WholeMatrix(whole)

    @property
    @override
    def stored_weights(self) -> tuple[str, ...]:
        return ("landmarks", "root")

    @property
    @override
    def origin(self) -> str:
        return "data"

    @override
    def describe(self) -> dict[str, Any]:
        return {"scale": self.scale, "shift": self.shift}

    @override
    def weights(self) -> dict[str, NDArray[Any]]:
        return {"landmarks": self.landmarks, "root": self.root}

    @override
    def evaluate(
        self, rows: NDArray[np.floating], first_row: int = 0
    ) -> NDArray[np.float64]:
        x, largest = self._lattice.round(rows, first_row)
        own = np.square(x).sum(axis=1)[:, None]
        distances = own + self._squares - 2 * self._points.product(x, largest)
        unit = 2.0**-self._lattice.bits / self.scale
        kernel = np.rint(2.0**_KERNEL_BITS * exp(distances * (-0.5 * unit * unit)))
        sums = self._roots.product(kernel, 2.0**_KERNEL_BITS)
        step, unit = 2.0**self.frac_bits, 2.0 ** -(_KERNEL_BITS + self._root_bits)
        features: NDArray[np.float64] = np.rint(sums * (unit * step)) / step
        require_in_range(features, self.value_bound, first_row)
        return features

    @override
    def batch_sum(self, rows: NDArray[np.floating], first_row: int = 0) -> Int128Array:
        return sum_features(self, rows, first_row)


def _around(scaling: Scaling | None, middle: NDArray[np.float64]) -> Scaling:
    """The scaling, with the origin moved to ``middle`` (in scaled units)."""
    if scaling is None:
        return Scaling(middle, np.ones(len(middle)))
    shift = scaling.shift + middle / scaling.factor
    return Scaling(shift, scaling.factor, scaling.origin)


def _inverse_root(units: NDArray[np.float64], shift: float) -> NDArray[np.float64]:
    """The inverse square root of the Gaussian kernel matrix of some points."""
    squares = (units**2).sum(axis=1)
    distances = np.maximum(squares[:, None] + squares - 2 * units @ units.T, 0.0)
    kernel = np.exp(-distances / 2) + shift * np.eye(len(units))
    values, vectors = np.linalg.eigh(kernel)
    scaled = vectors / np.sqrt(np.maximum(values, shift))
    return np.asarray(scaled @ vectors.T, np.float64)
