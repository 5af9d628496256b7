"""Rows come and go for ever, from any thread, and none is lost or counted twice."""

import copy
import os
import pickle
import threading

import numpy as np
import pytest
from sklearn.base import clone

import sketchlearn as sl
from sketchlearn.errors import PrivacyError, RowRangeError
from sketchlearn.estimators import kmeans
from sketchlearn.estimators.base import AbstractSketchEstimator
from sketchlearn.sketching.local_items import LocalItems
from sketchlearn.sketching.local_rows import LocalRows

RNG = np.random.default_rng(0)
NUMBERS = RNG.uniform(0.1, 0.9, (60, 2))
BITS = RNG.integers(0, 2, (60, 3)).astype(np.float64)
CLASSES = np.arange(60) % 2
BOUNDS = {"bounds": (0.0, 1.0)}
CASES = {
    "pca": (sl.CompressivePCA(1, **BOUNDS), NUMBERS, None),
    "ridge": (
        sl.CompressiveRidge(**BOUNDS, target_bounds=(0.0, 1.0)),
        NUMBERS,
        NUMBERS[:, 0],
    ),
    "kmeans": (sl.CompressiveKMeans(1, sketch_size=8, **BOUNDS), NUMBERS, None),
    "mixture": (sl.CompressiveGaussianMixture(sketch_size=8, **BOUNDS), NUMBERS, None),
    "classifier": (sl.CompressiveClassifier(sketch_size=8, **BOUNDS), NUMBERS, CLASSES),
    "autoencoder": (sl.CompressiveAutoencoder(2), BITS, None),
    "autoencoder of classes": (sl.CompressiveAutoencoder(2), BITS, CLASSES),
    "frequency": (sl.FrequencyEstimator(5, sketch_size=20), CLASSES.tolist(), None),
    "collected": (sl.FrequencyEstimator("fit", sketch_size=20), list("abc" * 20), None),
    "membership": (sl.MembershipEstimator(5, sketch_size=20), CLASSES.tolist(), None),
}
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def take(name, start, stop):
    """A fresh estimator, and the arguments for some of its rows."""
    model, rows, classes = CASES[name]
    some = rows[start:stop]
    return clone(model), ((some,) if classes is None else (some, classes[start:stop]))


def sketches_of(model):
    return getattr(model, "sketches_", None) or {None: model.sketch_}


def count_of(model):
    return sum(sketch.count for sketch in sketches_of(model).values())


def test_every_estimator_is_here():
    public = [getattr(sl, name) for name in sl.__all__]
    assert {type(model) for model, _, _ in CASES.values()} == {
        one
        for one in public
        if isinstance(one, type) and issubclass(one, AbstractSketchEstimator)
    }


# Threads.


def interleave(monkeypatch, slow, quick, decoding=None):
    """Run ``quick`` in a thread of its own while ``slow`` is about to sketch.

    Or to decode, in an estimator of the given class. Where the one keeps the other
    waiting, ``slow`` goes on after a moment.
    """
    first = threading.get_ident()
    failures = []

    def attempt():
        try:
            quick()
        except Exception as error:
            failures.append(error)

    other = threading.Thread(target=attempt)

    def pause():
        if threading.get_ident() == first and other.ident is None:
            other.start()
            other.join(0.2)

    methods = [(LocalRows, "sketch"), (LocalItems, "sketch")]
    if decoding is not None:
        methods = [(decoding, name) for name in ("fit_sketch", "fit_sketches")]
    for cls, name in methods:
        original = getattr(cls, name, None)

        def paused(self, *args, original=original, **options):
            pause()
            return original(self, *args, **options)

        monkeypatch.setattr(cls, name, paused, raising=False)
    slow()
    other.join()
    assert not failures


