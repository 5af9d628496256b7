"""Sizes and architectures of an SQNet, or of an RFQNet, as one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, final, get_args

from sketchlearn.errors import FeatureMapError, quote
from sketchlearn.features.activation import (
    Activation,
    ActivationFeatures,
    random_activations,
)
from sketchlearn.features.fields import (
    COUNT,
    COUNT_OR_0,
    NUMBER,
    SEED,
    TABLE,
    WORD,
    one_of,
    require_fields,
)
from sketchlearn.features.network import Inputs
from sketchlearn.networks.forward import NetworkSpec, spec_from_dict
from sketchlearn.networks.quantized import QuantizedKind
from sketchlearn.sketching.pooling.by_name import get_pooling

__all__ = ["Output", "SQNetSpec"]
__public__ = ["SQNetSpec"]

Output = Literal["vector", "symmetric"]

_DEFAULT_NETWORK = {"kind": "linear", "depth": 0, "width": 0, "head": None}


@final
@dataclass(frozen=True)
class SQNetSpec:
    """Sizes and architectures of a Sketch Network and its Query Network.

    Parameters
    ----------
    n_features : int
        Numbers in a row.
    sketch_size : int
        Numbers in the sketch.
    n_outputs : int, optional
        Numbers of the parameters, or the side of a symmetric matrix; ``n_features``
        by default.
    inputs : {"rows", "outer"}
        What goes into the Sketch Network: the row, or the lower triangle of its
        products.
    output : {"vector", "symmetric"}
        What comes out of the Query Network: ``n_outputs`` numbers, or the lower
        triangle of a symmetric matrix.
    feature, decoder : mapping
        ``kind``, ``depth``, ``width``, ``head`` and ``windows`` of
        :class:`~sketchlearn.networks.forward.NetworkSpec`; linear where left out.
    pooling : str
        As for :func:`~sketchlearn.sketch_rows`.
    random : mapping
        ``activation``, ``variance`` and ``seed`` of
        :func:`~sketchlearn.features.activation.random_activations`: fixed random
        features take the place of the Sketch Network, and only the Query Network is
        learned (the paper's RFQNet). Empty for an SQNet.

    Examples
    --------
    The paper's networks for compressive PCA:

    >>> spec = SQNetSpec(
    ...     4, 5, inputs="outer", output="symmetric", decoder={"head": "tanh"}
    ... )
    >>> spec.feature_network.n_inputs, spec.decoder_network.n_outputs
    (10, 10)
    """

    n_features: int
    sketch_size: int
    n_outputs: int = 0
    inputs: Inputs = "rows"
    output: Output = "vector"
    feature: Mapping[str, Any] = field(default_factory=dict)
    decoder: Mapping[str, Any] = field(default_factory=dict)
    pooling: str = "mean"
    random: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_fields(vars(self), _SQNET_FIELDS, "the spec of an SQNet")
        for name in ("feature", "decoder"):
            pieces = getattr(self, name)
            _refuse_unknown(name, pieces, [*_DEFAULT_NETWORK, "windows"])
            object.__setattr__(self, name, {**_DEFAULT_NETWORK, **pieces})
        object.__setattr__(self, "n_outputs", self.n_outputs or self.n_features)
        object.__setattr__(self, "pooling", get_pooling(self.pooling).name)
        require_fields(self.random, _RANDOM_FIELDS, "random of an SQNet")
        # Building them checks every size.
        _ = self.feature_network, self.decoder_network
        if self.random:
            self._require_random()

    @property
    def feature_network(self) -> NetworkSpec:
        """The Sketch Network."""
        size = self.n_features
        n_inputs = size * (size + 1) // 2 if self.inputs == "outer" else size
        return NetworkSpec(n_inputs, self.sketch_size, **self.feature)

    @property
    def random_features(self) -> ActivationFeatures:
        """The random features of an RFQNet."""
        return random_activations(self.n_features, self.sketch_size, **self.random)

    def _require_random(self) -> None:
        """Refuse what no random features have, without drawing all of them."""
        if self.inputs != "rows" or self.feature != _DEFAULT_NETWORK:
            raise FeatureMapError(
                "random features are taken of rows and have no Sketch Network: leave "
                "inputs and feature out."
            )
        units = random_activations(1, self.sketch_size, **self.random).matrix.shape[1]
        ActivationFeatures.require_affordable({"matrix": (self.n_features, units)})

    @property
    def is_table(self) -> bool:
        """Whether its sketches are those of a table of whole numbers."""
        network = self.feature_network
        is_quantized = network.kind in get_args(QuantizedKind) and network.head is None
        # Poolings that commute with a positive scale and a shift.
        commutes = self.pooling in ("mean", "max", "min")
        return is_quantized and commutes and self.inputs == "rows"

    @property
    def decoder_network(self) -> NetworkSpec:
        """The Query Network."""
        size = self.n_outputs
        n_outputs = size * (size + 1) // 2 if self.output == "symmetric" else size
        return NetworkSpec(self.sketch_size, n_outputs, **self.decoder)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready fields; ``random`` of an RFQNet only."""
        fields = asdict(self)
        if not self.random:
            del fields["random"]
        return fields

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> SQNetSpec:
        """Undo :meth:`to_dict`; unknown fields are refused."""
        return spec_from_dict(cls, fields)


_SQNET_FIELDS = {
    **dict.fromkeys(("n_features", "sketch_size"), COUNT),
    "n_outputs": COUNT_OR_0,
    "inputs": one_of(*get_args(Inputs)),
    "output": one_of(*get_args(Output)),
    **dict.fromkeys(("feature", "decoder", "random"), TABLE),
    "pooling": WORD,
}
_RANDOM_FIELDS = {
    "activation": one_of(*get_args(Activation)),
    "variance": NUMBER,
    "seed": SEED,
}


def _refuse_unknown(name: str, found: Mapping[str, Any], known: list[str]) -> None:
    unknown = sorted(set(found) - set(known))
    if unknown:
        raise FeatureMapError(
            f"{name} has no field {', '.join(map(quote, unknown[:8]))}; its fields are "
            f"{', '.join(known)}."
        )
