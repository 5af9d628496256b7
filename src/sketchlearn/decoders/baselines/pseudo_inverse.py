r"""Compressive PCA as the field does it: R from random quadratic measurements of it.

The mean of :class:`~sketchlearn.features.quadratic.QuadraticFeatures` is
:math:`z = A\,\mathrm{vec}_{LT}(R)` with :math:`R = E[xx^\top]` (paper, eq.
comp-pca-sketch). These are the baselines of the paper: the pseudo-inverse, and three
descents on a factor U of :math:`R = UU^\top`. All of them return the *uncentred* second
moment of the rows as the map's scaling leaves them; a quadratic sketch holds no mean,
so nothing can be centred here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from sketchlearn.decoders.base import AbstractDecoder, Decoding
from sketchlearn.decoders.baselines.quadratic_operator import least_norm_solution
from sketchlearn.decoders.baselines.quadratic_system import QuadraticSystem
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = ["PseudoInverseDecoder"]


@final
@dataclass(frozen=True, eq=False)
class PseudoInverseDecoder(AbstractDecoder[NDArray[np.float64]]):
    r"""The smallest second moment that explains the sketch, in closed form.

    .. math:: \mathrm{vec}_{LT}(\hat R) = A^+ z

    Exact, up to rounding, from :math:`m \ge d(d+1)/2` on. Below that :math:`\hat R` is
    symmetric but often has negative eigenvalues.

    Parameters
    ----------
    known_diagonal : float or array of shape (d,), optional
        Mean squares of the features, if known (1 for standardised data): only the
        other entries are then solved for.
    positive : bool
        Replace the result by the nearest positive semi-definite matrix. The diagonal
        and the residual are then what that leaves of them.

    References
    ----------
    Paper, appendix PCA and Ridge Regression.

    Examples
    --------
    >>> from sketchlearn import QuadraticFeatures, sketch_rows
    >>> phi = QuadraticFeatures(n_features=2, sketch_size=3)
    >>> sketch = sketch_rows([[1.0, 2.0], [3.0, 0.0]], phi)
    >>> PseudoInverseDecoder().decode(sketch).params.round(4)
    array([[5., 1.],
           [1., 2.]])
    """

    known_diagonal: ArrayLike | None = None
    positive: bool = False

    @override
    def decode(self, sketch: Sketch | PrivateSketch) -> Decoding[NDArray[np.float64]]:
        system = QuadraticSystem.of(sketch, self.known_diagonal)
        moment = least_norm_solution(system.measurements, system.values)
        moment += np.diag(system.diagonal)
        if self.positive:
            values, vectors = np.linalg.eigh(moment)
            moment = (vectors * np.maximum(values, 0.0)) @ vectors.T
        return Decoding(moment, system.residual(moment))
