r"""Networks: the two residual architectures of the paper, and the affine map.

Sketch Networks and Query Networks are made of the same parts (paper, fig. net_arch);
what goes in and what becomes of the output is not known here. A network is given by
a :class:`NetworkSpec` and its tensors, and nothing else; how they are learned is not
known here either: this is a network in evaluation mode, as a function of NumPy arrays.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from math import prod, sqrt
from typing import Any, Literal, TypeAlias, TypeVar, final, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf, expit

from sketchlearn.errors import FeatureMapError, quote

__all__ = [
    "Affine",
    "FrozenNetwork",
    "Gelu",
    "Head",
    "Layer",
    "LayerNorm",
    "NetworkKind",
    "NetworkSpec",
    "Relu",
    "Residual",
    "Scale",
    "Sigmoid",
    "Tanh",
    "frozen_tensors",
    "initial_tensors",
    "spec_from_dict",
    "spectral_bound",
]

NetworkKind = Literal["linear", "resnet", "transformer"]
Head = Literal["tanh", "sigmoid"]

Spec = TypeVar("Spec")
Array: TypeAlias = NDArray[np.float64]
Shapes: TypeAlias = Mapping[str, tuple[int, ...]]

NORM_EPS = 1e-5
"""Added to a variance under the root, in both kinds of norm."""

_GELU_SLOPE = 1.12891
"""The steepest slope of the GELU, at the square root of 2, rounded up."""

_STATISTICS = ("weight", "bias", "running_mean", "running_var")


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
                f"{quote(self.kind)}."
            )
        if self.head is not None and self.head not in get_args(Head):
            raise FeatureMapError(
                f"head must be None, 'tanh' or 'sigmoid'; got {quote(self.head)}."
            )
        for name in ("n_inputs", "n_outputs", "depth", "width"):
            value = getattr(self, name)
            least = 0 if self.kind == "linear" and name in ("depth", "width") else 1
            if type(value) is not int or value < least:
                raise FeatureMapError(
                    f"{name} of a {self.kind} network must be a whole number >= "
                    f"{least}; got {quote(value)}."
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
@dataclass(frozen=True, eq=False)
class FrozenNetwork:
    """A network as :class:`NetworkSpec` describes it, with its weights.

    Nothing of it can change or be in training mode: a batch norm is the affine
    function of its running statistics.

    Parameters
    ----------
    spec : NetworkSpec
        What it computes.
    tensors : mapping of arrays
        Its weights by name, as in a weights file. Kept as read-only float32 copies.

    Examples
    --------
    >>> spec = NetworkSpec(8, 3, head="tanh")
    >>> network = FrozenNetwork(spec, initial_tensors(spec, seed=0))
    >>> network(np.zeros((5, 4, 8))).shape
    (5, 4, 3)
    """

    spec: NetworkSpec
    tensors: Mapping[str, NDArray[np.float32]]

    def __post_init__(self) -> None:
        if self.spec.depth > len(self.tensors):  # before as many names are written
            raise FeatureMapError(
                f"the tensors do not fit the network: {len(self.tensors)} are too few "
                f"for {self.spec.depth} blocks. Use the tensors and the spec of one "
                "weights file."
            )
        kept = frozen_tensors(self.tensors, _shapes(self.spec))
        object.__setattr__(self, "tensors", kept)

    def __call__(self, inputs: NDArray[np.floating]) -> Array:
        """(..., n_inputs) → (..., n_outputs), in float64."""
        return _chain(self.layers, np.asarray(inputs, np.float64))

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """What is computed, in order."""
        if self.spec.kind == "linear":
            return (self._affine("last"), *self._head())
        blocks = [self._block(f"block{index}") for index in range(self.spec.depth)]
        last = (self._norm("norm"), self._activation(), self._affine("last"))
        return (self._affine("first"), *blocks, *last, *self._head())

    def _block(self, name: str) -> Residual:
        inner = self._norm(f"{name}.body.norm"), self._affine(f"{name}.body.inner")
        outer = self._activation(), self._affine(f"{name}.body.outer")
        return Residual((*inner, *outer))

    def _affine(self, name: str) -> Affine:
        return Affine(self._array(f"{name}.weight"), self._array(f"{name}.bias"))

    def _norm(self, name: str) -> Scale | LayerNorm:
        gain, shift = self._array(f"{name}.weight"), self._array(f"{name}.bias")
        if self.spec.kind == "transformer":
            return LayerNorm(gain, shift)
        gain = gain / np.sqrt(self._array(f"{name}.running_var") + NORM_EPS)
        return Scale(gain, shift - gain * self._array(f"{name}.running_mean"))

    def _activation(self) -> Relu | Gelu:
        return Relu() if self.spec.kind == "resnet" else Gelu()

    def _head(self) -> tuple[Layer, ...]:
        if self.spec.head is None:
            return ()
        return (Tanh(),) if self.spec.head == "tanh" else (Sigmoid(),)

    def _array(self, name: str) -> Array:
        array = self.tensors[f"layers.{name}"].astype(np.float64)
        array.flags.writeable = False
        return array


@final
@dataclass(frozen=True, eq=False)
class Affine:
    """x → W x + b."""

    weight: Array  # (n_out, n_in)
    bias: Array  # (n_out,)

    def __call__(self, x: Array) -> Array:
        """(..., n_in) → (..., n_out)."""
        result: Array = x @ self.weight.T + self.bias
        return result


@final
@dataclass(frozen=True, eq=False)
class Scale:
    """x → gain x + shift, number by number: a batch norm of fixed statistics."""

    gain: Array
    shift: Array

    def __call__(self, x: Array) -> Array:
        """(..., n) → (..., n)."""
        return x * self.gain + self.shift


@final
@dataclass(frozen=True, eq=False)
class LayerNorm:
    """A vector with its mean taken off and its spread made one, then scaled."""

    gain: Array
    shift: Array
    eps: float = NORM_EPS

    def __call__(self, x: Array) -> Array:
        """(..., n) → (..., n)."""
        away = x - x.mean(axis=-1, keepdims=True)
        variance = np.square(away).mean(axis=-1, keepdims=True)
        result: Array = away / np.sqrt(variance + self.eps) * self.gain + self.shift
        return result


@final
@dataclass(frozen=True)
class Relu:
    """x → max(x, 0)."""

    def __call__(self, x: Array) -> Array:
        """Number by number."""
        return np.maximum(x, 0.0)


@final
@dataclass(frozen=True)
class Gelu:
    """x → x times the share of a standard normal law below x."""

    def __call__(self, x: Array) -> Array:
        """Number by number."""
        result: Array = 0.5 * x * (1 + erf(x / sqrt(2)))
        return result


@final
@dataclass(frozen=True)
class Tanh:
    """The hyperbolic tangent."""

    def __call__(self, x: Array) -> Array:
        """Number by number."""
        return np.tanh(x)


@final
@dataclass(frozen=True)
class Sigmoid:
    """x → 1 / (1 + exp(-x))."""

    def __call__(self, x: Array) -> Array:
        """Number by number."""
        result: Array = expit(x)
        return result


@final
@dataclass(frozen=True, eq=False)
class Residual:
    """Layers that add to what they are given: x → x + body(x)."""

    body: tuple[Layer, ...]

    def __call__(self, x: Array) -> Array:
        """(..., width) → (..., width)."""
        return x + _chain(self.body, x)


Layer: TypeAlias = Affine | Scale | LayerNorm | Relu | Gelu | Tanh | Sigmoid | Residual


def initial_tensors(spec: NetworkSpec, seed: int = 0) -> dict[str, NDArray[np.float32]]:
    r"""Fresh weights of a network, uniform in :math:`\pm 1/\sqrt{fan\ in}`.

    Parameters
    ----------
    spec : NetworkSpec
        What they are for.
    seed : int
        Same seed, same weights.

    Examples
    --------
    >>> initial_tensors(NetworkSpec(9, 2))["layers.last.weight"].shape
    (2, 9)
    """
    rng, tensors = np.random.default_rng(seed), {}
    shapes = _shapes(spec)
    for name, shape in shapes.items():
        layer, _, part = name.rpartition(".")
        if layer.endswith("norm"):
            tensors[name] = np.full(shape, part in ("weight", "running_var"))
        else:
            bound = shapes[f"{layer}.weight"][1] ** -0.5
            tensors[name] = rng.uniform(-bound, bound, shape)
    return {name: array.astype(np.float32) for name, array in tensors.items()}


def spectral_bound(network: FrozenNetwork | Layer) -> float:
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
    network : FrozenNetwork or layer
        A network, or a layer of one.

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
    >>> layer = Affine(np.diag([3.0, 1.0]), np.zeros(2))
    >>> round(spectral_bound(layer) * spectral_bound(Sigmoid()), 9)
    0.75
    """
    match network:
        case FrozenNetwork():
            return prod(spectral_bound(layer) for layer in network.layers)
        case Residual():
            return 1.0 + prod(spectral_bound(layer) for layer in network.body)
        case Affine():
            return _spectral_norm(network.weight)
        case Scale():
            return float(np.abs(network.gain).max())
        case LayerNorm():
            return float(np.abs(network.gain).max()) / sqrt(network.eps)
        case Gelu():
            return _GELU_SLOPE
        case Relu() | Tanh():
            return 1.0
        case Sigmoid():
            return 0.25
    raise FeatureMapError(
        f"no Lipschitz constant is known for a layer of type {type(network).__name__}. "
        "Pass a FrozenNetwork."
    )


