r"""What noise alone would look like: the level that a signal has to exceed.

A release says how much noise was added to it, so that a decoder can compare what it
finds with what it would have found in noise.
"""

from __future__ import annotations

from math import sqrt

from sketchlearn.privacy import PrivateSketch
from sketchlearn.sketch import Sketch

__all__ = ["mean_noise", "spectral_edge"]


def mean_noise(sketch: Sketch | PrivateSketch) -> float:
    """Standard deviation of the noise on each entry of ``sketch.mean``.

    The same for every entry, whatever part of the map it belongs to, in the units of
    the features (rows scaled by the map); zero for an exact sketch. The noise on the
    number of rows, which multiplies all entries alike, is not in it.

    Examples
    --------
    >>> import numpy as np, sketchlearn as sl
    >>> from sketchlearn.testing import release_seeded
    >>> exact = sl.sketch_rows(np.zeros((1000, 2)), sl.FourierFeatures(2, 16))
    >>> mean_noise(exact)
    0.0
    >>> private = release_seeded(exact, 0, epsilon=1.0, delta=1e-6)
    >>> 0.5 < np.std(private.mean - exact.mean) / mean_noise(private) < 1.5
    np.True_
    """
    if isinstance(sketch, Sketch):
        return 0.0
    return sketch.noise_std / sketch.count


def spectral_edge(noise: float, size: int) -> float:
    r"""Largest eigenvalue of a symmetric matrix of noise, :math:`2\sigma\sqrt{n}`.

    Eigenvalues beyond it are signal (Wigner's semicircle).

    Examples
    --------
    >>> spectral_edge(0.5, 9)
    3.0
    """
    return 2 * noise * sqrt(size)
