r"""The Sketch Network φ_ω: a learned feature map, frozen.

A map holds the numbers of a network and not the network: nothing of it can be in
training mode, and a batch norm is the affine function of its running statistics. Where
the weights come with the package the description names them, so that a sketch file is
enough to decode; other weights are kept in the map's own file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isqrt, sqrt
from typing import Any, ClassVar, Literal, final, get_args

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.arguments import require_bound, require_origin
from sketchlearn.features.base import (
    AbstractFeatureMap,
    require_in_range,
    sum_features,
)
from sketchlearn.features.cost import LOOP, Cost, Declared
from sketchlearn.features.fields import (
    MODEL,
    NETWORK,
    NUMBER,
    ORIGIN,
    WORD,
    Field,
    or_none,
)
from sketchlearn.features.fixed_point import FixedPointNetwork
from sketchlearn.features.lattice import RowLattice
from sketchlearn.features.scaling import Origin, Scaling
from sketchlearn.files.models import packaged_weights
from sketchlearn.files.weights import tensors_digest
from sketchlearn.networks.forward import (
    FrozenNetwork,
    NetworkSpec,
    part_of_tensors,
    spec_from_dict,
)

__all__ = [
    "FEATURE_PREFIX",
    "LAST_BIAS",
    "LAST_WEIGHT",
    "Inputs",
    "ModelReference",
    "NetworkFeatures",
    "lower_products",
    "network_digest",
    "unchanged_model",
]
__public__ = ["NetworkFeatures"]

Inputs = Literal["rows", "outer"]

FEATURE_PREFIX = "feature."
"""Names of the Sketch Network's tensors in a weights file begin like this."""

LAST_WEIGHT, LAST_BIAS = "layers.last.weight", "layers.last.bias"
"""Tensors with a row for each output, or for each output of a window."""

_NETWORK_ROW_BITS = 20
"""Scaled rows are rounded to ``2**-20``."""

_NETWORK_LIMIT, _OUTER_NETWORK_LIMIT = 2.0**40, 2.0**30


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


def unchanged_model(
    model: ModelReference | None, tensors: Mapping[str, NDArray[np.float32]]
) -> ModelReference | None:
    """The weights of the package whose Sketch Network these tensors still are.

    Parameters
    ----------
    model : ModelReference, optional
        What they were before they may have been trained on.
    tensors : mapping of arrays
        Of the Sketch Network.
    """
    if model is None:
        return None
    packaged = _packaged_tensors(model, len(tensors[LAST_BIAS]))
    is_same = all(np.array_equal(packaged[n], array) for n, array in tensors.items())
    return model if is_same else None


def _packaged_tensors(
    model: ModelReference, n_outputs: int
) -> dict[str, NDArray[np.float32]]:
    """Tensors of a Sketch Network of the package; of its first outputs only.

    The networks of all sizes of a nested model are one file.
    """
    weights = packaged_weights(model.name, checksum=model.checksum)
    found = part_of_tensors(weights.tensors, FEATURE_PREFIX)
    cut = {
        name: found[name][:n_outputs]
        for name in (LAST_WEIGHT, LAST_BIAS)
        if name in found
    }
    return found | cut


