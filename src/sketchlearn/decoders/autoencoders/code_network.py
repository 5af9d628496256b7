r"""The learned part of searched codes: loadings, biases and the steps of the search.

For directions :math:`V` of the sketch with variances :math:`\lambda`, random
directions :math:`G` and thresholds as in PCA,

.. math::
    W_{jc} &= \gamma g_j\, (s_c V_{jc} + q_c G_{jc}), \qquad
    a_j = \gamma g_j\, (\mu_j - t + \delta_j),

where a small network says of each feature :math:`(\delta_j, \ln g_j)` from its mean,
its variance and how much of it is explained, and another of each direction
:math:`(\ln s_c, \ln q_c)` from its variance, its rank and the number of rows:
directions that are noise, or that the sketch never saw, are worth less than random
ones, which every row can use. One set of weights serves any number of features, rows
and codes. How they are learned is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, ClassVar, Self, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from typing_extensions import override

from sketchlearn.arithmetic.draws import Draws
from sketchlearn.decoders.autoencoders.code_search import SearchedCodes, SearchSteps
from sketchlearn.decoders.autoencoders.directions import CodeDirections
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.fields import COUNT, require_fields
from sketchlearn.files.weights import AbstractLearned, Weights
from sketchlearn.networks.forward import (
    FrozenNetwork,
    NetworkSpec,
    frozen_tensors,
    initial_tensors,
    part_of_tensors,
    spec_from_dict,
)

__all__ = [
    "COMPONENT_PART",
    "FEATURE_PART",
    "OFFSETS",
    "SCALE",
    "STEPS",
    "CodeNetwork",
    "CodeSpec",
    "random_directions",
]

Array: TypeAlias = NDArray[np.float64]

FEATURE_PART, COMPONENT_PART = "features.", "components."
"""Prefixes of the tensors of the two networks."""

STEPS, SCALE = "steps", "scale"
"""Names of the tensors of the search, shape (n_steps, 4): logarithms of temperature and
rate, logits of momentum and of the likelihood's weight; and of ln γ, shape (1,)."""

N_FEATURE_INPUTS, N_COMPONENT_INPUTS = 8, 7
"""Numbers of :class:`~sketchlearn.decoders.autoencoders.directions.CodeDirections`."""

_MOST_LOGARITHM = 40.0
"""Largest magnitude of a number of the search: its exponential is far from overflow."""

OFFSETS = 0.25
"""Offsets δ are so many times what the network says: part of what it was trained
with, so that a small change of its weights is a small change of thresholds."""


