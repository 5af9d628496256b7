"""An autoencoder of zeros and ones whose weights come from a sketch."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, Self, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted
from typing_extensions import override

from sketchlearn.decoders.autoencoders.base import AbstractAutoencoder
from sketchlearn.decoders.autoencoders.thresholds import share_of_ones
from sketchlearn.decoders.autoencoders.zeros_and_ones import (
    NOT_BINARY,
    require_binary,
)
from sketchlearn.errors import ConvergenceWarning, RowRangeError, RowsError
from sketchlearn.estimators.base import require_sketch
from sketchlearn.estimators.class_sketches import classes_of
from sketchlearn.estimators.classed import AbstractClassedEstimator
from sketchlearn.estimators.inputs import require_in_memory
from sketchlearn.estimators.parameters import (
    ANY_NUMBER,
    AT_LEAST_ONE,
    RANDOM_STATE,
    SKETCH_SIZE,
    Constraints,
    one_of_or_file,
    seed_of,
)
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.metrics import balanced_accuracy
from sketchlearn.plans.codes import (
    CODE_DECODERS,
    code_method,
    decode_codes,
    merged_classes,
    plan_codes,
    with_own_map,
)
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.row_source import AbstractRowSource
from sketchlearn.sketching.sketch import Sketch

__all__ = ["CompressiveAutoencoder"]
__public__ = ["CompressiveAutoencoder"]


@final
class CompressiveAutoencoder(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, AbstractClassedEstimator
):
    """Codes of rows of zeros and ones, adapted to a dataset by sketching it.

    No training: one pass makes the sketch, and what was meta-learned on other datasets
    turns it into an encoder and a decoder. Another sketch, and they are other ones:
    rows that are added or forgotten are added or forgotten exactly.

    Parameters
    ----------
    n_components : int
        Numbers of a code; as many as there are features, where those are fewer.
    sketch_size : int or "auto"
        Numbers the sketch may hold, beside means. By default all second moments of up
        to about 1,000 features, as for :class:`CompressivePCA`.
    decoder : {"learned", "pca", "network"} or path
        How a sketch becomes an autoencoder. ``"learned"``: logits that are linear in
        the code, and codes found by a meta-learned search (any number of features,
        rows and numbers; see docs/autoencoders.md). ``"pca"``: principal components
        with a threshold from the sketch. ``"network"``: the paper's sketch-conditional
        networks, for up to 1,000 features and codes of 50 numbers. The path of a
        ``.safetensors`` file that ``sketchlearn train`` wrote is that of weights of
        your own for the first or the last.
    binarize : float, optional
        Numbers above are ones, all others zeros. By default rows must hold zeros and
        ones only, and others are refused.
    per_class : bool
        Whether ``y`` holds classes, each of which gets a sketch of its own. With False,
        ``y`` is ignored, as in a pipeline that ends in a regression.
    random_state : int
        Seed of a compressed sketch; the same on every party that is to merge. None
        is 0.

    Attributes
    ----------
    mean_ : array of shape (n_features_in_,)
        Share of ones of each feature.
    n_components_ : int
        Numbers of a code.
    n_samples_seen_ : float
        Rows in the sketch.
    classes_ : array of shape (n_classes,)
        Where ``y`` was given.
    sketches_ : dict
        Sketches of the classes, where ``y`` was given.
    sketch_ : Sketch
        All that is kept of the data; with classes, the sum of their sketches.
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np, sketchlearn as sl
    >>> rng = np.random.default_rng(0)
    >>> X = (rng.random((500, 2)) < 0.5)[:, [0, 0, 0, 1, 1, 1]] * 1.0
    >>> coder = sl.CompressiveAutoencoder(n_components=2).fit(X)
    >>> coder.transform(X).shape, coder.score(X)
    ((500, 2), 1.0)
    """

    _parameter_constraints: Constraints = {
        "n_components": [AT_LEAST_ONE],
        "sketch_size": SKETCH_SIZE,
        "decoder": one_of_or_file(*CODE_DECODERS),
        "binarize": [ANY_NUMBER, None],
        "per_class": ["boolean"],
        "random_state": RANDOM_STATE,
    }
    command = "autoencoder"
    command_options = {"components": "n_components"}
    command_output = ("mean_", "n_components_")

    def __init__(
        self,
        n_components: int = 50,
        *,
        sketch_size: int | Literal["auto"] = "auto",
        decoder: str | os.PathLike[str] = "learned",
        binarize: float | None = None,
        per_class: bool = True,
        random_state: int = 0,
    ) -> None:
        self.n_components = n_components
        self.sketch_size = sketch_size
        self.decoder = decoder
        self.binarize = binarize
        self.per_class = per_class
        self.random_state = random_state

    @override
    def plan(self, n_features: int) -> AbstractFeatureMap:
        """The feature map parties must use to sketch for :meth:`fit_sketch`.

        Zeros and ones need no scales: no plan has a trace of the rows. They are bounded
        as well, and can be released as they are.
        """
        self._check_parameters()
        return plan_codes(
            self.decoder,
            n_features,
            sketch_size=self.sketch_size,
            seed=seed_of(self.random_state),
        )

    @override
    def fit_sketch(
        self,
        sketch: Sketch | PrivateSketch | Mapping[Any, Sketch | PrivateSketch],
    ) -> Self:
        """Decode a sketch made with a map from :meth:`plan`.

        Parameters
        ----------
        sketch : Sketch or PrivateSketch, or mapping
            Of all rows; or from each class to the sketch of its rows.

        Returns
        -------
        self
        """
        self._check_parameters()
        parts, whole = None, sketch
        if isinstance(sketch, Mapping):
            classes = classes_of(sketch)
            for one in sketch.values():
                require_sketch(one)
            labels = classes.tolist()
            parts = {c: with_own_map(self.decoder, sketch[c]) for c in labels}
            whole = merged_classes(parts)
        require_sketch(whole)
        assert not isinstance(whole, Mapping)
        whole = with_own_map(self.decoder, whole)
        d = whole.feature_map.n_features
        n_components = min(self.n_components, d)
        coder, said = decode_codes(self.decoder, whole, n_components, parts)
        if said:
            warnings.warn(said, ConvergenceWarning, stacklevel=2)
        self._coder: AbstractAutoencoder = coder
        self.mean_, self.n_components_ = coder.mean, coder.n_codes - coder.n_weights
        self.n_samples_seen_ = whole.count
        self._name_features(whole, np.arange(d))
        self._remember_classes(parts)
        self.sketch_ = whole
        return self

    def transform(self, X: Any) -> NDArray[np.floating]:
        """Codes of rows: n_components_ numbers, then weights of classes, if any."""
        rows = self._binary(X)
        codes = np.asarray(self._coder.encode(rows), rows.dtype)
        return self._learned_rows(X, codes)

    @override
    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names of the numbers of a code; weights are named after their classes."""
        names = super().get_feature_names_out(input_features)
        if not self._coder.n_weights:
            return np.asarray(names)
        prefix = type(self).__name__.lower()
        weights = [f"{prefix}_class_{label}" for label in self.classes_.tolist()]
        return np.array([*names[: -len(weights)], *weights], object)

    @override
    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Any:
        """Fit rows in memory, and give their codes."""
        require_in_memory(X, "fit_transform")
        return super().fit_transform(X, y, **fit_params)

    def inverse_transform(self, X: Any) -> NDArray[np.floating]:
        """Rows back from codes, as numbers in 0..1: those above one half are ones."""
        check_is_fitted(self, "sketch_")
        codes = check_array(X, dtype=[np.float64, np.float32], input_name="codes")
        if codes.shape[1] != self._coder.n_codes:
            raise RowsError(
                f"codes have {self._coder.n_codes} columns; got shape {codes.shape}. "
                "Pass what transform gives."
            )
        rows = np.asarray(expit(self._coder.decode(codes)))
        return self._learned_rows(X, rows, framed=False)

    def reconstruct(self, X: Any) -> NDArray[np.uint8]:
        """Rows of zeros and ones, encoded and back."""
        rows = self._coder.reconstruct(self._binary(X)).astype(np.uint8)
        return self._learned_rows(X, rows, framed=False)

    def score(self, X: Any, y: Any = None) -> float:
        """Balanced accuracy of the reconstruction, over all entries: 1 is perfect."""
        rows = self._binary(X)
        return balanced_accuracy(rows, self._coder.reconstruct(rows))

    def score_samples(self, X: Any) -> NDArray[np.float64]:
        """Minus the weight of the entries of each row that come back wrong, over d.

        Ones and zeros weigh as in ``score``: a one 1/2π and a zero 1/2(1 - π), with π
        the share of ones in the sketch. 0 is best; where ones are rare, a row of many
        can be far below -1. Rows unlike those of the sketch have low scores, which
        makes this a detector of anomalies. Rows that are easy, such as empty ones where
        ones are rare, have high scores too.
        """
        rows = self._binary(X)
        wrong = self._coder.reconstruct(rows) != (rows > 0.5)
        share = share_of_ones(self.mean_)
        weights = np.where(rows > 0.5, 0.5 / share, 0.5 / (1 - share))
        return np.asarray(-(weights * wrong).mean(axis=1))

    @override
    def _check_parameters(self) -> None:
        super()._check_parameters()
        code_method(self.decoder)

    @override
    def _open(self, X: Any, y: Any, *, reset: bool) -> AbstractRowSource:
        return self._open_features(X, reset=reset)

    @override
    def _plan(self, rows: NDArray[np.floating]) -> AbstractFeatureMap:
        return self.plan(rows.shape[1])

    @override
    def _sketch(self, rows: AbstractRowSource) -> Sketch:
        with self._in_range():
            sketch = rows.sketch(self.plan(rows.n_features))  # nothing is read ahead
        if code_method(self.decoder) != "network":
            require_binary(sketch)
        return sketch

    def _binary(self, X: Any) -> NDArray[np.floating]:
        """Rows of zeros and ones in memory."""
        rows = self._check_rows(X)
        if self.binarize is not None:
            return (rows > np.float64(self.binarize)).astype(rows.dtype)
        if not ((rows == 0) | (rows == 1)).all():
            raise RowsError(NOT_BINARY)
        return rows

    @override
    @contextmanager
    def _in_range(self) -> Iterator[None]:
        try:
            yield
        except RowRangeError as error:  # there are no bounds to declare here
            found = str(error).partition(" Nothing was added.")[0]
            raise RowsError(f"{found} Nothing was added. {NOT_BINARY}") from error

    @property
    def _n_features_out(self) -> int:
        return self._coder.n_codes
