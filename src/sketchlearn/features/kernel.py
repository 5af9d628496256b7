r"""Features of a Gaussian kernel: random Fourier and Nyström.

The mean of random Fourier features is the characteristic function of the data at
random frequencies (paper, eq. rff); Nyström features use landmarks instead.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, final, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from sketchlearn.errors import FeatureMapError
from sketchlearn.features.base import require_in_range, require_positive_int
from sketchlearn.features.tensor import (
    AbstractTensorFeatures,
    scaled_float32,
    stable_columns,
)
from sketchlearn.scaling import Scaling

__all__ = ["FourierFeatures", "FrequencyLaw", "NystromFeatures", "draw_frequencies"]

FrequencyLaw = Literal["gaussian", "folded", "adapted"]


@final
class FourierFeatures(AbstractTensorFeatures):
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
    Evaluated in float32: phases up to about 1000 keep four digits, so rows should be
    of roughly unit size after scaling. :math:`\lVert\varphi(x)\rVert = \sqrt{m/2}`.

    Examples
    --------
    >>> phi = FourierFeatures(n_features=2, sketch_size=4, seed=0)
    >>> phi(np.zeros((1, 2)))
    array([[1., 1., 0., 0.]], dtype=float32)
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
        if require_positive_int("sketch_size", sketch_size) % 2:
            raise FeatureMapError(
                f"sketch_size must be even (cosine and sine pairs); got {sketch_size}."
            )
        # float32 cos^2 + sin^2 may exceed 1 by a few units in the last place.
        norm_bound = (sketch_size / 2) ** 0.5 * (1 + 2.0**-20)
        super().__init__(
            n_features=n_features,
            sketch_size=sketch_size,
            scaling=scaling,
            value_bound=1.0,
            norm_bound=norm_bound,
        )
        self.frequencies = draw_frequencies(  # (d, h)
            self.n_features, self.sketch_size // 2, scale=scale, law=law, seed=seed
        )
        self.scale, self.law, self.seed = float(scale), law, int(seed)
        self._padded = stable_columns(self.frequencies)

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
        return {"frequencies": self.frequencies}

    @override
    def evaluate_tensor(
        self, rows: NDArray[np.floating], first_row: int
    ) -> torch.Tensor:
        half = self.sketch_size // 2
        phases = scaled_float32(rows, self.scaling, first_row) @ self._padded
        features = torch.empty(len(rows), self.sketch_size)
        torch.cos(phases[:, :half], out=features[:, :half])
        torch.sin(phases[:, :half], out=features[:, half:])
        return features


@final
class NystromFeatures(AbstractTensorFeatures):
    r"""Gaussian-kernel features through landmark rows.

    .. math::
        \varphi(x) = K^{-1/2}\, k(L, x), \qquad
        k(l, x) = e^{-\lVert x - l\rVert^2 / 2 s^2}, \quad K = k(L, L) + \epsilon I,

    for :math:`m` landmarks :math:`L` (Chatalic et al., AISTATS 2022). The norm is
    about one at most, but float32 does not guarantee it: clip the map to release it.

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
        if not 0 < scale < float("inf"):
            raise FeatureMapError(f"scale must be a positive number; got {scale!r}.")
        super().__init__(
            n_features=marks.shape[1],
            sketch_size=marks.shape[0],
            scaling=scaling,
            value_bound=1024.0,
            norm_bound=None,
        )
        self.landmarks, self.scale, self.shift = marks, float(scale), float(shift)
        scaled = marks if scaling is None else scaling(marks)
        if root is None:
            root = _inverse_root(scaled / self.scale, self.shift)
        self._root = np.array(root, np.float32)
        if self._root.shape != (len(marks), len(marks)):
            raise FeatureMapError(
                f"root must be a square matrix of size {len(marks)}; got shape "
                f"{self._root.shape}."
            )
        self._padded_root = stable_columns(self._root)
        self._middle = scaled.mean(axis=0)
        units = ((scaled - self._middle) / self.scale).astype(np.float32)
        self._squares = torch.from_numpy((units**2).sum(axis=1))
        self._padded_units = stable_columns(units.T)

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
        return {"landmarks": self.landmarks, "root": self._root}

    @override
    def evaluate_tensor(
        self, rows: NDArray[np.floating], first_row: int
    ) -> torch.Tensor:
        shifted = Scaling(self._middle, np.full(self.n_features, 1 / self.scale))
        centred = shifted(rows if self.scaling is None else self.scaling(rows))
        scaled = scaled_float32(centred, None, first_row)
        cross = (scaled @ self._padded_units)[:, : self.sketch_size]  # (n, m)
        squared = (scaled**2).sum(dim=1)[:, None] + self._squares
        kernel = torch.exp((cross - squared / 2).clamp_max(0.0))
        features = (kernel @ self._padded_root)[:, : self.sketch_size]
        require_in_range(features.numpy(), self.value_bound, first_row)
        return features


def draw_frequencies(
    n_features: int, count: int, *, scale: float, law: FrequencyLaw, seed: int
) -> NDArray[np.float32]:
    """Frequencies of a law as columns, shape (n_features, count)."""
    if not 0 < scale < float("inf"):
        raise FeatureMapError(f"scale must be a positive number; got {scale!r}.")
    if law not in get_args(FrequencyLaw):
        raise FeatureMapError(
            f"law must be one of {', '.join(get_args(FrequencyLaw))}; got {law!r}."
        )
    return (_unit_frequencies(n_features, count, law, seed) / scale).astype(np.float32)


def _unit_frequencies(
    n_features: int, count: int, law: FrequencyLaw, seed: int
) -> NDArray[np.float64]:
    """Columns of unit scale, shape (n_features, count)."""
    rng = np.random.default_rng(seed)
    directions = rng.standard_normal((n_features, count))
    if law == "gaussian":
        return directions
    directions /= np.linalg.norm(directions, axis=0)
    if law == "folded":
        return directions * np.abs(rng.standard_normal(count))
    return directions * _adapted_radii(count, rng)


def _adapted_radii(count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Exact draws from the adapted-radius law, by rejection from Gamma(3/2)."""
    radii = np.empty(0)
    while len(radii) < count:
        gamma = rng.standard_gamma(1.5, 4 * count + 16)
        radii = np.concatenate([radii, 2 * np.sqrt(gamma[gamma >= 2] / 2 - 1)])
    return radii[:count]


def _inverse_root(units: NDArray[np.float64], shift: float) -> NDArray[np.float64]:
    """The inverse square root of the Gaussian kernel matrix of some points."""
    squares = (units**2).sum(axis=1)
    distances = np.maximum(squares[:, None] + squares - 2 * units @ units.T, 0.0)
    kernel = np.exp(-distances / 2) + shift * np.eye(len(units))
    values, vectors = np.linalg.eigh(kernel)
    scaled = vectors / np.sqrt(np.maximum(values, shift))
    return np.asarray(scaled @ vectors.T, np.float64)
