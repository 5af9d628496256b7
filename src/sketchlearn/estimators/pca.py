"""Principal components from one sketch."""

from __future__ import annotations

import os
import warnings
from numbers import Integral
from typing import Any, Literal, Self, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from typing_extensions import override

from sketchlearn.decoders.moments.centring import second_moment_part
from sketchlearn.decoders.moments.components import principal_components
from sketchlearn.decoders.moments.moments import feature_numbers
from sketchlearn.decoders.moments.verdicts import (
    left_out_features,
    require_directions,
    unresolved_components,
)
from sketchlearn.errors import ConvergenceWarning, FeatureMapError
from sketchlearn.estimators.base import AbstractSketchEstimator, require_sketch
from sketchlearn.estimators.inputs import require_in_memory
from sketchlearn.estimators.parameters import (
    AT_LEAST_ONE,
    BOUNDS,
    RANDOM_STATE,
    SHARE,
    SKETCH_SIZE,
    Constraints,
    one_of_or_file,
    seed_of,
)
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.plans.moments import (
    DECODERS,
    moment_decoder,
    plan_second_moments,
    require_moment_decoder,
)
from sketchlearn.plans.scaling import plan_scaling
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.row_source import AbstractRowSource
from sketchlearn.sketching.sketch import Sketch

__all__ = ["CompressivePCA"]
__public__ = ["CompressivePCA"]


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
    decoder : {"learned", "nystrom"} or path
        How the covariance is completed where the sketch does not hold all of it: with
        a prior meta-learned on other datasets, or with none. The path of a
        ``.safetensors`` file is that of a prior of your own, as ``sketchlearn train
        pca-ordered`` writes it. Neighbouring columns may be alike, and the prior makes
        use of it: leave columns that have an order in it. Sketches of more than 1,024
        features are decoded without.
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

    _parameter_constraints: Constraints = {
        "n_components": [AT_LEAST_ONE, SHARE, None],
        "sketch_size": SKETCH_SIZE,
        "standardize": ["boolean"],
        "bounds": BOUNDS,
        "decoder": one_of_or_file(*DECODERS),
        "random_state": RANDOM_STATE,
    }
    command = "pca"
    command_options = {"components": "n_components", "standardize": "standardize"}
    command_output = (
        "mean_",
        "scale_",
        "components_",
        "explained_variance_ratio_",
    )

    def __init__(
        self,
        n_components: int | float | None = None,
        *,
        sketch_size: int | Literal["auto"] = "auto",
        standardize: bool = False,
        bounds: tuple[ArrayLike, ArrayLike] | None = None,
        decoder: str | os.PathLike[str] = "learned",
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
        self._check_width(n_features)
        scaling, reach = plan_scaling(self.bounds, n_features, rows)
        return plan_second_moments(
            n_features=n_features,
            sketch_size=self.sketch_size,
            scaling=scaling,
            reach=reach,
            rows=rows,
            by_spread=not self.standardize,
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
        moments = whole = moment_decoder(self.decoder, sketch).decode(sketch).params
        chosen = np.arange(len(whole.mean))
        if features is not None:
            moments = whole.of_features(features)
            chosen = feature_numbers("features", features, len(chosen))
        self._check_width(len(chosen))
        require_directions(moments)
        asked, standardize = self.n_components, self.standardize
        asked = float(asked) if isinstance(asked, np.floating) else asked
        found = principal_components(moments, asked, standardize=standardize)
        part, _ = second_moment_part(sketch.feature_map)
        for message in (
            left_out_features(whole, part, standardize=standardize),
            unresolved_components(moments, found, asked),
        ):
            if message:
                warnings.warn(message, ConvergenceWarning, stacklevel=2)
        self.mean_, self.scale_ = found.mean, found.scale
        self.components_ = found.components
        self.explained_variance_ = found.variances
        self.explained_variance_ratio_ = found.ratio
        self.singular_values_ = found.singular_values
        self.noise_variance_ = found.noise_variance
        self.n_components_ = len(found.components)
        self.n_samples_seen_ = moments.count
        self._name_features(sketch, chosen)
        self._selected = features is not None
        self.sketch_ = sketch
        return self

    @override
    def _check_parameters(self) -> None:
        super()._check_parameters()
        require_moment_decoder(self.decoder)

    @override
    def _open(self, X: Any, y: Any, *, reset: bool) -> AbstractRowSource:
        return self._open_features(X, reset=reset)

    @override
    def _plan(self, rows: NDArray[np.floating]) -> AbstractFeatureMap:
        return self.plan(rows.shape[1], rows=rows)

    @override
    def _check_width(self, n_features: int) -> None:
        asked = self.n_components
        if isinstance(asked, Integral) and asked > n_features:
            raise FeatureMapError(
                f"n_components={asked} must be at most n_features={n_features}, or a "
                "share of the variance in (0, 1), or None."
            )

    @override
    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Any:
        """Fit rows in memory, and give their coordinates on the components."""
        require_in_memory(X, "fit_transform")
        return super().fit_transform(X, y, **fit_params)

    def transform(self, X: Any) -> NDArray[np.floating]:
        """Coordinates of rows on the components."""
        rows = self._check_rows(X)
        centred = (rows - self.mean_.astype(rows.dtype)) / self.scale_.astype(
            rows.dtype
        )
        projected: NDArray[np.floating] = centred @ self.components_.T.astype(
            rows.dtype
        )
        return self._learned_rows(X, projected)

    def inverse_transform(self, X: Any) -> NDArray[np.floating]:
        """Rows back from coordinates."""
        check_is_fitted(self, "components_")
        rows = np.asarray(X) @ self.components_ * self.scale_ + self.mean_
        return self._learned_rows(X, rows, framed=False)

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)
