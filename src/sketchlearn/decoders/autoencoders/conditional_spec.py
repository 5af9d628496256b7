"""What a sketch-conditional autoencoder is made of: sizes of its three networks.

Weights are not known here, nor where a condition comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, final, get_args

from sketchlearn.errors import FeatureMapError
from sketchlearn.features.fields import (
    COUNT,
    COUNT_OR_0,
    one_of,
    or_none,
    require_fields,
)
from sketchlearn.networks.forward import Head, NetworkSpec, spec_from_dict

__all__ = ["Condition", "ConditionalSpec"]

Condition = Literal["none", "mean", "sketch"]


@final
@dataclass(frozen=True)
class ConditionalSpec:
    r"""Sizes of encoder, decoder and Sketch Network, and what the first two are told.

    Encoder and decoder are residual networks with layer norms and GELU; a first layer
    has a bias that depends on the condition z (paper, section Autoencoders):

    .. math::
        h_1(x, z) = W_x x + W_z z + b,

    which is one affine layer of x and z side by side.

    Parameters
    ----------
    n_features : int
        Entries of a row; narrower rows are padded with zeros.
    n_components : int
        Numbers of a code.
    condition : {"none", "mean", "sketch"}
        What z is: nothing (the paper's AE), the mean of the rows (+M), or their mean
        and a learned sketch (+MS).
    depth, width : int
        Residual blocks and hidden units of encoder and decoder.
    sketch_size : int
        Numbers of the learned sketch; 0 unless the condition is ``"sketch"``.
    sketch_depth, sketch_width : int
        Residual blocks and hidden units of the Sketch Network.
    sketch_head : {"tanh", "sigmoid"}, optional
        Applied to what the Sketch Network gives for a row; such a sketch is bounded.

    Examples
    --------
    >>> spec = ConditionalSpec(condition="sketch", sketch_size=64)
    >>> spec.n_condition, spec.encoder.n_inputs, spec.decoder.n_outputs
    (1064, 2064, 1000)
    """

    n_features: int = 1000
    n_components: int = 50
    condition: Condition = "none"
    depth: int = 5
    width: int = 4096
    sketch_size: int = 0
    sketch_depth: int = 3
    sketch_width: int = 4096
    sketch_head: Head | None = None

    def __post_init__(self) -> None:
        require_fields(vars(self), _AUTOENCODER_FIELDS, "the spec of an autoencoder")
        if (self.sketch_size > 0) != (self.condition == "sketch"):
            raise FeatureMapError(
                "sketch_size must be a whole number: above 0 with the condition "
                f"'sketch', 0 without; got {self.sketch_size} with "
                f"{self.condition!r}."
            )

    @property
    def n_condition(self) -> int:
        """Numbers of z."""
        return self.sketch_size + (0 if self.condition == "none" else self.n_features)

    @property
    def encoder(self) -> NetworkSpec:
        """From a row and z to a code."""
        return self._network(self.n_features, self.n_components)

    @property
    def decoder(self) -> NetworkSpec:
        """From a code and z to a logit for each entry."""
        return self._network(self.n_components, self.n_features)

    @property
    def sketch(self) -> NetworkSpec | None:
        """From a row to what is averaged over rows, for the condition ``"sketch"``."""
        if self.condition != "sketch":
            return None
        return NetworkSpec(
            self.n_features,
            self.sketch_size,
            kind="transformer",
            depth=self.sketch_depth,
            width=self.sketch_width,
            head=self.sketch_head,
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready fields."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> ConditionalSpec:
        """Undo :meth:`to_dict`; unknown fields are refused."""
        return spec_from_dict(cls, fields)

    def _network(self, n_inputs: int, n_outputs: int) -> NetworkSpec:
        return NetworkSpec(
            n_inputs + self.n_condition,
            n_outputs,
            kind="transformer",
            depth=self.depth,
            width=self.width,
        )


_AUTOENCODER_FIELDS = {
    **dict.fromkeys(("n_features", "n_components", "depth", "width"), COUNT),
    **dict.fromkeys(("sketch_depth", "sketch_width"), COUNT),
    "condition": one_of(*get_args(Condition)),
    "sketch_size": COUNT_OR_0,
    "sketch_head": or_none(one_of(*get_args(Head))),
}
