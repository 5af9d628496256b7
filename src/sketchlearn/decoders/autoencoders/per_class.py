r"""An autoencoder with a sketch for each class: the paper's +MSK.

A row is told the condition of its class. Where the class is not known it is told a
mixture of conditions, each by how likely the row is under the marginals of the class;
since biases are affine in the condition, the bias is the same mixture of biases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from sketchlearn.decoders.autoencoders.adapted import AdaptedAutoencoder, require_width
from sketchlearn.decoders.autoencoders.base import AbstractAutoencoder
from sketchlearn.decoders.autoencoders.classes import ClassChoice
from sketchlearn.decoders.autoencoders.directions import ClassMeans
from sketchlearn.errors import RowsError
from sketchlearn.networks.layers import Array

__all__ = ["PerClassAutoencoder"]


@final
@dataclass(frozen=True, eq=False)
class PerClassAutoencoder(AbstractAutoencoder):
    r"""One set of networks, adapted to each class by its own sketch.

    A code is that of the networks followed by the weights of the classes, so that it
    says all that decoding needs. A row of unknown class has the weights

    .. math::
        w_c \propto \frac{N_c}{N}
        \Big( \prod_j p_{cj}^{x_j} (1 - p_{cj})^{1 - x_j} \Big)^{1 / \sqrt d},

    where :math:`p_{cj}` is the share of ones of column j among the :math:`N_c` rows of
    class c, with half a one and half a zero added. Columns are not independent; the
    root of their number keeps the weights from being all or nothing.

    Parameters
    ----------
    members : sequence of AdaptedAutoencoder
        One for each class, adapted from the same weights.
    counts : array of shape (n_classes,)
        Rows of each class.

    Examples
    --------
    >>> from sketchlearn.decoders.autoencoders.conditional import ConditionalAutoencoder
    >>> from sketchlearn.decoders.autoencoders.conditional_spec import ConditionalSpec
    >>> family = ConditionalAutoencoder.initial(ConditionalSpec(4, 2, "mean", 1, 8))
    >>> members = [family.adapted([1, 1, 0, 0]), family.adapted([0, 0, 1, 1])]
    >>> both = PerClassAutoencoder(members, [50, 50])
    >>> codes = both.encode(np.array([[1, 1, 0, 0], [1, 0, 1, 0]]))
    >>> codes.shape, codes[:, 2:].round(2).tolist()
    ((2, 4), [[1.0, 0.0], [0.5, 0.5]])
    """

    members: Sequence[AdaptedAutoencoder]
    counts: ArrayLike

    def __post_init__(self) -> None:
        members, counts = tuple(self.members), np.array(self.counts, np.float64)
        if not members or counts.shape != (len(members),) or not (counts > 0).all():
            raise RowsError(
                "give one autoencoder for each class and its number of rows, above 0; "
                f"got {len(members)} autoencoders and numbers of shape {counts.shape}."
            )
        kinds = {(id(m.encoder), id(m.decoder), m.n_features) for m in members}
        if len(kinds) > 1:
            raise RowsError(
                "the classes of one autoencoder share their weights and their columns; "
                f"got {len(kinds)} different ones. Adapt one model to each class."
            )
        object.__setattr__(self, "members", members)
        object.__setattr__(self, "counts", counts)

    @property
    @override
    def n_features(self) -> int:
        return self.members[0].n_features

    @property
    @override
    def mean(self) -> Array:
        marginals = np.stack([member.marginals for member in self.members])
        return np.average(marginals, axis=0, weights=np.asarray(self.counts))

    @property
    @override
    def n_codes(self) -> int:
        return self.members[0].n_codes + self.n_weights

    @property
    @override
    def n_weights(self) -> int:
        return len(self.members)

    @override
    def encode(
        self, rows: NDArray[np.floating], classes: ArrayLike | None = None
    ) -> Array:
        """Codes of rows: (n, n_features) → (n, n_codes).

        Parameters
        ----------
        rows : array of 0 and 1, shape (n, n_features)
            What to encode.
        classes : array of int, shape (n,), optional
            Class of each row, where it is known.
        """
        require_width(rows, self.n_features, "rows")
        weights = self._likely(rows) if classes is None else self._known(rows, classes)
        bias = weights @ np.stack([m.encoder_bias for m in self.members])
        return np.hstack([self.members[0].encoder(rows, bias), weights])

    @override
    def decode(self, codes: NDArray[np.floating]) -> Array:
        require_width(codes, self.n_codes, "codes")
        own, weights = np.split(codes, [self.members[0].n_codes], axis=1)
        bias = weights @ np.stack([m.decoder_bias for m in self.members])
        thresholds = weights @ np.array([m.threshold for m in self.members])
        logits = self.members[0].decoder(own, bias)[:, : self.n_features]
        result: Array = logits - thresholds[:, None]
        return result

    def _known(self, rows: NDArray[np.floating], classes: ArrayLike) -> Array:
        given, n_classes = np.asarray(classes), len(self.members)
        whole = given.shape == (len(rows),) and np.issubdtype(given.dtype, np.integer)
        if not whole or (given < 0).any() or (given >= n_classes).any():
            raise RowsError(
                f"classes must be a whole number from 0 to {n_classes - 1} for each of "
                f"{len(rows)} rows; got shape {given.shape} of {given.dtype}."
            )
        chosen: Array = np.eye(n_classes)[given]
        return chosen

    def _likely(self, rows: NDArray[np.floating]) -> Array:
        """Weights of classes from shares and tempered likelihoods, (n, n_classes)."""
        if len(self.members) == 1:
            return np.ones((len(rows), 1))
        return np.asarray(self._choice.weights(np.asarray(rows, np.float64)))

    @cached_property
    def _choice(self) -> ClassChoice:
        counts = np.asarray(self.counts)[:, None]
        marginals = np.stack([member.marginals for member in self.members])
        smooth = (counts * marginals + 0.5) / (counts + 1)
        means = ClassMeans(smooth, counts[:, 0] / counts.sum())
        return ClassChoice(means, temperature=sqrt(self.n_features))
