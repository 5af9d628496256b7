"""Cases of decoders of moments and of what is made of them."""

from functools import partial

import numpy as np

import sketchlearn as sl
from sketchlearn.decoders.moments.components import principal_components
from sketchlearn.decoders.moments.covariance.dense import DenseCovariance
from sketchlearn.decoders.moments.covariance.low_rank import LowRankCovariance
from sketchlearn.decoders.moments.moments import Moments
from sketchlearn.decoders.moments.noise_floor import (
    MomentNoise,
    denoised_covariance,
    directions_above,
)
from sketchlearn.decoders.moments.nystrom import NystromDecoder
from sketchlearn.decoders.moments.regression import fit_regression
from sketchlearn.decoders.moments.verdicts import (
    left_out_features,
    noisy_coefficients,
    require_signal,
    unresolved_components,
    unseen_correlations,
)
from sketchlearn.errors import TooNoisy
from sketchlearn.plans.moments import plan_second_moments
from sketchlearn.testing import release_seeded
from tuning_cases.base import (
    cases_of,
    factor_rows,
    reconstruction_ratio,
    training_sets,
)


def cross_sketch(rows, columns, n_targets=0, seed=0):
    d = rows.shape[1]
    targets = list(range(d - n_targets, d))
    phi = sl.CrossMomentFeatures(d, columns, targets=targets, reach=64.0, seed=seed)
    return sl.sketch_rows(rows, phi)


@cases_of("NystromTuning")
def nystrom_cases(data):
    rows = {"few factors": factor_rows(), "all alike": factor_rows(60, 60)}
    for name, table in (rows | training_sets(data)).items():
        for columns in (2, 8):
            sketch = cross_sketch(table, columns)
            yield (
                f"PCA error over exact, {name}, {columns} columns",
                partial(nystrom_error, table, sketch),
            )


def nystrom_error(rows, sketch, tuning):
    decoded = NystromDecoder(tuning=tuning).decode(sketch).params
    return reconstruction_ratio(rows, np.linalg.eigh(decoded.covariance)[1][:, ::-1])


@cases_of("NoiseTuning")
def noise_cases(data):
    del data
    yield "wrong directions, all second moments", wrong_directions
    yield "wrong directions, test vectors", wrong_seen_directions


def wrong_directions(tuning, d=60, repeats=10):
    """One more than how often noise has a direction, or a signal of two edges none."""
    rng, wrong = np.random.default_rng(0), 1
    signal = np.linalg.qr(rng.normal(size=(d, 1)))[0]
    for level in (0.0, 4.0):
        for _ in range(repeats):
            noise = np.tril(rng.normal(size=(d, d)))
            noisy = noise + np.tril(noise, -1).T + level * d**0.5 * signal @ signal.T
            found = denoised_covariance(noisy, 1.0, np.zeros(d), tuning)[1]
            wrong += abs(found - (level > 0))
    return wrong


def wrong_seen_directions(tuning, d=100, columns=5, repeats=10):
    rng, wrong = np.random.default_rng(0), 1
    omega = np.linalg.qr(rng.normal(size=(d, columns)))[0]
    edge = d**0.5 + columns**0.5
    for level in (0.0, 4.0):
        for _ in range(repeats):
            noise = rng.normal(size=(d, columns))
            seen = level * edge * omega[:, :1] @ np.eye(1, columns) + noise
            found = directions_above(seen, omega, 1.0, np.zeros(d), tuning)
            wrong += abs(found - (level > 0))
    return wrong


@cases_of("RegressionTuning")
def regression_cases(data):
    tables = {"few factors": factor_rows(40), "one factor": factor_rows(40, 1, 0.3)}
    for name, table in (tables | training_sets(data)).items():
        for columns in (1, 4):
            sketch = cross_sketch(table, columns)  # the target was not planned for
            moments = NystromDecoder(with_unseen=True).decode(sketch).params
            yield (
                f"1 - R2, {name}, {columns} columns",
                partial(regression_error, table, moments),
            )
    rows, private = private_rows()
    moments = NystromDecoder(with_unseen=True).decode(private).params
    yield "1 - R2, release", partial(regression_error, rows, moments)
    yield "1 - R2, features more alike than was seen", alike_error
    yield "share of noise, relative error", probe_error


def regression_error(rows, moments, tuning):
    d = rows.shape[1]
    xs, ys = np.arange(d - 1), np.array([d - 1])
    found = fit_regression(moments, xs, ys, alpha=1.0, tuning=tuning)
    return unexplained(rows, found.coef[0])


