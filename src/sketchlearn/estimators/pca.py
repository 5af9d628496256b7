"""Principal components from one sketch."""

from __future__ import annotations

import warnings
from numbers import Integral
from typing import Any, Literal, Self, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from typing_extensions import override

from sketchlearn.decoders.moments.covariance import DENSE_FEATURES
from sketchlearn.decoders.moments.low_rank import (
    Moments,
    feature_numbers,
    second_moment_part,
)
from sketchlearn.errors import ConvergenceWarning, FeatureMapError, TooNoisy
from sketchlearn.estimators.base import (
    AbstractSketchEstimator,
    require_sketch,
    seed_of,
)
from sketchlearn.estimators.inputs import plan_scaling, require_in_memory
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.cross_moments import CrossMomentFeatures
from sketchlearn.plans.moments import (
    moment_decoder,
    plan_second_moments,
    require_decoder,
)
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.rows.batches import Batches
from sketchlearn.sketching.sketch import Sketch

__all__ = ["CompressivePCA"]

_FEW_DIRECTIONS = 8
"""A full basis whose first components are not all known is warned of."""

_LEFT_OUT = 0.25
"""Share of the variance that may have no room: plans leave out up to a fifth of the
features where that makes room for another direction of the others."""


@final
class CompressivePCA(
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    AbstractSketchEstimator,
):
    """Principal component analysis from one pass and one small sketch.

    Exact when the second moment fits in ``sketch_size`` (``d (d + 1) / 2`` numbers).
    Otherwise the sketch sees about
    ``sketch_size / d`` directions and the exact variance of every feature, and the rest
    of the covariance is what a meta-learned prior makes most likely.

    Parameters
    ----------
    n_components : int, float or None
        How many components; a float in (0, 1) asks for that share of the variance;
        None gives a full orthonormal basis. Of more than 2,048 features of a
        compressed sketch, None and a share give at most the directions it saw.
    sketch_size : int or "auto"
        Numbers the sketch may hold, beside means and variances. By default all second
        moments of up to about 1,000 features; of more, 64 directions or what takes as
        much room, with a warning.
    standardize : bool
        Scale features to unit variance first (components of the correlation matrix).
    bounds : pair (low, high), optional
        Declared range of the features: two numbers or two vectors. Values beyond it
        (rounded out to a power of two) are refused. Without it, scales are read from
        the rows: all of them, or the first ones of an iterator.
    decoder : {"learned", "nystrom"}
        How the covariance is completed where the sketch does not hold all of it: with
        a prior meta-learned on other datasets, or with none. Private sketches are
        always decoded without, and so are those of more than 1,024 features.
    random_state : int
        Seed of the sketch; the same on every party that is to merge. None is 0.

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
        sketch_size: int | Literal["auto"] = "auto",
        standardize: bool = False,
        bounds: tuple[ArrayLike, ArrayLike] | None = None,
        decoder: Literal["learned", "nystrom"] = "learned",
        random_state: int = 0,
    ) -> None:
        self.n_components = n_components
        self.sketch_size = sketch_size
        self.standardize = standardize
        self.bounds = bounds
        self.decoder = decoder
        self.random_state = random_state

    def plan(
        self, n_features: int, *, rows: NDArray[np.floating] | None = None
    ) -> AbstractFeatureMap:
        """The feature map parties must use to sketch for :meth:`fit_sketch`.

        Scales come from ``bounds``; without bounds from ``rows``, a sample of the
        data; without either there is no scaling, and values up to 32 are accepted.
        """
        self._check_parameters()
        _require_components(self.n_components, n_features)
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
            rows=rows,
            importance=importance,
            seed=seed_of(self.random_state),
        )

    @override
    def fit_sketch(
        self, sketch: Sketch | PrivateSketch, *, features: ArrayLike | None = None
    ) -> Self:
        """Decode a sketch made with a map from :meth:`plan`.

        Parameters
        ----------
        sketch : Sketch or PrivateSketch
            Of second moments.
        features : sequence of int, optional
            Analyse only these features of the sketch (all by default).

        Returns
        -------
        self
        """
        self._check_parameters()
        require_sketch(sketch)
        decoder = moment_decoder(self.decoder, sketch)
        moments = decoder.decode(sketch).params
        chosen = np.arange(len(moments.mean))
        _warn_of_dropped(sketch, moments, self.standardize)
        if features is not None:
            moments = moments.of_features(features)
            chosen = feature_numbers("features", features, len(chosen))
        self._decode(moments)
        self._name_features(sketch, chosen)
        self._selected = features is not None
        self.sketch_ = sketch
        return self

    @override
    def _open(self, X: Any, y: Any, *, reset: bool) -> Batches:
        return self._open_features(X, reset=reset)

    @override
    def _plan(self, rows: NDArray[np.floating]) -> AbstractFeatureMap:
        return self.plan(rows.shape[1], rows=rows)

    @override
    def _check_width(self, n_features: int) -> None:
        _require_components(self.n_components, n_features)

    @override
    def _check_parameters(self) -> None:
        super()._check_parameters()
        _require_components(self.n_components, None)
        if not isinstance(self.standardize, bool | np.bool_):
            raise FeatureMapError(
                f"standardize must be True or False; got {self.standardize!r}."
            )
        require_decoder(self.decoder)

    def _decode(self, moments: Moments) -> None:
        d, asked = len(moments.mean), self.n_components
        _require_components(asked, d)
        if moments.noise is not None and not moments.n_directions:
            raise TooNoisy(
                "no direction of the rows stands out of the noise of this release: the "
                "components would be noise. Release more rows, with a larger epsilon, "
                "a smaller norm_bound or bounds closer to the rows."
            )
        variance = np.maximum(moments.structure.variances, 0.0)
        scale = np.sqrt(variance) if self.standardize else np.ones_like(variance)
        scale = np.where(scale > 0, scale, 1.0)
        unbiased = moments.count / max(moments.count - 1, 1)
        structure = moments.structure.scaled(np.sqrt(unbiased) / scale)
        # Of many features, what a few factors say nothing of is not written out.
        most = d if d <= DENSE_FEATURES else structure.n_factors
        k = int(asked or 0) if _is_whole(asked) else most
        values, vectors = structure.largest(k)
        values, total = np.maximum(values, 0.0), float(structure.variances.sum())
        ratio = values / total if total > 0 else np.zeros_like(values)
        if isinstance(asked, float):
            k = min(int(np.searchsorted(np.cumsum(ratio), asked)) + 1, k)
        self._warn_of_unresolved(moments, k, float(ratio[:k].sum()))
        self.mean_, self.scale_ = moments.mean, scale
        self.components_ = _flip(vectors.T[:k])
        self.explained_variance_ = values[:k]
        self.explained_variance_ratio_ = ratio[:k]
        self.singular_values_ = np.sqrt(values[:k] * max(moments.count - 1, 1))
        left = max(total - float(values[:k].sum()), 0.0)
        self.noise_variance_ = left / (d - k) if k < d else 0.0
        self.n_components_ = k
        self.n_samples_seen_ = moments.count

    @override
    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Any:
        """Fit rows in memory, and give their coordinates on the components."""
        require_in_memory(X, "fit_transform")
        return super().fit_transform(X, y, **fit_params)

    def _warn_of_unresolved(self, moments: Moments, k: int, kept: float) -> None:
        """Say so where fewer components are known than are given, or given than asked.

        A full basis of a compressed sketch is taken as it is, ordered and no more,
        unless not even its first ones are known.
        """
        d, asked, seen = len(moments.mean), self.n_components, moments.n_directions
        enough = min((k + 5) * d, d * (d + 1) // 2)
        if moments.noise is not None and k > seen:
            message = (
                f"{seen} of {k} components stand out of the noise of this release; the "
                "others are mostly noise. Ask for fewer (n_components), or release "
                "more rows or with a larger epsilon."
            )
        elif k > seen and (_is_whole(asked) or seen < _FEW_DIRECTIONS):
            message = (
                f"the sketch saw {seen} directions of {d} features: components beyond "
                f"that are not resolved. Use sketch_size >= {enough}."
            )
        elif k < d and (asked is None or (isinstance(asked, float) and kept < asked)):
            message = (
                f"the sketch saw {seen} directions of {d} features; they are given, "
                f"{kept:.0%} of the variance. Say n_components=... for a number of "
                f"components, and use sketch_size >= {enough} to resolve more."
            )
        else:
            return
        warnings.warn(message, ConvergenceWarning, stacklevel=4)

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


def _warn_of_dropped(
    sketch: Sketch | PrivateSketch, moments: Moments, standardize: bool
) -> None:
    """Warn of features that vary and got no room."""
    part, _ = second_moment_part(sketch.feature_map)
    if not isinstance(part, CrossMomentFeatures) or isinstance(sketch, PrivateSketch):
        return
    variances = moments.structure.variances
    weights = (variances > 0).astype(np.float64) if standardize else variances
    left_out = np.setdiff1d(np.flatnonzero(variances > 0), part.kept)
    share = weights[left_out].sum() / max(weights.sum(), 1e-300)
    if share < _LEFT_OUT:
        return
    d = len(variances)
    warnings.warn(
        f"{len(left_out)} features, {share:.0%} of the variance, have no room in this "
        "sketch: of them components know nothing but the variances. Use sketch_size "
        f">= {min(5 * d, d * (d + 1) // 2)}.",
        ConvergenceWarning,
        stacklevel=3,
    )


def _is_whole(asked: Any) -> bool:
    return isinstance(asked, Integral) and not isinstance(asked, bool)


def _require_components(asked: Any, n_features: int | None) -> None:
    """Check ``n_components``; against the number of features once it is known."""
    whole = _is_whole(asked) and asked >= 1
    if asked is None or (whole and (n_features is None or asked <= n_features)):
        return
    if isinstance(asked, float) and 0 < asked < 1:
        return
    known = "" if n_features is None else f"={n_features}"
    raise FeatureMapError(
        f"n_components={asked!r} must be None, a whole number from 1 to n_features"
        f"{known}, or a share of variance in (0, 1)."
    )


def _flip(components: NDArray[np.float64]) -> NDArray[np.float64]:
    """Make the largest entry of each component positive."""
    largest = np.abs(components).argmax(axis=1)
    signs = np.sign(components[np.arange(len(components)), largest])
    return components * np.where(signs == 0, 1.0, signs)[:, None]
