"""Simulated noise has the size of a release's, and gradients pass through it."""

import numpy as np
import pytest
import torch

from sketchlearn.decoders.moments.sketch_prior import SketchPrior
from sketchlearn.errors import ConfigError
from sketchlearn.meta.noise import SimulatedRelease, simulate_release_noise
from sketchlearn.privacy.mechanisms import gaussian_sigma


def test_the_noise_has_the_size_of_a_release():
    sums, counts = torch.zeros(400, 100), torch.full((400,), 50.0)
    noisy = simulate_release_noise(
        sums, counts, norm_bound=2.0, epsilon=1.0, delta=1e-5,
        generator=torch.Generator().manual_seed(0),
    )  # fmt: skip
    expected = gaussian_sigma(2.0, 1.0, 1e-5) / 50
    assert np.isclose(float(noisy.std()), expected, rtol=0.02)


def test_gradients_reach_the_sums():
    sums = torch.ones(3, 4, requires_grad=True)
    noisy = simulate_release_noise(
        sums, torch.tensor([1.0, 2.0, 0.0]), norm_bound=1.0, epsilon=1.0, delta=1e-5
    )
    noisy.sum().backward()
    assert sums.grad[:, 0].tolist() == [1.0, 0.5, 1.0]


def test_the_count_has_the_noise_of_its_share():
    # One large number in each sum: what is left of it tells the count.
    sums, counts = torch.full((4000, 1), 1e7), torch.full((4000,), 1e4)
    noisy = simulate_release_noise(
        sums, counts, norm_bound=1.0, epsilon=1.0, delta=1e-5, count_share=0.1,
        generator=torch.Generator().manual_seed(0),
    ).double()  # fmt: skip
    found = 1e7 / noisy[:, 0] - 1e4
    assert float(found.mean()) == pytest.approx(0, abs=1.0)
    assert float(found.abs().mean()) == pytest.approx(10, rel=0.1)  # 1 / (0.1 epsilon)
    assert float(found.std()) == pytest.approx(10 * 2**0.5, rel=0.1)


def test_the_rest_of_the_budget_is_for_the_sum():
    sums, counts = torch.zeros(400, 100), torch.full((400,), 1e6)
    noisy = simulate_release_noise(
        sums, counts, norm_bound=1.0, epsilon=1.0, delta=1e-5, count_share=0.4,
        generator=torch.Generator().manual_seed(0),
    )  # fmt: skip
    expected = gaussian_sigma(1.0, 0.6, 1e-5) / 1e6
    assert float(noisy.std()) == pytest.approx(expected, rel=0.02)


def test_training_sees_means_as_a_query_network_cleans_them():
    prior = SketchPrior([1.0, 2.0], [-0.5, -1], [0.5, 1], [0.1, 0], [0.2, 0.001])
    release = SimulatedRelease(epsilon=1.0, n_rows=50, count_share=0.1)
    means = torch.tensor([[0.3, -0.9], [5.0, 0.0]])
    found = release.clean_means(means, prior, noise_seed=3)
    noisy = simulate_release_noise(
        means * 50, torch.full((2,), 50.0), norm_bound=2.0, epsilon=1.0, delta=1e-5,
        count_share=0.1, generator=torch.Generator().manual_seed(3),
    )  # fmt: skip
    noise = gaussian_sigma(2.0, 0.9, 1e-5) / 50
    expected = [prior.clean(row.double().numpy(), noise) for row in noisy]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    again = release.clean_means(means, prior, noise_seed=3)
    assert torch.equal(found, again)


@pytest.mark.parametrize(
    "wrong", [{"epsilon": 0.0}, {"n_rows": 0}, {"count_share": 1.0}]
)
def test_releases_without_sense_are_refused(wrong):
    with pytest.raises(ConfigError, match="epsilon > 0"):
        SimulatedRelease(**{"epsilon": 1.0, **wrong})
