"""A ternary or binary network as what it is: a table of whole numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final, get_args

import numpy as np
from numpy.typing import NDArray

from sketchlearn.errors import FeatureMapError
from sketchlearn.networks.forward import FrozenNetwork
from sketchlearn.networks.layers import Array
from sketchlearn.networks.quantized import QuantizedKind, integer_table

__all__ = ["NetworkTable", "network_table"]


@final
@dataclass(frozen=True, eq=False)
class NetworkTable:
    r"""The network :math:`f(x) = a \cdot (x T) + b`.

    Parameters
    ----------
    table : int8 array of shape (n_inputs, n_outputs)
        T, of -1, 0 and 1.
    scales, bias : arrays of shape (n_outputs,)
        a and b.
    """

    table: NDArray[np.int8]
    scales: Array
    bias: Array


def network_table(network: FrozenNetwork) -> NetworkTable:
    """Table, scales and bias of a ternary or binary network without a head.

    Examples
    --------
    >>> from sketchlearn.networks.forward import NetworkSpec, initial_tensors
    >>> spec = NetworkSpec(6, 2, kind="ternary")
    >>> network = FrozenNetwork(spec, initial_tensors(spec))
    >>> found, x = network_table(network), np.arange(6.0)
    >>> np.allclose(network(x), found.scales * (x @ found.table) + found.bias)
    True
    """
    spec = network.spec
    if spec.kind not in get_args(QuantizedKind) or spec.head is not None:
        raise FeatureMapError(
            f"a {spec.kind} network with head {spec.head!r} is no table of whole "
            f"numbers; use kind {' or '.join(get_args(QuantizedKind))} without a head."
        )
    table, scales = integer_table(network.tensors["layers.last.weight"])
    bias = network.tensors["layers.last.bias"].astype(np.float64)
    count = spec.windows
    wide = np.kron(np.eye(count, dtype=np.int8), table)
    return NetworkTable(wide, np.tile(scales, count), np.tile(bias, count))