@final
class NetworkFeatures(AbstractFeatureMap):
    r"""Features computed by a trained network.

    .. math::
        \varphi_\omega(x) = f_\omega(x) \quad\text{or}\quad
        \varphi_\omega(x) = f_\omega(\mathrm{vec}_{LT}(x x^\top))

    Parameters
    ----------
    network : NetworkSpec or mapping
        The network :math:`f_\omega`, or the fields of its spec.
    stored : mapping of arrays, optional
        Its tensors, as :func:`~sketchlearn.networks.forward.initial_tensors` gives
        them. May be left out for weights that come with the package.
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
        What :func:`~sketchlearn.files.weights.tensors_digest` must give for the
        tensors; checked unless empty.
    scaling : Scaling, optional
        Applied to rows first.

    Notes
    -----
    With a head every feature is within [-1, 1], so the norm is at most
    :math:`\sqrt m`. Without one there is no bound: clip the map to release it.
    Weights and activations are rounded to whole numbers before each product; see
    :mod:`sketchlearn.features.fixed_point`. Scaled rows beyond :math:`2^{20}`, or
    :math:`2^{10}` for outer products, are refused.

    Examples
    --------
    >>> from sketchlearn.networks.forward import initial_tensors
    >>> spec = NetworkSpec(3, 4, head="tanh")
    >>> phi = NetworkFeatures(spec, initial_tensors(spec, seed=0))
    >>> phi(np.zeros((2, 3))).shape, phi.norm_bound
    ((2, 4), 2.0000000000000018)
    """

    kind: ClassVar[str] = "network"
    fields: ClassVar[Mapping[str, Field]] = {
        "network": NETWORK,
        "inputs": WORD,
        "value_bound": or_none(NUMBER),
        "origin": ORIGIN,
        "model": or_none(MODEL),
        "digest": WORD,
    }
    stored: ClassVar[None] = None

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
        self.require_affordable(network=network.to_dict(), inputs=inputs)
        super().__init__(
            n_features=_row_width(network, inputs),
            sketch_size=network.n_outputs,
            scaling=scaling,
            value_bound=_require_bound(network, value_bound),
            norm_bound=None if network.head is None else _head_norm(network.n_outputs),
        )
        self.network, self.inputs, self.model = network, inputs, model
        self._origin = require_origin(origin)
        self._tensors = _own_tensors(stored, model, network.window.n_outputs)
        self.digest = tensors_digest(self._tensors)
        if digest not in ("", self.digest):
            raise FeatureMapError(
                f"these tensors have digest {self.digest[:12]}.., and the map "
                f"{digest[:12]}... Load the map from its own file."
            )
        frozen = FrozenNetwork(network, self._tensors)
        self._network = FixedPointNetwork(frozen.layers)
        limit = _OUTER_NETWORK_LIMIT if inputs == "outer" else _NETWORK_LIMIT
        self._lattice = RowLattice(scaling, _NETWORK_ROW_BITS, limit)

    @property
    @override
    def stored_weights(self) -> tuple[str, ...]:
        return tuple(sorted(self._tensors)) if self.model is None else ()

    @classmethod
    @override
    def cost_of(cls, given: Declared) -> Cost:
        sizes = given["network"]
        n_in, n_out = sizes["n_inputs"], sizes["n_outputs"]
        windows = max(sizes.get("windows", 1), 1)
        depth, width = sizes.get("depth", 0), windows * sizes.get("width", 0)
        weights = width * (n_in + n_out + 2 * depth * width) if width else n_in * n_out
        weights //= windows
        tensors = 4 + 8 * depth
        d = n_in
        if given.fields.get("inputs", "rows") == "outer":
            d = (isqrt(8 * n_in + 1) - 1) // 2
        numbers = 10 * weights + 256 * tensors + 8 * (n_in + width + n_out)
        return Cost(d, n_out, numbers, 100 * weights + 16 * LOOP * tensors)

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

    @property
    @override
    def widest(self) -> int:
        hidden = self.network.width * self.network.windows
        return self.network.n_inputs + hidden + self.sketch_size

    @override
    def evaluate(
        self, rows: NDArray[np.floating], first_row: int = 0
    ) -> NDArray[np.float64]:
        x = self._lattice.round(rows, first_row)[0] * 2.0**-_NETWORK_ROW_BITS
        outputs = self._network(lower_products(x) if self.inputs == "outer" else x)
        step = 2.0**self.frac_bits
        features: NDArray[np.float64] = np.rint(outputs * step) / step
        require_in_range(features, self.value_bound, first_row)
        return features

    @override
    def batch_sum(self, rows: NDArray[np.floating], first_row: int = 0) -> Int128Array:
        return sum_features(self, rows, first_row)


def _head_norm(n_outputs: int) -> float:
    """Largest norm of numbers within [-1, 1]."""
    return sqrt(n_outputs) * (1 + 2.0**-50)


def lower_products(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    r"""The products :math:`x_p x_q`, :math:`q \le p`: (..., d) → (..., d(d+1)/2)."""
    i, j = np.tril_indices(rows.shape[-1])
    products: NDArray[np.float64] = rows[..., i] * rows[..., j]
    return products


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
        return (
            1024.0 if value_bound is None else require_bound("value_bound", value_bound)
        )
    if value_bound is not None:
        raise FeatureMapError(
            f"a {network.head} head bounds every feature by 1: leave value_bound out; "
            f"got {value_bound!r}."
        )
    return 1.0


def _own_tensors(
    stored: Mapping[str, NDArray[Any]] | None,
    model: ModelReference | None,
    n_outputs: int,
) -> dict[str, NDArray[np.float32]]:
    """Float32 copies of the tensors given, or of those of the package."""
    if not stored:
        if model is None:
            raise FeatureMapError(
                "a learned map needs its tensors (stored=) or the packaged model they "
                "belong to (model=)."
            )
        stored = _packaged_tensors(model, n_outputs)
    # Adding 0 turns -0.0 into 0.0, as fingerprints and files do.
    return {n: np.array(a, np.float32) + np.float32(0) for n, a in stored.items()}
