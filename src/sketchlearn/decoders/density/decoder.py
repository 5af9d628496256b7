r"""Density decoding: a sketch becomes a density, and everything else follows from it.

The density is a Gaussian mixture on a few directions of the rows. Where the sketch
holds the cells of a partition, every cell is a component, in closed form. Where it
holds Fourier features, a mixture is fitted to them. Where it holds only moments, a
density with these moments stands in. Clusters for every k, samples and likelihoods are
read off the density; no row is looked at again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

from typing_extensions import override

from sketchlearn.decoders.base import AbstractDecoder, Decoding
from sketchlearn.decoders.density.fourier_density import FourierDensity, FourierTuning
from sketchlearn.decoders.density.fourier_fit import CovarianceShape
from sketchlearn.decoders.density.mixture import Density
from sketchlearn.decoders.density.moment_density import guessed_density
from sketchlearn.decoders.density.prior import guess_rows
from sketchlearn.decoders.density.reading import Reading, read_sketch
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = ["DensityDecoder"]


@final
@dataclass(frozen=True)
class DensityDecoder(AbstractDecoder[Density]):
    """The density of the rows from a sketch of cells, Fourier features or moments.

    Parameters
    ----------
    n_components : int, optional
        Components of a fitted mixture; by default as many as the sketch can bear, up
        to 40. Cells are components as they are.
    shape : {"auto", "tied", "diag", "full"}
        Covariances of a fitted mixture; see
        :class:`~sketchlearn.decoders.density.fourier_density.FourierDensity`.
    seed : int
        Of the starting points.
    tuning : FourierTuning
        Of the fit to Fourier features.
    """

    n_components: int | None = None
    shape: Literal["auto"] | CovarianceShape = "auto"
    seed: int = 0
    tuning: FourierTuning = FourierTuning()

    @override
    def decode(self, sketch: Sketch | PrivateSketch) -> Decoding[Density]:
        is_blurred = self.n_components is not None
        return self.decode_reading(read_sketch(sketch, is_blurred=is_blurred))

    def decode_reading(self, reading: Reading) -> Decoding[Density]:
        """The density of a sketch that was read already."""
        if reading.cells is not None:
            return Decoding(reading.cells.density(reading.moments))
        if reading.fourier:
            fit = FourierDensity(self.n_components, self.shape, self.seed, self.tuning)
            return fit.decode(reading)
        part = reading.moment_map
        rows = guess_rows(part.scaling, part.reach, reading.moments, self.seed)
        found = guessed_density(rows, reading.moments, self.n_components, self.seed)
        return Decoding(found)
