r"""The Sketch Network φ_ω: a learned feature map, frozen.

A map holds the numbers of a network and not the network: nothing of it can be in
training mode, and a batch norm is the affine function of its running statistics. Where
the weights come with the package the description names them, so that a sketch file is
enough to decode; other weights are kept in the map's own file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from math import isqrt, sqrt
from typing import Any, ClassVar, Literal, final, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional
from typing_extensions import override

from sketchlearn.errors import FeatureMapError
from sketchlearn.features.base import require_in_range
from sketchlearn.features.tensor import (
    AbstractTensorFeatures,
    scaled_float32,
    stable_columns,
)
from sketchlearn.networks import (
    Network,
    NetworkSpec,
    ResidualBlock,
    build_network,
    import_tensors,
    spec_from_dict,
)
from sketchlearn.scaling import Origin, Scaling
from sketchlearn.weights import packaged_weights, tensors_digest

__all__ = [
    "FEATURE_PREFIX",
    "Inputs",
    "ModelReference",
    "NetworkFeatures",
    "lower_products",
    "network_digest",
]

Inputs = Literal["rows", "outer"]

FEATURE_PREFIX = "feature."
"""Names of the Sketch Network's tensors in a weights file begin like this."""

_Step = Callable[[torch.Tensor], torch.Tensor]


@final
@dataclass(frozen=True)
class ModelReference:
    """Which weights of the package a map uses.

    Parameters
    ----------
    name : str
        As in ``list_models``.
    checksum : str
        SHA-256 of the file.
    """

    name: str
    checksum: str


@final
class NetworkFeatures(AbstractTensorFeatures):
    r"""Features computed by a trained network.

    .. math::
        \varphi_\omega(x) = f_\omega(x) \quad\text{or}\quad
        \varphi_\omega(x) = f_\omega(\mathrm{vec}_{LT}(x x^\top))

    Parameters
    ----------
    network : NetworkSpec or mapping
        The network :math:`f_\omega`, or the fields of its spec.
    stored : mapping of arrays, optional
        Its tensors, as :func:`~sketchlearn.networks.export_tensors` gives them. May be
        left out for weights that come with the package.
    inputs : {"rows", "outer"}
        What goes into the network: the row, or the lower triangle of its products,
        ordered row by row (paper, compressive PCA).
    value_bound : float, optional
        No feature may be larger in magnitude: a row beyond it is an error. 1024 by
        default; a network with a head has the bound 1 and takes no other.
    origin : {"declared", "data"}
        ``"data"`` if the weights were trained on rows that must stay private: such a
        map keeps a trace of them.
    model : ModelReference or mapping, optional
        The weights of the package these are.
    digest : str
        What :func:`~sketchlearn.weights.tensors_digest` must give for the tensors;
        checked unless empty.
    scaling : Scaling, optional
        Applied to rows first.

    Notes
    -----
    With a head every feature is within [-1, 1], so the norm is at most
    :math:`\sqrt m`. Without one there is no bound: clip the map to release it.

    Examples
    --------
    >>> from sketchlearn.networks import export_tensors
    >>> spec = NetworkSpec(3, 4, head="tanh")
    >>> phi = NetworkFeatures(spec, export_tensors(build_network(spec)))
    >>> phi(np.zeros((2, 3))).shape, phi.norm_bound
    ((2, 4), 2.0)
    """

    kind: ClassVar[str] = "network"

    def __init__(
        self,
        network: NetworkSpec | Mapping[str, Any],
        stored: Mapping[str, NDArray[Any]] | None = None,
        *,
        inputs: Inputs = "rows",
        value_bound: float | None = None,
        origin: Origin = "declared",
        model: ModelReference | Mapping[str, str] | None = None,
        digest: str = "",
        scaling: Scaling | None = None,
    ) -> None:
        if isinstance(network, Mapping):
            network = NetworkSpec.from_dict(network)
        if isinstance(model, Mapping):
            model = spec_from_dict(ModelReference, model)
        if origin not in get_args(Origin):
            raise FeatureMapError(
                f"origin must be 'declared' or 'data'; got {origin!r}."
            )
        super().__init__(
            n_features=_row_width(network, inputs),
            sketch_size=network.n_outputs,
            scaling=scaling,
            value_bound=_require_bound(network, value_bound),
            norm_bound=None if network.head is None else sqrt(network.n_outputs),
        )
        self.network, self.inputs, self.model = network, inputs, model
        self._origin: Origin = origin
        self._tensors = _own_tensors(stored, model)
        self.digest = tensors_digest(self._tensors)
        if digest not in ("", self.digest):
            raise FeatureMapError(
                f"these tensors have digest {self.digest[:12]}.., and the map "
                f"{digest[:12]}... Load the map from its own file."
            )
        module = build_network(network)
        import_tensors(module, self._tensors)
        self._step = _frozen_step(module.eval())

    @property
    @override
    def stored_weights(self) -> tuple[str, ...]:
        return tuple(sorted(self._tensors)) if self.model is None else ()

    @property
    @override
    def origin(self) -> str:
        scaled = self.scaling is not None and self.scaling.origin == "data"
        return "data" if scaled else self._origin

    @override
    def describe(self) -> dict[str, Any]:
        return {
            "network": self.network.to_dict(),
            "inputs": self.inputs,
            "value_bound": None if self.network.head else self.value_bound,
            "origin": self._origin,
            "model": None if self.model is None else asdict(self.model),
            "digest": self.digest,
        }

    @override
    def weights(self) -> dict[str, NDArray[Any]]:
        return dict(self._tensors)

    @override
    def evaluate_tensor(
        self, rows: NDArray[np.floating], first_row: int
    ) -> torch.Tensor:
        x = scaled_float32(rows, self.scaling, first_row)
        features = self._step(lower_products(x) if self.inputs == "outer" else x)
        require_in_range(features.numpy(), self.value_bound, first_row)
        return features


