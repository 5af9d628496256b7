"""When a model of decoded moments is not to be trusted, and what to do about it.

A sketch that saw too few directions, or a release with too much noise, still decodes to
numbers. Functions here say what is wrong with them in one sentence, or that nothing is;
who reads the sentence is not known here. Models that would be noise are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from sketchlearn.decoders.moments.components import PrincipalComponents
from sketchlearn.decoders.moments.moments import Moments
from sketchlearn.decoders.moments.regression import Regression
from sketchlearn.errors import TooNoisy
from sketchlearn.features.cross_moments import CrossMomentFeatures
from sketchlearn.features.moments import MomentFeatures

__all__ = [
    "MANY_COLUMNS",
    "VerdictTuning",
    "left_out_features",
    "noisy_coefficients",
    "require_directions",
    "require_signal",
    "unresolved_components",
    "unseen_correlations",
]

MANY_COLUMNS = 64
"""Directions that most data need no more than; what "auto" keeps at least."""


@final
@dataclass(frozen=True)
class VerdictTuning:
    """Hand-tuned numbers: from where on a model is warned of."""

    few_directions: int = 8
    """A full basis of a compressed sketch is warned of where it saw fewer directions:
    not even its first components are known then. A promise rather than a
    measurement."""

    left_out: float = 0.33
    """Share of the variance that may have no room without a word: plans leave out up to
    31 % of the features where that makes room for another direction of the others.
    Follows from ``MomentPlanTuning``."""

    drowned: float = 0.5
    """Coefficients that explain less than so many times what they would explain of
    noise are refused. Measured on releases of training sets: those of 500 rows at
    epsilon 0.5 stay below it."""

    clear: float = 2.0
    """Coefficients that explain so many times what they would explain of noise are
    clear of it. Measured on releases of training sets: those of 20,000 rows at epsilon
    1 exceed it."""

    noise_share: float = 0.1
    """Share of a target's variance that noise may take without a word. Checked by what
    is lost of it in ``benchmarks/tuning.py``."""

    unseen: float = 1 / 6
    """Eigenvalue of what a sketch did not see that predictions stand. Measured on
    training sets: below it, 3 % of the explained variance are lost; beyond it 9 to
    40 %, the more the larger it is (and nearly all where the target needs what was not
    seen)."""

    little_left: float = 0.05
    """Share of a target's variance that may stay unexplained without a word: more
    directions could explain no more than that. Checked by the loss of R² that warnings
    are wrong about, in ``benchmarks/tuning.py``."""


_VERDICTS = VerdictTuning()


def require_directions(moments: Moments) -> None:
    """Refuse moments of a release of which no direction stands out of the noise."""
    if moments.noise is not None and not moments.n_directions:
        raise TooNoisy(
            "no direction of the rows stands out of the noise of this release: the "
            "components would be noise. Release more rows, with a larger epsilon, "
            "a smaller norm_bound or bounds closer to the rows."
        )


def unresolved_components(
    moments: Moments,
    found: PrincipalComponents,
    asked: int | float | None,
    tuning: VerdictTuning = _VERDICTS,
) -> str | None:
    """Said where fewer components are known than are given, or given than asked.

    A full basis of a compressed sketch is taken as it is, ordered and no more, unless
    not even its first ones are known.
    """
    d, k, seen = len(moments.mean), len(found.components), moments.n_directions
    kept = float(found.ratio.sum())
    enough = min((k + 5) * d, d * (d + 1) // 2)
    a_number = asked is not None and not isinstance(asked, float)
    if moments.noise is not None and k > seen:
        return (
            f"{seen} of {k} components stand out of the noise of this release; the "
            "others are mostly noise. Ask for fewer (n_components), or release "
            "more rows or with a larger epsilon."
        )
    if k > seen and (a_number or seen < tuning.few_directions):
        return (
            f"the sketch saw {seen} directions of {d} features: components beyond "
            f"that are not resolved. Use sketch_size >= {enough}."
        )
    if k < d and (asked is None or (isinstance(asked, float) and kept < asked)):
        return (
            f"the sketch saw {seen} directions of {d} features; they are given, "
            f"{kept:.0%} of the variance. Say n_components=... for a number of "
            f"components, and use sketch_size >= {enough} to resolve more."
        )
    return None


def left_out_features(
    moments: Moments,
    part: MomentFeatures | CrossMomentFeatures,
    *,
    standardize: bool,
    tuning: VerdictTuning = _VERDICTS,
) -> str | None:
    """Said of features that vary and got no room; not of a release, where noise may.

    Parameters
    ----------
    moments : Moments
        Decoded from a sketch of ``part``.
    part : MomentFeatures or CrossMomentFeatures
        What was sketched of second moments.
    standardize : bool
        Whether features count alike, or by their variances.
    """
    if not part.is_compressed or moments.noise is not None:
        return None
    variances = moments.structure.variances
    weights = (variances > 0).astype(np.float64) if standardize else variances
    left_out = np.setdiff1d(np.flatnonzero(variances > 0), part.kept)
    share = weights[left_out].sum() / max(weights.sum(), 1e-300)
    if share < tuning.left_out:
        return None
    d = len(variances)
    return (
        f"{len(left_out)} features, {share:.0%} of the variance, have no room in this "
        "sketch: nothing was seen of them but the variances. Use sketch_size "
        f">= {min(5 * d, d * (d + 1) // 2)}."
    )


def require_signal(
    found: Regression,
    tuning: VerdictTuning = _VERDICTS,
) -> None:
    """Refuse coefficients that are noise."""
    if found.noise.any() and (found.explained < tuning.drowned * found.noise).all():
        raise TooNoisy(
            "the noise of this release explains more of the target than the features "
            "do: the coefficients would be noise. Release more rows, with a larger "
            "epsilon, a smaller norm_bound or bounds closer to the rows, or fit fewer "
            "features."
        )


def noisy_coefficients(
    found: Regression,
    tuning: VerdictTuning = _VERDICTS,
) -> str | None:
    """Said where noise is part of the coefficients."""
    share = found.noise / np.maximum(found.variance, 1e-300)
    unclear = found.explained < tuning.clear * found.noise
    if not found.noise.any() or not (unclear | (share > tuning.noise_share)).any():
        return None
    return (
        f"noise is part of these coefficients: it may take up to "
        f"{min(float(share.max()), 1.0):.0%} of the variance of a target from what "
        "they explain. Release more rows, or with a larger epsilon, a smaller "
        "norm_bound or bounds closer to the rows."
    )


def unseen_correlations(
    found: Regression,
    part: MomentFeatures | CrossMomentFeatures,
    tuning: VerdictTuning = _VERDICTS,
) -> str | None:
    """Said where the sketch saw too little of what the features have in common.

    Not where next to nothing is left to explain.
    """
    score = float(found.score.mean())
    left_out = 1 - len(part.kept) / part.n_features if part.is_compressed else 0.0
    is_seen = found.unseen < tuning.unseen and left_out < tuning.left_out
    if not part.is_compressed or is_seen:
        return None
    if found.score.min() > 1 - tuning.little_left:
        return None
    d, n_targets = part.n_features, len(part.targets)
    enough = d * (d + 1) // 2
    if part.n_columns < MANY_COLUMNS:
        enough = min((MANY_COLUMNS + n_targets) * d, enough)
    seen = f"{part.n_columns} directions of {len(part.kept) - n_targets}"
    return (
        f"the sketch saw {seen} of {d - n_targets} features, too few for what they "
        f"have in common: score_estimate_ is {score:.2g}, and predictions may be far "
        f"from those of all second moments. Use sketch_size >= {enough}."
    )
