r"""Networks: the two residual architectures of the paper, and the affine map.

Sketch Networks and Query Networks are made of the same parts (paper, fig. net_arch);
what goes in and what becomes of the output is not known here. A network is given by
a :class:`NetworkSpec` and its tensors, and nothing else.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import prod, sqrt
from typing import Any, Literal, TypeVar, final, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from typing_extensions import override

from sketchlearn.errors import FeatureMapError

__all__ = [
    "Head",
    "Network",
    "NetworkKind",
    "NetworkSpec",
    "ResidualBlock",
    "build_network",
    "export_tensors",
    "import_tensors",
    "spec_from_dict",
    "spectral_bound",
]

NetworkKind = Literal["linear", "resnet", "transformer"]
Head = Literal["tanh", "sigmoid"]

Spec = TypeVar("Spec")

_GELU_SLOPE = 1.12891
"""The steepest slope of the GELU, at the square root of 2, rounded up."""

_COUNTER = "num_batches_tracked"


@final
@dataclass(frozen=True)
class NetworkSpec:
    r"""Sizes and architecture of a network.

    * ``"linear"``: :math:`x \mapsto W x + b`;
    * ``"resnet"`` and ``"transformer"``: with :math:`h_0 = W_0 x + b_0` and
      ``depth`` blocks of ``width`` hidden units,

      .. math::
          h_t = h_{t-1} + W'_t\, a(W_t\, n(h_{t-1}) + b_t) + b'_t, \qquad
          x \mapsto W\, a(n(h_{depth})) + b,

      where :math:`n` is a batch norm and :math:`a` the ReLU, or :math:`n` a layer
      norm and :math:`a` the GELU.

    Parameters
    ----------
    n_inputs, n_outputs : int
        Numbers that go in and come out.
    kind : {"linear", "resnet", "transformer"}
        Architecture.
    depth, width : int
        Residual blocks and hidden units; both 0 for ``"linear"``.
    head : {"tanh", "sigmoid"}, optional
        Applied to the output.

    Examples
    --------
    >>> NetworkSpec(8, 3, kind="resnet", depth=2, width=16).n_outputs
    3
    """

    n_inputs: int
    n_outputs: int
    kind: NetworkKind = "linear"
    depth: int = 0
    width: int = 0
    head: Head | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(NetworkKind):
            raise FeatureMapError(
                f"kind must be one of {', '.join(get_args(NetworkKind))}; got "
                f"{self.kind!r}."
            )
        if self.head is not None and self.head not in get_args(Head):
            raise FeatureMapError(
                f"head must be None, 'tanh' or 'sigmoid'; got {self.head!r}."
            )
        for name in ("n_inputs", "n_outputs", "depth", "width"):
            value = getattr(self, name)
            least = 0 if self.kind == "linear" and name in ("depth", "width") else 1
            if type(value) is not int or value < least:
                raise FeatureMapError(
                    f"{name} of a {self.kind} network must be a whole number >= "
                    f"{least}; got {value!r}."
                )
        if self.kind == "linear" and (self.depth or self.width):
            raise FeatureMapError(
                "a linear network has no hidden layers: leave depth and width at 0; "
                f"got depth {self.depth} and width {self.width}."
            )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready fields."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> NetworkSpec:
        """Undo :meth:`to_dict`; unknown fields are refused."""
        return spec_from_dict(cls, fields)


@final
class ResidualBlock(nn.Module):
    """A layer stack that adds to what it is given: x → x + body(x)."""

    def __init__(self, body: nn.Sequential) -> None:
        super().__init__()
        self.body = body

    @override
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """(n, width) → (n, width)."""
        result: torch.Tensor = hidden + self.body(hidden)
        return result


@final
class Network(nn.Module):
    """A network as :class:`NetworkSpec` describes it; made by :func:`build_network`.

    Parameters
    ----------
    spec : NetworkSpec
        What to build.
    generator : torch.Generator
        Source of the initial weights.
    """

    def __init__(self, spec: NetworkSpec, generator: torch.Generator) -> None:
        super().__init__()
        self.spec = spec
        layers: dict[str, nn.Module] = {}
        last = spec.n_inputs
        if spec.kind != "linear":
            layers["first"] = _affine(spec.n_inputs, spec.width, generator)
            for index in range(spec.depth):
                layers[f"block{index}"] = _block(spec, generator)
            layers["norm"], layers["activation"] = _norm(spec), _activation(spec)
            last = spec.width
        layers["last"] = _affine(last, spec.n_outputs, generator)
        if spec.head is not None:
            layers["head"] = nn.Tanh() if spec.head == "tanh" else nn.Sigmoid()
        self.layers = nn.Sequential(OrderedDict(layers))

    @override
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(..., n_inputs) → (..., n_outputs)."""
        flat = self.layers(inputs.reshape(-1, self.spec.n_inputs))
        result: torch.Tensor = flat.reshape(*inputs.shape[:-1], self.spec.n_outputs)
        return result


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
    return Network(spec, torch.Generator().manual_seed(seed))


def export_tensors(module: nn.Module) -> dict[str, NDArray[np.float32]]:
    """Weights and running statistics of a module, as copies, by name."""
    return {
        name: tensor.detach().cpu().numpy().astype(np.float32)
        for name, tensor in module.state_dict().items()
        if not name.endswith(_COUNTER)
    }


