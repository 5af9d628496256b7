"""What to say of a model whose sketch does not show enough, and what to sketch instead.

Each function gives a sentence, or None where there is nothing to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.clusters.inertia import Inertia
from sketchlearn.decoders.clusters.kmeans import Centers
from sketchlearn.decoders.clusters.resolution import (
    narrow_features,
    noise_share,
    wide_features,
)
from sketchlearn.decoders.density.blur import hidden_nats
from sketchlearn.decoders.density.mixture import Density
from sketchlearn.decoders.density.reading import Reading, holds_only_moments
from sketchlearn.errors import TooNoisy
from sketchlearn.plans.cells import ClusterCells
from sketchlearn.plans.rounds import DensityPlan
from sketchlearn.privacy.released import PrivateSketch

__all__ = [
    "AdviceTuning",
    "cluster_advice",
    "hidden_features",
    "misled_mixtures",
    "noisy_density",
    "noisy_variances",
    "outlying_rows",
]

_LISTED = 5
"""Features named in a sentence."""

_LESS_NOISE = (
    "Release more rows or with a larger epsilon, fewer numbers (a smaller "
    "sketch_size), or with bounds or a norm_bound closer to the rows."
)


@final
@dataclass(frozen=True)
class AdviceTuning:
    """Numbers that were set by hand; benchmarks/tuning.py moves each of them."""

    hardly_seen: float = 0.125
    """Noise of a release, as a share of the variance of the rows. Clusters of synthetic
    rows were within a tenth of the best below 0.1, and 1.4 to 30 times worse above 0.3.
    The moments of one Gaussian bear twice as much."""

    nothing_seen: float = 1.0
    """The same, from which on clusters were those of noise."""

    hidden_nats: float = 2.5
    """Log density that the noise of a release may cost without a word."""

    features_per_center: float = 2.2
    """Fourier features of one round for each coordinate of the centers: with fewer,
    clusters cannot be told apart."""

    most_components: int = 30
    """Clusters that a mixture fitted to Fourier features can tell apart."""

    fewest_cells: int = 2
    """For each cluster: with fewer, training tables have 1.2 times the inertia of
    Lloyd's and more."""

    unseen: float = 0.2
    """Share of the inertia that centers could explain in directions without cells:
    below it, clusters of training tables were within a tenth of the best."""


_TUNING = AdviceTuning()


def noisy_density(
    reading: Reading, n_parts: int, tuning: AdviceTuning = _TUNING
) -> str | None:
    """Whether noise hides what a density would be decoded from; refuse if all of it."""
    share = noise_share(reading)
    if share > tuning.nothing_seen:
        raise TooNoisy(
            f"the noise of this release is {share:.1f} times the variance of the "
            f"rows: a model of it would be one of noise. {_LESS_NOISE}"
        )
    if share <= tuning.hardly_seen * (1 if n_parts > 1 else 2):
        return None
    return (
        f"the noise of this release is {share:.2f} of the variance of the rows: the "
        f"result may be far from the best. {_LESS_NOISE}"
    )


def noisy_variances(
    reading: Reading,
    weights: NDArray[np.float64],
    covariances: NDArray[np.float64],
    tuning: AdviceTuning = _TUNING,
) -> str | None:
    """Whether a release hides how narrow the rows are."""
    lost = hidden_nats(reading.moments, weights, covariances)
    if lost <= tuning.hidden_nats:
        return None
    return (
        "components are narrower than the noise of this release lets one see: the log "
        f"density of rows may be too low by {lost:.1f} and more. {_LESS_NOISE}"
    )


def outlying_rows(reading: Reading, *, is_blurred: bool = False) -> str | None:
    """Whether rows far out, or wide bounds, hide how the others lie."""
    found = narrow_features(reading)
    if is_blurred and not found:
        found = wide_features(reading)
    if not found:
        return None
    cause = "a few rows lie far from all others"
    if reading.moment_map.origin == "declared" and not is_blurred:
        cause = "bounds are much wider than the rows"
    last = ", or sketch two rounds (rounds=2)" if reading.cells is None else ""
    names = getattr(reading.sketch, "columns", None)
    return (
        f"in feature {_listed(found, names)} {cause}: how the others lie is hardly "
        "seen, and the result may be far from the best. Declare bounds close to the "
        "rows (rows beyond are refused: leave them out or clip them), transform the "
        f"feature{last}."
    )


