r"""A network whose first layer has a bias that something else decides.

.. math::
    h_1(x, z) = W_x x + \psi(z), \qquad \psi(z) = W_z z + b

The Query Network :math:`\psi` of the paper's autoencoders is that affine map; what z
is made of is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.networks.forward import FrozenNetwork
from sketchlearn.networks.layers import Affine, Array, chain

__all__ = ["DynamicNetwork"]


@final
@dataclass(frozen=True, eq=False)
class DynamicNetwork:
    """A network of x and z side by side, taken apart between the two.

    Biases of several z may be averaged: they are affine in z.

    Parameters
    ----------
    network : FrozenNetwork
        With hidden layers.
    n_condition : int
        How many of its inputs, the last ones, are z.

    Examples
    --------
    >>> from sketchlearn.networks.forward import NetworkSpec, initial_tensors
    >>> spec = NetworkSpec(5, 3, kind="transformer", depth=1, width=8)
    >>> network = FrozenNetwork(spec, initial_tensors(spec))
    >>> dynamic = DynamicNetwork(network, n_condition=2)
    >>> x, z = np.ones((4, 3)), np.array([2.0, 7.0])
    >>> both = np.hstack([x, np.tile(z, (4, 1))])
    >>> bool(np.allclose(dynamic(x, dynamic.bias(z)), network(both)))
    True
    """

    network: FrozenNetwork
    n_condition: int

    def bias(self, condition: NDArray[np.floating]) -> Array:
        """The dynamic bias: (..., n_condition) → (..., width)."""
        first = self._first
        weight = first.weight[:, first.weight.shape[1] - self.n_condition :]
        result: Array = np.asarray(condition, np.float64) @ weight.T + first.bias
        return result

    def __call__(self, inputs: NDArray[np.floating], bias: Array) -> Array:
        """Outputs for inputs, those that are missing at the end taken as zeros.

        (n, at most n_inputs - n_condition), (width,) or (n, width) → (n, n_outputs).
        """
        weight = self._first.weight[:, : inputs.shape[-1]]
        hidden = np.asarray(inputs, np.float64) @ weight.T + bias
        return chain(self.network.layers[1:], hidden)

    @cached_property
    def _first(self) -> Affine:
        first = self.network.layers[0]
        assert isinstance(first, Affine)
        return first
