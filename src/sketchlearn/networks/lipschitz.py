r"""How far the output of a network can move when its input does: a proven bound."""

from __future__ import annotations

from math import prod, sqrt

import numpy as np

from sketchlearn.errors import FeatureMapError
from sketchlearn.networks.forward import FrozenNetwork
from sketchlearn.networks.layers import (
    Affine,
    Array,
    Gelu,
    Layer,
    LayerNorm,
    Relu,
    Residual,
    Scale,
    Sigmoid,
    Tanh,
    Windows,
)

__all__ = ["spectral_bound"]

_GELU_SLOPE = 1.12891
"""The steepest slope of the GELU, at the square root of 2, rounded up."""


def spectral_bound(network: FrozenNetwork | Layer) -> float:
    r"""A Lipschitz constant of a network, from the spectral norms of its layers.

    .. math::
        \rho = \prod_l \rho_l, \qquad \rho_l = \lVert W_l\rVert_2
        \text{ or, for a residual block, } 1 + \rho_{body} .

    * batch norm, in evaluation mode: :math:`\max_j |\gamma_j| / \sqrt{v_j +
      \epsilon}`;
    * layer norm: :math:`\max_j |\gamma_j| / \sqrt\epsilon`. Without :math:`\epsilon`
      it has no Lipschitz constant, since inputs close to a constant vector are
      magnified without limit; with :math:`\epsilon = 10^{-5}` it is 316, so bounds
      of transformer networks are true and rarely useful;
    * windows: as one of them, since they share no input;
    * ReLU and tanh: 1, sigmoid: 1/4, GELU: 1.129.

    Parameters
    ----------
    network : FrozenNetwork or layer
        A network, or a layer of one.

    Returns
    -------
    float
        A number :math:`\rho` with :math:`\lVert f(x) - f(y)\rVert \le \rho \lVert x
        - y\rVert` up to rounding.

    References
    ----------
    Paper, generalization bounds (:math:`\rho_\psi`).

    Examples
    --------
    >>> layer = Affine(np.diag([3.0, 1.0]), np.zeros(2))
    >>> round(spectral_bound(layer) * spectral_bound(Sigmoid()), 9)
    0.75
    """
    match network:
        case FrozenNetwork():
            return prod(spectral_bound(layer) for layer in network.layers)
        case Residual():
            return 1.0 + prod(spectral_bound(layer) for layer in network.body)
        case Windows():
            return prod(spectral_bound(layer) for layer in network.body)
        case Affine():
            return _spectral_norm(network.weight)
        case Scale():
            return float(np.abs(network.gain).max())
        case LayerNorm():
            return float(np.abs(network.gain).max()) / sqrt(network.eps)
        case Gelu():
            return _GELU_SLOPE
        case Relu() | Tanh():
            return 1.0
        case Sigmoid():
            return 0.25
    raise FeatureMapError(
        f"no Lipschitz constant is known for a layer of type {type(network).__name__}. "
        "Pass a FrozenNetwork."
    )


def _spectral_norm(matrix: Array) -> float:
    """Through the smaller Gram matrix: weights may have twenty thousand columns."""
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    return sqrt(max(float(np.linalg.eigvalsh(wide @ wide.T)[-1]), 0.0))
