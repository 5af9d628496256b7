"""Principal components from one sketch."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, Self, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from typing_extensions import override

from sketchlearn.decoders.low_rank import Moments, NystromDecoder
from sketchlearn.errors import FeatureMapError
from sketchlearn.estimators.base import (
    AbstractSketchEstimator,
    plan_scaling,
    plan_second_moments,
    varying,
)
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.rows.batches import Batches
from sketchlearn.sketch import Sketch

__all__ = ["CompressivePCA"]


@final
class CompressivePCA(
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    AbstractSketchEstimator,
):
    """Principal component analysis from one pass and one small sketch.

    Exact when the second moment fits in ``sketch_size`` (``d (d + 1) / 2`` numbers),
    a Nyström approximation with the exact variances otherwise.

    Parameters
    ----------
    n_components : int, float or None
        How many components; a float in (0, 1) asks for that share of the variance;
        None gives a full orthonormal basis.
    sketch_size : int
        Numbers the sketch may hold, beside means and variances.
    standardize : bool
        Scale features to unit variance first (components of the correlation matrix).
    bounds : pair (low, high), optional
        Declared range of the features: two numbers or two vectors. Values beyond it
        are refused. Without it, scales are read from the first rows.
    random_state : int
        Seed of the sketch; the same on every party that is to merge.

    Attributes
    ----------
    components_ : array of shape (n_components_, n_features_in_)
        Orthonormal rows, by decreasing variance.
    explained_variance_, explained_variance_ratio_, singular_values_ : arrays
        As in scikit-learn's PCA.
    mean_, scale_ : arrays of shape (n_features_in_,)
        Subtracted from, and (with ``standardize``) divided into, every row.
    noise_variance_ : float
        Mean variance of the components left out.
    n_components_, n_samples_seen_, n_features_in_ : int
    sketch_ : Sketch
        All that is kept of the data.

    Examples
    --------
    >>> import numpy as np, sketchlearn as sl
    >>> X = np.random.default_rng(0).normal(size=(1000, 3)) * [3.0, 1.0, 0.1]
    >>> pca = sl.CompressivePCA(n_components=1).fit(X)
    >>> np.round(abs(pca.components_), 1)
    array([[1., 0., 0.]])
    """

    def __init__(
        self,
        n_components: int | float | None = None,
        *,
        sketch_size: int = 2000,
        standardize: bool = False,
        bounds: tuple[ArrayLike, ArrayLike] | None = None,
        random_state: int = 0,
    ) -> None:
        self.n_components = n_components
        self.sketch_size = sketch_size
        self.standardize = standardize
        self.bounds = bounds
        self.random_state = random_state

    def plan(
        self, n_features: int, *, rows: NDArray[np.floating] | None = None
    ) -> AbstractFeatureMap:
        """The feature map parties must use to sketch for :meth:`fit_sketch`.

        Scales come from ``bounds``; without bounds from ``rows``, a sample of the
        data; without either there is no scaling, and values up to 32 are accepted.
        """
        scaling, reach = plan_scaling(self.bounds, n_features, rows)
        importance = None
        if not self.standardize:  # weigh features by their spread, as PCA will
            spread = 1 / scaling.factor
            importance = np.maximum(spread / spread.max(), 2.0**-12)
        return plan_second_moments(
            n_features=n_features,
            sketch_size=self.sketch_size,
            scaling=scaling,
            reach=reach,
            active=varying(rows) if scaling.origin == "data" else None,
            importance=importance,
            seed=self.random_state,
        )

    @override
    def fit_sketch(self, sketch: Sketch, *, features: ArrayLike | None = None) -> Self:
        """Decode a sketch made with a map from :meth:`plan`.

        Parameters
        ----------
        sketch : Sketch
            Of second moments.
        features : sequence of int, optional
            Analyse only these features of the sketch (all by default).

        Returns
        -------
        self
        """
        moments = NystromDecoder().decode(sketch).params
        if features is not None:
            moments = moments.of_features(features)
        self._decode(moments)
        self.sketch_ = sketch
        return self

    @override
    def _open(self, X: Any, y: Any, *, reset: bool) -> Batches:
        return self._open_features(X, reset=reset)

    @override
    def _plan(self, rows: NDArray[np.floating]) -> AbstractFeatureMap:
        return self.plan(rows.shape[1], rows=rows)

    def _decode(self, moments: Moments) -> None:
        variance = np.maximum(np.diag(moments.covariance), 0.0)
        scale = np.sqrt(variance) if self.standardize else np.ones_like(variance)
        self.scale_ = np.where(scale > 0, scale, 1.0)
        covariance = moments.covariance / np.outer(self.scale_, self.scale_)
        values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
        values = np.maximum(values[::-1], 0.0)
        values = values * (moments.count / max(moments.count - 1, 1))
        components = _flip(vectors[:, ::-1].T)
        total = values.sum()
        ratio = values / total if total > 0 else np.zeros_like(values)
        k = _n_components(self.n_components, ratio)
        self.mean_ = moments.mean
        self.components_ = components[:k]
        self.explained_variance_ = values[:k]
        self.explained_variance_ratio_ = ratio[:k]
        self.singular_values_ = np.sqrt(values[:k] * max(moments.count - 1, 1))
        self.noise_variance_ = float(values[k:].mean()) if k < len(values) else 0.0
        self.n_components_ = k
        self.n_samples_seen_ = moments.count
        self.n_features_in_ = len(moments.mean)

    def transform(self, X: Any) -> NDArray[np.floating]:
        """Coordinates of rows on the components."""
        rows = self._check_rows(X)
        centred = (rows - self.mean_.astype(rows.dtype)) / self.scale_.astype(
            rows.dtype
        )
        projected: NDArray[np.floating] = centred @ self.components_.T.astype(
            rows.dtype
        )
        return projected

    def inverse_transform(self, X: Any) -> NDArray[np.floating]:
        """Rows back from coordinates."""
        check_is_fitted(self, "components_")
        return np.asarray(X) @ self.components_ * self.scale_ + self.mean_

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)


def _n_components(asked: Any, ratio: NDArray[np.float64]) -> int:
    """Number of components from the ``n_components`` argument."""
    d = len(ratio)
    if asked is None:
        return d
    whole = isinstance(asked, Integral) and not isinstance(asked, bool)
    if whole and 1 <= int(asked) <= d:
        return int(asked)
    share = float(asked) if isinstance(asked, Real) and not whole else 0.0
    if 0 < share < 1:
        return min(int(np.searchsorted(np.cumsum(ratio), share)) + 1, d)
    raise FeatureMapError(
        f"n_components={asked!r} must be None, a whole number from 1 to n_features="
        f"{d}, or a share of variance in (0, 1)."
    )


def _flip(components: NDArray[np.float64]) -> NDArray[np.float64]:
    """Make the largest entry of each component positive."""
    largest = np.abs(components).argmax(axis=1)
    signs = np.sign(components[np.arange(len(components)), largest])
    return components * np.where(signs == 0, 1.0, signs)[:, None]
