r"""Networks: the two residual architectures of the paper, and the affine map.

Sketch Networks and Query Networks are made of the same parts (paper, fig. net_arch);
what goes in and what becomes of the output is not known here. A network is given by
a :class:`NetworkSpec` and its tensors, and nothing else; how they are learned is not
known here either: this is a network in evaluation mode, as a function of NumPy arrays.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias, TypeVar, cast, final, get_args

import numpy as np
from numpy.typing import NDArray

from sketchlearn.errors import FeatureMapError, quote
from sketchlearn.networks.layers import (
    NORM_EPS,
    Affine,
    Array,
    Gelu,
    Layer,
    LayerNorm,
    Relu,
    Residual,
    Scale,
    Sigmoid,
    Tanh,
    Windows,
    chain,
)
from sketchlearn.networks.quantized import QuantizedKind, quantized

__all__ = [
    "FrozenNetwork",
    "Head",
    "NetworkKind",
    "NetworkSpec",
    "frozen_tensors",
    "initial_tensors",
    "part_of_tensors",
    "spec_from_dict",
]

NetworkKind = Literal["linear", "ternary", "binary", "resnet", "transformer"]
Head = Literal["tanh", "sigmoid"]

Spec = TypeVar("Spec")
Shapes: TypeAlias = Iterable[tuple[str, tuple[int, ...]]]
"""Names and shapes of tensors, one by one: those of a forged size never end."""

_STATISTICS = ("weight", "bias", "running_mean", "running_var")
"""Tensors of a batch norm; a layer norm has the first two."""


@final
@dataclass(frozen=True)
class NetworkSpec:
    r"""Sizes and architecture of a network.

    * ``"linear"``: :math:`x \mapsto W x + b`; ``"ternary"`` and ``"binary"``: the same
      where a row of W has entries :math:`\{-a, 0, a\}` or :math:`\{0, a\}` only, so
      that it is a table of whole numbers (:mod:`sketchlearn.networks.quantized`);
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
    kind : {"linear", "ternary", "binary", "resnet", "transformer"}
        Architecture.
    depth, width : int
        Residual blocks and hidden units; both 0 for networks without hidden layers.
    head : {"tanh", "sigmoid"}, optional
        Applied to the output.
    windows : int
        The input is cut into so many windows of the same length; each goes through
        the same network, and their outputs stand side by side (paper, parallel
        sketching).

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
    windows: int = 1

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
        for name in ("n_inputs", "n_outputs", "depth", "width", "windows"):
            value = getattr(self, name)
            least = 0 if self.is_flat and name in ("depth", "width") else 1
            if type(value) is not int or not least <= value < 2**48:
                raise FeatureMapError(
                    f"{name} of a {self.kind} network must be a whole number from "
                    f"{least} to 2**48; got {quote(value)}."
                )
        if self.is_flat and (self.depth or self.width):
            raise FeatureMapError(
                f"a {self.kind} network has no hidden layers: leave depth and width at "
                f"0; got depth {self.depth} and width {self.width}."
            )
        if self.n_inputs % self.windows or self.n_outputs % self.windows:
            raise FeatureMapError(
                f"{self.windows} windows must divide the inputs and the outputs; got "
                f"{self.n_inputs} and {self.n_outputs}."
            )

    @property
    def is_flat(self) -> bool:
        """Whether it has no hidden layers: an affine map, and then the head."""
        return self.kind not in ("resnet", "transformer")

    @property
    def is_affine(self) -> bool:
        """Whether the mean of its outputs is its output for the mean of the inputs."""
        return self.is_flat and self.head is None

    @property
    def window(self) -> NetworkSpec:
        """What each window goes through."""
        n_in, n_out = self.n_inputs // self.windows, self.n_outputs // self.windows
        return replace(self, n_inputs=n_in, n_outputs=n_out, windows=1)

    def shapes(self, prefix: str = "") -> Shapes:
        """Tensors of each window, whose names begin with a prefix."""
        spec, start = self.window, f"{prefix}layers."
        if spec.is_flat:
            yield from _affine_shapes(f"{start}last", spec.n_inputs, spec.n_outputs)
            return
        width, norm = spec.width, _STATISTICS[: 4 if spec.kind == "resnet" else 2]
        yield from _affine_shapes(f"{start}first", spec.n_inputs, width)
        for index in range(spec.depth):
            body = f"{start}block{index}.body"
            yield from ((f"{body}.norm.{part}", (width,)) for part in norm)
            yield from _affine_shapes(f"{body}.inner", width, width)
            yield from _affine_shapes(f"{body}.outer", width, width)
        yield from ((f"{start}norm.{part}", (width,)) for part in norm)
        yield from _affine_shapes(f"{start}last", width, spec.n_outputs)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready fields; ``windows`` where there are several."""
        fields = asdict(self)
        if self.windows == 1:
            del fields["windows"]
        return fields

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
        kept = frozen_tensors(self.tensors, self.spec.shapes())
        if any((kept[name] < 0).any() for name in kept if name.endswith("_var")):
            raise FeatureMapError("running variances of a network are never negative.")
        if self.spec.kind in get_args(QuantizedKind):
            name = "layers.last.weight"
            kept[name] = quantized(kept[name], cast(QuantizedKind, self.spec.kind))
        object.__setattr__(self, "tensors", kept)

    def __call__(self, inputs: NDArray[np.floating]) -> Array:
        """(..., n_inputs) → (..., n_outputs), in float64."""
        return chain(self.layers, np.asarray(inputs, np.float64))

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """What is computed, in order."""
        if self.spec.windows > 1:
            return (Windows(self._one_window(), self.spec.windows),)
        return self._one_window()

    def _one_window(self) -> tuple[Layer, ...]:
        if self.spec.is_flat:
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
    shapes = dict(spec.shapes())
    for name, shape in shapes.items():
        layer, _, part = name.rpartition(".")
        if layer.endswith("norm"):
            tensors[name] = np.full(shape, part in ("weight", "running_var"))
        else:
            bound = shapes[f"{layer}.weight"][1] ** -0.5
            tensors[name] = rng.uniform(-bound, bound, shape)
    return {name: array.astype(np.float32) for name, array in tensors.items()}


def frozen_tensors(
    tensors: Mapping[str, NDArray[Any]], wanted: Shapes
) -> dict[str, NDArray[np.float32]]:
    """Read-only float32 copies, if they are the tensors that are wanted.

    The first that is missing ends it: what is wanted may be without end.
    """
    found, kept = {name: np.shape(a) for name, a in tensors.items()}, {}
    for name, shape in wanted:
        _require_shape(name, found.pop(name, "missing"), shape)
        kept[name] = np.array(tensors[name], np.float32)
        kept[name].flags.writeable = False
    for name, shape in found.items():
        _require_shape(name, shape, "no such tensor")
    return kept


def _require_shape(name: str, found: Any, wanted: Any) -> None:
    if found != wanted:
        raise FeatureMapError(
            f"the tensors do not fit the network: {quote(name)} has shape {found}, "
            f"expected {wanted}. Use the tensors and the spec of one weights file."
        )


def part_of_tensors(
    tensors: Mapping[str, NDArray[np.float32]], prefix: str
) -> dict[str, NDArray[np.float32]]:
    """The tensors whose names begin with a prefix, without it.

    Examples
    --------
    >>> part_of_tensors({"a.w": np.ones(1, np.float32)}, "a.")
    {'w': array([1.], dtype=float32)}
    """
    return {
        name.removeprefix(prefix): array
        for name, array in tensors.items()
        if name.startswith(prefix)
    }


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


def _affine_shapes(name: str, n_in: int, n_out: int) -> Shapes:
    return (f"{name}.weight", (n_out, n_in)), (f"{name}.bias", (n_out,))
