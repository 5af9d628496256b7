r"""How good a decoded model is: plain functions of arrays.

The paper judges PCA and ridge by the log ratio of their error to the error of the
same model computed from all rows (LRE): 0 is as good as exact.
"""

from __future__ import annotations

from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

from sketchlearn.errors import FeatureMapError, RowsError

__all__ = [
    "balanced_accuracy",
    "generalization_bound",
    "leading_components",
    "log_relative_error",
    "pca_log_relative_error",
    "pca_reconstruction_error",
    "ridge_log_relative_error",
    "ridge_mean_squared_error",
    "uniform_stability",
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


def pca_log_relative_error(
    second_moment: NDArray[np.float64],
    components: NDArray[np.float64],
    n_dimensions: int = 196,
) -> float:
    r"""Log ratio of the error of components to the error of exact ones.

    Parameters as in :func:`pca_reconstruction_error` (paper, eq.
    comp-pca-lre-eval-metric).

    Examples
    --------
    >>> moment = np.diag([3.0, 1.0])
    >>> pca_log_relative_error(moment, np.eye(2))
    0.0
    >>> round(np.exp(pca_log_relative_error(moment, np.eye(2)[::-1])), 3)
    np.float64(3.0)
    """
    error, least = (
        pca_reconstruction_error(second_moment, basis, n_dimensions)
        for basis in (components, leading_components(second_moment))
    )
    return log_relative_error(error, least)


def leading_components(moment: NDArray[np.float64]) -> NDArray[np.float64]:
    """All eigenvectors of a symmetric matrix as rows, the largest eigenvalue first.

    Examples
    --------
    >>> abs(leading_components(np.diag([1.0, 3.0])))
    array([[0., 1.],
           [1., 0.]])
    """
    return np.linalg.eigh(moment)[1][:, ::-1].T


def balanced_accuracy(
    rows: NDArray[np.generic], reconstructed: NDArray[np.generic]
) -> float:
    r"""Mean of the shares of ones and of zeros that came back, over all entries.

    .. math::
        \frac12 \Big( \frac{\#\{x = 1, \hat x = 1\}}{\#\{x = 1\}} +
        \frac{\#\{x = 0, \hat x = 0\}}{\#\{x = 0\}} \Big)

    Rows without a one, or without a zero, have the share of the other alone (paper,
    table autoencoder, there in percent).

    Parameters
    ----------
    rows, reconstructed : arrays of the same shape
        Zeros and ones, or truth values.

    Examples
    --------
    >>> balanced_accuracy(np.array([[1, 1, 0, 0]]), np.array([[1, 0, 0, 0]]))
    0.75
    """
    tables = np.asarray(rows), np.asarray(reconstructed)
    binary = all(((table == 0) | (table == 1)).all() for table in tables)
    if tables[0].shape != tables[1].shape or not binary:
        raise RowsError(
            "balanced accuracy is of two tables of zeros and ones of the same shape; "
            f"got shapes {tables[0].shape} and {tables[1].shape}"
            f"{'' if binary else ' with other numbers'}."
        )
    truth, found = (table.astype(bool) for table in tables)
    n_ones, n_right_ones = int(truth.sum()), int((truth & found).sum())
    n_zeros, n_right_zeros = truth.size - n_ones, int((~truth & ~found).sum())
    pairs = [(n_right_ones, n_ones), (n_right_zeros, n_zeros)]
    shares = [right / all_ for right, all_ in pairs if all_]
    return sum(shares) / len(shares) if shares else 1.0


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


def ridge_log_relative_error(
    second_moment: NDArray[np.float64],
    estimate: NDArray[np.float64],
    n_targets: int = 1,
) -> float:
    r"""Log ratio of the error of ridge from an estimated and from the true moment.

    With the targets first, :math:`\theta(R) = R_{12}(R_{22} + \lambda I)^{-1}`,
    :math:`\lambda = \lVert R_{22}\rVert_F` of the same R, and
    :math:`\mathrm{err}(\theta) = E\lVert x^{(y)} - \theta x^{(x)}\rVert^2` under the
    true moment: :math:`\log \mathrm{err}(\theta(\hat R)) - \log
    \mathrm{err}(\theta(R))` (paper, eq. comp-regression-lre-eval-metric). Ridge is not
    the least error on its own rows, so the value can be below zero.

    Parameters
    ----------
    second_moment, estimate : arrays of shape (d, d)
        :math:`R = E[xx^\top]` of the rows, targets first, and its estimate.
    n_targets : int
        How many of the first features are targets.

    Examples
    --------
    >>> moment = np.array([[1.0, 0.5], [0.5, 1.0]])
    >>> round(ridge_log_relative_error(moment, np.eye(2)), 4)
    0.2076
    """
    error, reference = (
        _ridge_error(second_moment, _ridge_coef(moment, n_targets))
        for moment in (estimate, second_moment)
    )
    return log_relative_error(error, reference)


def uniform_stability(
    *,
    feature_bound: float,
    decoder_lipschitz: float,
    loss_lipschitz: float,
    n_rows: int,
) -> float:
    r"""Most that the loss of any row can move when one row leaves the sketch.

    .. math:: \beta = \frac{2\,\beta_\varphi\,\rho_\psi\,\rho_\ell}{N}

    The mean of features moves by
    :math:`(\varphi(x_i) - \bar\varphi_{\setminus i}) / N`, at most
    :math:`2\beta_\varphi / N`. The paper finds this 2 and drops it one line later; here
    it stays. Parameters as in :func:`generalization_bound`.

    Examples
    --------
    >>> uniform_stability(
    ...     feature_bound=1.0, decoder_lipschitz=3.0, loss_lipschitz=0.5, n_rows=100
    ... )
    0.03
    """
    constants = {
        "feature_bound": feature_bound,
        "decoder_lipschitz": decoder_lipschitz,
        "loss_lipschitz": loss_lipschitz,
    }
    for name, value in constants.items():
        if not value >= 0:
            raise FeatureMapError(f"{name} must be a number >= 0; got {value!r}.")
    if n_rows < 1:
        raise FeatureMapError(f"n_rows must be at least 1; got {n_rows!r}.")
    return 2 * feature_bound * decoder_lipschitz * loss_lipschitz / n_rows


def generalization_bound(
    *,
    feature_bound: float,
    decoder_lipschitz: float,
    loss_lipschitz: float,
    loss_bound: float,
    n_rows: int,
    delta: float,
) -> float:
    r"""How much worse than on its own rows a decoded model can be on new ones.

    With probability at least :math:`1 - \delta` over N independent rows, the expected
    loss exceeds the mean loss on the sketched rows by less than

    .. math::
        2\beta + (4 N \beta + M_\ell)\sqrt{\frac{\ln(1/\delta)}{2N}},
        \qquad \beta = \frac{2\,\beta_\varphi\,\rho_\psi\,\rho_\ell}{N} .

    Twice the paper's :math:`\beta`: see :func:`uniform_stability`. The map and the
    decoder must have been chosen without these rows.

    Parameters
    ----------
    feature_bound : float
        :math:`\beta_\varphi`, largest L2 norm of one row's features.
    decoder_lipschitz : float
        :math:`\rho_\psi`, of the parameters in the sketch's mean.
    loss_lipschitz : float
        :math:`\rho_\ell`, of the loss of one row in the parameters.
    loss_bound : float
        :math:`M_\ell`: losses are between 0 and this.
    n_rows : int
        N.
    delta : float
        Probability that the bound fails, in (0, 1).

    References
    ----------
    Paper, section Generalization Bounds Proof; Bousquet and Elisseeff, JMLR 2002,
    Theorem 12.

    Examples
    --------
    >>> bound = generalization_bound(
    ...     feature_bound=1.0,
    ...     decoder_lipschitz=1.0,
    ...     loss_lipschitz=1.0,
    ...     loss_bound=2.0,
    ...     n_rows=10_000,
    ...     delta=0.05,
    ... )
    >>> round(bound, 4)
    0.1228
    """
    if not 0 < delta < 1:
        raise FeatureMapError(f"delta must be between 0 and 1; got {delta!r}.")
    if not loss_bound >= 0:
        raise FeatureMapError(f"loss_bound must be a number >= 0; got {loss_bound!r}.")
    beta = uniform_stability(
        feature_bound=feature_bound,
        decoder_lipschitz=decoder_lipschitz,
        loss_lipschitz=loss_lipschitz,
        n_rows=n_rows,
    )
    luck = sqrt(log(1 / delta) / (2 * n_rows))
    return 2 * beta + (4 * n_rows * beta + loss_bound) * luck


def _ridge_coef(moment: NDArray[np.float64], n_targets: int) -> NDArray[np.float64]:
    among = moment[n_targets:, n_targets:]
    penalised = among + np.linalg.norm(among) * np.eye(len(among))
    # The pseudo-inverse, since features that are all constant have nothing to invert.
    return np.asarray(
        moment[:n_targets, n_targets:] @ np.linalg.pinv(penalised, hermitian=True)
    )


def _ridge_error(moment: NDArray[np.float64], coef: NDArray[np.float64]) -> float:
    residual = np.hstack([np.eye(len(coef)), -coef])
    return float(np.trace(residual @ moment @ residual.T))
