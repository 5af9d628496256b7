r"""An SQNet that can be trained: the torch twin of :mod:`sketchlearn.sqnet`.

.. math::
    \hat\theta = \psi_\omega\Big(\frac1N \sum_i \varphi_\omega(x_i)\Big)

as one differentiable function of whole datasets of rows. What was trained is used
frozen: :meth:`TrainableSQNet.freeze`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, final

from typing_extensions import override

from sketchlearn.errors import FeatureMapError
from sketchlearn.features.network import FEATURE_PREFIX
from sketchlearn.files.weights import Weights
from sketchlearn.meta.backend import Tensor, nn, torch
from sketchlearn.meta.differentiable import lower_products
from sketchlearn.meta.networks import Network
from sketchlearn.sqnet import DECODER_PREFIX, SQNet, SQNetSpec

__all__ = ["TrainableSQNet"]


@final
class TrainableSQNet(nn.Module):
    """A Sketch Network and a Query Network as one differentiable module.

    Parameters
    ----------
    spec : SQNetSpec
        What to build.
    seed : int
        Same seed, same initial weights.

    Examples
    --------
    >>> net = TrainableSQNet(SQNetSpec(3, 8, feature={"head": "tanh"}), seed=0)
    >>> net(torch.zeros(2, 50, 3)).shape  # two datasets of 50 rows
    torch.Size([2, 3])
    >>> net.freeze().feature_map().sketch_size
    8
    """

    def __init__(self, spec: SQNetSpec, seed: int = 0) -> None:
        super().__init__()
        self.spec = spec
        self._start(SQNet.initial(spec, seed))

    @classmethod
    def thaw(cls, frozen: SQNet) -> Self:
        """A module to train on from where a frozen net is, in evaluation mode."""
        net = cls(frozen.spec)
        net._start(frozen)
        return net.eval()

    def freeze(self) -> SQNet:
        """The net as it is now, for exact sketches; batch norms in evaluation mode."""
        feature = self.feature_network.freeze().tensors
        decoder = self.decoder_network.freeze().tensors
        tensors = {FEATURE_PREFIX + name: array for name, array in feature.items()}
        tensors |= {DECODER_PREFIX + name: array for name, array in decoder.items()}
        return SQNet(self.spec, tensors, self._model)

    def to_weights(self, card: Mapping[str, Any] | None = None) -> Weights:
        """Spec, tensors and a model card as one value."""
        return self.freeze().to_weights(card)

    def features(self, rows: Tensor) -> Tensor:
        """Feature vectors φ: (..., n, n_features) → (..., n, sketch_size)."""
        outer = self.spec.inputs == "outer"
        result: Tensor = self.feature_network(lower_products(rows) if outer else rows)
        return result

    def sketch(self, rows: Tensor) -> Tensor:
        """Pooled features z: (..., n, n_features) → (..., sketch_size)."""
        return _pool(self.features(rows), self.spec.pooling)

    def sketch_moments(self, second_moments: Tensor) -> Tensor:
        r"""Sketches of whole datasets from their second moments.

        .. math::
            \mathbb{E}[W \mathrm{vec}_{LT}(x x^\top) + b] = W \mathrm{vec}_{LT}(R) + b

        (..., n_features, n_features) → (..., sketch_size), for linear networks of
        outer products with mean pooling: then training needs no rows.
        """
        network = self.spec.feature_network
        linear = network.kind == "linear" and network.head is None
        is_mean = self.spec.pooling == "mean"
        if not (linear and is_mean and self.spec.inputs == "outer"):
            raise FeatureMapError(
                "only a linear Sketch Network of outer products without a head, pooled "
                f"by mean, is a function of the second moment; got {self.spec}. Use "
                "sketch(rows)."
            )
        size = self.spec.n_features
        i, j = torch.tril_indices(size, size)
        result: Tensor = self.feature_network(second_moments[..., i, j])
        return result

    def decode(self, sketch: Tensor) -> Tensor:
        """Outputs of ψ: (..., sketch_size) → (..., numbers), triangles as vectors."""
        result: Tensor = self.decoder_network(sketch)
        return result

    @override
    def forward(self, rows: Tensor) -> Tensor:
        """Outputs of ψ for datasets of rows: (..., n, n_features) → (..., numbers)."""
        return self.decode(self.sketch(rows))

    def _start(self, frozen: SQNet) -> None:
        self._model = frozen.model
        self.feature_network = Network.thaw(frozen.feature_network)
        self.decoder_network = Network.thaw(frozen.decoder_network)


def _pool(features: Tensor, pooling: str) -> Tensor:
    """Differentiable pooling over the rows: (..., n, m) → (..., m)."""
    match pooling:
        case "mean":
            return features.mean(dim=-2)
        case "sum":
            return features.sum(dim=-2)
        case "max":
            return features.amax(dim=-2)
        case "min":
            return features.amin(dim=-2)
        case "log-sum-exp":
            return torch.logsumexp(features, dim=-2)
        case "soft-min":
            return -torch.logsumexp(-features, dim=-2)
    power = float(pooling.removeprefix("p-norm:"))
    norm: Tensor = torch.linalg.vector_norm(features, ord=power, dim=-2)
    return norm
