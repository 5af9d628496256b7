r"""The Query Network ψ_ω: a trained network reads the parameters off a sketch.

.. math:: \hat\theta = \psi_\omega(z)

It knows numbers in and numbers out; what the parameters mean is its user's concern.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.decoders.base import AbstractDecoder, Decoding
from sketchlearn.decoders.moments.covariance.dense import symmetric_matrix
from sketchlearn.decoders.moments.sketch_prior import SketchPrior
from sketchlearn.errors import FeatureMapError, FeatureMapMismatch, PoolingError
from sketchlearn.features.network import network_digest
from sketchlearn.files.weights import tensors_digest
from sketchlearn.networks.forward import FrozenNetwork
from sketchlearn.networks.layers import Scale
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = ["QueryNetwork"]


@final
@dataclass(frozen=True, eq=False)
class QueryNetwork(AbstractDecoder[NDArray[np.float64]]):
    r"""A network applied to the pooled features.

    Parameters
    ----------
    network : FrozenNetwork
        From ``sketch_size`` numbers to the parameters.
    shape : tuple of int, optional
        Shape of the parameters; a vector by default.
    symmetric : bool
        Whether the outputs are the lower triangle of a symmetric matrix of this
        ``shape``, row by row, as in the paper's :math:`\tanh(W z + b) =
        \mathrm{vec}_{LT}(\hat R)`.
    pooling : str
        How the sketches it was trained on were pooled.
    digest : str
        Digest of the tensors of the map it was trained with: sketches of other maps
        are refused. Empty for a network over any features.
    units : Scale, optional
        Applied to the pooled features first: from the whole numbers of a table to
        those the network was trained on.
    prior : SketchPrior, optional
        Range and variances of the sketches it was trained on, with which private
        sketches are cleaned of noise; by default they are clamped to the bounds of
        their map.
    shrink : bool
        False to clamp private sketches alone, as the paper does.

    Examples
    --------
    >>> from sketchlearn import FourierFeatures, sketch_rows
    >>> from sketchlearn.networks.forward import NetworkSpec, initial_tensors
    >>> spec = NetworkSpec(8, 6, head="tanh")
    >>> network = FrozenNetwork(spec, initial_tensors(spec))
    >>> decoder = QueryNetwork(network, shape=(3, 3), symmetric=True)
    >>> sketch = sketch_rows(np.zeros((5, 2)), FourierFeatures(2, 8))
    >>> decoder.decode(sketch).params.shape
    (3, 3)
    """

    network: FrozenNetwork
    shape: tuple[int, ...] = ()
    symmetric: bool = False
    pooling: str = "mean"
    digest: str = ""
    units: Scale | None = None
    prior: SketchPrior | None = None
    shrink: bool = True

    def __post_init__(self) -> None:
        outputs = self.network.spec.n_outputs
        shape = tuple(self.shape) or (outputs,)
        object.__setattr__(self, "shape", shape)
        numbers = prod(shape)
        if self.symmetric:
            square = len(shape) == 2 and shape[0] == shape[1]
            numbers = shape[0] * (shape[0] + 1) // 2 if square else -1
        if numbers != outputs:
            what = "a symmetric matrix" if self.symmetric else "parameters"
            raise FeatureMapError(
                f"a network of {outputs} outputs does not fill {what} of shape "
                f"{shape}. Give the shape the network was trained for."
            )

    @override
    def decode(self, sketch: Sketch | PrivateSketch) -> Decoding[NDArray[np.float64]]:
        self._require_trained_on(sketch)
        pooled = sketch.pooled if isinstance(sketch, Sketch) else self._cleaned(sketch)
        outputs = self.network(pooled if self.units is None else self.units(pooled))
        if self.symmetric:
            return Decoding(symmetric_matrix(outputs))
        return Decoding(outputs.reshape(self.shape))

    def _cleaned(self, sketch: PrivateSketch) -> NDArray[np.float64]:
        """The noisy mean, without as much noise as public knowledge tells."""
        bound = sketch.features.value_bound
        clamped: NDArray[np.float64] = np.clip(sketch.mean, -bound, bound)
        if self.prior is None:
            return clamped
        noise = sketch.noise_std / sketch.count
        return self.prior.clean(clamped, noise, shrink=self.shrink)

    def _require_trained_on(self, sketch: Sketch | PrivateSketch) -> None:
        """Refuse sketches whose numbers mean something else to this network."""
        spec, size = sketch.features, self.network.spec.n_inputs
        if spec.sketch_size != size:
            raise FeatureMapMismatch(
                f"this Query Network reads {size} numbers and the sketch has "
                f"{spec.sketch_size}. Sketch with the feature map it was trained with."
            )
        if self.digest and _map_digest(sketch) != self.digest:
            raise FeatureMapMismatch(
                f"this Query Network was trained with Sketch Network "
                f"{self.digest[:12]}.., and the sketch is of another map "
                f"({spec.kind}). Sketch with the feature_map() of the same model."
            )
        pooling = sketch.pooling if isinstance(sketch, Sketch) else "mean"
        if pooling != self.pooling:
            raise PoolingError(
                f"this Query Network was trained on sketches pooled by "
                f"{self.pooling!r}, and this one is pooled by {pooling!r}. Sketch "
                f"with pooling={self.pooling!r}."
            )


def _map_digest(sketch: Sketch | PrivateSketch) -> str:
    """Of the tensors of the sketch's map, clipped or not."""
    found = network_digest(sketch.features.description)
    if found:
        return found
    parts = sketch.feature_map.parts()
    return tensors_digest(parts[0].feature_map.weights()) if len(parts) == 1 else ""
