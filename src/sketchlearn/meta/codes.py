"""Searched codes as they are trained, through the steps of the search.

This is the torch twin of
:class:`~sketchlearn.decoders.autoencoders.code_network.CodeNetwork` and of
:class:`~sketchlearn.decoders.autoencoders.code_search.SearchedCodes`: the same formula,
tensors and names, for one dataset at a time. The search here keeps its last code, and
not its best one, so that it can be differentiated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, final

import numpy as np
from typing_extensions import override

from sketchlearn.decoders.autoencoders.code_network import (
    COMPONENT_PART,
    FEATURE_PART,
    OFFSETS,
    SCALE,
    STEPS,
    CodeNetwork,
    random_directions,
)
from sketchlearn.decoders.autoencoders.code_search import RIDGE
from sketchlearn.decoders.autoencoders.directions import CodeDirections
from sketchlearn.files.weights import Weights
from sketchlearn.meta.backend import Tensor, nn, torch
from sketchlearn.meta.networks import Network, export_tensors
from sketchlearn.meta.problems import beside
from sketchlearn.networks.forward import FrozenNetwork, part_of_tensors

__all__ = ["TrainableCodes"]


@final
class TrainableCodes(nn.Module):
    """Networks and steps that can be learned.

    Parameters
    ----------
    frozen : CodeNetwork
        Where to start.

    Examples
    --------
    >>> from sketchlearn.decoders.autoencoders.code_network import CodeSpec
    >>> TrainableCodes(CodeNetwork.initial(CodeSpec(width=8))).steps.shape
    torch.Size([24, 4])
    """

    def __init__(self, frozen: CodeNetwork) -> None:
        super().__init__()
        self.spec = frozen.spec
        self.features = _thawed(frozen, FEATURE_PART)
        self.components = _thawed(frozen, COMPONENT_PART)
        self.steps = nn.Parameter(torch.tensor(frozen.tensors[STEPS]))
        self.scale = nn.Parameter(torch.tensor(frozen.tensors[SCALE]))

    def freeze(self) -> CodeNetwork:
        """The network as it is now, to decode with."""
        return CodeNetwork(self.spec, export_tensors(self))

    @classmethod
    def thaw(cls, frozen: CodeNetwork) -> Self:
        """A module to train on from where a frozen network is."""
        return cls(frozen).eval()

    def to_weights(self, card: Mapping[str, Any] | None = None) -> Weights:
        """Sizes, tensors and a model card as one value."""
        return self.freeze().to_weights(card)

    @override
    def forward(self, known: CodeDirections, rows: Tensor) -> list[Tensor]:
        """Logits of rows after each step, each (n, d)."""
        gain, biases, loadings = self._linear(known)
        core = loadings.mT @ loadings
        ridge = RIDGE * core.diagonal().mean()
        unit = torch.eye(len(core)).to(core)
        solve = torch.linalg.solve(core + ridge * unit, loadings.mT).mT  # (d, k)
        share = known.ones
        signs = torch.where(rows > 0.5, 0.5 / share, -0.5 / (1 - share))
        codes = ((rows - self._tensor(known.mean)) * gain) @ solve
        logits, momentum = codes @ loadings.mT + biases, torch.zeros_like(codes)
        found = []
        for log_t, log_rate, beta, alpha in self.steps:
            t, weight = log_t.exp(), alpha.sigmoid()
            q = torch.sigmoid(logits / t)
            pull = 4 * (1 - weight) * signs * q * (1 - q)
            pull = pull + weight * signs.abs() * (rows - q)
            momentum = beta.sigmoid() * momentum + pull @ solve
            codes = codes + log_rate.exp() * t * momentum
            logits = codes @ loadings.mT + biases
            found.append(logits)
        return found

    def _linear(self, known: CodeDirections) -> tuple[Tensor, Tensor, Tensor]:
        """Gains and biases (d,), and loadings (d, k)."""
        tensor = self._tensor
        offset, log_gain = self.features(tensor(known.feature_inputs())).unbind(1)
        own, other = self.components(tensor(known.component_inputs())).unbind(1)
        gain = (self.scale + log_gain.clamp(-3, 3)).exp()
        random = tensor(random_directions(known.spread, len(own)))
        mixed = tensor(known.directions) * own.clamp(-6, 3).exp()
        mixed = mixed + random * other.clamp(-9, 3).exp()
        biases = gain * (tensor(known.mean) - known.threshold + OFFSETS * offset)
        return gain, biases, mixed * gain[:, None]

    def _tensor(self, array: Any) -> Tensor:
        plain = np.ascontiguousarray(array, np.float32)
        return beside(self, torch.from_numpy(plain))


def _thawed(frozen: CodeNetwork, prefix: str) -> Network:
    tensors = part_of_tensors(frozen.tensors, prefix)
    return Network.thaw(FrozenNetwork(frozen.spec.networks[prefix], tensors))
