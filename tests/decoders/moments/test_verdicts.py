"""What a sketch did not see, or noise hides, is said; what it shows is not."""

import numpy as np
import pytest

from sketchlearn.decoders.moments.components import principal_components
from sketchlearn.decoders.moments.covariance.dense import DenseCovariance
from sketchlearn.decoders.moments.moments import Moments
from sketchlearn.decoders.moments.noise_floor import MomentNoise
from sketchlearn.decoders.moments.regression import Regression
from sketchlearn.decoders.moments.verdicts import (
    noisy_coefficients,
    require_directions,
    require_signal,
    unresolved_components,
    unseen_correlations,
)
from sketchlearn.errors import TooNoisy
from sketchlearn.features.cross_moments import CrossMomentFeatures
from sketchlearn.features.moments import MomentFeatures

D = 20


def moments(n_directions, noise=None):
    known = DenseCovariance(np.diag(np.arange(1.0, D + 1)))
    return Moments(9.0, np.zeros(D), known, np.zeros(D), n_directions, noise)


def regression(*, explained, noise=0.0, unseen=0.0):
    one = np.ones(1)
    return Regression(
        one[None], one, one, explained * one, noise * one, unseen, explained * one
    )


@pytest.mark.parametrize(
    ("asked", "directions", "said"),
    [(None, D, None), (None, 8, None), (None, 7, "7 directions"), (9, 8, "8 dir")],
)
def test_components_beyond_what_was_seen_are_told(asked, directions, said):
    known = moments(directions)
    found = unresolved_components(known, principal_components(known, asked), asked)
    assert found is None if said is None else said in found


def test_components_of_noise_are_refused_or_told():
    noise = MomentNoise(1.0, np.ones(D), np.zeros(D))
    with pytest.raises(TooNoisy, match="no direction"):
        require_directions(moments(0, noise))
    known = moments(2, noise)
    require_directions(known)
    found = unresolved_components(known, principal_components(known, 3), 3)
    assert found.startswith("2 of 3 components stand out")


def test_coefficients_of_noise_are_refused_or_told():
    require_signal(regression(explained=0.0))
    with pytest.raises(TooNoisy, match="explains more of the target"):
        require_signal(regression(explained=0.02, noise=0.05))
    assert noisy_coefficients(regression(explained=0.5)) is None
    assert noisy_coefficients(regression(explained=0.5, noise=0.05)) is None
    assert "up to 5%" in noisy_coefficients(regression(explained=0.05, noise=0.05))
    assert "up to 20%" in noisy_coefficients(regression(explained=0.5, noise=0.2))


def test_directions_that_were_not_seen_are_told():
    phi = CrossMomentFeatures(D, 2, targets=[D - 1])
    assert unseen_correlations(regression(explained=0.5, unseen=0.1), phi) is None
    found = unseen_correlations(regression(explained=0.5, unseen=0.2), phi)
    assert f"saw 2 directions of {D - 1} of {D - 1} features" in found
    whole = MomentFeatures(D, order="covariance")
    assert unseen_correlations(regression(explained=0.5, unseen=0.2), whole) is None
