"""A map of one's own is registered by being defined, and is never taken for ours."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import sketchlearn as sl
from contracts import check_feature_map
from sketchlearn.errors import FeatureMapError, PrivacyError
from sketchlearn.features.base import AbstractFeatureMap, sum_features
from sketchlearn.features.build import build_map
from sketchlearn.features.clipping import ClippedFeatures, clip_rows
from sketchlearn.features.cost import Cost
from sketchlearn.features.fields import NUMBER, SIZE
from sketchlearn.features.fourier import FourierFeatures
from sketchlearn.features.lattice import RowLattice
from sketchlearn.features.registry import (
    declare,
    is_built_in,
    is_known,
    known_kinds,
    map_class,
)

ROWS = np.random.default_rng(0).uniform(-1, 1, (300, 3))
PROMISE = {"epsilon": 1.0, "delta": 1e-6}


class Unstored(AbstractFeatureMap):
    """Rows times a factor; nothing says how its descriptions are read."""

    kind = "test-unstored"

    def __init__(self, n_features, factor=2.0, scaling=None):
        self.factor = factor
        self._lattice = RowLattice(scaling, 20, 2.0**40)
        super().__init__(
            n_features=n_features,
            sketch_size=n_features,
            scaling=scaling,
            value_bound=2.0**21,
            norm_bound=1.0,  # not true
        )

    def describe(self):
        return {"n_features": self.n_features, "factor": self.factor}

    def weights(self):
        return {}

    def evaluate(self, rows, first_row=0):
        return self._lattice.round(rows, first_row)[0] * (self.factor * 2.0**-20)

    def batch_sum(self, rows, first_row=0):
        return sum_features(self, rows, first_row)


class Stored(Unstored):
    """The same, which files give back."""

    kind = "test-stored"
    fields = {"n_features": SIZE, "factor": NUMBER}  # noqa: RUF012

    @classmethod
    def cost_of(cls, given):
        d = given["n_features"]
        return Cost(d, d, 8 * d, 100 * d)


class Leaky(Unstored):
    """Maps that are no function of a row: what each does is said by its name."""

    kind = "test-leaky"

    def __init__(self, how, n_features=2):
        self.how, self.seen = how, 0
        super().__init__(n_features)

    def describe(self):
        return {"how": self.how}

    def evaluate(self, rows, first_row=0):
        rows = np.asarray(rows)
        self.seen += 1
        if self.how == "overwrites its rows":
            rows -= rows.max(axis=0)
            return rows
        if self.how == "more vectors than rows":
            return np.repeat(rows, 100, axis=0)
        if self.how == "rows that came before count":
            first = {row.tobytes(): i for i, row in reversed([*enumerate(rows)])}
            once = [first[row.tobytes()] == i for i, row in enumerate(rows)]
            return rows * np.array(once)[:, None]
        shifts = {
            "largest of the batch": rows.max(axis=0),
            "mean of the batch": rows.mean(axis=0),
            "size of the batch": len(rows),
            "place in the data": (first_row + np.arange(len(rows)))[:, None],
            "number of calls": self.seen,
        }
        return rows - shifts[self.how]


WAYS = [
    "largest of the batch",
    "mean of the batch",
    "size of the batch",
    "place in the data",
    "number of calls",
    "overwrites its rows",
    "more vectors than rows",
    "rows that came before count",
]
CANARY = np.concatenate([np.ones((200, 2)), [[3.0, 3.0]]])


def book():
    return sl.Ledger.ephemeral(epsilon=5.0, delta=1e-5)


def test_a_map_that_says_how_it_is_described_is_registered():
    assert is_known("test-stored")
    assert map_class("test-stored") is Stored
    assert not is_built_in(Stored)
    assert not is_known("test-unstored")


def test_a_map_of_ones_own_keeps_the_contract():
    wide = Stored(3, 0.5, sl.Scaling.from_bounds(-4.0, 4.0, n_features=3))
    honest = sl.clipped(wide, norm_bound=1.0)
    check_feature_map(honest, ROWS)


def test_a_map_of_ones_own_comes_back_from_files(tmp_path):
    phi = sl.clipped(Stored(3, 4.0), norm_bound=1.0)
    for name, made in (("map", phi), ("sketch", sl.sketch_rows(ROWS, phi))):
        sl.save(made, tmp_path / name)
        assert sl.load(tmp_path / name) == made
    assert sl.load(tmp_path / "sketch").feature_map == phi
    with pytest.raises(FeatureMapError, match="wrong fields"):
        build_map({**Stored(3).description, "factor": "many"})
    with pytest.raises(FeatureMapError, match="max_bytes= larger"):
        build_map({**Stored(3).description, "n_features": 2**40})


def test_a_map_without_fields_sketches_rows_and_is_built_by_no_description():
    phi = Unstored(3)
    sketch = sl.sketch_rows(ROWS, phi)
    assert sketch.feature_map is phi
    assert (phi.origin, phi.spec.origin) == ("declared", "unknown")
    assert sl.clipped(phi, norm_bound=1.0).origin == "declared"
    with pytest.raises(FeatureMapError, match="unknown feature map 'test-unstored'"):
        declare(phi.description)


def test_a_second_class_of_a_kind_is_refused():
    before = known_kinds()
    with pytest.raises(FeatureMapError, match="are both of kind 'fourier'"):

        class Fourier(Stored):
            kind = "fourier"

    with pytest.raises(FeatureMapError, match="are both of kind 'test-stored'"):

        class Other(Stored):
            kind = "test-stored"

    assert map_class("fourier") is FourierFeatures
    assert known_kinds() == before


def test_a_class_may_be_defined_again_as_in_a_notebook():
    def define():
        class Again(Stored):
            kind = "test-again"

        return Again

    first, second = define(), define()
    assert first is not second
    assert map_class("test-again") is second


def test_a_map_declares_both_fields_and_cost_or_neither():
    with pytest.raises(FeatureMapError, match="both fields and cost_of"):

        class Half(Unstored):
            kind = "test-half"
            fields = {"n_features": SIZE}  # noqa: RUF012

    assert not is_known("test-half")


@pytest.mark.parametrize("own", [Unstored(3), Stored(3)], ids=["unstored", "stored"])
def test_a_map_of_ones_own_is_released_only_if_it_is_clipped(own):
    beside = sl.ConcatenatedFeatures([own, FourierFeatures(3, 4)])
    for phi in (own, beside):
        with pytest.raises(PrivacyError, match="your word only. Clip it"):
            sl.release(sl.sketch_rows(ROWS, phi), **PROMISE, ledger=book())
        bounded = sl.sketch_rows(ROWS, sl.clipped(phi, norm_bound=1.0))
        assert sl.release(bounded, **PROMISE, ledger=book()).size == phi.sketch_size


def test_a_sketch_from_a_file_is_released_by_the_same_law():
    loaded = replace(sl.sketch_rows(ROWS, Stored(3)), source_map=None)
    with pytest.raises(PrivacyError, match="your word only. Clip it"):
        sl.release(loaded, **PROMISE, ledger=book())
    short = sl.clipped(Stored(3), norm_bound=1.0)
    loaded = replace(sl.sketch_rows(ROWS, short), source_map=None)
    assert sl.release(loaded, **PROMISE, ledger=book()).size == 3


def test_a_map_of_ones_own_that_was_read_from_rows_is_not_released():
    class FromRows(Unstored):
        @property
        def origin(self):
            return "data"

    beside = sl.ConcatenatedFeatures([FourierFeatures(3, 4), FromRows(3)])
    for phi in (FromRows(3), beside):
        short = sl.clipped(phi, norm_bound=1.0)
        assert short.origin == "data"
        with pytest.raises(PrivacyError, match="planned from rows"):
            sl.release(sl.sketch_rows(ROWS, short), **PROMISE, ledger=book())


def test_a_subclass_of_one_of_our_maps_is_not_ours():
    class Louder(FourierFeatures):
        pass

    sketch = sl.sketch_rows(ROWS, Louder(3, 4))
    with pytest.raises(PrivacyError, match="your word only. Clip it"):
        sl.release(sketch, **PROMISE, ledger=book())


def test_a_map_of_ones_own_does_not_say_that_it_is_clipped():
    with pytest.raises(FeatureMapError, match="must not tell its own parts"):

        class Pretender(Unstored):
            def parts(self):
                return sl.clipped(self, norm_bound=1.0).parts()

    with pytest.raises(FeatureMapError, match="must not tell its own parts"):

        class Unclipped(ClippedFeatures):
            pass


def test_maps_are_imported_when_a_kind_is_first_asked_for():
    code = (
        "import sys, sketchlearn, sketchlearn.features.registry as registry;"
        "assert 'sketchlearn.features.fourier' not in sys.modules;"
        "assert 'fourier' in registry.known_kinds();"
        "assert 'sketchlearn.features.fourier' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("how", WAYS)
def test_a_map_that_looks_beside_a_row_is_refused_while_it_sketches(how):
    own, beside = Leaky(how), FourierFeatures(2, 4)
    for phi in (
        sl.clipped(own, norm_bound=99.0),
        sl.clipped(sl.ConcatenatedFeatures([own, beside]), norm_bound=99.0),
        sl.ConcatenatedFeatures([beside, sl.clipped(own, norm_bound=99.0)]),
    ):
        # NumPy does not put vectors side by side that are not as many.
        with pytest.raises(ValueError, match="alone than|vector for each|dimensions"):
            sl.sketch_rows(CANARY.copy(), phi)


def not_compared(self, rows, first_row):
    """What clipping would do if it took the word of a map of a user."""
    return clip_rows(self.inner.evaluate(rows, first_row), self.value_bound, first_row)


@pytest.mark.parametrize("how", WAYS)
def test_a_sketch_of_such_a_map_is_not_released(how, monkeypatch):
    phi = sl.clipped(Leaky(how), norm_bound=99.0)
    with monkeypatch.context() as before:  # as an earlier version sketched
        before.setattr(ClippedFeatures, "_compared", not_compared)
        sketch = sl.sketch_rows(CANARY.copy(), phi)
    with pytest.raises(PrivacyError, match="nothing was released"):
        sl.release(sketch, **PROMISE, ledger=book())


def test_a_map_that_is_never_compared_is_noticed_by_the_audit(monkeypatch):
    monkeypatch.setattr(ClippedFeatures, "_compared", not_compared)
    phi = sl.clipped(Leaky("largest of the batch"), norm_bound=1.0)
    given = {"rows": CANARY[:-1], "canary": CANARY[-1], "n_releases": 1000, **PROMISE}
    assert not sl.audit(phi, **given).passed


def test_another_total_than_that_of_the_features_is_not_released():
    class Louder(Stored):
        kind = "test-louder"

        def batch_sum(self, rows, first_row=0):
            return sum_features(self, np.concatenate([rows, rows]), first_row)

    sketch = sl.sketch_rows(ROWS, sl.clipped(Louder(3), norm_bound=1.0))
    with pytest.raises(PrivacyError, match="batch_sum gives another total"):
        sl.release(sketch, **PROMISE, ledger=book())


def test_a_sketch_whose_map_is_not_there_is_not_released():
    phi = sl.clipped(Unstored(3), norm_bound=1.0)
    loaded = replace(sl.sketch_rows(ROWS, phi), source_map=None)
    with pytest.raises(FeatureMapError, match="unknown feature map"):
        sl.release(loaded, **PROMISE, ledger=book())
    assert sl.release(loaded.with_map(phi), **PROMISE, ledger=book()).size == 3


def test_a_map_for_few_rows_only_is_released():
    class Percent(Stored):
        kind = "test-percent"

        def evaluate(self, rows, first_row=0):
            if (rows < 5).any():
                raise ValueError("these are no percentages")
            return super().evaluate(rows, first_row)

    sketch = sl.sketch_rows(ROWS + 50, sl.clipped(Percent(3), norm_bound=1.0))
    assert sl.release(sketch, **PROMISE, ledger=book()).size == 3
