r"""First weights of an SQNet of items: the Query Network begins as a matched filter.

With fresh weights an output has to find the numbers of the sketch that know its item
before it can learn anything else, which takes most of a training. Here it begins with
them: the first units of the residual stream are :math:`z` and :math:`-z`, and output j
reads them along what tells item j from the others,

.. math::
    \ell_j = \langle u_j, a(z) - a(-z) \rangle + b, \qquad
    u_j \propto \varphi_\omega(e_j) - \frac1d \sum_i \varphi_\omega(e_i), \quad
    \lVert u_j\rVert = 1,

up to the norms in between (for the ReLU and the GELU, :math:`a(z) - a(-z) = z`).

The minimum or maximum over rows of features that mix all items says little of any. A
non-linear Sketch Network pooled in that way begins as a Bloom filter does: each item is
in few of the numbers, and :math:`\mp\varphi_k` is large for rows with an item of k.
With other poolings it begins as an affine map, :math:`a(Wx) - a(-Wx) = Wx`. What is
learned from there on is not restricted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.errors import ConfigError
from sketchlearn.features.network import FEATURE_PREFIX
from sketchlearn.sqnet import DECODER_PREFIX, SQNet
from sketchlearn.sqnet_spec import SQNetSpec

__all__ = ["MatchedTuning", "start_matched"]


@final
@dataclass(frozen=True)
class MatchedTuning:
    """Sizes of the first weights."""

    first_logit: float = -3.0
    """b: most items are rare, and a share of 5 % is what all laws have on the mean."""

    other_units: float = 0.3
    """Share kept of the random weights that add to the outputs and to the stream, so
    that they do not drown the filter at first."""

    buckets: int = 4
    """Numbers an item is in, where the pooling is a minimum or maximum: in 100 numbers
    4 and 8 were tried, and nets learn alike from both."""

    mixing: float = 0.1
    """Share kept of the random weights from hidden units to these numbers."""


DEFAULT_START = MatchedTuning()


def start_matched(net: SQNet, tuning: MatchedTuning = DEFAULT_START) -> SQNet:
    """A net whose Query Network has the weights of a matched filter.

    A non-linear Sketch Network begins as a Bloom filter if it is pooled by minimum or
    maximum, else as an affine map.

    Parameters
    ----------
    net : SQNet
        With a residual Query Network of as many windows as the Sketch Network, at
        least twice as wide as a window's sketch, and an output for each item.
    tuning : MatchedTuning
        Sizes of the weights.

    Examples
    --------
    >>> decoder = {"kind": "transformer", "depth": 1, "width": 16, "head": "sigmoid"}
    >>> net = start_matched(SQNet.initial(SQNetSpec(6, 4, decoder=decoder)))
    >>> float(net.tensors["decoder.layers.last.bias"][0])
    -3.0
    """
    whole = net.spec.decoder_network
    one = whole.window
    m, n_items = one.n_inputs, one.n_outputs
    fits = n_items * whole.windows == net.spec.n_features and not one.is_flat
    if not fits or one.width < 2 * m:
        raise ConfigError(
            "a matched start needs a residual Query Network with an output for each "
            f"item and a width of at least {2 * m}, twice the numbers it reads; got "
            f"{whole}."
        )
    tensors = {name: array.copy() for name, array in net.tensors.items()}
    _start_features(net.spec, tensors, tuning)
    response = _responses(SQNet(net.spec, tensors), n_items, m)
    first, last = (f"{DECODER_PREFIX}layers.{name}" for name in ("first", "last"))
    tensors[f"{first}.weight"][: 2 * m] = np.concatenate([np.eye(m), -np.eye(m)])
    tensors[f"{first}.bias"][: 2 * m] = 0
    tensors[f"{last}.weight"] *= np.float32(tuning.other_units)
    tensors[f"{last}.weight"][:, : 2 * m] = np.hstack([response, -response])
    tensors[f"{last}.bias"][:] = tuning.first_logit
    for block in range(one.depth):
        name = f"{DECODER_PREFIX}layers.block{block}.body.outer.weight"
        tensors[name] *= np.float32(tuning.other_units)
    return SQNet(net.spec, tensors, net.model)


def _start_features(
    spec: SQNetSpec, tensors: dict[str, NDArray[np.float32]], tuning: MatchedTuning
) -> None:
    """First weights of a non-linear Sketch Network that is wide enough for them."""
    one = spec.feature_network.window
    m, by_extremes = one.n_outputs, spec.pooling in ("min", "max")
    if spec.random or one.is_flat or one.width < (m if by_extremes else 2 * m):
        return
    first, last = (f"{FEATURE_PREFIX}layers.{name}" for name in ("first", "last"))
    weight, unit = tensors[f"{first}.weight"], np.eye(m)
    tensors[f"{last}.weight"] *= np.float32(tuning.mixing)
    if by_extremes:
        order = np.random.default_rng(0).random((m, one.n_inputs)).argsort(axis=0)
        both, read = order < tuning.buckets, unit if spec.pooling == "max" else -unit
    else:
        both = np.concatenate([weight[:m], -weight[:m]])
        read = np.hstack([unit, -unit])
    weight[: len(both)] = both
    tensors[f"{first}.bias"][: len(both)] = 0
    tensors[f"{last}.weight"][:, : len(both)] = read
    for block in range(one.depth):
        for part in ("weight", "bias"):
            name = f"{FEATURE_PREFIX}layers.block{block}.body.outer.{part}"
            tensors[name] *= np.float32(tuning.other_units)


def _responses(net: SQNet, n_items: int, m: int) -> NDArray[np.float64]:
    """What tells each item of the first window from the others, as unit vectors."""
    alone = np.zeros((n_items, net.spec.n_features))
    alone[:, :n_items] = np.eye(n_items)
    phi = net.spec.random_features if net.spec.random else net.feature_network
    features: NDArray[np.float64] = phi(alone)[:, :m]
    own = features - features.mean(axis=0)
    lengths = np.linalg.norm(own, axis=1, keepdims=True)
    unit: NDArray[np.float64] = own / np.maximum(lengths, 1e-12)
    return unit
