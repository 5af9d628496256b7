"""An autoencoder of one dataset: learned networks, and the biases its sketch gave them.

How the biases are computed from a sketch is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit
from typing_extensions import override

from sketchlearn.decoders.autoencoders.base import AbstractAutoencoder
from sketchlearn.decoders.autoencoders.dynamic_bias import DynamicNetwork
from sketchlearn.errors import RowsError
from sketchlearn.networks.layers import Array

__all__ = ["AdaptedAutoencoder", "require_width"]

_RAREST = 2.0**-20
"""Shares of ones are kept this far from 0 and 1, where a threshold is infinite."""


@final
@dataclass(frozen=True, eq=False)
class AdaptedAutoencoder(AbstractAutoencoder):
    r"""An autoencoder with the biases that the sketch of a dataset gave it.

    An entry is a one where its probability is above :math:`\pi`, the mean of the
    marginals; its score is :math:`\mathrm{logit}(p) - \mathrm{logit}(\pi)`.

    Parameters
    ----------
    encoder, decoder : DynamicNetwork
        From rows to codes, and from codes to logits.
    marginals : array of shape (n_features,)
        Share of ones of each column.
    condition : array of shape (n_condition,)
        z.
    """

    encoder: DynamicNetwork
    decoder: DynamicNetwork
    marginals: Array
    condition: Array

    @property
    @override
    def n_features(self) -> int:
        return len(self.marginals)

    @property
    @override
    def mean(self) -> Array:
        return self.marginals

    @property
    @override
    def n_codes(self) -> int:
        return self.encoder.network.spec.n_outputs

    @property
    @override
    def n_weights(self) -> int:
        return 0

    @cached_property
    def threshold(self) -> float:
        """The logit above which an entry is a one."""
        share = float(self.marginals.mean())
        return float(logit(min(max(share, _RAREST), 1 - _RAREST)))

    @cached_property
    def encoder_bias(self) -> Array:
        """Dynamic bias of the encoder, (width,)."""
        return self.encoder.bias(self.condition)

    @cached_property
    def decoder_bias(self) -> Array:
        """Dynamic bias of the decoder, (width,)."""
        return self.decoder.bias(self.condition)

    @override
    def encode(self, rows: NDArray[np.floating]) -> Array:
        require_width(rows, self.n_features, "rows")
        return self.encoder(rows, self.encoder_bias)

    @override
    def decode(self, codes: NDArray[np.floating]) -> Array:
        require_width(codes, self.n_codes, "codes")
        logits = self.decoder(codes, self.decoder_bias)
        return logits[:, : self.n_features] - self.threshold


def require_width(table: NDArray[np.floating], width: int, name: str) -> None:
    """Refuse what is no table of so many columns."""
    if np.ndim(table) != 2 or np.shape(table)[1] != width:
        raise RowsError(f"{name} must have shape (n, {width}); got {np.shape(table)}.")
