r"""Random Fourier features of a Gaussian kernel.

Their mean is the characteristic function of the data at random frequencies (paper,
eq. rff).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

from typing_extensions import override

from sketchlearn.features.cost import Cost, Declared
from sketchlearn.features.fields import NUMBER, SEED, SIZE, WORD, Field
from sketchlearn.features.frequencies import (
    FrequencyLaw,
    random_sinusoids,
    sinusoid_cost,
)
from sketchlearn.features.scaling import Scaling
from sketchlearn.features.sinusoids import (
    VALUE_BITS,
    AbstractSinusoidFeatures,
    require_pairs,
    sinusoid_norm,
)

__all__ = ["FourierFeatures"]
__public__ = ["FourierFeatures"]


@final
class FourierFeatures(AbstractSinusoidFeatures):
    r"""Cosines and sines at random frequencies.

    .. math::
        \varphi(x) = \big(\cos \omega_1^\top x, \dots, \cos \omega_h^\top x,\;
        \sin \omega_1^\top x, \dots, \sin \omega_h^\top x\big),
        \qquad h = m / 2 .

    With :math:`u` uniform on the sphere and :math:`s` the ``scale`` (a length in the
    units of the scaled rows), the frequencies are :math:`\omega = R\,u / s` where

    * ``"gaussian"``: :math:`R \sim \chi_d`, that is
      :math:`\omega \sim \mathcal{N}(0, s^{-2} I)`, the Gaussian kernel;
    * ``"folded"``: :math:`R = |g|`, :math:`g \sim \mathcal{N}(0, 1)`;
    * ``"adapted"``: density :math:`\propto \sqrt{R^2 + R^4/4}\; e^{-R^2/2}`, drawn
      exactly as :math:`R = 2\sqrt{g/2 - 1}` with :math:`g \sim \Gamma(3/2)`
      conditioned on :math:`g \ge 2`.

    Parameters
    ----------
    n_features : int
        Numbers in a row.
    sketch_size : int
        Numbers in the feature vector; even.
    scale : float
        Length scale of the kernel.
    law : {"gaussian", "folded", "adapted"}
        Law of the frequencies' radii.
    seed : int
        Same seed, same frequencies.
    scaling : Scaling, optional
        Applied to rows first.

    Notes
    -----
    All in whole numbers: rows are rounded to multiples of :math:`2^{-b}`, :math:`b = 16
    + \lfloor\tfrac12\lceil\log_2 d\rceil\rfloor - \lfloor\log_2 s\rfloor`, phases to
    :math:`2^{-16}` of a turn and cosines to :math:`2^{-22}`. Rows more than
    :math:`2^{30}` scales away from the origin are refused.
    :math:`\lVert\varphi(x)\rVert = \sqrt{m/2}` up to rounding.

    Examples
    --------
    >>> import numpy as np
    >>> phi = FourierFeatures(n_features=2, sketch_size=4, seed=0)
    >>> phi(np.zeros((1, 2)))
    array([[1., 1., 0., 0.]])
    """

    kind: ClassVar[str] = "fourier"
    fields: ClassVar[Mapping[str, Field]] = {
        "n_features": SIZE,
        "sketch_size": SIZE,
        "law": WORD,
        "seed": SEED,
        "scale": NUMBER,
    }

    def __init__(
        self,
        n_features: int,
        sketch_size: int,
        *,
        scale: float = 1.0,
        law: FrequencyLaw = "gaussian",
        seed: int = 0,
        scaling: Scaling | None = None,
    ) -> None:
        require_pairs(sketch_size)
        super().__init__(
            n_features=n_features,
            sketch_size=sketch_size,
            scaling=scaling,
            value_bound=1.0,
            norm_bound=sinusoid_norm(sketch_size // 2),
            frac_bits=VALUE_BITS,
        )
        self.require_affordable(n_features=n_features, sketch_size=sketch_size)
        self.scale, self.law, self.seed = float(scale), law, int(seed)
        self._lattice, self._sinusoids = random_sinusoids(
            self.n_features,
            self.sketch_size // 2,
            scale=scale,
            law=law,
            seed=seed,
            scaling=scaling,
        )
        # radians per unit of the scaled row, shape (d, m / 2)
        self.frequencies = self._sinusoids.frequencies

    @classmethod
    @override
    def cost_of(cls, given: Declared) -> Cost:
        return sinusoid_cost(given["n_features"], given["sketch_size"])

    @override
    def describe(self) -> dict[str, Any]:
        return {
            "n_features": self.n_features,
            "sketch_size": self.sketch_size,
            "scale": self.scale,
            "law": self.law,
            "seed": self.seed,
        }
