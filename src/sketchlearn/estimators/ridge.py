"""Ridge regression from one sketch: the target is one more feature of it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any, Literal, Self, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.utils import Tags
from typing_extensions import override

from sketchlearn.decoders.moments.centring import second_moment_part
from sketchlearn.decoders.moments.moments import split_targets
from sketchlearn.decoders.moments.regression import fit_regression
from sketchlearn.decoders.moments.verdicts import (
    noisy_coefficients,
    require_signal,
    unseen_correlations,
)
from sketchlearn.engines.open_source import open_row_source
from sketchlearn.errors import ConvergenceWarning, FeatureMapError, RowsError
from sketchlearn.estimators.base import AbstractSketchEstimator, require_sketch
from sketchlearn.estimators.inputs import (
    beside_targets,
    learned_like,
    require_no_text,
    validated,
    with_targets,
)
from sketchlearn.estimators.parameters import (
    BOUNDS,
    NOT_NEGATIVE,
    RANDOM_STATE,
    SKETCH_SIZE,
    Constraints,
    one_of_or_file,
    seed_of,
)
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.plans.moments import (
    DECODERS,
    beside_scaling,
    moment_decoder,
    plan_second_moments,
    require_moment_decoder,
)
from sketchlearn.plans.scaling import plan_scaling
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.rows.open_rows import open_rows
from sketchlearn.sketching.local_rows import LocalRows
from sketchlearn.sketching.row_source import AbstractRowSource
from sketchlearn.sketching.sketch import Sketch

__all__ = ["CompressiveRidge"]
__public__ = ["CompressiveRidge"]


@final
class CompressiveRidge(
    RegressorMixin,
    AbstractSketchEstimator,
):
    r"""Linear regression with L2 penalty from one pass and one small sketch.

    Minimises :math:`\lVert y - Xw - b\rVert^2 + \alpha \lVert w\rVert^2` over all
    rows, like scikit-learn's Ridge. Exact when the second moment of features and
    targets fits in ``sketch_size``. Otherwise the sketch still knows exactly how well
    sums of groups of features, and any one feature beside them, predict the targets;
    completed covariances are followed beyond that only as far as directions that were
    left out of them in turn bear them out.

    Parameters
    ----------
    alpha : float
        Penalty, as in scikit-learn's Ridge (it weighs against the sum over rows).
    fit_intercept : bool
        Whether to fit b.
    sketch_size : int or "auto"
        Numbers the sketch may hold, beside means and variances. By default all second
        moments of up to about 1,000 features; of more, 64 directions or what takes as
        much room, with a warning.
    bounds, target_bounds : pair (low, high), optional
        Declared ranges of the features and of the targets. Values beyond them
        (rounded out to a power of two) are refused. Without both, scales are read
        from the rows: all of them, or the first ones of an iterator.
    decoder : {"learned", "nystrom"} or path
        How the covariance is completed where the sketch does not hold all of it: with
        a prior meta-learned on other datasets, or with none. The path of a
        ``.safetensors`` file is that of a prior of your own, as ``sketchlearn train
        pca-ordered`` writes it.
    random_state : int
        Seed of the sketch; the same on every party that is to merge.

    Attributes
    ----------
    coef_ : array of shape (n_features_in_,) or (n_targets, n_features_in_)
    intercept_ : float or array of shape (n_targets,)
    score_estimate_ : float
        R² on the rows that were sketched, averaged over the targets: exact if the
        sketch is, otherwise what the sketch can answer for, on average a little below
        the truth. Of a private sketch an estimate with noise of its own.
    n_samples_seen_, n_features_in_ : int
    sketch_ : Sketch
        All that is kept of the data.

    Examples
    --------
    >>> import numpy as np, sketchlearn as sl
    >>> X = np.random.default_rng(0).normal(size=(1000, 2))
    >>> ridge = sl.CompressiveRidge(alpha=1e-3).fit(X, X @ [2.0, -1.0] + 3.0)
    >>> np.round(ridge.coef_, 3), round(ridge.intercept_, 3)
    (array([ 2., -1.]), 3.0)
    """

    _parameter_constraints: Constraints = {
        "alpha": [NOT_NEGATIVE],
        "fit_intercept": ["boolean"],
        "sketch_size": SKETCH_SIZE,
        "bounds": BOUNDS,
        "target_bounds": BOUNDS,
        "decoder": one_of_or_file(*DECODERS),
        "random_state": RANDOM_STATE,
    }
    command = "ridge"
    command_options = {"alpha": "alpha", "target_bounds": "target_bounds"}
    command_output = ("coef_", "intercept_")

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        fit_intercept: bool = True,
        sketch_size: int | Literal["auto"] = "auto",
        bounds: tuple[ArrayLike, ArrayLike] | None = None,
        target_bounds: tuple[ArrayLike, ArrayLike] | None = None,
        decoder: str | os.PathLike[str] = "learned",
        random_state: int = 0,
    ) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.sketch_size = sketch_size
        self.bounds = bounds
        self.target_bounds = target_bounds
        self.decoder = decoder
        self.random_state = random_state

    @override
    def fit(self, X: Any, y: Any = None) -> Self:
        """Sketch rows and targets in one pass and decode the sketch.

        Parameters
        ----------
        X : rows
            Anything that can be sketched.
        y : array of shape (n,) or (n, n_targets), or str or list of str
            Targets; for files and Arrow data, the name of the target column or
            columns, which are then left out of the features.

        Returns
        -------
        self
        """
        return super().fit(X, y)

    def plan(
        self,
        n_features: int,
        *,
        n_targets: int = 1,
        rows: NDArray[np.floating] | None = None,
    ) -> AbstractFeatureMap:
        """The feature map parties must use to sketch for :meth:`fit_sketch`.

        Rows are the features followed by the targets. Scales come from ``bounds``
        and ``target_bounds``; without them from ``rows``, a sample of the data;
        without either there is no scaling, and values up to 32 are accepted.
        """
        self._check_parameters()
        x, y = (None, None) if rows is None else np.split(rows, [n_features], axis=1)
        left, reach = plan_scaling(self.bounds, n_features, x)
        right, _ = plan_scaling(self.target_bounds, n_targets, y)
        return plan_second_moments(
            n_features=n_features + n_targets,
            n_targets=n_targets,
            sketch_size=self.sketch_size,
            scaling=beside_scaling(left, right),
            reach=reach,
            rows=rows,
            seed=seed_of(self.random_state),
        )

    @override
    def fit_sketch(
        self,
        sketch: Sketch | PrivateSketch,
        *,
        targets: Sequence[int] | None = None,
    ) -> Self:
        """Decode a sketch of features and targets.

        Parameters
        ----------
        sketch : Sketch or PrivateSketch
            Made with a map from :meth:`plan`, or any that holds second moments.
        targets : sequence of int, optional
            Which features of the sketch are the targets; by default those the map
            was planned for.

        Returns
        -------
        self
        """
        self._check_parameters()
        require_sketch(sketch)
        decoder = moment_decoder(self.decoder, sketch, with_unseen=True)
        moments = decoder.decode(sketch).params
        part, _ = second_moment_part(sketch.feature_map)
        xs, ys = split_targets(part, targets)
        found = fit_regression(
            moments, xs, ys, alpha=self.alpha, fit_intercept=self.fit_intercept
        )
        require_signal(found)
        for message in (noisy_coefficients(found), unseen_correlations(found, part)):
            if message:
                warnings.warn(message, ConvergenceWarning, stacklevel=2)
        flat = len(ys) == 1
        self.coef_ = found.coef[0] if flat else found.coef
        self.intercept_ = float(found.intercept[0]) if flat else found.intercept
        self.score_estimate_ = float(found.score.mean())
        self.n_samples_seen_ = moments.count
        self._name_features(sketch, xs)
        self._selected = targets is not None
        self.sketch_ = sketch
        return self

    @override
    def _check_parameters(self) -> None:
        super()._check_parameters()
        require_moment_decoder(self.decoder)
        if (self.bounds is None) != (self.target_bounds is None):
            raise FeatureMapError(
                "declare both bounds and target_bounds, or neither of them."
            )

    def predict(self, X: Any) -> NDArray[np.floating]:
        """Predicted targets of rows."""
        rows = self._check_rows(X)
        predicted: NDArray[np.floating] = rows @ self.coef_.T + self.intercept_
        return predicted

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.required = True
        return tags

    @override
    def _open(self, X: Any, y: Any, *, reset: bool) -> AbstractRowSource:
        if y is None:
            raise RowsError(
                "requires y to be passed, but the target y is None. Pass an array, or "
                "for files the name of the target column."
            )
        names = [y] if isinstance(y, str) else y
        if isinstance(names, list | tuple) and names and isinstance(names[0], str):
            return self._open_named(X, list(names), reset=reset)
        X = beside_targets(X, "target column (or a list of names)")
        require_no_text(y)
        rows, targets = validated(
            self,
            X,
            y,
            reset=reset,
            accept_sparse="csr",
            multi_output=True,
            y_numeric=True,
        )
        beside = with_targets(learned_like(X, rows), targets)
        return LocalRows(beside, source=open_rows(rows).source)

    def _open_named(
        self, X: Any, names: list[str], *, reset: bool
    ) -> AbstractRowSource:
        rows = open_row_source(X)
        found = rows.names
        if found is None:
            raise RowsError(f"y={names!r} names columns, but the data has no names.")
        features = [name for name in found if name not in names]
        if not reset:
            features = list(getattr(self, "feature_names_in_", features))
            fitted = getattr(self.sketch_, "columns", None)
            if fitted is not None and list(fitted[len(features) :]) != names:
                raise RowsError(
                    f"the target is {names}, but the model was fitted to "
                    f"{list(fitted[len(features) :])}."
                )
        if not features:
            raise RowsError("no column is left beside the targets.")
        rows = rows.select([*features, *names])
        if reset:
            self.n_features_in_ = len(features)
            self.feature_names_in_ = np.array(features, object)
        return rows

    @override
    def _plan(self, rows: NDArray[np.floating]) -> AbstractFeatureMap:
        n_targets = rows.shape[1] - self.n_features_in_
        return self.plan(self.n_features_in_, n_targets=n_targets, rows=rows)