def misled_mixtures(
    faults: Mapping[str, NDArray[np.intp]], names: Sequence[str] | None
) -> str | None:
    """Whether features are so unlike Gaussians that mixtures of classes mislead.

    Parameters
    ----------
    faults : mapping
        From what features are like to their numbers.
    names : sequence of str, optional
        Of all features.
    """
    if not faults:
        return None
    told = [f"in feature {_listed(at, names)} {why}" for why, at in faults.items()]
    return (
        f"Gaussian mixtures of the classes would mislead: {', '.join(told)}. Classes "
        "are told apart by a linear rule with one covariance instead, as "
        "method='linear' asks for. Transform such features or leave them out, or "
        "insist on mixtures with method='density'."
    )


def cluster_advice(
    reading: Reading,
    density: Density,
    found: Centers,
    inertia: Inertia,
    plan: DensityPlan,
    tuning: AdviceTuning = _TUNING,
) -> list[str]:
    """All there is to say of clusters: the sketch first, then rows and directions."""
    sketch, said, n_clusters = reading.sketch, [], len(found.centers)
    d = sketch.feature_map.n_features
    is_small = 2 * sketch.size < plan.size(d, 1) and bool(density.mixture.factors.any())
    if is_small and holds_only_moments(sketch.feature_map):
        said.append(
            "this sketch holds moments alone: clusters are guessed from them. Sketch "
            "with plan(n_features), and for two rounds again with "
            "plan(n_features, first=...)."
        )
    too_small = small_sketch(reading, n_clusters, tuning)
    said += [too_small] if too_small else []
    is_small = is_small or too_small is not None
    outlying = outlying_rows(reading, is_blurred=inertia.is_blurred and not is_small)
    if outlying is None and len(np.unique(found.centers, axis=0)) < n_clusters:
        said.append(
            f"the sketch shows fewer than n_clusters={n_clusters} distinct places: "
            "some centers are the same."
        )
    said += [outlying] if outlying else []
    is_told = is_small or outlying is not None or isinstance(sketch, PrivateSketch)
    if inertia.unseen > tuning.unseen and not is_told:
        said.append(
            f"a sketch of {sketch.size} numbers has cells in so few directions that "
            "clusters which differ in others cannot be told apart: the result may be "
            "far from the best. Use a larger sketch_size."
        )
    return said


def small_sketch(
    reading: Reading, n_clusters: int, tuning: AdviceTuning = _TUNING
) -> str | None:
    """Whether an exact sketch is too small for so many clusters."""
    sketch = reading.sketch
    is_noisy = isinstance(sketch, PrivateSketch)  # a larger release is a noisier one
    if n_clusters == 1 or is_noisy or holds_only_moments(sketch.feature_map):
        return None
    d, cells = sketch.feature_map.n_features, ClusterCells(n_clusters)
    fourier = sum(part.sketch_size for part, _ in reading.fourier)
    few = n_clusters <= tuning.most_components
    if few and fourier >= tuning.features_per_center * d * n_clusters:
        return None
    size = DensityPlan(cells, "auto", 0).size(d, 2)
    advice = f"use sketch_size >= {size}"
    if reading.cells is not None:
        needed = min(tuning.fewest_cells * n_clusters, int(sketch.count))
        if len(reading.cells.shares) >= needed:
            return None
        what = f"a sketch of {sketch.size} numbers is too small to tell"
    else:
        what = f"one round, in {sketch.size} numbers, does not tell"
        advice += " and rounds=2"
    return f"{what} n_clusters={n_clusters} clusters of {d} features apart: {advice}."


def hidden_features(
    density: Density, reg_covar: float, varies: NDArray[np.bool_]
) -> str | None:
    """Whether the units of a feature make it hardly count in a mixture."""
    weights, means = density.weights, density.mixture.means @ density.lift.T
    variances = np.einsum("jaa->ja", density.component_covariances)
    total = weights @ (variances + (means - weights @ means) ** 2)
    narrow = varies & (total < reg_covar)
    if not narrow.any():
        return None
    return (
        f"reg_covar={reg_covar:g} is larger than the variance of feature "
        f"{int(np.argmax(narrow))}, which hardly counts then. Scale the features, or "
        "take a smaller reg_covar."
    )


def _listed(features: Iterable[int], names: Sequence[str] | None) -> str:
    """The first features by name or number, and how many more there are."""
    named = [str(j if names is None else repr(str(names[j]))) for j in features]
    more = [f"{len(named) - _LISTED} more"] if len(named) > _LISTED else []
    return ", ".join(named[:_LISTED] + more)
