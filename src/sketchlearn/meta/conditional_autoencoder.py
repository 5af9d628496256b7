r"""Sketch-conditional autoencoders that can be trained, as one torch module.

The twin of :mod:`sketchlearn.decoders.autoencoders.conditional`, with the same spec and
the same names of tensors. Weights of a smaller condition can be trained on with a
larger one: what is new starts with zeros, so that nothing changes at first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, final

from typing_extensions import override

from sketchlearn.decoders.autoencoders.conditional import (
    ENCODER_PREFIX,
    RECONSTRUCTION_PREFIX,
    ConditionalAutoencoder,
)
from sketchlearn.decoders.autoencoders.conditional_spec import ConditionalSpec
from sketchlearn.features.network import FEATURE_PREFIX
from sketchlearn.files.weights import Weights
from sketchlearn.meta.backend import Tensor, nn, torch
from sketchlearn.meta.networks import Network

__all__ = ["TrainableAutoencoder"]

_FIRST_WEIGHTS = (
    f"{ENCODER_PREFIX}layers.first.weight",
    f"{RECONSTRUCTION_PREFIX}layers.first.weight",
)
"""Tensors that a larger condition makes wider; z comes last."""


@final
class TrainableAutoencoder(nn.Module):
    """Encoder, decoder and Sketch Network as one differentiable module.

    Parameters
    ----------
    spec : ConditionalSpec
        What to build.
    seed : int
        Same seed, same initial weights.

    Examples
    --------
    >>> model = TrainableAutoencoder(ConditionalSpec(6, 2, "mean", 1, 8), seed=0)
    >>> rows = torch.ones(3, 5, 6)  # three datasets of 5 rows
    >>> model(rows, model.condition(rows)).shape
    torch.Size([3, 5, 6])
    >>> model.freeze().spec.n_condition
    6
    """

    def __init__(self, spec: ConditionalSpec, seed: int = 0) -> None:
        super().__init__()
        self.spec = spec
        self._start(ConditionalAutoencoder.initial(spec, seed))
        self.register_load_state_dict_pre_hook(_widen)  # type: ignore[no-untyped-call]

    @classmethod
    def thaw(cls, frozen: ConditionalAutoencoder) -> Self:
        """A module to train on from where a frozen one is."""
        model = cls(frozen.spec)
        model._start(frozen)
        return model

    def freeze(self) -> ConditionalAutoencoder:
        """The autoencoder as it is now, for exact sketches."""
        tensors = {
            prefix + name: array
            for prefix, network in self._networks.items()
            for name, array in network.freeze().tensors.items()
        }
        return ConditionalAutoencoder(self.spec, tensors)

    def to_weights(self, card: Mapping[str, Any] | None = None) -> Weights:
        """Spec, tensors and a model card as one value."""
        return self.freeze().to_weights(card)

    def condition(self, support: Tensor) -> Tensor:
        """Of datasets: (episodes, n, n_features) → (episodes, n_condition)."""
        parts = [support.new_zeros(len(support), 0)]
        if self.spec.condition != "none":
            parts.append(support.mean(dim=1))
        if self.spec.condition == "sketch":
            parts.append(self.feature(support).mean(dim=1))
        return torch.cat(parts, dim=1)

    @override
    def forward(self, rows: Tensor, condition: Tensor) -> Tensor:
        """Logits of entries, of the shape of the rows.

        (episodes, n, n_features), (episodes, n_condition) → (episodes, n, n_features).
        """
        codes = _conditioned(self.encoder, rows, condition)
        return _conditioned(self.decoder, codes, condition)

    def _start(self, frozen: ConditionalAutoencoder) -> None:
        networks = frozen.networks
        self.encoder = Network.thaw(networks[ENCODER_PREFIX])
        self.decoder = Network.thaw(networks[RECONSTRUCTION_PREFIX])
        if self.spec.condition == "sketch":
            self.feature = Network.thaw(networks[FEATURE_PREFIX])

    @property
    def _networks(self) -> dict[str, Network]:
        """The networks by the prefix of their tensors."""
        found = {ENCODER_PREFIX: self.encoder, RECONSTRUCTION_PREFIX: self.decoder}
        sketched = self.spec.condition == "sketch"
        return {**found, FEATURE_PREFIX: self.feature} if sketched else found


def _conditioned(network: Network, inputs: Tensor, condition: Tensor) -> Tensor:
    """A network of inputs and z side by side, z once for all rows of an episode."""
    first, *others = network.layers.children()
    assert isinstance(first, nn.Linear)
    apart = [inputs.shape[-1], condition.shape[-1]]
    of_inputs, of_condition = torch.split(first.weight, apart, dim=1)
    bias = nn.functional.linear(condition, of_condition, first.bias)
    hidden = nn.functional.linear(inputs, of_inputs) + bias[:, None]
    for layer in others:
        hidden = layer(hidden)
    return hidden


def _widen(module: nn.Module, state: dict[str, Any], prefix: str, *others: Any) -> None:
    """Make weights of a smaller condition fit: zeros for what they were not told.

    A Sketch Network they do not have keeps the module's own weights.
    """
    own = module.state_dict()
    first = [prefix + name for name in _FIRST_WEIGHTS if prefix + name in state]
    narrow = [n for n in first if state[n].shape[1] < own[n[len(prefix) :]].shape[1]]
    for name in narrow:
        wide = torch.zeros_like(own[name[len(prefix) :]])
        wide[:, : state[name].shape[1]] = state[name]
        state[name] = wide
    if narrow:
        for name, value in own.items():
            if name.startswith(FEATURE_PREFIX):
                state.setdefault(prefix + name, value)