@cases_of("CheckedTuning")
def checked_cases(data):
    tables = {"many factors": factor_rows(60, 30), "alone": factor_rows(60, 1, 30.0)}
    for name, table in (tables | training_sets(data)).items():
        rows, rng = table.copy(), np.random.default_rng(0)
        target = table[:, :-1] @ rng.normal(size=table.shape[1] - 1)
        rows[:, -1] = target / target.std()
        for columns in (4, 8):
            sketch = cross_sketch(rows, columns, n_targets=1)
            moments = NystromDecoder(with_unseen=True).decode(sketch).params
            yield (
                f"1 - R2 and what is promised too much, {name}, {columns} columns",
                partial(checked_error, rows, moments),
            )


def checked_error(rows, moments, tuning):
    d = rows.shape[1]
    xs, ys = np.arange(d - 1), np.array([d - 1])
    found = fit_regression(moments, xs, ys, alpha=1.0, checked=tuning)
    missed = unexplained(rows, found.coef[0])
    return missed + 10 * max(float(found.score[0]) - (1 - missed), 0.0)


def unexplained(rows, coef):
    """Share of the variance of the last feature that others do not explain."""
    missed = rows[:, -1] - rows[:, :-1] @ coef
    return float(np.var(missed) / np.var(rows[:, -1]))


def alike_error(tuning):
    """Two features that seem independent and promise more than there is."""
    truth = np.array([[1.0, 0.8, 0.9], [0.8, 1.0, 0.9], [0.9, 0.9, 1.0]])
    seen = LowRankCovariance(
        np.zeros((3, 1)), np.ones(3), np.array([2]), truth[:, 2:] * [[1], [1], [0]]
    )
    moments = Moments(100.0, np.zeros(3), seen, np.array([1e-6, 1e-6, 0.0]), 1)
    xs, ys = np.arange(2), np.array([2])
    coef = fit_regression(moments, xs, ys, alpha=0.0, tuning=tuning).coef[0]
    return float(1 - 2 * coef @ truth[:2, 2] + coef @ truth[:2, :2] @ coef)


def private_rows(epsilon=3.0, n_rows=4000, weight=0.0):
    """Rows within [-1, 1] with noise in the target, and a release of their moments."""
    rows = factor_rows(20, 3, 1.0, n_rows) / 4
    noise = np.random.default_rng(5).normal(size=n_rows) / 4
    rows = np.column_stack([rows[:, :-1], (1 - weight) * rows[:, -1] + weight * noise])
    rows = np.clip(rows, -1, 1)
    scaling = sl.Scaling.from_bounds(-1.0, 1.0, n_features=20)
    phi = sl.MomentFeatures(20, order="covariance", targets=[19], scaling=scaling)
    phi = sl.clipped(phi, norm_bound=4.0)
    private = release_seeded(sl.sketch_rows(rows, phi), 0, epsilon=epsilon, delta=1e-5)
    return rows, private


def probe_error(tuning, repeats=8):
    """Of the variance that noise explains: estimated with probes, against exactly."""
    errors = []
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        mixing = rng.normal(size=(12, 12))
        left = DenseCovariance(mixing @ mixing.T + np.eye(12))
        noise = MomentNoise(0.1, np.ones(12), np.zeros(12))
        target = MomentNoise(0.1, np.ones(1), np.zeros(1))
        found = noise.of_regression(
            target,
            np.zeros(13),
            np.zeros(12),
            lambda tests, left=left: left.solve(tests, np.zeros(12)),
            n_probes=tuning.n_probes,
        )
        exact = 0.01 * np.trace(np.linalg.inv(left.matrix))
        errors.append(abs(found / exact - 1))
    return float(np.mean(errors))


@cases_of("VerdictTuning")
def verdict_cases(data):
    tables = {"few factors": factor_rows(40, 8, 0.3), "alike": factor_rows(40, 40)}
    for name, table in (tables | training_sets(data)).items():
        sketches = [cross_sketch(table, columns) for columns in (1, 3, 12, 20)]
        yield (
            f"wrong warnings of full bases, {name}",
            partial(wrong_bases, table, sketches),
        )
        sketches = [cross_sketch(table, columns, 1) for columns in (1, 2, 8, 20)]
        yield (
            f"wrong warnings of predictions, {name}",
            partial(wrong_predictions, table, sketches),
        )
    yield "wrong warnings of features left out", wrong_left_out
    yield "wrong verdicts on releases", wrong_releases


def wrong_bases(rows, sketches, tuning):
    """One more than how often a warning comes where eight components are known, or not.

    Known are as many components as the sketch saw directions.
    """
    wrong = 1
    for sketch in sketches:
        moments = NystromDecoder().decode(sketch).params
        found = principal_components(moments, None)
        told = unresolved_components(moments, found, None, tuning) is not None
        wrong += told != (moments.n_directions < 8)
    return wrong