@final
@dataclass(frozen=True)
class CodeSpec:
    """Sizes.

    Parameters
    ----------
    width, depth : int
        Of both networks.
    n_steps : int
        Steps of the search.
    """

    width: int = 32
    depth: int = 1
    n_steps: int = 24

    def __post_init__(self) -> None:
        fields = dict.fromkeys(asdict(self), COUNT)
        require_fields(asdict(self), fields, "the spec of a code network")

    @property
    def networks(self) -> dict[str, NetworkSpec]:
        """What is built of each prefix."""
        sizes = {"kind": "transformer", "depth": self.depth, "width": self.width}
        return {
            FEATURE_PART: NetworkSpec(N_FEATURE_INPUTS, 2, **sizes),  # type: ignore[arg-type]
            COMPONENT_PART: NetworkSpec(N_COMPONENT_INPUTS, 2, **sizes),  # type: ignore[arg-type]
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> CodeSpec:
        """From JSON; unknown fields are refused."""
        return spec_from_dict(cls, fields)


@final
@dataclass(frozen=True, eq=False)
class CodeNetwork(AbstractLearned):
    """Networks and steps with their weights.

    Parameters
    ----------
    spec : CodeSpec
        Sizes.
    tensors : mapping of arrays
        By name, as in a weights file.

    Examples
    --------
    >>> network = CodeNetwork.initial(CodeSpec(width=8, n_steps=4))
    >>> network.search_steps.temperature.shape
    (4,)
    """

    weights_kind: ClassVar = "code-network"

    spec: CodeSpec
    tensors: Mapping[str, NDArray[np.float32]]

    def __post_init__(self) -> None:
        own = {STEPS: (self.spec.n_steps, 4), SCALE: (1,)}
        parts = (spec.shapes(prefix) for prefix, spec in self.spec.networks.items())
        kept = frozen_tensors(self.tensors, chain(own.items(), *parts))
        object.__setattr__(self, "tensors", kept)
        if max(np.abs(kept[name]).max() for name in own) > _MOST_LOGARITHM:
            raise FeatureMapError(
                "steps and scale of a code network are logarithms and logits, at most "
                f"{_MOST_LOGARITHM:g} in magnitude; these are larger."
            )

    @classmethod
    def initial(cls, spec: CodeSpec, seed: int = 0) -> Self:
        """Weights that leave PCA's loadings nearly as they are, and a plain search."""
        tensors: dict[str, NDArray[np.float32]] = {}
        for place, (prefix, network) in enumerate(spec.networks.items()):
            for name, array in initial_tensors(network, 2 * seed + place).items():
                is_last = name.startswith("layers.last")
                tensors[prefix + name] = array * np.float32(not is_last)
        tensors[COMPONENT_PART + "layers.last.bias"] = np.array([0.0, -2.0], np.float32)
        falling = np.linspace(1.0, -1.0, spec.n_steps)
        rows = [falling, 0 * falling - 0.5, 0 * falling + 1.0, 2 * falling]
        tensors[STEPS] = np.stack(rows, axis=1).astype(np.float32)
        tensors[SCALE] = np.array([np.log(8.0)], np.float32)
        return cls(spec, tensors)

    def adapted(self, known: CodeDirections) -> SearchedCodes:
        """The autoencoder of the rows of a sketch."""
        offset, log_gain = self._network(FEATURE_PART)(known.feature_inputs()).T
        own, other = self._network(COMPONENT_PART)(known.component_inputs()).T
        gain = np.exp(float(self.tensors[SCALE][0]) + np.clip(log_gain, -3, 3))
        mixed = known.directions * np.exp(np.clip(own, -6, 3))
        mixed = mixed + random_directions(known.spread, len(own)) * np.exp(
            np.clip(other, -9, 3)
        )
        if not (np.isfinite(mixed).all() and np.isfinite(offset).all()):
            raise FeatureMapError(
                "the numbers of this code network overflow: its weights are damaged or "
                "forged. Get the original file."
            )
        return SearchedCodes(
            classes=known.classes,
            gain=gain,
            offset=known.threshold - OFFSETS * offset,
            loadings=mixed * gain[:, None],
            ones=known.ones,
            steps=self.search_steps,
        )

    @property
    def search_steps(self) -> SearchSteps:
        """Numbers of the steps."""
        table = self.tensors[STEPS].astype(np.float64)
        return SearchSteps(
            np.exp(table[:, 0]),
            np.exp(table[:, 1]),
            expit(table[:, 2]),
            expit(table[:, 3]),
        )

    @override
    def to_weights(self, card: Mapping[str, Any] | None = None) -> Weights:
        return Weights(self.weights_kind, asdict(self.spec), self.tensors, card or {})

    @classmethod
    @override
    def _build(cls, weights: Weights) -> Self:
        return cls(CodeSpec.from_dict(weights.spec), weights.tensors)

    def _network(self, prefix: str) -> FrozenNetwork:
        return FrozenNetwork(
            self.spec.networks[prefix], part_of_tensors(self.tensors, prefix)
        )


def random_directions(spread: Array, count: int) -> Array:
    """Random columns, about orthonormal, in proportion to the deviations of features.

    Parameters
    ----------
    spread : array of shape (d,)
        Variances of the features.
    count : int
        How many.

    Returns
    -------
    array of shape (d, count)
        The same for the same features, always.
    """
    columns = Draws(0).normal(len(spread), count) * np.sqrt(spread)[:, None]
    return np.asarray(columns / np.sqrt(max(float(spread.sum()), 1e-12)))