@pytest.mark.parametrize("decoding", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_threads_that_add_rows_lose_none(monkeypatch, name, decoding):
    model, start = take(name, 0, 20)
    model.fit(*start)
    more, last = take(name, 20, 40)[1], take(name, 40, 60)[1]
    interleave(
        monkeypatch,
        lambda: model.partial_fit(*more),
        lambda: model.partial_fit(*last),
        type(model) if decoding else None,
    )
    alone, rows = take(name, 0, 60)
    alone.fit(*rows)
    assert sketches_of(model) == sketches_of(alone)


@pytest.mark.parametrize("name", CASES)
def test_threads_that_add_the_first_rows_lose_none(monkeypatch, name):
    model, first = take(name, 0, 30)
    last = take(name, 30, 60)[1]
    interleave(
        monkeypatch, lambda: model.partial_fit(*first), lambda: model.partial_fit(*last)
    )
    assert count_of(model) == 60


@pytest.mark.parametrize("verb", ["forget", "merge", "fit_sketch"])
@pytest.mark.parametrize("name", CASES)
def test_whatever_happens_while_rows_are_added_counts(monkeypatch, name, verb):
    model, start = take(name, 0, 40)
    model.fit(*start)
    other, rows = take(name, 40, 60)
    other.fit(*rows)
    acts = {
        "forget": (lambda: model.forget(*take(name, 0, 10)[1]), 30),
        "merge": (lambda: model.merge(other), 60),
        "fit_sketch": (lambda: model.fit_sketch(_given(other)), 20),
    }
    act, count = acts[verb]
    more = take(name, 10, 16)[1]
    interleave(monkeypatch, lambda: model.partial_fit(*more), act)
    replaced = {20} if verb == "fit_sketch" else set()  # after rows were added
    assert count_of(model) in {count + 6} | replaced


def _given(model):
    return getattr(model, "sketches_", None) or model.sketch_


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))]
)
def test_copies_wait_for_nobody_and_name_their_passes_themselves(name, copied):
    model, start = take(name, 0, 20)
    model.fit(*start).partial_fit(*take(name, 20, 30)[1])
    again = copied(model)
    rows = take(name, 30, 40)[1]
    with model._turn():  # held by this thread
        other = threading.Thread(target=lambda: again.partial_fit(*rows))
        other.start()
        other.join(30)
        assert count_of(again) == 40
    before = sketches_of(model)
    model.partial_fit(*take(name, 40, 60)[1])
    both = [
        sketch + (sketches_of(again)[label] - before[label])
        for label, sketch in sketches_of(model).items()
    ]
    assert sum(sketch.count for sketch in both) == 60
    for label, sketch in sketches_of(again).items():
        with pytest.raises(PrivacyError, match="share the run"):
            sketch + sketches_of(model)[label]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing to fork")
def test_a_forked_process_does_not_wait_for_threads_it_does_not_have():
    model, start = take("pca", 0, 20)
    model.fit(*start)
    ready, done = threading.Event(), threading.Event()

    def hold():
        with model._turn():
            ready.set()
            done.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    ready.wait()
    child = os.fork()
    if not child:
        code = 1
        try:
            with model._turn():
                code = 0
        finally:
            os._exit(code)
    done.set()
    holder.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# Streams.


@pytest.mark.parametrize("name", CASES)
def test_a_stream_of_rows_takes_no_more_room(name):
    """Whatever else is sketched in between."""
    model, start = take(name, 0, 20)
    model.fit(*start)
    sizes = []
    for _ in range(6):
        model.partial_fit(*take(name, 20, 30)[1])
        clone(model).fit(*start)
        model.forget(*take(name, 20, 30)[1])
        sizes.append(
            [len(one.lineage.points) for one in sketches_of(model).values()],
        )
    assert sizes[0] == sizes[-1]
    assert max(sizes[0]) <= 6
    assert sketches_of(model) == sketches_of(clone(model).fit(*start))


def released(sketch):
    book = sl.Ledger.ephemeral(epsilon=1.0, delta=1e-9)
    return sl.release(sketch, epsilon=1.0, delta=1e-9, ledger=book)


def cycle(n):
    phi = sl.clipped(sl.MomentFeatures(2), norm_bound=4.0)
    model = sl.CompressivePCA(1).fit_sketch(sl.sketch_rows(NUMBERS, phi))
    for _ in range(n):
        model.partial_fit(NUMBERS[:2]).forget(NUMBERS[:2])
    return model.partial_fit(NUMBERS[:1])


@pytest.mark.parametrize(
    "n", [50, pytest.param(10_000, marks=pytest.mark.full)], ids=["few", "many"]
)
def test_cycles_of_adding_and_forgetting_end_in_a_release(n):
    model = cycle(n)
    assert len(model.sketch_.lineage) == 3
    assert released(model.sketch_).statement.epsilon == 1.0
    assert len(sl.dumps(model.sketch_)) < 2000


# What is decoded.


def test_what_is_not_finite_is_refused_and_changes_nothing(monkeypatch):
    model = sl.CompressiveKMeans(1, sketch_size=8, **BOUNDS).fit(NUMBERS)
    before = dict(vars(model))
    inertia = kmeans.bound_inertia

    def spoiled(*args):
        found = inertia(*args)
        object.__setattr__(found, "estimate", float("nan"))
        return found

    monkeypatch.setattr(kmeans, "bound_inertia", spoiled)
    for act in (lambda: model.partial_fit(NUMBERS), lambda: model.fit(NUMBERS)):
        with pytest.raises(RowRangeError, match="finite"):
            act()
        assert vars(model) == before