def wrong_predictions(rows, sketches, tuning):
    """One more than how often a warning is wrong about a loss of 5 % of the R2."""
    d, wrong = rows.shape[1], 1
    xs, ys = np.arange(d - 1), np.array([d - 1])
    exact = np.linalg.lstsq(rows[:, :-1], rows[:, -1], rcond=None)[0]
    best = np.var(rows[:, :-1] @ exact)
    for sketch in sketches:
        moments = NystromDecoder(with_unseen=True).decode(sketch).params
        found = fit_regression(moments, xs, ys, alpha=1.0)
        left = np.var(rows[:, -1] - rows[:, :-1] @ found.coef[0])
        lost = 1 - (1 - left) / best
        told = unseen_correlations(found, sketch.feature_map, tuning) is not None
        wrong += told != (lost > 0.05)
    return wrong


def wrong_left_out(tuning, d=40):
    """One more than how often features without room are warned of, or not."""
    rows, wrong = factor_rows(d), 1
    for kept in (d - 2, 33, 29, 20, 5):
        phi = sl.CrossMomentFeatures(d, 2, kept=np.arange(kept), reach=64.0)
        moments = NystromDecoder().decode(sl.sketch_rows(rows, phi)).params
        told = left_out_features(moments, phi, standardize=True, tuning=tuning)
        wrong += (told is not None) != (kept < 0.8 * d)
    return wrong


RELEASES = (
    (500, 0.5, 0.0),
    (2000, 1.0, 0.0),
    (4000, 3.0, 0.0),
    (500, 0.5, 0.9),
    (20_000, 1.0, 0.9),
    (20_000, 10.0, 0.9),
)
"""Rows, epsilon, and the weight of noise in the target."""


def wrong_releases(tuning):
    """One more than how often a regression is refused, warned of or given wrongly.

    By the share of what can be explained that it loses: one of half of it may be
    refused, one of a tenth should be warned of, and one of a twentieth should not.
    """
    wrong, xs, ys = 1, np.arange(19), np.array([19])
    for n_rows, epsilon, weight in RELEASES:
        rows, private = private_rows(epsilon, n_rows, weight)
        moments = NystromDecoder().decode(private).params
        found = fit_regression(moments, xs, ys, alpha=1.0)
        exact = np.linalg.lstsq(rows[:, :-1], rows[:, -1], rcond=None)[0]
        best = unexplained(rows, exact)
        lost = (unexplained(rows, found.coef[0]) - best) / (1 - best)
        try:
            require_signal(found, tuning)
        except TooNoisy:
            wrong += lost < 0.5
            continue
        told = noisy_coefficients(found, tuning) is not None
        wrong += lost < 0.05 if told else lost > 0.1
        wrong += lost > 3
    return wrong


@cases_of("MomentPlanTuning")
def plan_cases(data):
    yield "error of variances beside one row far out", narrow_error
    wide = factor_rows(150, 20, 0.5)
    yield "1 - R2, many features, 300 numbers", partial(target_error, wide, 300)
    tables = {"few factors": factor_rows(60, 6), "many": factor_rows(150, 20, 0.5)}
    for name, table in (tables | training_sets(data)).items():
        for share in (0.75, 0.85, 0.95):
            size = int(2 * share * table.shape[1])
            yield (
                f"PCA error over exact, {name}, {size} numbers",
                partial(planned_error, table, size),
            )


def narrow_error(tuning):
    rng, errors = np.random.default_rng(0), []
    for far in (1e2, 1e3, 1e4, 1e5):
        rows = rng.normal(size=(4000, 2))
        rows[0] = far
        phi = plan_second_moments(
            n_features=2,
            sketch_size="auto",
            scaling=sl.Scaling.from_rows(rows),
            reach=32.0,
            rows=rows,
            tuning=tuning,
        )
        most = sl.sketch_rows(rows, phi) - sl.sketch_rows(rows[:1], phi)
        found = NystromDecoder().decode(most).params.structure.variances
        errors.append(np.abs(found / rows[1:].var(axis=0) - 1).max())
    return float(max(errors))


def target_error(rows, size, tuning):
    phi = plan_second_moments(
        n_features=rows.shape[1],
        sketch_size=size,
        n_targets=1,
        scaling=sl.Scaling.from_rows(rows),
        reach=32.0,
        rows=rows,
        tuning=tuning,
    )
    sketch = sl.sketch_rows(rows, phi)
    moments = NystromDecoder(with_unseen=True).decode(sketch).params
    xs = np.arange(rows.shape[1] - 1)
    found = fit_regression(moments, xs, np.array([len(xs)]), alpha=1.0)
    return unexplained(rows, found.coef[0])


def planned_error(rows, size, tuning):
    phi = plan_second_moments(
        n_features=rows.shape[1],
        sketch_size=size,
        scaling=sl.Scaling.from_rows(rows),
        reach=32.0,
        rows=rows,
        tuning=tuning,
    )
    found = sl.CompressivePCA(standardize=True).fit_sketch(sl.sketch_rows(rows, phi))
    return reconstruction_ratio(rows, found.components_.T)
