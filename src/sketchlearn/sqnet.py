r"""SQNet: a Sketch Network and a Query Network, trained together.

.. math::
    \hat\theta = \psi_\omega\Big(\frac1N \sum_i \varphi_\omega(x_i)\Big)

Training sees this differentiable module; afterwards :meth:`SQNet.feature_map` and
:meth:`SQNet.decoder` are its two frozen halves, for exact sketches. How ω is learned
is not known here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, final, get_args

import torch
from torch import nn
from typing_extensions import override

from sketchlearn.decoders.query_network import QueryNetwork
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.network import (
    FEATURE_PREFIX,
    Inputs,
    ModelReference,
    NetworkFeatures,
    lower_products,
)
from sketchlearn.networks import (
    NetworkSpec,
    build_network,
    export_tensors,
    import_tensors,
    spec_from_dict,
)
from sketchlearn.pooling import get_pooling
from sketchlearn.scaling import Origin, Scaling
from sketchlearn.weights import (
    Weights,
    load_weights,
    save_weights,
    tensors_digest,
)

__all__ = ["Output", "SQNet", "SQNetSpec"]

Output = Literal["vector", "symmetric"]

_DECODER_PREFIX = "decoder."
_PIECES = {"kind": "linear", "depth": 0, "width": 0, "head": None}


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
        ``kind``, ``depth``, ``width`` and ``head`` of
        :class:`~sketchlearn.networks.NetworkSpec`; linear where left out.
    pooling : str
        As for :func:`~sketchlearn.sketch_rows`.

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

    def __post_init__(self) -> None:
        for name, known in (("inputs", Inputs), ("output", Output)):
            if getattr(self, name) not in get_args(known):
                raise FeatureMapError(
                    f"{name} must be one of {', '.join(get_args(known))}; got "
                    f"{getattr(self, name)!r}."
                )
        for name in ("feature", "decoder"):
            pieces = getattr(self, name)
            unknown = sorted(set(pieces) - set(_PIECES))
            if unknown:
                raise FeatureMapError(
                    f"{name} has no field {', '.join(map(repr, unknown))}; its fields "
                    f"are {', '.join(_PIECES)}."
                )
            object.__setattr__(self, name, {**_PIECES, **pieces})
        for name in ("n_features", "sketch_size", "n_outputs"):
            if type(getattr(self, name)) is not int:
                raise FeatureMapError(
                    f"{name} must be a whole number; got {getattr(self, name)!r}."
                )
        object.__setattr__(self, "n_outputs", self.n_outputs or self.n_features)
        object.__setattr__(self, "pooling", get_pooling(self.pooling).name)
        # Building both checks every size.
        _ = self.feature_network, self.decoder_network

    @property
    def feature_network(self) -> NetworkSpec:
        """The Sketch Network."""
        size = self.n_features
        n_inputs = size * (size + 1) // 2 if self.inputs == "outer" else size
        return NetworkSpec(n_inputs, self.sketch_size, **self.feature)

    @property
    def decoder_network(self) -> NetworkSpec:
        """The Query Network."""
        size = self.n_outputs
        n_outputs = size * (size + 1) // 2 if self.output == "symmetric" else size
        return NetworkSpec(self.sketch_size, n_outputs, **self.decoder)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready fields."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> SQNetSpec:
        """Undo :meth:`to_dict`; unknown fields are refused."""
        return spec_from_dict(cls, fields)


@final
class SQNet(nn.Module):
    """A Sketch Network and a Query Network as one differentiable module.

    Parameters
    ----------
    spec : SQNetSpec
        What to build.
    seed : int
        Same seed, same initial weights.

    Examples
    --------
    >>> import numpy as np
    >>> from sketchlearn import sketch_rows
    >>> net = SQNet(SQNetSpec(3, 8, feature={"head": "tanh"}), seed=0)
    >>> net(torch.zeros(2, 50, 3)).shape  # two datasets of 50 rows
    torch.Size([2, 3])
    >>> sketch = sketch_rows(np.zeros((50, 3)), net.feature_map())
    >>> net.decoder().decode(sketch).params.shape
    (3,)
    """

    def __init__(self, spec: SQNetSpec, seed: int = 0) -> None:
        super().__init__()
        self.spec = spec
        self.feature_network = build_network(spec.feature_network, seed=2 * seed)
        self.decoder_network = build_network(spec.decoder_network, seed=2 * seed + 1)
        self._packaged: tuple[ModelReference, str] | None = None

    def features(self, rows: torch.Tensor) -> torch.Tensor:
        """Feature vectors φ: (..., n, n_features) → (..., n, sketch_size)."""
        outer = self.spec.inputs == "outer"
        result: torch.Tensor = self.feature_network(
            lower_products(rows) if outer else rows
        )
        return result

    def sketch(self, rows: torch.Tensor) -> torch.Tensor:
        """Pooled features z: (..., n, n_features) → (..., sketch_size)."""
        return _pool(self.features(rows), self.spec.pooling)

    def sketch_moments(self, second_moments: torch.Tensor) -> torch.Tensor:
        r"""Sketches of whole datasets from their second moments.

        .. math::
            \mathbb{E}[W \mathrm{vec}_{LT}(x x^\top) + b] = W \mathrm{vec}_{LT}(R) + b

        (..., n_features, n_features) → (..., sketch_size), for linear networks of
        outer products with mean pooling: then training needs no rows.
        """
        linear = self.spec.feature == _PIECES and self.spec.pooling == "mean"
        if not linear or self.spec.inputs != "outer":
            raise FeatureMapError(
                "only a linear Sketch Network of outer products without a head, pooled "
                f"by mean, is a function of the second moment; got {self.spec}. Use "
                "sketch(rows)."
            )
        size = self.spec.n_features
        i, j = torch.tril_indices(size, size)
        result: torch.Tensor = self.feature_network(second_moments[..., i, j])
        return result

    def decode(self, sketch: torch.Tensor) -> torch.Tensor:
        """Outputs of ψ: (..., sketch_size) → (..., numbers), triangles as vectors."""
        result: torch.Tensor = self.decoder_network(sketch)
        return result

    @override
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Outputs of ψ for datasets of rows: (..., n, n_features) → (..., numbers)."""
        return self.decode(self.sketch(rows))

    def feature_map(
        self,
        *,
        scaling: Scaling | None = None,
        value_bound: float | None = None,
        origin: Origin = "declared",
    ) -> NetworkFeatures:
        """The Sketch Network as it is now, frozen, for exact sketches.

        Sketches of it are pooled with ``sketch_rows(rows, map, pooling=spec.pooling)``.

        Parameters
        ----------
        scaling : Scaling, optional
            Applied to rows first.
        value_bound : float, optional
            Largest magnitude of a feature, for networks without a head.
        origin : {"declared", "data"}
            ``"data"`` if it was trained on rows that must stay private.
        """
        tensors = export_tensors(self.feature_network)
        model = None
        if self._packaged is not None:
            reference, digest = self._packaged
            # Fine-tuned weights are no longer those of the package.
            model = reference if tensors_digest(tensors) == digest else None
        return NetworkFeatures(
            self.spec.feature_network,
            tensors,
            inputs=self.spec.inputs,
            value_bound=value_bound,
            origin=origin,
            model=model,
            scaling=scaling,
        )

    def decoder(self) -> QueryNetwork:
        """The Query Network as it is now, frozen; it refuses sketches of other maps."""
        side = self.spec.n_outputs
        symmetric = self.spec.output == "symmetric"
        return QueryNetwork(
            self.decoder_network,
            shape=(side, side) if symmetric else (side,),
            symmetric=symmetric,
            pooling=self.spec.pooling,
            digest=tensors_digest(export_tensors(self.feature_network)),
        )

    def to_weights(self, card: Mapping[str, Any] | None = None) -> Weights:
        """Spec, tensors and a model card as one value."""
        tensors = {
            prefix + name: array
            for prefix, network in self._networks().items()
            for name, array in export_tensors(network).items()
        }
        return Weights("sqnet", self.spec.to_dict(), tensors, card or {})

    @classmethod
    def from_weights(cls, weights: Weights) -> SQNet:
        """Undo :meth:`to_weights`; the network is in evaluation mode."""
        if weights.kind != "sqnet":
            raise FeatureMapError(
                f"these are weights of kind {weights.kind!r}, not of an SQNet. Load "
                "them with load_model or with the class they were saved from."
            )
        net = cls(SQNetSpec.from_dict(weights.spec))
        parts = {
            prefix: {
                name.removeprefix(prefix): array
                for name, array in weights.tensors.items()
                if name.startswith(prefix)
            }
            for prefix in net._networks()
        }
        if sum(map(len, parts.values())) != len(weights.tensors):
            raise FeatureMapError(
                "these weights hold tensors that belong to no part of an SQNet."
            )
        for prefix, network in net._networks().items():
            import_tensors(network, parts[prefix])
        if weights.model:
            reference = ModelReference(weights.model, weights.digest)
            net._packaged = reference, tensors_digest(parts[FEATURE_PREFIX])
        return net.eval()

    def save(
        self, path: str | os.PathLike[str], *, card: Mapping[str, Any] | None = None
    ) -> None:
        """Write spec, tensors and model card to a file, all of it or nothing."""
        save_weights(self.to_weights(card), path)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, checksum: str | None = None
    ) -> SQNet:
        """Read what :meth:`save` wrote; no code of the file is ever run."""
        return cls.from_weights(load_weights(path, checksum=checksum))

    def _networks(self) -> dict[str, nn.Module]:
        return {
            FEATURE_PREFIX: self.feature_network,
            _DECODER_PREFIX: self.decoder_network,
        }


def _pool(features: torch.Tensor, pooling: str) -> torch.Tensor:
    """Differentiable pooling over the rows: (..., n, m) → (..., m)."""
    match pooling:
        case "mean":
            return features.mean(dim=-2)
        case "max":
            return features.amax(dim=-2)
        case "min":
            return features.amin(dim=-2)
        case "log-sum-exp":
            return torch.logsumexp(features, dim=-2)
    power = float(pooling.removeprefix("p-norm:"))
    norm: torch.Tensor = torch.linalg.vector_norm(features, ord=power, dim=-2)
    return norm