def frozen_tensors(
    tensors: Mapping[str, NDArray[Any]], wanted: Shapes
) -> dict[str, NDArray[np.float32]]:
    """Read-only float32 copies, if they are the tensors that are wanted."""
    found = {name: np.shape(array) for name, array in tensors.items()}
    for name in sorted({*wanted, *found}):
        if wanted.get(name) != found.get(name):
            raise FeatureMapError(
                f"the tensors do not fit the network: {name!r} has shape "
                f"{found.get(name, 'missing')}, expected "
                f"{wanted.get(name, 'no such tensor')}. Use the tensors and the spec "
                "of one weights file."
            )
    kept = {name: np.array(tensors[name], np.float32) for name in wanted}
    for array in kept.values():
        array.flags.writeable = False
    return kept


def spec_from_dict(cls: type[Spec], found: Mapping[str, Any]) -> Spec:
    """A dataclass from its fields; unknown and missing ones are refused."""
    known = set(inspect.signature(cls).parameters)
    unknown = sorted(set(found) - known)
    if unknown:
        raise FeatureMapError(
            f"{cls.__name__} has no field {', '.join(map(quote, unknown[:8]))}; its "
            f"fields are {', '.join(sorted(known))}. A newer release may have written "
            "this."
        )
    try:
        return cls(**found)
    except TypeError as error:
        raise FeatureMapError(f"{cls.__name__} has wrong fields: {error}.") from error


