"""Which decoder suits a sketch that a mixture is to be decoded from."""

from __future__ import annotations

from typing import Literal

from sketchlearn.decoders.base import AbstractDecoder
from sketchlearn.decoders.density.cell_mixture import CellMixtureDecoder
from sketchlearn.decoders.density.decoder import DensityDecoder
from sketchlearn.decoders.density.mixture import Density
from sketchlearn.decoders.density.reading import Reading

__all__ = ["mixture_decoder"]


def mixture_decoder(
    reading: Reading, n_components: int, *, shape: Literal["diag", "full"], seed: int
) -> AbstractDecoder[Density]:
    """The decoder of a mixture of so many components.

    One component is the Gaussian of the moments. Several are told apart by cells, best
    by those with second moments, or by Fourier features.
    """
    cells, moments = reading.cells, reading.moments
    if cells is not None and not cells.has_second_moments:
        shape = "full"  # their coordinates are no features
    if n_components == 1 or cells is not None or not reading.fourier:
        return CellMixtureDecoder(n_components, shape=shape, seed=seed)
    if moments.noise is not None and moments.n_directions < len(moments.mean):
        shape = "diag"  # correlations inside of components would be those of noise
    return DensityDecoder(n_components, shape=shape, seed=seed)
