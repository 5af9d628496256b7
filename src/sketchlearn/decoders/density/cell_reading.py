"""Cells from the numbers of a sketch, exact or released."""

from __future__ import annotations

import numpy as np

from sketchlearn.decoders.density.cells import Array, CellFrame, Cells, CellTuning
from sketchlearn.decoders.moments.moments import Moments
from sketchlearn.decoders.moments.noise_floor import mean_noise
from sketchlearn.errors import TooNoisy
from sketchlearn.features.cells import CellFeatures
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = ["read_cells"]

_NEVER_EMPTY = 1e-12
"""Least share of a cell whose numbers are divided by it."""


def read_cells(
    sketch: Sketch | PrivateSketch, moments: Moments, tuning: CellTuning | None = None
) -> Cells | None:
    """The cells of a sketch, or None if it has none.

    Parameters
    ----------
    sketch : Sketch or PrivateSketch
    moments : Moments
        Of its rows.
    tuning : CellTuning, optional
    """
    found = sketch.feature_map.find(CellFeatures)
    if not found:
        return None
    part, values = found[0].feature_map, sketch.mean[found[0].where]
    return _cells(
        CellFrame(part),
        values.reshape(len(part.anchors), -1),
        moments,
        mean_noise(sketch),
        tuning or CellTuning(),
    )


def _cells(
    frame: CellFrame, table: Array, moments: Moments, noise: float, tuning: CellTuning
) -> Cells:
    seen = table[:, 0] > max(tuning.noise_deviations * noise, 0.0)
    if not seen.any():
        seen = table[:, 0] == table[:, 0].max()
    basis, r = frame.basis, frame.basis.shape[1]
    middle = frame.of_rows(moments.mean)
    second = basis.T @ (moments.structure @ basis) + np.outer(middle, middle)
    divisors = np.where(seen, np.maximum(table[:, 0], _NEVER_EMPTY), 1.0)[:, None]
    shares = np.where(seen, divisors[:, 0], 0.0)
    shares /= shares.sum()
    means = frame.anchors
    away = (table[:, 1 : 1 + r] / divisors - means)[seen]
    if noise:  # a mean counts as far as its noise is smaller than the cell
        size = np.maximum(np.diag(second) - shares @ means**2, 0.0) + 1e-300
        away *= size / (size + (noise / divisors[seen]) ** 2)
    means[seen] += away
    if frame.part.n_crossed is None:
        spread = _guessed_variances(shares, means, second, tuning)
        return Cells(frame, shares, means, spread, second, tuning)
    if noise and table[seen, 0].sum() < tuning.visible:
        raise TooNoisy(
            "the noise of this release is larger than most cells, whose shares and "
            "moments cannot be seen. Release with a larger epsilon, clip the map "
            "closer, or sketch one round (rounds=1)."
        )
    s = frame.part.n_crossed
    within = _second_moments(table[:, 1 + r :] / divisors, r, s)
    within -= means[:, :, None] * means[:, None, :]
    pooled = np.diag(shares @ np.einsum("jaa->ja", within))
    if moments.n_directions == len(moments.mean):  # exact: what means leave of them
        pooled = _positive(second - (shares[:, None] * means).T @ means)
    covariances = _completed(within, pooled, s)
    if noise:  # a spread counts as far as the share is larger than the noise
        trust = shares / (shares + tuning.trusted_share * noise)
        covariances = pooled + trust[:, None, None] * (covariances - pooled)
    covariances[~seen] = 0.0
    return Cells(frame, shares, means, _positive(covariances), second, tuning)


def _guessed_variances(
    shares: Array, means: Array, second: Array, tuning: CellTuning
) -> Array:
    """What cells vary inside, if as much as they are apart, shape (A, r)."""
    seen = shares > 0
    within = np.maximum(np.diag(second) - shares @ means**2, 0.0)
    result = np.zeros_like(means)
    gaps = _nearest_gaps(means[seen])
    room = np.minimum(gaps, tuning.widest_gap * np.median(gaps)) + 1e-300
    result[seen] = (room / (shares[seen] @ room))[:, None] * within
    return result


def _nearest_gaps(means: Array) -> Array:
    """Squared distance of each point to the nearest other; 1 if it is alone."""
    if len(means) < 2:
        return np.ones(len(means))
    squares = (means**2).sum(axis=1)
    gaps = np.maximum(squares[:, None] + squares - 2 * means @ means.T, 0.0)
    np.fill_diagonal(gaps, np.inf)
    return np.asarray(gaps.min(axis=1))


def _second_moments(values: Array, r: int, n_crossed: int) -> Array:
    """Matrices of mean squares, and of products as far as they were sketched."""
    second = np.zeros((len(values), r, r))
    second[:, range(r), range(r)] = values[:, :r]
    a, b = np.tril_indices(n_crossed, -1)
    second[:, a, b] = second[:, b, a] = values[:, r:]
    return second


def _completed(within: Array, pooled: Array, n_crossed: int) -> Array:
    """Covariances of cells, with pooled correlations where none were sketched."""
    spread = np.sqrt(np.maximum(np.einsum("jaa->ja", within), 0.0))
    common = np.sqrt(np.maximum(np.diag(pooled), 1e-300))
    correlations = pooled / common / common[:, None]
    result = correlations * spread[:, :, None] * spread[:, None, :]
    result[:, :n_crossed, :n_crossed] = within[:, :n_crossed, :n_crossed]
    return np.asarray(result)


def _positive(matrices: Array) -> Array:
    """The nearest positive semi-definite matrices."""
    values, vectors = np.linalg.eigh((matrices + np.swapaxes(matrices, -1, -2)) / 2)
    scaled = vectors * np.maximum(values, 0.0)[..., None, :]
    return np.asarray(scaled @ np.swapaxes(vectors, -1, -2))
