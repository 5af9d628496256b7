"""Networks that can be trained: the torch twins of :mod:`sketchlearn.networks.forward`.

They have the same spec, the same names of tensors and the same first weights; what
was trained is frozen for use, and what was frozen can be trained on.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Self, cast, final, get_args

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.meta.backend import Tensor, nn, torch
from sketchlearn.networks.forward import (
    FrozenNetwork,
    NetworkSpec,
    frozen_tensors,
    initial_tensors,
)
from sketchlearn.networks.layers import NORM_EPS
from sketchlearn.networks.quantized import THRESHOLD, QuantizedKind

__all__ = [
    "Network",
    "QuantizedLinear",
    "ResidualBlock",
    "build_network",
    "export_tensors",
    "import_tensors",
]

_COUNTER = "num_batches_tracked"


@final
class ResidualBlock(nn.Module):
    """A layer stack that adds to what it is given: x → x + body(x)."""

    def __init__(self, body: nn.Sequential) -> None:
        super().__init__()
        self.body = body

    @override
    def forward(self, hidden: Tensor) -> Tensor:
        """(n, width) → (n, width)."""
        result: Tensor = hidden + self.body(hidden)
        return result


@final
class QuantizedLinear(nn.Module):
    """An affine layer computed with its weights quantized.

    A gradient by the quantized weights is taken as one by the weights themselves
    (straight through), so that they can be learned.

    Parameters
    ----------
    n_inputs, n_outputs : int
        Sizes; the numbers are filled in later.
    kind : {"ternary", "binary"}
        As :func:`~sketchlearn.networks.quantized.quantized` computes it.
    """

    def __init__(self, n_inputs: int, n_outputs: int, kind: QuantizedKind) -> None:
        super().__init__()
        self.kind = kind
        self.weight = nn.Parameter(torch.empty(n_outputs, n_inputs))
        self.bias = nn.Parameter(torch.empty(n_outputs))

    @override
    def forward(self, inputs: Tensor) -> Tensor:
        """(n, n_inputs) → (n, n_outputs)."""
        weight = self.weight
        straight = weight + (_quantized(weight.detach(), self.kind) - weight).detach()
        return nn.functional.linear(inputs, straight, self.bias)


@final
class Network(nn.Module):
    """A network as :class:`~sketchlearn.networks.forward.NetworkSpec` describes it.

    Parameters
    ----------
    spec : NetworkSpec
        What to build.
    tensors : mapping of arrays
        Weights to start from, as :func:`~sketchlearn.networks.forward.initial_tensors`
        or a frozen network has them.
    """

    def __init__(self, spec: NetworkSpec, tensors: Mapping[str, NDArray[Any]]) -> None:
        super().__init__()
        self.spec = spec
        layers: dict[str, nn.Module] = {}
        n_inputs, n_outputs = spec.window.n_inputs, spec.window.n_outputs
        if not spec.is_flat:
            layers["first"] = _affine(n_inputs, spec.width)
            for index in range(spec.depth):
                layers[f"block{index}"] = _block(spec)
            layers["norm"], layers["activation"] = _norm(spec), _activation(spec)
            n_inputs = spec.width
        is_quantized = spec.kind in get_args(QuantizedKind)
        layers["last"] = (
            QuantizedLinear(n_inputs, n_outputs, cast(QuantizedKind, spec.kind))
            if is_quantized
            else _affine(n_inputs, n_outputs)
        )
        if spec.head is not None:
            layers["head"] = nn.Tanh() if spec.head == "tanh" else nn.Sigmoid()
        self.layers = nn.Sequential(OrderedDict(layers))
        import_tensors(self, tensors)

    @override
    def forward(self, inputs: Tensor) -> Tensor:
        """(..., n_inputs) → (..., n_outputs)."""
        flat = self.layers(inputs.reshape(-1, self.spec.window.n_inputs))
        result: Tensor = flat.reshape(*inputs.shape[:-1], self.spec.n_outputs)
        return result

    def freeze(self) -> FrozenNetwork:
        """The network as it is now, in evaluation mode."""
        return FrozenNetwork(self.spec, export_tensors(self))

    @classmethod
    def thaw(cls, frozen: FrozenNetwork) -> Self:
        """A network to train on from where a frozen one is."""
        return cls(frozen.spec, frozen.tensors)


def build_network(spec: NetworkSpec, *, seed: int = 0) -> Network:
    r"""A network with fresh weights, uniform in :math:`\pm 1/\sqrt{fan\ in}`.

    The global random state is neither read nor changed.

    Parameters
    ----------
    spec : NetworkSpec
        What to build.
    seed : int
        Same seed, same weights.

    Examples
    --------
    >>> network = build_network(NetworkSpec(8, 3, head="tanh"), seed=0)
    >>> network(torch.zeros(5, 4, 8)).shape
    torch.Size([5, 4, 3])
    """
    return Network(spec, initial_tensors(spec, seed))


def export_tensors(module: nn.Module) -> dict[str, NDArray[np.float32]]:
    """Weights and running statistics of a module, as copies, by name."""
    return {
        name: tensor.detach().cpu().numpy().astype(np.float32)
        for name, tensor in module.state_dict().items()
        if not name.endswith(_COUNTER)
    }


def import_tensors(module: nn.Module, tensors: Mapping[str, NDArray[Any]]) -> None:
    """Copy tensors made by :func:`export_tensors` into a module of the same shape."""
    shapes = {
        name: tuple(tensor.shape)
        for name, tensor in module.state_dict().items()
        if not name.endswith(_COUNTER)
    }
    kept = frozen_tensors(tensors, shapes.items())
    state = {name: torch.from_numpy(array.copy()) for name, array in kept.items()}
    module.load_state_dict(state, strict=False)


def _quantized(weight: Tensor, kind: QuantizedKind) -> Tensor:
    """What :func:`sketchlearn.networks.quantized.quantized` gives, as tensors."""
    magnitude = weight.abs() if kind == "ternary" else weight
    kept = magnitude > THRESHOLD * weight.abs().mean(dim=1, keepdim=True)
    count = kept.sum(dim=1, keepdim=True).clamp_min(1)
    scale = (magnitude * kept).sum(dim=1, keepdim=True) / count
    return weight.sign() * kept * scale


def _affine(n_inputs: int, n_outputs: int) -> nn.Linear:
    # Made without numbers: its own initialisation would use the global state.
    return nn.Linear(n_inputs, n_outputs, device="meta").to_empty(device="cpu")


def _block(spec: NetworkSpec) -> ResidualBlock:
    layers: dict[str, nn.Module] = {
        "norm": _norm(spec),
        "inner": _affine(spec.width, spec.width),
        "activation": _activation(spec),
        "outer": _affine(spec.width, spec.width),
    }
    return ResidualBlock(nn.Sequential(OrderedDict(layers)))


def _norm(spec: NetworkSpec) -> nn.Module:
    kind = nn.BatchNorm1d if spec.kind == "resnet" else nn.LayerNorm
    return kind(spec.width, eps=NORM_EPS)


def _activation(spec: NetworkSpec) -> nn.Module:
    return nn.ReLU() if spec.kind == "resnet" else nn.GELU()
