r"""An SQNet that can be trained: the torch twin of :mod:`sketchlearn.sqnet`.

.. math::
    \hat\theta = \psi_\omega\Big(\frac1N \sum_i \varphi_\omega(x_i)\Big)

as one differentiable function of whole datasets of rows. What was trained is used
frozen: :meth:`TrainableSQNet.freeze`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self, final

from typing_extensions import override

from sketchlearn.decoders.moments.sketch_prior import SketchPrior
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.network import FEATURE_PREFIX
from sketchlearn.files.weights import Weights
from sketchlearn.meta.backend import Tensor, nn, torch
from sketchlearn.meta.differentiable import differentiable, lower_products
from sketchlearn.meta.networks import Network
from sketchlearn.sqnet import DECODER_PREFIX, SQNet
from sketchlearn.sqnet_spec import SQNetSpec

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
        tensors = {
            prefix + name: array
            for prefix, network in self._networks.items()
            for name, array in network.freeze().tensors.items()
        }
        return SQNet(self.spec, tensors, self._model, self.prior)

    def to_weights(self, card: Mapping[str, Any] | None = None) -> Weights:
        """Spec, tensors and a model card as one value."""
        return self.freeze().to_weights(card)

    def features(self, rows: Tensor) -> Tensor:
        """Feature vectors φ: (..., n, n_features) → (..., n, sketch_size)."""
        if self._random is not None:
            return self._random(rows)
        outer = self.spec.inputs == "outer"
        result: Tensor = self.feature_network(lower_products(rows) if outer else rows)
        return result

    def sketch(self, rows: Tensor) -> Tensor:
        """Pooled features z: (..., n, n_features) → (..., sketch_size)."""
        return _pool(self.features(rows), self.spec.pooling)

    @property
    def reads_means(self) -> bool:
        """Whether the sketch of rows is a function of their mean alone."""
        if self.spec.pooling != "mean" or self.spec.inputs != "rows":
            return False
        if self.spec.random:
            return bool(self.spec.random_features.activation == "identity")
        return self.spec.feature_network.is_affine

    def sketch_means(self, means: Tensor) -> Tensor:
        r"""Sketches of whole datasets from the means of their rows.

        .. math::
            \mathbb{E}[W x + b] = W\, \mathbb{E}[x] + b

        (..., n_features) → (..., sketch_size), for affine networks of rows with mean
        pooling: then training on counts of items needs no rows.
        """
        if not self.reads_means:
            raise FeatureMapError(
                "only an affine Sketch Network of rows, pooled by mean, is a function "
                f"of the mean of rows; got {self.spec}. Use sketch(rows)."
            )
        return self.features(means)

    def sketch_sets(self, rows: Tensor, sizes: Sequence[tuple[int, int]]) -> Tensor:
        """Sketches of sets of several sizes: (rows, n_features) → (sets, sketch_size).

        ``sizes`` has pairs (number of sets, rows of each), in the order of the rows.
        All rows go through the network at once, so that a batch norm sees them all.
        """
        lengths = [sets * n for sets, n in sizes]
        groups = zip(torch.split(self.features(rows), lengths), sizes, strict=True)
        pooled = [
            _pool(part.reshape(sets, n, -1), self.spec.pooling)
            for part, (sets, n) in groups
        ]
        return torch.cat(pooled)

    def sketch_moments(self, second_moments: Tensor) -> Tensor:
        r"""Sketches of whole datasets from their second moments.

        .. math::
            \mathbb{E}[W \mathrm{vec}_{LT}(x x^\top) + b] = W \mathrm{vec}_{LT}(R) + b

        (..., n_features, n_features) → (..., sketch_size), for linear networks of
        outer products with mean pooling: then training needs no rows.
        """
        size = self.spec.n_features
        i, j = torch.tril_indices(size, size)
        return self.sketch_triangles(second_moments[..., i, j])

    def sketch_triangles(self, triangles: Tensor) -> Tensor:
        """Sketches from the lower triangles of second moments, as for those."""
        network = self.spec.feature_network
        linear = network.kind == "linear" and network.head is None
        is_mean = self.spec.pooling == "mean"
        if not (linear and is_mean and self.spec.inputs == "outer"):
            raise FeatureMapError(
                "only a linear Sketch Network of outer products without a head, pooled "
                f"by mean, is a function of the second moment; got {self.spec}. Use "
                "sketch(rows)."
            )
        result: Tensor = self.feature_network(triangles)
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
        self.prior: SketchPrior | None = frozen.prior
        self._random = None
        if frozen.spec.random:
            self._random = differentiable(frozen.spec.random_features)
        else:
            self.feature_network = Network.thaw(frozen.feature_network)
        self.decoder_network = Network.thaw(frozen.decoder_network)

    @property
    def _networks(self) -> dict[str, Network]:
        """The networks that are learned by the prefix of their tensors."""
        feature = {} if self._random else {FEATURE_PREFIX: self.feature_network}
        return {**feature, DECODER_PREFIX: self.decoder_network}


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
