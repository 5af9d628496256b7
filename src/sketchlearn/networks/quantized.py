r"""Weights that are small whole numbers: ternary and binary layers.

A row :math:`w` of a layer's weights becomes :math:`a\,t` with :math:`t_j \in \{-1, 0,
1\}` (ternary) or :math:`\{0, 1\}` (binary):

.. math::
    \Delta = 0.7\, \frac1n \sum_j |w_j|, \qquad
    t_j = \operatorname{sign}(w_j)\, [\,|w_j| > \Delta\,], \qquad
    a = \frac{\sum_j |w_j t_j|}{\sum_j |t_j|},

with :math:`[w_j > \Delta]` for the binary one. What was quantized once stays as it is.
How the weights are learned is not known here.

References
----------
Li, Zhang and Liu, "Ternary weight networks", 2016 (the threshold and the scale, here
for each output of its own).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sketchlearn.arithmetic.elementary import sequential_sum

__all__ = ["THRESHOLD", "QuantizedKind", "integer_table", "quantized"]

QuantizedKind = Literal["ternary", "binary"]

THRESHOLD = 0.7
"""Weights below this share of the mean magnitude become 0: close to the best choice for
normal and for uniform weights (Li, Zhang and Liu, 2016)."""


def quantized(weight: NDArray[np.floating], kind: QuantizedKind) -> NDArray[np.float32]:
    """Weights of a layer, (n_out, n_in), each row with one magnitude besides 0.

    Examples
    --------
    >>> quantized(np.array([[1.0, -3.0, 0.5, 2.0]]), "ternary")
    array([[ 0. , -2.5,  0. ,  2.5]], dtype=float32)
    >>> quantized(np.array([[1.0, -3.0, 0.5, 2.0]]), "binary")
    array([[0., 0., 0., 2.]], dtype=float32)
    """
    wide = np.asarray(weight, np.float64).T  # (n_in, n_out)
    magnitude = np.abs(wide) if kind == "ternary" else wide
    # Sums of one order: the same weights on every machine.
    kept = magnitude > THRESHOLD * (sequential_sum(np.abs(wide)) / len(wide))
    count = np.maximum(kept.sum(axis=0), 1)
    scale = sequential_sum(np.where(kept, magnitude, 0.0)) / count
    result = np.where(kept, np.sign(wide) * scale, 0.0).T.astype(np.float32)
    result.flags.writeable = False
    return result


def integer_table(
    weight: NDArray[np.floating],
) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    """Table (n_in, n_out) and scale of each output of quantized weights.

    Examples
    --------
    >>> table, scales = integer_table(np.array([[0.0, -2.5, 0.0, 2.5]]))
    >>> table.T.tolist(), scales.tolist()
    ([[0, -1, 0, 1]], [2.5])
    """
    scales = np.abs(np.asarray(weight, np.float64)).max(axis=1)
    return np.sign(weight).T.astype(np.int8), scales