def lower_products(rows: torch.Tensor) -> torch.Tensor:
    r"""The products :math:`x_p x_q`, :math:`q \le p`: (..., d) → (..., d(d+1)/2)."""
    i, j = torch.tril_indices(rows.shape[-1], rows.shape[-1])
    return rows[..., i] * rows[..., j]


def network_digest(description: Mapping[str, Any]) -> str:
    """Digest of the network in a map's description, clipped or not, else ``""``."""
    if description.get("kind") == "clipped":
        return network_digest(description["inner"])
    return str(description["digest"]) if description.get("kind") == "network" else ""


def _row_width(network: NetworkSpec, inputs: Inputs) -> int:
    if inputs not in get_args(Inputs):
        raise FeatureMapError(f"inputs must be 'rows' or 'outer'; got {inputs!r}.")
    if inputs == "rows":
        return network.n_inputs
    width = (isqrt(8 * network.n_inputs + 1) - 1) // 2
    if width * (width + 1) // 2 != network.n_inputs:
        raise FeatureMapError(
            "a network of outer products takes d (d + 1) / 2 numbers for rows of d; "
            f"got a network of {network.n_inputs}, and {width * (width + 1) // 2} "
            f"would fit rows of {width}."
        )
    return width


def _require_bound(network: NetworkSpec, value_bound: float | None) -> float:
    if network.head is None:
        bound = 1024.0 if value_bound is None else value_bound
        if isinstance(bound, bool) or not 0 < bound < float("inf"):
            raise FeatureMapError(
                f"value_bound must be a positive finite number; got {value_bound!r}."
            )
        return float(bound)
    if value_bound is not None:
        raise FeatureMapError(
            f"a {network.head} head bounds every feature by 1: leave value_bound out; "
            f"got {value_bound!r}."
        )
    return 1.0


def _own_tensors(
    stored: Mapping[str, NDArray[Any]] | None, model: ModelReference | None
) -> dict[str, NDArray[np.float32]]:
    """Float32 copies of the tensors given, or of those of the package."""
    if not stored:
        if model is None:
            raise FeatureMapError(
                "a learned map needs its tensors (stored=) or the packaged model they "
                "belong to (model=)."
            )
        packaged = packaged_weights(model.name, checksum=model.checksum).tensors
        stored = {
            name.removeprefix(FEATURE_PREFIX): array
            for name, array in packaged.items()
            if name.startswith(FEATURE_PREFIX)
        }
    # Adding 0 turns -0.0 into 0.0, as fingerprints and files do.
    return {n: np.array(a, np.float32) + np.float32(0) for n, a in stored.items()}


def _frozen_step(module: nn.Module) -> _Step:
    """What a module in evaluation mode computes, with the same bits in every block."""
    match module:
        case Network():
            return _frozen_step(module.layers)
        case nn.Sequential():
            return _chain([_frozen_step(layer) for layer in module])
        case ResidualBlock():
            body = _frozen_step(module.body)
            return lambda x: x + body(x)
        case nn.Linear():
            return _affine_step(module)
        case nn.BatchNorm1d():
            return _batch_norm_step(module)
        case nn.LayerNorm():
            gain, shift = module.weight.detach(), module.bias.detach()
            shape, eps = module.normalized_shape, module.eps
            return lambda x: functional.layer_norm(x, shape, gain, shift, eps)
        case nn.ReLU():
            return torch.relu
        case nn.GELU():
            return functional.gelu
        case nn.Tanh():
            return lambda x: torch.tanh(x).clamp_(-1.0, 1.0)
        case nn.Sigmoid():
            return lambda x: torch.sigmoid(x).clamp_(0.0, 1.0)
    raise AssertionError(f"networks have no {type(module).__name__}")


def _chain(steps: list[_Step]) -> _Step:
    def run(x: torch.Tensor) -> torch.Tensor:
        for step in steps:
            x = step(x)
        return x

    return run


def _affine_step(layer: nn.Linear) -> _Step:
    padded = stable_columns(layer.weight.detach().numpy().T)
    bias, size = layer.bias.detach(), layer.out_features
    return lambda x: (x @ padded)[:, :size] + bias


def _batch_norm_step(layer: nn.BatchNorm1d) -> _Step:
    assert layer.running_var is not None
    assert layer.running_mean is not None
    gain = layer.weight.detach() / torch.sqrt(layer.running_var + layer.eps)
    shift = layer.bias.detach() - gain * layer.running_mean
    return lambda x: x * gain + shift
