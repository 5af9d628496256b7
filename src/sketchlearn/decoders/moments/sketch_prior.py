r"""What meta-training knows of sketches: the bound S, their range and their variances.

All of it was read off training datasets, before any private row: S clips rows, so that
a release needs little noise, and the others take noise out of what was released.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.errors import FeatureMapError
from sketchlearn.networks.forward import frozen_tensors

__all__ = ["PRIOR_PREFIX", "SketchPrior"]

PRIOR_PREFIX = "sketch."
"""Names of the prior's tensors in a weights file begin like this."""


@final
@dataclass(frozen=True, eq=False)
class SketchPrior:
    r"""Sketches of training datasets in a few numbers.

    Parameters
    ----------
    norm_bounds : array of shape (sketch_size,)
        S of the first number of the sketch, of the first two, ..., of all: norm to
        which the feature vector of a row is clipped. Positive and not decreasing.
    low, high : arrays of shape (sketch_size,)
        Range of each number of the sketch, the paper's :math:`z_{min}` and
        :math:`z_{max}`.
    centers, variances : arrays of shape (sketch_size,)
        Mean c and variance λ of each number.

    References
    ----------
    Paper, appendix Differential Private Sketch-based Learning.

    Examples
    --------
    >>> prior = SketchPrior(*np.array([[1.0, 2.0], [-1, -1], [3, 3], [0, 1], [4, 1]]))
    >>> prior.norm_bound, prior.first(1).norm_bound
    (2.0, 1.0)
    >>> prior.clean(np.array([5.0, -2.0]), noise_std=2.0)
    array([1.5, 0.6])
    """

    norm_bounds: NDArray[np.float32]
    low: NDArray[np.float32]
    high: NDArray[np.float32]
    centers: NDArray[np.float32]
    variances: NDArray[np.float32]

    def __post_init__(self) -> None:
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        size = np.size(self.norm_bounds)
        kept = frozen_tensors(given, ((name, (size,)) for name in given))
        for name, array in kept.items():
            object.__setattr__(self, name, array)
        rising = size and self.norm_bounds[0] > 0 and (np.diff(self.norm_bounds) >= 0)
        ranges = (self.low <= self.high).all() and (self.variances >= 0).all()
        if not (np.all(rising) and ranges):
            raise FeatureMapError(
                "a prior of sketches has positive norm_bounds that do not decrease, "
                "low <= high, and variances that are not negative."
            )

    @override
    def __repr__(self) -> str:
        size = len(self.norm_bounds)
        return f"SketchPrior(sketch_size={size}, norm_bound={self.norm_bound:g})"

    @property
    def norm_bound(self) -> float:
        """S of the whole sketch."""
        return float(self.norm_bounds[-1])

    def first(self, sketch_size: int) -> SketchPrior:
        """The prior of the first numbers of the sketch."""
        parts = (getattr(self, field.name)[:sketch_size] for field in fields(self))
        return SketchPrior(*parts)

    def gains(self, noise_std: float) -> NDArray[np.float64]:
        r"""Share of each noisy number to keep: :math:`\lambda / (\lambda + \sigma^2)`.

        The linear decoder of least squared error for noise of variance
        :math:`\sigma^2` is that for no noise, applied to
        :math:`c + (z - c)\,\lambda / (\lambda + \sigma^2)`: the Wiener filter.
        """
        power = self.variances.astype(np.float64)
        return np.asarray(power / np.maximum(power + noise_std**2, 1e-300))

    def clean(
        self, mean: NDArray[np.float64], noise_std: float, *, shrink: bool = True
    ) -> NDArray[np.float64]:
        """A noisy mean brought into the range, and towards c as :meth:`gains` say.

        Parameters
        ----------
        mean : array of shape (sketch_size,)
            The noisy mean.
        noise_std : float
            Standard deviation of the noise on each of its numbers.
        shrink : bool
            False to clamp alone, as the paper does.
        """
        clamped = np.clip(mean, self.low, self.high)
        if not shrink:
            return np.asarray(clamped)
        return self.centers + (clamped - self.centers) * self.gains(noise_std)

    def to_tensors(self) -> dict[str, NDArray[np.float32]]:
        """As in a weights file."""
        return {PRIOR_PREFIX + f.name: getattr(self, f.name) for f in fields(self)}

    @staticmethod
    def split(
        tensors: Mapping[str, NDArray[np.float32]],
    ) -> tuple[dict[str, NDArray[np.float32]], SketchPrior | None]:
        """The tensors of a weights file that are no prior, and the prior if any."""
        others = {n: a for n, a in tensors.items() if not n.startswith(PRIOR_PREFIX)}
        if len(others) == len(tensors):
            return others, None
        names = [PRIOR_PREFIX + field.name for field in fields(SketchPrior)]
        if set(names) | set(others) != set(tensors):
            raise FeatureMapError(
                f"a prior of sketches has the tensors {', '.join(names)}; these "
                "weights have others."
            )
        return others, SketchPrior(*(tensors[name] for name in names))
