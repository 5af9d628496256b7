r"""Fourier features in octaves: several frequencies out of one phase.

A phase and the look-up of its cosine cost more than anything else in a Fourier
feature. Twice a phase is a phase too, and costs a shift: the octaves of a frequency
come almost for free.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

from typing_extensions import override

from sketchlearn.errors import FeatureMapError
from sketchlearn.features.arguments import require_positive_int
from sketchlearn.features.cost import Cost, Declared
from sketchlearn.features.fields import NUMBER, SEED, SIZE, WORD, Field, is_whole
from sketchlearn.features.frequencies import (
    FrequencyLaw,
    random_sinusoids,
    sinusoid_cost,
)
from sketchlearn.features.scaling import Scaling
from sketchlearn.features.sinusoids import (
    VALUE_BITS,
    AbstractSinusoidFeatures,
    sinusoid_norm,
)

__all__ = ["HarmonicFeatures"]
__public__ = ["HarmonicFeatures"]


@final
class HarmonicFeatures(AbstractSinusoidFeatures):
    r"""Cosines and sines at random frequencies and their octaves.

    .. math::
        \varphi(x) = \big(\cos 2^j\theta_f, \; \sin 2^j\theta_f\big)_{j,f}, \qquad
        \theta_f = \tfrac{2\pi}{65536}
        \operatorname{round}\big(\tfrac{65536}{2\pi}\,\omega_f^\top x\big),

    for octaves :math:`j = 0, 1, \dots`; all cosines come first. The grid of phases
    moves a mean by less than :math:`10^{-8}` where the density of phases is smooth.

    Parameters
    ----------
    n_features : int
        Numbers in a row.
    sketch_size : int
        Numbers in the feature vector; a multiple of ``2 * octaves``.
    octaves : int
        Frequencies in each direction, every one twice the one before; up to 4.
    scale : float
        Length scale of the kernel of the first octave, in the units of scaled rows.
    law : {"gaussian", "folded", "adapted"}
        Law of the radii of the first octave; see :class:`FourierFeatures`.
    seed : int
        Same seed, same frequencies.
    scaling : Scaling, optional
        Applied to rows first.

    Examples
    --------
    >>> import numpy as np
    >>> phi = HarmonicFeatures(n_features=2, sketch_size=4, octaves=2, seed=0)
    >>> phi(np.zeros((1, 2)))
    array([[1., 1., 0., 0.]])
    """

    kind: ClassVar[str] = "harmonics"
    fields: ClassVar[Mapping[str, Field]] = {
        "n_features": SIZE,
        "sketch_size": SIZE,
        "law": WORD,
        "seed": SEED,
        "octaves": Field("from 1 to 4", is_whole(1, 5)),
        "scale": NUMBER,
    }

    def __init__(
        self,
        n_features: int,
        sketch_size: int,
        *,
        octaves: int = 3,
        scale: float = 1.0,
        law: FrequencyLaw = "adapted",
        seed: int = 0,
        scaling: Scaling | None = None,
    ) -> None:
        if require_positive_int("octaves", octaves) > 4:
            raise FeatureMapError(f"octaves must be 1, 2, 3 or 4; got {octaves}.")
        if require_positive_int("sketch_size", sketch_size) % (2 * octaves):
            raise FeatureMapError(
                f"sketch_size must be a multiple of 2 * octaves = {2 * octaves}; got "
                f"{sketch_size}."
            )
        super().__init__(
            n_features=n_features,
            sketch_size=sketch_size,
            scaling=scaling,
            value_bound=1.0,
            norm_bound=sinusoid_norm(sketch_size // 2),
            frac_bits=VALUE_BITS,
        )
        self.require_affordable(
            n_features=n_features, sketch_size=sketch_size, octaves=octaves
        )
        self.octaves, self.scale = int(octaves), float(scale)
        self.law, self.seed = law, int(seed)
        self._lattice, self._sinusoids = random_sinusoids(
            n_features,
            sketch_size // (2 * octaves),
            scale=scale,
            law=law,
            seed=seed,
            scaling=scaling,
            octaves=octaves,
        )
        # radians per unit of the scaled row, octave by octave
        self.frequencies = self._sinusoids.frequencies

    @classmethod
    @override
    def cost_of(cls, given: Declared) -> Cost:
        sizes = given["n_features"], given["sketch_size"]
        return sinusoid_cost(*sizes, octaves=given["octaves"])

    @override
    def describe(self) -> dict[str, Any]:
        return {
            "n_features": self.n_features,
            "sketch_size": self.sketch_size,
            "octaves": self.octaves,
            "scale": self.scale,
            "law": self.law,
            "seed": self.seed,
        }