def _chain(layers: tuple[Layer, ...], x: Array) -> Array:
    for layer in layers:
        x = layer(x)
    return x


def _shapes(spec: NetworkSpec) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors of a network by name."""
    if spec.kind == "linear":
        return _affine_shapes("layers.last", spec.n_inputs, spec.n_outputs)
    width = spec.width
    shapes = _affine_shapes("layers.first", spec.n_inputs, width)
    for index in range(spec.depth):
        body = f"layers.block{index}.body"
        shapes |= _norm_shapes(f"{body}.norm", spec)
        shapes |= _affine_shapes(f"{body}.inner", width, width)
        shapes |= _affine_shapes(f"{body}.outer", width, width)
    shapes |= _norm_shapes("layers.norm", spec)
    return shapes | _affine_shapes("layers.last", width, spec.n_outputs)


def _affine_shapes(name: str, n_in: int, n_out: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (n_out, n_in), f"{name}.bias": (n_out,)}


def _norm_shapes(name: str, spec: NetworkSpec) -> dict[str, tuple[int, ...]]:
    parts = _STATISTICS if spec.kind == "resnet" else _STATISTICS[:2]
    return {f"{name}.{part}": (spec.width,) for part in parts}


def _spectral_norm(matrix: Array) -> float:
    """Through the smaller Gram matrix: weights may have twenty thousand columns."""
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    return sqrt(max(float(np.linalg.eigvalsh(wide @ wide.T)[-1]), 0.0))
