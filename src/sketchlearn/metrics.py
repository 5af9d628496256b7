r"""How good a decoded model is: plain functions of arrays.

The paper judges PCA and ridge by the log ratio of their error to the error of the
same model computed from all rows (LRE): 0 is as good as exact.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "log_relative_error",
    "pca_reconstruction_error",
    "ridge_mean_squared_error",
]


def pca_reconstruction_error(
    second_moment: NDArray[np.float64],
    components: NDArray[np.float64],
    n_dimensions: int = 196,
) -> float:
    r"""Mean squared reconstruction error, averaged over the number of components.

    With :math:`V_r` the first r components and
    :math:`\mathrm{err}(r) = E\lVert x - V_r^\top V_r x\rVert^2`, the area under
    :math:`\mathrm{err}(1), \dots, \mathrm{err}(D)` by the trapezoid rule, divided by
    :math:`D` (paper, eq. comp-pca-eval-metric, as its tables compute it).

    Parameters
    ----------
    second_moment : array of shape (d, d)
        :math:`E[xx^\top]` of the rows to reconstruct.
    components : array of shape (r, d)
        Orthonormal rows, the most important first.
    n_dimensions : int
        D, 196 in the paper; rows of fewer features count as padded with zeros.

    Examples
    --------
    >>> pca_reconstruction_error(np.diag([2.0, 1.0]), np.eye(2), n_dimensions=2)
    0.25
    """
    captured = np.einsum("ij,ij->i", components @ second_moment, components)
    captured = np.concatenate(
        [captured, np.zeros(max(0, n_dimensions - len(captured)))]
    )
    errors = np.trace(second_moment) - np.cumsum(captured)
    return float(np.trapezoid(errors) / n_dimensions)


def ridge_mean_squared_error(
    rows: NDArray[np.float64],
    targets: NDArray[np.float64],
    coef: NDArray[np.float64],
    intercept: float | NDArray[np.float64] = 0.0,
) -> float:
    """Mean squared error of a linear prediction.

    Examples
    --------
    >>> rows, targets = np.array([[1.0], [2.0]]), np.array([2.0, 5.0])
    >>> ridge_mean_squared_error(rows, targets, np.array([2.0]))
    0.5
    """
    return float(np.mean((targets - rows @ np.transpose(coef) - intercept) ** 2))


def log_relative_error(error: float, reference: float) -> float:
    r"""Log ratio of two errors, :math:`\log(\text{error} / \text{reference})`.

    Zero when both are zero.

    Examples
    --------
    >>> round(log_relative_error(2.0, 1.0), 3)
    0.693
    """
    if error == reference == 0:
        return 0.0
    with np.errstate(divide="ignore"):
        return float(np.log(error) - np.log(reference))
