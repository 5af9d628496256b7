"""Networks of all sizes that can be trained: the twin of ``NestedSQNet``.

They work on lower triangles of second moments, since their sketch is a function of
those. What was trained is used frozen: :meth:`TrainableNestedSQNet.freeze`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self, final

from typing_extensions import override

from sketchlearn.decoders.moments.sketch_prior import SketchPrior
from sketchlearn.files.weights import Weights
from sketchlearn.meta.backend import Tensor, nn, torch
from sketchlearn.meta.moment_basis import MomentBasis
from sketchlearn.nested_sqnet import NestedSQNet

__all__ = ["TrainableNestedSQNet"]


@final
class TrainableNestedSQNet(nn.Module):
    """A basis of second moments as a differentiable module.

    Parameters
    ----------
    start : MomentBasis
        Where to start.

    Examples
    --------
    >>> import numpy as np
    >>> net = TrainableNestedSQNet(MomentBasis(np.eye(3)[:2], np.zeros(3)))
    >>> net(torch.tensor([[1.0, 2.0, 3.0]]), 1).tolist()
    [[1.0, 0.0, 0.0]]
    >>> net.freeze().sketch_size
    2
    """

    def __init__(self, start: MomentBasis) -> None:
        super().__init__()
        self.basis = nn.Parameter(torch.tensor(start.rows, dtype=torch.float32))
        self.mean = nn.Parameter(torch.tensor(start.mean, dtype=torch.float32))
        self.prior: SketchPrior | None = None

    @classmethod
    def thaw(cls, frozen: NestedSQNet) -> Self:
        """A module to train on from where frozen networks are, in evaluation mode."""
        net = cls(MomentBasis(frozen.basis, frozen.mean))
        net.prior = frozen.prior
        return net.eval()

    @property
    def sketch_size(self) -> int:
        """The largest size."""
        return len(self.basis)

    def sketch_triangles(self, triangles: Tensor) -> Tensor:
        """Sketches of the largest size, from lower triangles: (..., n) → (..., m)."""
        result: Tensor = (triangles - self.mean) @ self.basis.mT
        return result

    def decode(self, sketch: Tensor) -> Tensor:
        """Lower triangles from the first numbers of sketches: (..., k) → (..., n)."""
        result: Tensor = sketch @ self.basis[: sketch.shape[-1]] + self.mean
        return result

    @override
    def forward(self, triangles: Tensor, sketch_size: int) -> Tensor:
        """What the first numbers of the sketch tell: (..., n) → (..., n)."""
        return self.decode(self.sketch_triangles(triangles)[..., :sketch_size])

    def freeze(self) -> NestedSQNet:
        """The networks as they are now, their basis in half precision."""
        basis, mean = (part.detach().cpu().numpy() for part in (self.basis, self.mean))
        return replace(NestedSQNet.from_basis(basis, mean), prior=self.prior)

    def to_weights(self, card: Mapping[str, Any] | None = None) -> Weights:
        """Tensors and a model card as one value."""
        return self.freeze().to_weights(card)
