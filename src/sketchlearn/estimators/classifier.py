"""Classification by a density per class, or linearly, from one sketch per class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self, final, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from typing_extensions import override

from sketchlearn.decoders.density.class_mixture import ClassMoments, class_decoder
from sketchlearn.decoders.density.components import (
    pool_classes,
    rounding_steps,
)
from sketchlearn.errors import TooNoisy
from sketchlearn.estimators.class_sketches import classes_of
from sketchlearn.estimators.density import warn_all
from sketchlearn.estimators.inputs import rows_in_memory
from sketchlearn.estimators.mixture import CompressiveGaussianMixture, CovarianceType
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
from sketchlearn.estimators.per_class import AbstractPerClassEstimator
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.plans.advice import misled_mixtures
from sketchlearn.plans.cells import MixtureCells
from sketchlearn.plans.classes import plan_second_rounds
from sketchlearn.plans.scaling import extremes_of
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = ["CompressiveClassifier"]
__public__ = ["CompressiveClassifier"]


@final
class CompressiveClassifier(ClassifierMixin, AbstractPerClassEstimator):
    r"""Bayes' rule with a Gaussian mixture per class, from one sketch per class.

    .. math:: P(c \mid x) \propto \pi_c\, p_c(x)

    with :math:`p_c` decoded from the sketch of class c by
    :class:`CompressiveGaussianMixture` and :math:`\pi_c` its share of the rows. With
    two rounds, every class has a feature map of its own: the moments of its first
    round place the cells of its second.

    Mixtures of Gaussians mislead where features are nothing like Gaussians: rare levels
    of one-hot columns, rows far from all others, columns that are constant in a class.
    The sketches show it, and then classes are told apart by a linear rule with one
    covariance for all of them (linear discriminant analysis), from the same sketches.
    By the moments in them, it is never worse than naming the largest class.

    Parameters
    ----------
    n_components : int
        Components per class; fewer where a class has few rows.
    method : {"auto", "density", "linear"}
        What tells classes apart: mixtures, the linear rule, or with "auto" mixtures
        where no feature speaks against them, and a warning otherwise.
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
        class, and to the one that they share: small classes and constant features
        stay sane.
    random_state : int
        Seed of the sketches and of the search. None is 0.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    class_prior_ : array of shape (n_classes,)
    method_ : {"density", "linear"}
        What tells classes apart.
    mixtures_ : list of CompressiveGaussianMixture
        One per class, in the order of ``classes_``, whatever tells them apart.
    linear_ : LinearRule
        Its ``coef``, of shape (n_classes, n_features_in_), and ``intercept`` at the
        ``center`` of the rows.
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
        "method": one_of("auto", "density", "linear"),
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
        method: Literal["auto", "density", "linear"] = "auto",
        covariance_type: CovarianceType = "full",
        sketch_size: int | Literal["auto"] = "auto",
        rounds: int | None = None,
        bounds: tuple[ArrayLike, ArrayLike] | None = None,
        shrinkage: float = 3e-3,
        random_state: int = 0,
    ) -> None:
        self.n_components = n_components
        self.method = method
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
        return self._second_maps(first, rows)

    @override
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
        classes = classes_of(sketches)
        counts = np.array([sketches[c].count for c in classes.tolist()], np.float64)
        with self._all_or_nothing():
            mixtures = [self._fitted(c, sketches[c]) for c in classes.tolist()]
            self.classes_, self.class_prior_ = classes, counts / counts.sum()
            self.mixtures_ = self._pooled(mixtures)
            self.n_features_in_ = mixtures[0].n_features_in_
            self._choose([sketches[c] for c in classes.tolist()])
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

    def _choose(self, sketches: list[Sketch | PrivateSketch]) -> None:
        """Set what tells classes apart, and say so where mixtures would mislead."""
        moments = ClassMoments.read(sketches, self.class_prior_)
        self.linear_ = moments.linear_rule(
            shrinkage=self.shrinkage, seed=seed_of(self.random_state)
        )
        self.method_ = self.method
        if self.method == "auto":
            faults = moments.unlike_gaussians()
            names = getattr(self, "feature_names_in_", sketches[0].columns)
            warn_all([misled_mixtures(faults, names)], stacklevel=5)
            self.method_ = "linear" if faults else "density"

    @override
    def _plan(self, rows: NDArray[np.floating]) -> AbstractFeatureMap:
        return self.plan(rows.shape[1], rows=rows)

    @override
    def _first_map(
        self, rows: NDArray[np.floating] | None, rounds: int
    ) -> AbstractFeatureMap:
        first = self._mixture(self.n_components, rounds=rounds)
        return first.plan(self.n_features_in_, rows=rows)

    @override
    def _second_maps(
        self,
        first: Mapping[Any, Sketch | PrivateSketch],
        rows: NDArray[np.floating] | None,
    ) -> dict[Any, AbstractFeatureMap]:
        return plan_second_rounds(
            first,
            MixtureCells(self.n_components, self.covariance_type == "diag"),
            sketch_size=self.sketch_size,
            seed=seed_of(self.random_state),
            extremes=None if rows is None else extremes_of(rows),
        )

    def _mixture(
        self, n_components: int, rounds: int | None = None
    ) -> CompressiveGaussianMixture:
        return CompressiveGaussianMixture(
            n_components,
            covariance_type=self.covariance_type,
            sketch_size=self.sketch_size,
            rounds=self.rounds if rounds is None else rounds,
            bounds=self.bounds,
            reg_covar=float(np.finfo(np.float64).tiny),  # see pool_classes
            random_state=self.random_state,
        )

    def _fitted(
        self, label: Any, sketch: Sketch | PrivateSketch
    ) -> CompressiveGaussianMixture:
        """The mixture of one class, of fewer components where rows are few."""
        try:
            size, decoder = class_decoder(
                sketch,
                self.n_components,
                shape=self.covariance_type,
                shrinkage=self.shrinkage,
                seed=seed_of(self.random_state),
            )
            fitted = self._mixture(size).fit_sketch(sketch, decoder=decoder)
            fitted.__dict__.pop("feature_names_in_", None)  # it is asked with arrays
            return fitted
        except TooNoisy as error:
            raise TooNoisy(
                f"class {label!r}: {error} If this class has no rows, leave it out."
            ) from error

    def _pooled(
        self, mixtures: list[CompressiveGaussianMixture]
    ) -> list[CompressiveGaussianMixture]:
        """The mixtures of all classes, none of them narrower than it can be."""
        steps, widths = rounding_steps([one.sketch_.feature_map for one in mixtures])
        pooled = pool_classes(
            [one._components for one in mixtures],
            self.class_prior_,
            shrinkage=self.shrinkage,
            steps=steps,
            widths=widths,
        )
        for one, components in zip(mixtures, pooled, strict=True):
            one.means_, one.covariances_ = components.means, components.covariances
        return mixtures

    def _log_joint(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self, "sketches_")
        rows = rows_in_memory(self, X, allow_sparse=False)
        if self.method_ == "linear":
            return self.linear_(rows)
        columns = [mixture.score_samples(rows) for mixture in self.mixtures_]
        priors = np.log(np.maximum(self.class_prior_, 1e-300))
        return np.asarray(np.stack(columns, axis=1) + priors)
