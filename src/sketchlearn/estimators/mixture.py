"""Gaussian mixtures from one sketch."""

from __future__ import annotations

import warnings
from typing import Any, Literal, Self, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular
from scipy.sparse import issparse
from scipy.special import logsumexp
from sklearn.base import DensityMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from typing_extensions import override

from sketchlearn.decoders.base import AbstractDecoder
from sketchlearn.decoders.density.blur import hidden_nats
from sketchlearn.decoders.density.cell_mixture import CellMixtureDecoder, find_cells
from sketchlearn.decoders.density.decoder import DensityDecoder, is_moments
from sketchlearn.decoders.density.mixture import Density
from sketchlearn.decoders.moments.nystrom import NystromDecoder
from sketchlearn.errors import ConvergenceWarning, RowsError
from sketchlearn.estimators.density import (
    AbstractDensityEstimator,
    SecondRound,
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
from sketchlearn.features.arguments import require_positive_int
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.cells import FARTHEST, CellFeatures
from sketchlearn.plans.cells import place_cells
from sketchlearn.plans.scaling import varies
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.row_source import AbstractRowSource
from sketchlearn.sketching.sketch import Sketch

__all__ = [
    "CompressiveGaussianMixture",
    "CovarianceType",
    "plan_cells",
]
__public__ = ["CompressiveGaussianMixture"]

CovarianceType = Literal["diag", "full"]

_CELLS, _MOST_DIRECTIONS = 4, 14
"""Cells for each component, and coordinates they have room for."""

_HIDDEN = 2.5
"""Log density that the noise of a release may cost without a word."""

_COLLINEAR = 1e-9
"""Share of its variance that a feature varies by itself, at least."""


@final
class CompressiveGaussianMixture(
    DensityMixin,
    AbstractDensityEstimator,
):
    r"""A Gaussian mixture fitted to one small sketch of the rows.

    With two rounds, the moments of a first pass place the cells of a partition, and a
    second pass sums up first and second moments of the rows in each; the mixture is
    the one that explains them. With one round, it is the mixture whose characteristic
    function and moments match those of the sketch: for few features and components.
    One component is the Gaussian of the moments. The sketch may be decoded again with
    other ``n_components``.

    Parameters
    ----------
    n_components : int
        Components of the mixture.
    covariance_type : {"full", "diag"}
        Any covariances, or diagonal ones.
    sketch_size : int or "auto"
        Numbers the sketch may hold, beside means and variances, all rounds together.
        "auto" grows with the components and features: 2,000 at least, and with two
        rounds enough for four cells for each component.
    rounds : {1, 2} or None
        Passes over the rows; None takes two, unless ``bounds`` are declared or the
        rows are a stream.
    bounds : pair (low, high), optional
        Declared range of the features; see :class:`CompressiveKMeans`.
    reg_covar : float
        Added to the diagonal of every covariance, beside 1e-9 of the variances: a
        variance in the units of the rows.
    random_state : int
        Seed of the sketch and of the search. None is 0.

    Attributes
    ----------
    weights_ : array of shape (n_components,)
    means_ : array of shape (n_components, n_features_in_)
    covariances_ : array of shape (n_components, d, d), or (n_components, d) if "diag"
    converged_ : bool
    residual_ : float
        What the mixture leaves unexplained: the share of rows in the wrong cell with
        two rounds, the relative distance between the sketches with one.
    n_iter_, n_samples_seen_, n_features_in_ : int
    sketch_ : Sketch
        All that is kept of the data.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(5000, 1)) + 4 * (rng.random((5000, 1)) < 0.25)
    >>> gm = CompressiveGaussianMixture(2, sketch_size=60).fit(X)
    >>> bool(abs(np.sort(gm.weights_) - [0.25, 0.75]).max() < 0.03)
    True
    """

    _parameter_constraints: Constraints = {
        "n_components": [AT_LEAST_ONE],
        "covariance_type": one_of("full", "diag"),
        "sketch_size": SKETCH_SIZE,
        "rounds": ROUNDS,
        "bounds": BOUNDS,
        "reg_covar": [NOT_NEGATIVE],
        "random_state": RANDOM_STATE,
    }
    command = "mixture"
    command_options = {
        "clusters": "n_components",
        "components": "n_components",
        "rounds": "rounds",
    }
    command_output = ("weights_", "means_", "covariances_")

    def __init__(
        self,
        n_components: int = 1,
        *,
        covariance_type: CovarianceType = "full",
        sketch_size: int | Literal["auto"] = "auto",
        rounds: int | None = None,
        bounds: tuple[ArrayLike, ArrayLike] | None = None,
        reg_covar: float = 1e-6,
        random_state: int = 0,
    ) -> None:
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.sketch_size = sketch_size
        self.rounds = rounds
        self.bounds = bounds
        self.reg_covar = reg_covar
        self.random_state = random_state

    @override
    def fit_sketch(
        self,
        sketch: Sketch | PrivateSketch,
        *,
        decoder: AbstractDecoder[Density] | None = None,
    ) -> Self:
        """Fit the mixture to a sketch made with a map from :meth:`plan`.

        Parameters
        ----------
        sketch : Sketch or PrivateSketch
            Of moments, with cells or Fourier features beside them.
        decoder : AbstractDecoder, optional
            Another one than that which suits the sketch.

        Returns
        -------
        self
        """
        self._check_parameters()
        size = self.n_components
        self._check_sketch(sketch, size)
        if isinstance(sketch, Sketch) and sketch.count < max(2, size):
            raise RowsError(
                f"n_samples={sketch.count} should be >= {max(2, size)} to fit "
                f"n_components={size}."
            )
        found = (decoder or self._decoder(sketch, size)).decode(sketch)
        density = found.params
        if len(density.weights) < size:
            warnings.warn(
                f"the sketch shows only {len(density.weights)} of n_components={size} "
                "components: use fewer.",
                ConvergenceWarning,
                stacklevel=2,
            )
        if size > 1 and decoder is None:
            moments = NystromDecoder().decode(sketch).params
            self._warn_of_tails(sketch, moments)
        covariances = self._regularised(density)
        if isinstance(sketch, Sketch):
            self._warn_of_narrow(density, varies(sketch))
        if decoder is None:
            self._warn_of_noise(sketch, density.weights, covariances)
        self.weights_, self.means_ = density.weights, density.component_means
        self.covariances_ = covariances
        self.converged_, self.n_iter_ = found.converged, max(found.n_iter, 1)
        self.residual_, self.n_samples_seen_ = found.residual, density.count
        self._name_features(sketch, np.arange(len(density.centre)))
        self.sketch_ = sketch
        return self

    def score_samples(self, X: Any) -> NDArray[np.float64]:
        """Log density of each row."""
        return np.asarray(logsumexp(self._log_densities(X), axis=1))

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log density of the rows."""
        return float(self.score_samples(X).mean())

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Most probable component of each row."""
        return np.asarray(self._log_densities(X).argmax(axis=1))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probability of each component for each row."""
        logs = self._log_densities(X)
        return np.asarray(np.exp(logs - logsumexp(logs, axis=1, keepdims=True)))

    def sample(
        self, n_samples: int = 1
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Draw rows from the mixture, and the component of each."""
        check_is_fitted(self, "weights_")
        rng = np.random.default_rng([seed_of(self.random_state), 1])
        n_rows = require_positive_int("n_samples", n_samples)
        labels = rng.choice(len(self.weights_), n_rows, p=self.weights_)
        rows = rng.standard_normal((n_rows, self.n_features_in_))
        for j, covariance in enumerate(self.covariances_):
            inside = labels == j
            if covariance.ndim == 1:
                rows[inside] *= np.sqrt(covariance)
            else:
                rows[inside] = rows[inside] @ np.linalg.cholesky(covariance).T
        return self.means_[labels] + rows, labels

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags

    @override
    def _open(self, X: Any, y: Any, *, reset: bool) -> AbstractRowSource:
        if issparse(X):
            raise RowsError(
                "sparse input is not supported by mixtures; pass X.toarray()."
            )
        return super()._open(X, y, reset=reset)

    @override
    def _cell_numbers(self, n_features: int) -> int:
        r = min(_MOST_DIRECTIONS, n_features)
        products = r * (r - 1) // 2 if self.covariance_type == "full" else 0
        cells = _CELLS * self.n_components if self.n_components > 1 else 0
        return cells * (1 + 2 * r + products)

    @staticmethod
    def _warn_of_noise(
        sketch: Sketch | PrivateSketch,
        weights: NDArray[np.float64],
        covariances: NDArray[np.float64],
    ) -> None:
        """Say so where a release hides how narrow the rows are."""
        if not isinstance(sketch, PrivateSketch):
            return
        moments = NystromDecoder().decode(sketch).params
        lost = hidden_nats(moments, weights, covariances)
        if lost > _HIDDEN:
            warnings.warn(
                "components are narrower than the noise of this release lets one see: "
                f"the log density of rows may be too low by {lost:.1f} and more. "
                "Release more rows or with a larger epsilon, fewer numbers (a smaller "
                "sketch_size), or with bounds or a norm_bound closer to the rows.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _warn_of_narrow(self, density: Density, moves: NDArray[np.bool_]) -> None:
        """Say so where the units of a feature make it hardly count."""
        weights, away = density.weights, density.means @ density.lift.T
        variances = np.einsum("jaa->ja", density.component_covariances)
        total = weights @ (variances + (away - weights @ away) ** 2)
        narrow = moves & (total < self.reg_covar)
        if narrow.any():
            warnings.warn(
                f"reg_covar={self.reg_covar:g} is larger than the variance of feature "
                f"{int(np.argmax(narrow))}, which hardly counts then. Scale the "
                "features, or take a smaller reg_covar.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _regularised(self, density: Density) -> NDArray[np.float64]:
        """Covariances that can be inverted, of the asked type."""
        covariances = density.component_covariances
        variances = np.einsum("jaa->ja", covariances)
        still = (variances == 0).all(axis=0)
        if still.any() and not self.reg_covar:
            raise RowsError(
                f"feature {int(np.argmax(still))} is constant: with reg_covar=0 its "
                "density is infinite. Leave it out, or take a positive reg_covar."
            )
        # Collinear features, whatever their units, get the width of their rounding.
        added = self.reg_covar + _COLLINEAR * variances
        if self.covariance_type == "diag":
            return np.asarray(variances + added)
        return np.asarray(covariances + added[:, :, None] * np.eye(added.shape[1]))

    @override
    def _plan_second(self, known: SecondRound) -> AbstractFeatureMap | None:
        return plan_cells(
            known,
            n_components=self.n_components,
            covariance_type=self.covariance_type,
            seed=seed_of(self.random_state),
        )

    def _decoder(
        self, sketch: Sketch | PrivateSketch, size: int
    ) -> AbstractDecoder[Density]:
        seed = seed_of(self.random_state)
        kind: CovarianceType = self.covariance_type
        has_cells = find_cells(sketch.feature_map) is not None
        if size == 1 or has_cells or is_moments(sketch.feature_map):
            return CellMixtureDecoder(size, shape=kind, seed=seed)
        moments = NystromDecoder().decode(sketch).params
        if moments.noise is not None and moments.n_directions < len(moments.mean):
            kind = "diag"  # correlations inside of components would be those of noise
        return DensityDecoder(size, shape=kind, seed=seed)

    def _log_densities(self, X: Any) -> NDArray[np.float64]:
        """Log of weight times density of every component."""
        rows = self._check_rows(X).astype(np.float64)
        result = np.empty((len(rows), len(self.weights_)))
        constant = rows.shape[1] * np.log(2 * np.pi) / 2
        for j, covariance in enumerate(self.covariances_):
            away = (rows - self.means_[j]).T
            if covariance.ndim == 1:
                widths = np.sqrt(covariance)
                whitened = away / widths[:, None]
            else:
                root = np.linalg.cholesky(covariance)
                widths = np.diag(root)
                whitened = solve_triangular(root, away, lower=True)
            weight = np.log(max(self.weights_[j], 1e-300))
            result[:, j] = weight - np.log(widths).sum() - constant
            result[:, j] -= (whitened**2).sum(axis=0) / 2
        return result


def plan_cells(
    known: SecondRound,
    *,
    n_components: int,
    covariance_type: CovarianceType,
    units: NDArray[np.float64] | None = None,
    seed: int = 0,
) -> CellFeatures | None:
    """The cells of a second round; None if there is no room for two.

    ``units`` of the features are their deviations unless others are given.
    """
    if units is None:
        units = np.sqrt(np.maximum(known.moments.structure.variances, 0.0))
    plan = place_cells(
        known.moments,
        units=np.where(units > 0, units, 1.0),
        low=known.low,
        high=known.high,
        room=known.room,
        n_components=n_components,
        along_features=covariance_type == "diag",
        seed=seed,
    )
    if plan is None:
        return None
    return CellFeatures(
        np.clip(plan.anchors, -FARTHEST, FARTHEST),
        basis=known.scaled_basis(plan.basis),
        centre=known.scaled_centre,
        reach=known.part.reach,
        origin=known.origin,
        n_crossed=plan.n_crossed,
        scaling=known.part.scaling,
    )
