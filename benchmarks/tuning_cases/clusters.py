"""Cases of decoders of clusters, the paper's and the field's."""

from dataclasses import replace
from functools import partial

import numpy as np

import sketchlearn as sl
from sketchlearn.decoders.baselines.cl_amp import CLAMPDecoder
from sketchlearn.decoders.baselines.cl_ompr import CLOMPRDecoder
from sketchlearn.decoders.baselines.factorized import AcceleratedDecoder, RobustDecoder
from tuning_cases.base import cases_of, cluster_rows, inertia_ratio


def scaled(rows):
    return sl.Scaling.from_bounds(-1.0, 1.0, n_features=rows.shape[1])


@cases_of("CKMTuning")
def ckm_cases(data):
    del data
    for name in ("kmeans-ckm", "kmeans-ckm-paper"):
        for n_clusters, spread in ((3, 1.0), (8, 0.3)):
            rows, truth = cluster_rows(n_clusters, spread=spread)
            yield (
                f"inertia over true, {name}, {n_clusters} clusters",
                partial(ckm_inertia, name, rows, truth),
            )


def ckm_inertia(name, rows, truth, tuning):
    model = replace(sl.load_model(name), tuning=tuning)
    size = model.spec.sketch_size or 40
    phi = model.feature_map(rows.shape[1], size, scaling=scaled(rows))
    found = model.decoder(len(truth), n_starts=3).decode(sl.sketch_rows(rows, phi))
    return inertia_ratio(rows, found.params.centers, truth)


def fourier_sketch(rows, size, scale=0.15, law="adapted"):
    phi = sl.FourierFeatures(
        rows.shape[1], size, scale=scale, law=law, scaling=scaled(rows)
    )
    return sl.sketch_rows(rows, phi)


@cases_of("ClAmpTuning")
def amp_cases(data):
    del data
    yield "searches wrongly said to converge, or not", wrong_convergence
    for n_clusters, size in ((3, 120), (6, 200)):
        rows, truth = cluster_rows(n_clusters, spread=0.4)
        sketch = fourier_sketch(rows, size)
        yield (
            f"inertia over true, {n_clusters} clusters",
            partial(amp_inertia, rows, truth, sketch),
        )
        yield (
            f"iterations, {n_clusters} clusters",
            partial(amp_iterations, n_clusters, sketch),
        )


def amp_inertia(rows, truth, sketch, tuning):
    found = CLAMPDecoder(len(truth), n_starts=2, max_iter=150, tuning=tuning)
    return inertia_ratio(rows, found.decode(sketch).params.centers, truth)


def wrong_convergence(tuning):
    """One more than how often: two of five clusters are found, pure noise is not."""
    rows, _ = cluster_rows(5, spread=0.4)
    wrong = 1
    for scale, expected in ((0.3, True), (1e-4, False)):
        sketch = fourier_sketch(rows, 120, scale)
        decoder = CLAMPDecoder(2, n_starts=3, max_iter=300, tuning=tuning)
        found = decoder.decode(sketch)
        wrong += found.converged != expected
    return wrong


def amp_iterations(n_clusters, sketch, tuning):
    """How long the search takes; ten times as long if it is said not to converge."""
    decoder = CLAMPDecoder(n_clusters, n_starts=3, max_iter=150, tuning=tuning)
    found = decoder.decode(sketch)
    return found.n_iter * (1 if found.converged else 10)


@cases_of("ClOmprTuning")
def ompr_cases(data):
    del data
    rows, truth = cluster_rows(4, spread=0.4)
    sketch = fourier_sketch(rows, 120)
    for kind in ("gaussian", "diagonal"):
        yield (
            f"inertia over true, {kind}",
            partial(ompr_inertia, kind, rows, truth, sketch),
        )
        yield f"rounds, {kind}", partial(ompr_rounds, kind, sketch)
    yield "residual, wide kernel", wide_residual
    rows, truth = cluster_rows(4, spread=1e-3, n_rows=300)
    sketch = fourier_sketch(rows, 60)
    yield "residual, narrow", lambda tuning: ompr("diagonal", sketch, tuning).residual


def wide_residual(tuning):
    """What is left of a sketch whose kernel is wider than the box."""
    rows, truth = cluster_rows(5, 3, spread=0.2, seed=1)
    sketch = fourier_sketch(rows, 100, scale=2.0, law="gaussian")
    decoder = CLOMPRDecoder(
        len(truth), atoms="dirac", max_iter=60, n_restarts=1, tuning=tuning
    )
    return decoder.decode(sketch).residual


def ompr(kind, sketch, tuning):
    return CLOMPRDecoder(4, atoms=kind, max_iter=60, tuning=tuning).decode(sketch)


def ompr_inertia(kind, rows, truth, sketch, tuning):
    return inertia_ratio(rows, ompr(kind, sketch, tuning).params.centers, truth)


def ompr_rounds(kind, sketch, tuning):
    return ompr(kind, sketch, tuning).n_iter


@cases_of("FactorTuning")
def factor_cases(data):
    del data
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 2)) @ rng.normal(size=(2, 15))
    for n in (60, 100):
        sketch = sl.sketch_rows(rows, sl.QuadraticFeatures(15, n, law="unit"))
        for cls in (AcceleratedDecoder, RobustDecoder):
            for rank in (4, 12):
                decoder = cls(rank=rank, max_iter=100)
                yield (
                    f"error, {cls.__name__}, {n} numbers, rank {rank}",
                    partial(factor_error, decoder, rows, sketch),
                )


def factor_error(decoder, rows, sketch, tuning):
    found = replace(decoder, tuning=tuning).decode(sketch).params
    truth = rows.T @ rows / len(rows)
    return float(np.linalg.norm(found - truth) / np.linalg.norm(truth))