def import_tensors(module: nn.Module, tensors: Mapping[str, NDArray[Any]]) -> None:
    """Copy tensors made by :func:`export_tensors` into a module of the same shape."""
    wanted = {name: array.shape for name, array in export_tensors(module).items()}
    found = {name: array.shape for name, array in tensors.items()}
    for name in sorted({*wanted, *found}):
        if wanted.get(name) != found.get(name):
            raise FeatureMapError(
                f"the tensors do not fit the network: {name!r} has shape "
                f"{found.get(name, 'missing')}, expected "
                f"{wanted.get(name, 'no such tensor')}. Use the tensors and the spec "
                "of one weights file."
            )
    state = {name: torch.from_numpy(np.array(a)) for name, a in tensors.items()}
    module.load_state_dict(state, strict=False)


def spectral_bound(module: nn.Module) -> float:
    r"""A Lipschitz constant of a network, from the spectral norms of its layers.

    .. math::
        \rho = \prod_l \rho_l, \qquad \rho_l = \lVert W_l\rVert_2
        \text{ or, for a residual block, } 1 + \rho_{body} .

    * batch norm, in evaluation mode: :math:`\max_j |\gamma_j| / \sqrt{v_j +
      \epsilon}`;
    * layer norm: :math:`\max_j |\gamma_j| / \sqrt\epsilon`. Without :math:`\epsilon`
      it has no Lipschitz constant, since inputs close to a constant vector are
      magnified without limit; with :math:`\epsilon = 10^{-5}` it is 316, so bounds
      of transformer networks are true and rarely useful;
    * ReLU and tanh: 1, sigmoid: 1/4, GELU: 1.129.

    Parameters
    ----------
    module : nn.Module
        A network of this library, or a layer of one, in evaluation mode.

    Returns
    -------
    float
        A number :math:`\rho` with :math:`\lVert f(x) - f(y)\rVert \le \rho \lVert x
        - y\rVert` up to rounding.

    References
    ----------
    Paper, generalization bounds (:math:`\rho_\psi`).

    Examples
    --------
    >>> layer = nn.Linear(2, 2)
    >>> _ = layer.weight.data.copy_(torch.tensor([[3.0, 0.0], [0.0, 1.0]]))
    >>> round(spectral_bound(nn.Sequential(layer, nn.Sigmoid())), 9)
    0.75
    """
    match module:
        case Network():
            return spectral_bound(module.layers)
        case nn.Sequential():
            return prod(spectral_bound(layer) for layer in module)
        case ResidualBlock():
            return 1.0 + spectral_bound(module.body)
        case nn.Linear():
            return _spectral_norm(module.weight.detach().double())
        case nn.BatchNorm1d():
            return _batch_norm_slope(module)
        case nn.LayerNorm():
            return float(module.weight.detach().abs().max()) / sqrt(module.eps)
        case nn.GELU():
            return _GELU_SLOPE
        case nn.ReLU() | nn.Tanh():
            return 1.0
        case nn.Sigmoid():
            return 0.25
    raise FeatureMapError(
        f"no Lipschitz constant is known for a layer of type {type(module).__name__}. "
        "Pass a network made by build_network."
    )


def spec_from_dict(cls: type[Spec], found: Mapping[str, Any]) -> Spec:
    """A dataclass from its fields; unknown and missing ones are refused."""
    known = set(inspect.signature(cls).parameters)
    unknown = sorted(set(found) - known)
    if unknown:
        raise FeatureMapError(
            f"{cls.__name__} has no field {', '.join(map(repr, unknown))}; its fields "
            f"are {', '.join(sorted(known))}. A newer release may have written this."
        )
    try:
        return cls(**found)
    except TypeError as error:
        raise FeatureMapError(f"{cls.__name__} has wrong fields: {error}.") from error


def _affine(n_inputs: int, n_outputs: int, generator: torch.Generator) -> nn.Linear:
    # Made without numbers first: its own initialisation would use the global state.
    layer = nn.Linear(n_inputs, n_outputs, device="meta").to_empty(device="cpu")
    bound = n_inputs**-0.5
    with torch.no_grad():
        layer.weight.uniform_(-bound, bound, generator=generator)
        layer.bias.uniform_(-bound, bound, generator=generator)
    return layer


def _block(spec: NetworkSpec, generator: torch.Generator) -> ResidualBlock:
    layers: dict[str, nn.Module] = {
        "norm": _norm(spec),
        "inner": _affine(spec.width, spec.width, generator),
        "activation": _activation(spec),
        "outer": _affine(spec.width, spec.width, generator),
    }
    return ResidualBlock(nn.Sequential(OrderedDict(layers)))


def _norm(spec: NetworkSpec) -> nn.Module:
    resnet = spec.kind == "resnet"
    return nn.BatchNorm1d(spec.width) if resnet else nn.LayerNorm(spec.width)


def _activation(spec: NetworkSpec) -> nn.Module:
    return nn.ReLU() if spec.kind == "resnet" else nn.GELU()


def _spectral_norm(matrix: torch.Tensor) -> float:
    """Through the smaller Gram matrix: weights may have twenty thousand columns."""
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    largest = torch.linalg.eigvalsh(wide @ wide.T)[-1]
    return sqrt(max(float(largest), 0.0))


def _batch_norm_slope(layer: nn.BatchNorm1d) -> float:
    if layer.training or layer.running_var is None:
        raise FeatureMapError(
            "a batch norm in training mode looks at other rows and has no Lipschitz "
            "constant. Call .eval() on the network first."
        )
    spread = torch.sqrt(layer.running_var.double() + layer.eps)
    return float((layer.weight.detach().double().abs() / spread).max())
