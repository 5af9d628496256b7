"""Which mixture, and which decoder of it, suits the sketch of one class of rows."""

from __future__ import annotations

from typing import Literal

from sketchlearn.decoders.base import AbstractDecoder
from sketchlearn.decoders.density.cell_mixture import CellMixtureDecoder
from sketchlearn.decoders.density.components import NARROWEST
from sketchlearn.decoders.density.mixture import Density
from sketchlearn.decoders.density.mixture_choice import mixture_decoder
from sketchlearn.decoders.density.reading import holds_only_moments, read_sketch
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = ["class_decoder"]

_FEWEST_ROWS = 5
"""Rows a component must have on average, and as many as features if "full"."""


def class_decoder(
    sketch: Sketch | PrivateSketch,
    n_components: int,
    *,
    shape: Literal["diag", "full"],
    shrinkage: float,
    seed: int,
) -> tuple[int, AbstractDecoder[Density]]:
    """How many components the class gets, fewer where rows are few, and their decoder.

    Parameters
    ----------
    sketch : Sketch or PrivateSketch
        Of the rows of one class.
    n_components : int
        Components it may have.
    shape : {"diag", "full"}
        Of their covariances.
    shrinkage : float
        Share of the variances that is added to them afterwards.
    seed : int
    """
    each = sketch.feature_map.n_features if shape == "full" else 0
    size = max(1, min(n_components, int(sketch.count) // max(_FEWEST_ROWS, each)))
    if holds_only_moments(sketch.feature_map):
        size = 1
    reading = read_sketch(sketch)
    if reading.cells is None or not reading.cells.has_second_moments:
        return size, mixture_decoder(reading, size, shape=shape, seed=seed)
    # Classes are no mixtures of Gaussians: refining helped on no real table.
    least = max(shrinkage, NARROWEST)
    return size, CellMixtureDecoder(
        size, shape=shape, least_variance=least, n_rounds=0, seed=seed
    )
