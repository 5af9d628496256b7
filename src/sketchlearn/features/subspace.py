r"""Features of rows seen in a few directions: Fourier features and cells.

Both project a row first, :math:`z = B^\top(x - c)`, with directions and centre that
were planned from an earlier sketch of the same data (its principal directions, say).
What was planned belongs to the map and is written in its description; ``origin``
says whether it was read from rows or from something public.
"""

from __future__ import annotations

from typing import Any, ClassVar, final

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from sketchlearn.errors import FeatureMapError
from sketchlearn.exact import Int128Array, frac_bits_for
from sketchlearn.features.base import (
    AbstractFeatureMap,
    require_in_range,
    require_positive_int,
    row_blocks,
)
from sketchlearn.features.tensor import (
    AbstractTensorFeatures,
    scaled_float32,
    stable_columns,
)
from sketchlearn.scaling import Origin, Scaling

__all__ = ["CellFeatures", "SubspaceFourierFeatures"]

_FARTHEST = 32.0
"""Coordinates are clipped to this magnitude where their products are sketched."""

_SPLIT = 2.0**25
"""Lattice integers are summed in two halves, each exact in float64."""


@final
class CellFeatures(AbstractFeatureMap):
    r"""Which cell a row falls in, and where: counts and sums of a partition.

    With anchors :math:`a_1, \dots, a_A` and :math:`j` the one nearest to
    :math:`z = B^\top(x - c)`,

    .. math::
        \varphi(x) = e_j \otimes (1, z),

    so that the mean holds the share of every cell and, divided by it, the mean of the
    rows in it. :math:`m = A (1 + r)`. With ``n_crossed`` :math:`= s`, cells hold
    second moments too,

    .. math::
        \varphi(x) = e_j \otimes
        \big(1, z, (z_a^2)_{a \le r}, (z_a z_b)_{b < a \le s}\big),
        \qquad m = A \big(1 + 2r + \tfrac{s(s-1)}{2}\big),

    of z with every coordinate clipped to ``[-32, 32]``: no row outweighs all others.

    Parameters
    ----------
    anchors : array of shape (n_cells, r)
        In units of z. Kept in float32.
    basis : array of shape (n_features, r)
        B, for scaled rows. Kept in float32.
    centre : array of shape (n_features,)
        c, in units of the scaled rows.
    reach : float
        Scaled values lie in ``[-reach, reach]``; a row whose z shows otherwise is an
        error.
    origin : {"declared", "data"}
        Where anchors, basis and centre come from.
    n_crossed : int, optional
        Of how many first coordinates the products are kept, beside the squares of
        all: from 0 to r. Without it, neither.
    scaling : Scaling, optional
        Applied to rows first.

    Examples
    --------
    >>> phi = CellFeatures([[-1.0], [1.0]], basis=[[1.0]], centre=[0.0])
    >>> phi(np.array([[-3.0], [0.5]]))
    array([[ 1. , -3. ,  0. ,  0. ],
           [ 0. ,  0. ,  1. ,  0.5]])
    """

    kind: ClassVar[str] = "cells"

    def __init__(
        self,
        anchors: ArrayLike,
        *,
        basis: ArrayLike,
        centre: ArrayLike,
        reach: float = 32.0,
        origin: Origin = "declared",
        n_crossed: int | None = None,
        scaling: Scaling | None = None,
    ) -> None:
        self.basis, self.centre = _directions(basis, centre)
        self.anchors = np.array(anchors, np.float32)
        d, r = self.basis.shape
        self.n_crossed = _crossed(n_crossed, r)
        if self.anchors.ndim != 2 or self.anchors.shape[1] != r or not r:
            raise FeatureMapError(
                f"anchors must be of shape (n_cells, {r}), one column for each column "
                f"of basis; got shape {self.anchors.shape}."
            )
        if not (0 < reach < float("inf") and np.isfinite(self.anchors).all()):
            raise FeatureMapError("anchors must be finite and reach positive.")
        farthest = np.abs(self.basis).T @ (reach + np.abs(self.centre))
        most = float(np.linalg.norm(reach + np.abs(self.centre)))
        length = min(np.linalg.norm(farthest), np.linalg.norm(self.basis, 2) * most)
        slack = 1 + max(2.0**-12, d * 2.0**-22)  # float32 products
        bound, square = float(farthest.max()) * slack, (float(length) * slack) ** 2
        norm, fine = 1 + square, 0
        if n_crossed is not None:
            square = min(square, r * _FARTHEST**2)
            bound, norm = min(bound, _FARTHEST) ** 2, 1 + square + square**2
            fine = 7  # products need a finer lattice, beside that of exact moments
        bound = max(1.0, bound)
        super().__init__(
            n_features=d,
            sketch_size=len(self.anchors) * self.cell_size,
            scaling=scaling,
            value_bound=bound,
            norm_bound=norm**0.5,
            frac_bits=frac_bits_for(bound) + fine,
        )
        self.reach, self._planned = float(reach), origin
        self._padded_basis = stable_columns(self.basis)
        self._padded_anchors = stable_columns(np.ascontiguousarray(self.anchors.T))
        squares = (self.anchors.astype(np.float64) ** 2).sum(axis=1) / 2
        self._half_squares = torch.from_numpy(squares.astype(np.float32))

    @property
    def cell_size(self) -> int:
        """Numbers held for each cell."""
        r, s = int(self.basis.shape[1]), self.n_crossed
        return 1 + r if s is None else 1 + 2 * r + s * (s - 1) // 2

    @property
    @override
    def origin(self) -> str:
        return _joint_origin(self._planned, self.scaling)

    @override
    def describe(self) -> dict[str, Any]:
        fields = {
            "anchors": self.anchors,
            "basis": self.basis,
            "centre": self.centre,
            "reach": self.reach,
            "origin": self._planned,
        }
        # Maps without second moments keep the fingerprint they always had.
        crossed = {} if self.n_crossed is None else {"n_crossed": self.n_crossed}
        return {**fields, **crossed}

    @override
    def weights(self) -> dict[str, NDArray[Any]]:
        return {"anchors": self.anchors, "basis": self.basis, "centre": self.centre}

    @override
    def evaluate(
        self, rows: NDArray[np.floating], first_row: int = 0
    ) -> NDArray[np.floating]:
        cells, local = self._locate(rows, first_row)
        features = np.zeros((len(rows), len(self.anchors), local.shape[1]))
        features[np.arange(len(rows)), cells] = local
        return features.reshape(len(rows), -1)

    @override
    def batch_sum(self, rows: NDArray[np.floating], first_row: int = 0) -> Int128Array:
        # A block sums 512 halves of 26 bits: exact in float64 in any order.
        size = self.cell_size
        total = np.zeros((len(self.anchors), 2 * size), np.int64)
        numbers = np.arange(len(self.anchors))
        for start, block, count in row_blocks(rows):
            cells, local = self._locate(block, first_row + start)
            integers = np.rint(local[:count] * 2.0**self.frac_bits)
            high = np.floor(integers / _SPLIT)
            halves = np.concatenate([high, integers - high * _SPLIT], axis=1)
            members = (cells[:count] == numbers[:, None]).astype(np.float64)
            total += (members @ halves).astype(np.int64)
        upper = Int128Array.from_int64(total[:, :size].ravel())
        lower = Int128Array.from_int64(total[:, size:].ravel())
        return upper.shifted(25) + lower

    def _locate(
        self, rows: NDArray[np.floating], first_row: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Cell of each row of a padded block, and what is kept of the row."""
        with torch.no_grad():
            z = _project(self, rows, first_row, self.reach)
            if self.n_crossed is not None:
                z = z.clamp(-_FARTHEST, _FARTHEST)
            nearness = (z @ self._padded_anchors)[:, : len(self.anchors)]
            cells = (nearness - self._half_squares).argmax(dim=1).numpy()
        exact = z.numpy().astype(np.float64)
        local = [np.ones((len(rows), 1)), exact]
        if self.n_crossed is not None:
            a, b = np.tril_indices(self.n_crossed, -1)
            local += [exact**2, exact[:, a] * exact[:, b]]
        return cells, np.concatenate(local, axis=1)


@final
class SubspaceFourierFeatures(AbstractTensorFeatures):
    r"""Cosines and sines of the row seen in a few directions.

    .. math::
        \varphi(x) = \big(\cos \omega_f^\top z, \; \sin \omega_f^\top z\big)_f,
        \qquad z = B^\top(x - c),

    with :math:`\omega = R u`, :math:`u` uniform on the sphere and R uniform in
    ``[0.2, 3.5]``: right for z of unit variance.

    Parameters
    ----------
    basis : array of shape (n_features, r)
        B, for scaled rows. Kept in float32.
    sketch_size : int
        Numbers in the feature vector; even.
    centre : array of shape (n_features,)
        c, in units of the scaled rows.
    origin : {"declared", "data"}
        Where basis and centre come from.
    seed : int
        Same seed, same frequencies.
    scaling : Scaling, optional
        Applied to rows first.

    Examples
    --------
    >>> phi = SubspaceFourierFeatures([[1.0], [1.0]], 4, centre=[0.0, 0.0])
    >>> abs(phi(np.array([[1.0, -1.0]])))
    array([[1., 1., 0., 0.]], dtype=float32)
    """

    kind: ClassVar[str] = "subspace-fourier"

    def __init__(
        self,
        basis: ArrayLike,
        sketch_size: int,
        *,
        centre: ArrayLike,
        origin: Origin = "declared",
        seed: int = 0,
        scaling: Scaling | None = None,
    ) -> None:
        self.basis, self.centre = _directions(basis, centre)
        if require_positive_int("sketch_size", sketch_size) % 2:
            raise FeatureMapError(
                f"sketch_size must be even (cosine and sine pairs); got {sketch_size}."
            )
        super().__init__(
            n_features=len(self.basis),
            sketch_size=sketch_size,
            scaling=scaling,
            value_bound=1.0,
            # float32 cos^2 + sin^2 may exceed 1 by a few units in the last place.
            norm_bound=(sketch_size / 2) ** 0.5 * (1 + 2.0**-20),
        )
        self.seed, self._planned = int(seed), origin
        rng = np.random.default_rng(seed)
        directions = rng.standard_normal((self.basis.shape[1], sketch_size // 2))
        radii = rng.uniform(0.2, 3.5, sketch_size // 2)
        frequencies = directions / np.linalg.norm(directions, axis=0) * radii
        self.frequencies = frequencies.astype(np.float32)  # (r, h)
        self._padded_basis = stable_columns(self.basis)
        self._padded = stable_columns(self.frequencies)

    @property
    @override
    def origin(self) -> str:
        return _joint_origin(self._planned, self.scaling)

    @override
    def describe(self) -> dict[str, Any]:
        return {
            "basis": self.basis,
            "sketch_size": self.sketch_size,
            "centre": self.centre,
            "origin": self._planned,
            "seed": self.seed,
        }

    @override
    def weights(self) -> dict[str, NDArray[Any]]:
        return {
            "basis": self.basis,
            "centre": self.centre,
            "frequencies": self.frequencies,
        }

    @override
    def evaluate_tensor(
        self, rows: NDArray[np.floating], first_row: int
    ) -> torch.Tensor:
        half = self.sketch_size // 2
        phases = _project(self, rows, first_row) @ self._padded
        features = torch.empty(len(rows), self.sketch_size)
        torch.cos(phases[:, :half], out=features[:, :half])
        torch.sin(phases[:, :half], out=features[:, half:])
        return features


def _project(
    feature_map: CellFeatures | SubspaceFourierFeatures,
    rows: NDArray[np.floating],
    first_row: int,
    reach: float = float("inf"),
) -> torch.Tensor:
    """Projected rows of a padded block, float32, after a check of their range."""
    scaling, basis = feature_map.scaling, feature_map._padded_basis
    scaled = np.asarray(rows, np.float64) if scaling is None else scaling(rows)
    require_in_range(scaled, reach, first_row)
    centred = scaled_float32(scaled - feature_map.centre, None, first_row)
    return (centred @ basis)[:, : feature_map.basis.shape[1]].contiguous()


def _directions(
    basis: ArrayLike, centre: ArrayLike
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    columns, middle = np.array(basis, np.float32), np.array(centre, np.float64)
    fits = columns.ndim == 2 and columns.size and middle.shape == columns.shape[:1]
    if not fits or not (np.isfinite(columns).all() and np.isfinite(middle).all()):
        raise FeatureMapError(
            "basis must be a finite array of shape (n_features, r) and centre one of "
            f"shape (n_features,); got shapes {columns.shape} and {middle.shape}."
        )
    return columns, middle


def _crossed(n_crossed: int | None, r: int) -> int | None:
    if n_crossed is None:
        return None
    if isinstance(n_crossed, bool) or n_crossed not in range(r + 1):
        raise FeatureMapError(
            f"n_crossed must be a whole number from 0 to {r}, the columns of basis; "
            f"got {n_crossed!r}."
        )
    return int(n_crossed)


def _joint_origin(planned: Origin, scaling: Scaling | None) -> str:
    read = planned == "data" or (scaling is not None and scaling.origin == "data")
    return "data" if read else "declared"
