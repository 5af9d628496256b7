"""Classification by one density per class, each from a sketch of its own."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NoReturn, Self, final, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted
from typing_extensions import override

from sketchlearn.decoders.clusters.resolution import narrow_features
from sketchlearn.decoders.density.cell_mixture import CellMixtureDecoder, find_cells
from sketchlearn.decoders.density.decoder import is_moments
from sketchlearn.decoders.moments.centring import second_moment_part
from sketchlearn.decoders.moments.nystrom import NystromDecoder
from sketchlearn.errors import ConvergenceWarning, FeatureMapError, RowsError, TooNoisy
from sketchlearn.estimators.base import AbstractSketchEstimator
from sketchlearn.estimators.class_variances import NARROWEST, pool_variances
from sketchlearn.estimators.density import SecondRound
from sketchlearn.estimators.inputs import (
    beside_targets,
    validated,
)
from sketchlearn.estimators.labelled_rows import LabelledRows
from sketchlearn.estimators.mixture import (
    CompressiveGaussianMixture,
    CovarianceType,
    plan_cells,
)
from sketchlearn.estimators.parameters import (
    AT_LEAST_ONE,
    BOUNDS,
    NOT_NEGATIVE,
    RANDOM_STATE,
    ROUNDS,
    SKETCH_SIZE,
    Constraints,
    one_of,
    seed_of,
)
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.composition import ConcatenatedFeatures
from sketchlearn.plans.scaling import extremes_of, warn_of_plan
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.rows.kinds import is_in_memory, kind_of
from sketchlearn.rows.open_rows import open_rows
from sketchlearn.sketching.local_rows import LocalRows
from sketchlearn.sketching.row_source import AbstractRowSource
from sketchlearn.sketching.sketch import Sketch

__all__ = ["CompressiveClassifier"]
__public__ = ["CompressiveClassifier"]

_FEWEST_ROWS = 5
"""Rows a component must have on average, and as many as features if "full"."""


@final
class CompressiveClassifier(ClassifierMixin, AbstractSketchEstimator):
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
    sketch_size : int or "auto"
        Numbers each class's sketch may hold, beside means and variances; see
        :class:`CompressiveGaussianMixture`.
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

    _parameter_constraints: Constraints = {
        "n_components": [AT_LEAST_ONE],
        "covariance_type": one_of("full", "diag"),
        "sketch_size": SKETCH_SIZE,
        "rounds": ROUNDS,
        "bounds": BOUNDS,
        "shrinkage": [NOT_NEGATIVE],
        "random_state": RANDOM_STATE,
    }

    def __init__(
        self,
        n_components: int = 1,
        *,
        covariance_type: CovarianceType = "full",
        sketch_size: int | Literal["auto"] = "auto",
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
        self._check_parameters()
        if first is None:
            return self._mixture(self.n_components).plan(n_features, rows=rows)
        size = self._mixture(self.n_components)._size(n_features, 2)
        units = _deviations(first)
        extremes = None if rows is None else extremes_of(rows)
        rounds = {c: SecondRound(part, size, extremes) for c, part in first.items()}
        # Units come from all classes: one that was not paid for shows in every map.
        public = all(known.origin == "declared" for known in rounds.values())
        maps: dict[Any, AbstractFeatureMap] = {}
        for label, known in rounds.items():
            known.origin = "declared" if public else "data"
            cells = plan_cells(
                known,
                n_components=self.n_components,
                covariance_type=self.covariance_type,
                units=units,
                seed=seed_of(self.random_state),
            )
            parts = [known.part] if cells is None else [known.part, cells]
            both = ConcatenatedFeatures(parts)
            maps[label] = both.with_columns(first[label].feature_map.columns)
        return maps

    @override
    def fit(self, X: Any, y: Any = None) -> Self:
        """Sketch the rows of each class, in one pass or two, and decode the sketches.

        Parameters
        ----------
        X : rows
            Array, frame or tensor; Arrow table, or path or glob of Parquet, CSV or
            Arrow files, with the name of a column of whole numbers for ``y``.
        y : array of shape (n,), or str
            Classes, or the name of the column that holds them.

        Returns
        -------
        self
        """
        self._check_parameters()
        with self._all_or_nothing():
            rows = self._open_labelled(X, y, reset=True)
            return self.fit_sketches(self._sketch_classes(rows, {}))

    @override
    def partial_fit(
        self, X: Any, y: Any = None, classes: ArrayLike | None = None
    ) -> Self:
        """Add rows; the first call plans and fits. ``classes`` is not needed."""
        if not hasattr(self, "sketches_"):
            return self.fit(X, y)
        self._check_parameters()
        with self._all_or_nothing():
            rows = self._open_labelled(X, y, reset=False)
            known = {c: sketch.feature_map for c, sketch in self.sketches_.items()}
            more = rows.sketches(known)
            if rows.labels() - known.keys():
                others = rows.without(known.keys())
                more |= self._sketch_classes(others, self.sketches_)
            return self.fit_sketches(_added(self.sketches_, more))

    @override
    def forget(self, X: Any, y: Any = None) -> Self:
        """Take rows of known classes out again, exactly.

        Warns
        -----
        DataPlanWarning
            If scales or cells were read from the data: the totals forget exactly, the
            plan does not.
        """
        check_is_fitted(self, "sketches_")
        self._check_parameters()
        known = {c: sketch.feature_map for c, sketch in self.sketches_.items()}
        with self._all_or_nothing():
            rows = self._open_labelled(X, y, reset=False)
            rest = dict(self.sketches_)
            for label, sketch in rows.sketches(known).items():
                if rest[label].count <= sketch.count:
                    _refuse_forgetting(label)
                rest[label] = rest[label] - sketch
            for label in rows.labels() - known.keys():
                _refuse_forgetting(label)
            self.fit_sketches(rest)
            warn_of_plan(*known.values())
        return self

    @override
    def merge(self, other: Self) -> Self:
        """Add what another fitted classifier of the same plan has seen."""
        check_is_fitted(self, "sketches_")
        check_is_fitted(other, "sketches_")
        with self._all_or_nothing():
            return self.fit_sketches(_added(self.sketches_, other.sketches_))

    @override
    def fit_sketch(self, sketch: Any) -> Self:
        """The same as :meth:`fit_sketches`: one sketch for each class."""
        return self.fit_sketches(sketch)

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
        self._check_parameters()
        if not isinstance(sketches, Mapping) or not sketches:
            raise RowsError(
                "no sketch to fit: pass a mapping with one for each class; got "
                f"{type(sketches).__name__}."
            )
        classes = _sorted(sketches)
        counts = np.array([sketches[c].count for c in classes.tolist()], np.float64)
        with self._all_or_nothing():
            mixtures = [self._fitted(c, sketches[c]) for c in classes.tolist()]
            self.classes_, self.class_prior_ = classes, counts / counts.sum()
            self.mixtures_ = mixtures
            pool_variances(mixtures, self.class_prior_, shrinkage=self.shrinkage)
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
        tags.target_tags.required = True
        tags.input_tags.sparse = False
        return tags

    @override
    def _open(self, X: Any, y: Any, *, reset: bool) -> AbstractRowSource:
        return LocalRows(self._open_labelled(X, y, reset=reset).batches)

    @override
    def _plan(self, rows: NDArray[np.floating]) -> AbstractFeatureMap:
        return self.plan(rows.shape[1], rows=rows)

    @override
    def _sketch(self, rows: AbstractRowSource) -> Sketch:
        raise FeatureMapError(
            "a classifier has a sketch for each class: sketch the rows of each with a "
            "map of plan(n_features), and pass them to fit_sketches."
        )

    def _open_labelled(self, X: Any, y: Any, *, reset: bool) -> LabelledRows:
        """Rows with their classes."""
        if y is None:
            raise RowsError(
                "requires y to be passed, but the target y is None. Pass the classes, "
                "or for files the name of their column."
            )
        if isinstance(y, str):
            return self._open_named(X, y, reset=reset)
        X = beside_targets(X, "column of classes")
        rows, labels = validated(self, X, y, reset=reset)
        check_classification_targets(labels)
        return LabelledRows(open_rows(rows), labels)

    def _open_named(self, X: Any, y: str, *, reset: bool) -> LabelledRows:
        if kind_of(X).is_read_once and not (reset and self._is_one_pass):
            raise RowsError(
                "a stream cannot be read twice, as classes need it. Nothing was read. "
                "Pass an array or files, or partial_fit for each batch."
            )
        batches = open_rows(X)
        found = batches.names
        if found is None or y not in found:
            raise RowsError(
                f"y={y!r} names a column, but the data has "
                f"{'no names' if found is None else list(found)}."
            )
        features = [name for name in found if name != y]
        if not reset:
            features = list(getattr(self, "feature_names_in_", features))
        batches = batches.select([*features, y])
        if reset:
            self.n_features_in_ = len(features)
            self.feature_names_in_ = np.array(features, object)
        return LabelledRows(batches)

    def _sketch_classes(
        self, rows: LabelledRows, known: Mapping[Any, Sketch]
    ) -> dict[Any, Sketch]:
        """Sketches of classes without a map: as those of ``known``, or planned."""
        extremes = None
        if known:
            some = next(iter(known.values())).feature_map
            twice = any(find_cells(s.feature_map) is not None for s in known.values())
            start = second_moment_part(some)[0] if twice else some
        else:
            twice = not self._is_one_pass
            declared = self.bounds is not None and not twice
            extremes = None if declared else rows.extremes()
            rounds = 1 + twice
            first = self._mixture(self.n_components, rounds=rounds)
            start = first.plan(self.n_features_in_, rows=extremes)
        sketches = rows.sketches(start)
        if not known:
            _warn_of_tails(sketches, getattr(self, "feature_names_in_", None))
        if not twice:
            return sketches
        maps = self.plan(start.n_features, rows=extremes, first={**known, **sketches})
        return rows.sketches({label: maps[label] for label in sketches})

    @property
    def _is_one_pass(self) -> bool:
        """Whether the rows are sketched once."""
        return self.rounds == 1 or (self.rounds is None and self.bounds is not None)

    def _mixture(
        self, n_components: int, rounds: int | None = None
    ) -> CompressiveGaussianMixture:
        return CompressiveGaussianMixture(
            n_components,
            covariance_type=self.covariance_type,
            sketch_size=self.sketch_size,
            rounds=self.rounds if rounds is None else rounds,
            bounds=self.bounds,
            reg_covar=float(np.finfo(np.float64).tiny),  # see pool_variances
            random_state=self.random_state,
        )

    def _fitted(
        self, label: Any, sketch: Sketch | PrivateSketch
    ) -> CompressiveGaussianMixture:
        try:
            return self._mixture_of(sketch)
        except TooNoisy as error:
            raise TooNoisy(
                f"class {label!r}: {error} If this class has no rows, leave it out."
            ) from error

    def _mixture_of(self, sketch: Sketch | PrivateSketch) -> CompressiveGaussianMixture:
        """The mixture of one class, of fewer components where rows are few."""
        each = sketch.feature_map.n_features if self.covariance_type == "full" else 0
        rows = int(sketch.count) // max(_FEWEST_ROWS, each)
        size = max(1, min(self.n_components, rows))
        if is_moments(sketch.feature_map):
            size = 1
        if find_cells(sketch.feature_map) is None:
            mixture = self._mixture(size)
            return mixture.fit_sketch(sketch, decoder=mixture._decoder(sketch, size))
        # Classes are no mixtures of Gaussians: refining did not help on real tables.
        decoder = CellMixtureDecoder(
            size,
            shape=self.covariance_type,
            least_variance=max(self.shrinkage, NARROWEST),
            n_rounds=0,
            seed=seed_of(self.random_state),
        )
        return self._mixture(size).fit_sketch(sketch, decoder=decoder)

    def _log_joint(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self, "sketches_")
        if not is_in_memory(X):
            raise RowsError(
                "this takes rows in memory: an array or frame. Read files batch by "
                "batch (sketchlearn.open_rows) and pass each batch."
            )
        rows = validated(self, X, reset=False, dtype=[np.float64, np.float32])
        columns = [mixture.score_samples(rows) for mixture in self.mixtures_]
        priors = np.log(np.maximum(self.class_prior_, 1e-300))
        return np.asarray(np.stack(columns, axis=1) + priors)


def _added(
    left: Mapping[Any, Sketch], right: Mapping[Any, Sketch]
) -> dict[Any, Sketch]:
    """Sketches of each class, added up."""
    merged = dict(left)
    for label, sketch in right.items():
        merged[label] = merged[label] + sketch if label in merged else sketch
    return merged


def _warn_of_tails(sketches: Mapping[Any, Sketch], names: NDArray[Any] | None) -> None:
    """Say so where a few rows far out make up the variances of their class."""
    whole = sum(sketches.values())
    assert isinstance(whole, Sketch)
    found = narrow_features(whole, NystromDecoder().decode(whole).params)
    if found:
        listed = [str(j if names is None else repr(names[j])) for j in found]
        warnings.warn(
            f"in feature {', '.join(listed)} a few rows lie far from all "
            "others: the variances of their class are those of these rows, and the "
            "result may be far from the best. Leave such rows out, clip them, or "
            "transform the feature.",
            ConvergenceWarning,
            stacklevel=4,
        )


def _refuse_forgetting(label: Any) -> NoReturn:
    raise RowsError(
        f"class {label!r} would have no rows left, or never had any. Nothing was "
        "forgotten."
    )


def _sorted(labels: Iterable[Any]) -> NDArray[Any]:
    """Classes in order, of one kind."""
    try:
        return np.array(sorted(labels))
    except TypeError as error:
        raise RowsError(
            "classes must be all numbers or all text, to be put in order."
        ) from error


def _deviations(sketches: Mapping[Any, Sketch | PrivateSketch]) -> NDArray[np.float64]:
    """Standard deviations of the features over all classes together."""
    parts = [NystromDecoder().decode(sketch).params for sketch in sketches.values()]
    counts = np.array([part.count for part in parts])
    means = np.stack([part.mean for part in parts])
    variances = np.stack([part.structure.variances for part in parts])
    shares = counts / counts.sum()
    away = means - shares @ means
    return np.asarray(np.sqrt(np.maximum(shares @ (variances + away**2), 0.0)))
