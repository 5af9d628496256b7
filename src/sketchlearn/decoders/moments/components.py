"""Principal components from moments.

What a component is worth, and when to warn of it, is told by
:mod:`sketchlearn.decoders.moments.verdicts`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.moments.covariance.low_rank import DENSE_FEATURES
from sketchlearn.decoders.moments.moments import Moments

__all__ = ["PrincipalComponents", "principal_components"]

Array: TypeAlias = NDArray[np.float64]


@final
@dataclass(frozen=True, eq=False)
class PrincipalComponents:
    """Orthonormal directions by decreasing variance, and the variances along them.

    Parameters
    ----------
    mean, scale : arrays of shape (d,)
        Subtracted from, and divided into, every row.
    components : array of shape (k, d)
    variances, ratio, singular_values : arrays of shape (k,)
        Unbiased variances, as shares of the whole, and as singular values of the
        centred rows.
    noise_variance : float
        Mean variance of the directions left out.
    """

    mean: Array
    scale: Array
    components: Array
    variances: Array
    ratio: Array
    singular_values: Array
    noise_variance: float


def principal_components(
    moments: Moments, asked: int | float | None, *, standardize: bool = False
) -> PrincipalComponents:
    """Principal components of rows with these moments.

    Parameters
    ----------
    moments : Moments
        Of the rows.
    asked : int, float or None
        How many; a float in (0, 1) asks for that share of the variance, None for all
        that are known: a full basis, or the factors of a covariance that is not
        written out.
    standardize : bool
        Scale features to unit variance first.

    Examples
    --------
    >>> from sketchlearn.decoders.moments.covariance.dense import DenseCovariance
    >>> known = DenseCovariance(np.diag([1.0, 3.0]))
    >>> found = principal_components(
    ...     Moments(4.0, np.zeros(2), known, np.zeros(2), 2), asked=1
    ... )
    >>> found.components.tolist(), found.variances.round(9).tolist()
    ([[0.0, 1.0]], [4.0])
    """
    d, rest = len(moments.mean), max(moments.count - 1, 1)
    variance = np.maximum(moments.structure.variances, 0.0)
    scale = np.sqrt(variance) if standardize else np.ones_like(variance)
    scale = np.where(scale > 0, scale, 1.0)
    unbiased = moments.count / rest
    structure = moments.structure.scaled(np.sqrt(unbiased) / scale)
    k = d if d <= DENSE_FEATURES else structure.n_factors
    if asked is not None and not isinstance(asked, float):
        k = int(asked)
    values, vectors = structure.largest(k)
    values, total = np.maximum(values, 0.0), float(structure.variances.sum())
    ratio = values / total if total > 0 else np.zeros_like(values)
    if isinstance(asked, float):
        k = min(int(np.searchsorted(np.cumsum(ratio), asked)) + 1, k)
    left = max(total - float(values[:k].sum()), 0.0)
    return PrincipalComponents(
        mean=moments.mean,
        scale=scale,
        components=_flip(vectors.T[:k]),
        variances=values[:k],
        ratio=ratio[:k],
        singular_values=np.sqrt(values[:k] * rest),
        noise_variance=left / (d - k) if k < d else 0.0,
    )


def _flip(components: Array) -> Array:
    """Make the largest entry of each component positive."""
    largest = np.abs(components).argmax(axis=1)
    signs = np.sign(components[np.arange(len(components)), largest])
    return components * np.where(signs == 0, 1.0, signs)[:, None]
