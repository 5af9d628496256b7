"""Gaussian mixtures from one sketch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, Self, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from scipy.special import logsumexp
from sklearn.base import DensityMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from typing_extensions import override

from sketchlearn.decoders.base import AbstractDecoder
from sketchlearn.decoders.density.components import Components
from sketchlearn.decoders.density.mixture import Density
from sketchlearn.decoders.density.mixture_choice import mixture_decoder
from sketchlearn.decoders.density.reading import Reading
from sketchlearn.errors import RowsError
from sketchlearn.estimators.density import AbstractDensityEstimator, warn_all
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
from sketchlearn.plans.advice import hidden_features, noisy_variances, outlying_rows
from sketchlearn.plans.cells import MixtureCells
from sketchlearn.plans.rounds import DensityPlan
from sketchlearn.plans.scaling import varies
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.row_source import AbstractRowSource
from sketchlearn.sketching.sketch import Sketch

__all__ = ["CompressiveGaussianMixture", "CovarianceType"]
__public__ = ["CompressiveGaussianMixture"]

CovarianceType = Literal["diag", "full"]


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
        "covariance_type": one_of("diag", "full"),
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
        reading = self._read(sketch, size)
        if isinstance(sketch, Sketch) and sketch.count < max(2, size):
            raise RowsError(
                f"n_samples={sketch.count} should be >= {max(2, size)} to fit "
                f"n_components={size}."
            )
        is_usual, seed = decoder is None, seed_of(self.random_state)
        if decoder is None:
            shape = self.covariance_type
            decoder = mixture_decoder(reading, size, shape=shape, seed=seed)
        decoding = decoder.decode(sketch)
        found = Components.of_density(
            decoding.params,
            least_variance=self.reg_covar,
            is_diagonal=self.covariance_type == "diag",
        )
        warn_all(self._advice(reading, decoding.params, found, is_usual=is_usual))
        self.weights_, self.means_ = found.weights, found.means
        self.covariances_ = found.covariances
        self.converged_, self.n_iter_ = decoding.converged, max(decoding.n_iter, 1)
        self.residual_ = decoding.residual
        self.n_samples_seen_ = decoding.params.count
        self._name_features(sketch, np.arange(found.means.shape[1]))
        self.sketch_ = sketch
        return self

    def _advice(
        self, reading: Reading, density: Density, found: Components, *, is_usual: bool
    ) -> Iterator[str | None]:
        """What there is to say of a fitted mixture."""
        size, sketch = self.n_components, reading.sketch
        if len(density.weights) < size:
            yield (
                f"the sketch shows only {len(density.weights)} of n_components={size} "
                "components: use fewer."
            )
        if size > 1 and is_usual:
            yield outlying_rows(reading)
        if isinstance(sketch, Sketch):
            yield hidden_features(density, self.reg_covar, varies(sketch))
        if is_usual:
            yield noisy_variances(reading, found.weights, found.covariances)

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
        return self._components.mixture.sample(n_rows, rng)

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
    def _density_plan(self) -> DensityPlan:
        along_features = self.covariance_type == "diag"
        cells = MixtureCells(self.n_components, along_features)
        return DensityPlan(cells, self.sketch_size, seed_of(self.random_state))

    @property
    def _components(self) -> Components:
        return Components(self.weights_, self.means_, self.covariances_)

    def _log_densities(self, X: Any) -> NDArray[np.float64]:
        """Log of weight times density of every component."""
        rows = self._check_rows(X).astype(np.float64)
        return self._components.mixture.log_densities(rows)
