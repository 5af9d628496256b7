"""Classification by one density per class, each from a sketch of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, final, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from sketchlearn.decoders.cell_mixture import CellMixtureDecoder, find_cells
from sketchlearn.decoders.density import is_moments
from sketchlearn.decoders.low_rank import NystromDecoder, second_moment_part
from sketchlearn.errors import RowsError
from sketchlearn.estimators.base import extremes_of, seed_of
from sketchlearn.estimators.density import SecondRound
from sketchlearn.estimators.mixture import (
    CompressiveGaussianMixture,
    CovarianceType,
    plan_cells,
)
from sketchlearn.features.base import AbstractFeatureMap, require_positive_int
from sketchlearn.features.composition import ConcatenatedFeatures
from sketchlearn.privacy import PrivateSketch
from sketchlearn.sketch import Sketch, sketch_rows

__all__ = ["CompressiveClassifier"]

_FEWEST_ROWS = 5
"""Rows a component must have on average, and as many as features if "full"."""

_ROUNDING = 2.0**-40
_NARROWEST, _CONSTANT = 1e-6, 1e-12
"""Least variances, and those of constant features, as shares of squares."""


@final
class CompressiveClassifier(ClassifierMixin, BaseEstimator):
    r"""Bayes' rule with a Gaussian mixture per class, from one sketch per class.

    .. math:: P(c \mid x) \propto \pi_c\, p_c(x)

    with :math:`p_c` decoded from the sketch of class c by
    :class:`CompressiveGaussianMixture` and :math:`\pi_c` its share of the rows. With
    two rounds, every class has a feature map of its own: the moments of its first
    round place the cells of its second.

    Parameters
    ----------
    n_components : int
        Components per class; fewer where a class has few rows.
    covariance_type : {"full", "diag"}
        Covariances of the components.
    sketch_size : int
        Numbers each class's sketch may hold, beside means and variances.
    rounds : {1, 2} or None
        Passes over the rows; None takes two, unless ``bounds`` are declared. See
        :class:`CompressiveGaussianMixture`.
    bounds : pair (low, high), optional
        Declared range of the features; without it, read from the rows of ``fit``.
    shrinkage : float
        Share of every feature's pooled variance added to the covariances of each
        class: small classes and constant features stay sane.
    random_state : int
        Seed of the sketches and of the search. None is 0.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    class_prior_ : array of shape (n_classes,)
    mixtures_ : list of CompressiveGaussianMixture
        One per class, in the order of ``classes_``.
    sketches_ : dict
        All that is kept of the data: one sketch for each class.
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(400, 2))
    >>> y = np.repeat([0, 1], 200)
    >>> X[y == 1] += 4
    >>> CompressiveClassifier(1, sketch_size=100).fit(X, y).score(X, y) > 0.98
    True
    """

    def __init__(
        self,
        n_components: int = 1,
        *,
        covariance_type: CovarianceType = "full",
        sketch_size: int = 2000,
        rounds: int | None = None,
        bounds: tuple[ArrayLike, ArrayLike] | None = None,
        shrinkage: float = 3e-3,
        random_state: int = 0,
    ) -> None:
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.sketch_size = sketch_size
        self.rounds = rounds
        self.bounds = bounds
        self.shrinkage = shrinkage
        self.random_state = random_state

    @overload
    def plan(
        self,
        n_features: int,
        *,
        rows: NDArray[np.floating] | None = None,
        first: None = None,
    ) -> AbstractFeatureMap: ...

    @overload
    def plan(
        self,
        n_features: int,
        *,
        rows: NDArray[np.floating] | None = None,
        first: Mapping[Any, Sketch | PrivateSketch],
    ) -> dict[Any, AbstractFeatureMap]: ...

    def plan(
        self,
        n_features: int,
        *,
        rows: NDArray[np.floating] | None = None,
        first: Mapping[Any, Sketch | PrivateSketch] | None = None,
    ) -> AbstractFeatureMap | dict[Any, AbstractFeatureMap]:
        """The feature maps parties must use to sketch each class.

        Parameters
        ----------
        n_features : int
            Numbers in a row.
        rows : array, optional
            A sample of the data to read scales from, where no ``bounds`` are
            declared; without either, values up to 32 are accepted.
        first : mapping, optional
            From each class to the merged sketch of its first round: gives a map for
            each class. Without it, one map for all classes: of the only round, or of
            the first with ``rounds=2``.

        Returns
        -------
        AbstractFeatureMap or dict
        """
        if first is None:
            return self._mixture(1).plan(n_features, rows=rows)
        units = _deviations(first)
        extremes = None if rows is None else extremes_of(rows)
        maps: dict[Any, AbstractFeatureMap] = {}
        for label, sketch in first.items():
            known = SecondRound(sketch, self.sketch_size, extremes)
            cells = plan_cells(
                known,
                n_components=self.n_components,
                covariance_type=self.covariance_type,
                units=units,
                seed=seed_of(self.random_state),
            )
            parts = [known.part] if cells is None else [known.part, cells]
            maps[label] = ConcatenatedFeatures(parts)
        return maps

    def fit(self, X: Any, y: Any) -> Self:
        """Sketch the rows of each class, in one pass or two, and decode the sketches.

        Parameters
        ----------
        X : array or frame of shape (n, d)
        y : array of shape (n,)
            Classes.

        Returns
        -------
        self
        """
        return self.fit_sketches(self._sketch(X, y, known=None))

    def partial_fit(self, X: Any, y: Any, classes: ArrayLike | None = None) -> Self:
        """Add rows; the first call plans and fits. ``classes`` is not needed."""
        if not hasattr(self, "sketches_"):
            return self.fit(X, y)
        more = self._sketch(X, y, known=self.sketches_)
        merged = dict(self.sketches_)
        for label, sketch in more.items():
            merged[label] = merged[label] + sketch if label in merged else sketch
        return self.fit_sketches(merged)

    def forget(self, X: Any, y: Any) -> Self:
        """Take rows of known classes out again, exactly."""
        check_is_fitted(self, "sketches_")
        gone = self._sketch(X, y, known=self.sketches_)
        rest = dict(self.sketches_)
        for label, sketch in gone.items():
            if label not in rest or rest[label].count <= sketch.count:
                raise RowsError(
                    f"class {label!r} would have no rows left, or never had any. "
                    "Nothing was forgotten."
                )
            rest[label] = rest[label] - sketch
        return self.fit_sketches(rest)

    def merge(self, other: Self) -> Self:
        """Add what another fitted classifier of the same plan has seen."""
        check_is_fitted(self, "sketches_")
        check_is_fitted(other, "sketches_")
        merged = dict(self.sketches_)
        for label, sketch in other.sketches_.items():
            merged[label] = merged[label] + sketch if label in merged else sketch
        return self.fit_sketches(merged)

    def fit_sketches(self, sketches: Mapping[Any, Sketch | PrivateSketch]) -> Self:
        """Decode one sketch per class, made with a map from :meth:`plan`.

        Parameters
        ----------
        sketches : mapping
            From each class to the sketch of its rows.

        Returns
        -------
        self
        """
        require_positive_int("n_components", self.n_components)
        if not sketches:
            raise RowsError("no sketch to fit: pass one for each class.")
        classes = np.array(sorted(sketches))
        counts = np.array([sketches[c].count for c in classes.tolist()], np.float64)
        mixtures = [self._fitted(sketches[label]) for label in classes.tolist()]
        self.classes_, self.class_prior_ = classes, counts / counts.sum()
        self.mixtures_ = mixtures
        self._pool()
        self.n_features_in_ = mixtures[0].n_features_in_
        self.sketches_ = dict(sketches)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Most probable class of each row."""
        logs = self._log_joint(X)
        return np.asarray(self.classes_[logs.argmax(axis=1)])

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probability of each class, in the order of ``classes_``."""
        logs = self._log_joint(X)
        return np.asarray(np.exp(logs - logsumexp(logs, axis=1, keepdims=True)))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = True
        return tags

    def _sketch(
        self, X: Any, y: Any, *, known: Mapping[Any, Sketch] | None
    ) -> dict[Any, Sketch]:
        """One sketch for each class in ``y``."""
        if y is None:
            raise RowsError(
                "requires y to be passed, but the target y is None. Pass the classes."
            )
        rows, labels = validate_data(self, X, y, reset=known is None)
        check_classification_targets(labels)
        groups = {c: rows[labels == c] for c in np.unique(labels).tolist()}
        old = {c: groups.pop(c) for c in list(groups) if known and c in known}
        found = {c: sketch_rows(old[c], known[c].feature_map) for c in old if known}
        if groups:
            found.update(self._sketch_new(groups, known or {}))
        return found

    def _sketch_new(
        self, groups: Mapping[Any, NDArray[np.floating]], known: Mapping[Any, Sketch]
    ) -> dict[Any, Sketch]:
        """Sketches of classes without a map: as those of ``known``, or planned."""
        extremes = None
        if known:
            some = next(iter(known.values())).feature_map
            twice = any(find_cells(s.feature_map) is not None for s in known.values())
            start = second_moment_part(some)[0] if twice else some
        else:
            ends = [extremes_of(group) for group in groups.values()]
            extremes = extremes_of(np.concatenate(ends))
            twice = self.rounds == 2 or (self.rounds is None and self.bounds is None)
            first = self._mixture(1, rounds=self.rounds or 1 + twice)
            start = first.plan(extremes.shape[1], rows=extremes)
        sketches = {c: sketch_rows(group, start) for c, group in groups.items()}
        if not twice:
            return sketches
        maps = self.plan(start.n_features, rows=extremes, first={**known, **sketches})
        return {c: sketch_rows(group, maps[c]) for c, group in groups.items()}

    def _mixture(
        self, n_components: int, rounds: int | None = None
    ) -> CompressiveGaussianMixture:
        return CompressiveGaussianMixture(
            n_components,
            covariance_type=self.covariance_type,
            sketch_size=self.sketch_size,
            rounds=self.rounds if rounds is None else rounds,
            bounds=self.bounds,
            reg_covar=0.0,
            random_state=self.random_state,
        )

    def _fitted(self, sketch: Sketch | PrivateSketch) -> CompressiveGaussianMixture:
        """The mixture of one class, of fewer components where rows are few."""
        each = sketch.feature_map.n_features if self.covariance_type == "full" else 0
        rows = int(sketch.count) // max(_FEWEST_ROWS, each)
        size = max(1, min(self.n_components, rows))
        if is_moments(sketch.feature_map):
            size = 1
        if find_cells(sketch.feature_map) is None:
            return self._mixture(size).fit_sketch(sketch)
        # Classes are no mixtures of Gaussians: refining did not help on real tables.
        decoder = CellMixtureDecoder(
            size,
            shape=self.covariance_type,
            least_variance=max(self.shrinkage, _NARROWEST),
            n_rounds=0,
            seed=seed_of(self.random_state),
        )
        return self._mixture(size).fit_sketch(sketch, decoder=decoder)

    def _pool(self) -> None:
        """Add a share of the pooled variances to every covariance."""
        d = self.mixtures_[0].n_features_in_
        pooled, squares = np.zeros(d), np.zeros(d)
        means = [mixture.weights_ @ mixture.means_ for mixture in self.mixtures_]
        centre: NDArray[np.float64] = np.asarray(self.class_prior_) @ np.stack(means)
        for prior, mixture in zip(self.class_prior_, self.mixtures_, strict=True):
            covariances, weights = mixture.covariances_, mixture.weights_
            if covariances.ndim == 3:
                covariances = np.einsum("jaa->ja", covariances)
            away = mixture.means_ - weights @ mixture.means_
            pooled += prior * (weights @ (covariances + away**2))
            squares += prior * (weights @ (mixture.means_ - centre) ** 2)
        # A spread between the classes only, or none at all beside the size of values.
        squares = np.maximum(squares, (_ROUNDING * centre) ** 2)
        constant = pooled <= _CONSTANT * squares
        least = np.where(constant, _NARROWEST * squares + _CONSTANT, 0.0)
        extra = max(self.shrinkage, _CONSTANT) * pooled + least
        for mixture in self.mixtures_:
            full = mixture.covariances_.ndim == 3
            added = np.diag(extra) if full else extra
            mixture.covariances_ = mixture.covariances_ + added

    def _log_joint(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self, "sketches_")
        rows = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        columns = [mixture.score_samples(rows) for mixture in self.mixtures_]
        priors = np.log(np.maximum(self.class_prior_, 1e-300))
        return np.asarray(np.stack(columns, axis=1) + priors)


def _deviations(sketches: Mapping[Any, Sketch | PrivateSketch]) -> NDArray[np.float64]:
    """Standard deviations of the features over all classes together."""
    parts = [NystromDecoder().decode(sketch).params for sketch in sketches.values()]
    counts = np.array([part.count for part in parts])
    means = np.stack([part.mean for part in parts])
    variances = np.stack([np.diag(part.covariance) for part in parts])
    shares = counts / counts.sum()
    away = means - shares @ means
    return np.asarray(np.sqrt(np.maximum(shares @ (variances + away**2), 0.0)))
