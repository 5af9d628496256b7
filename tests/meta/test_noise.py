"""Simulated noise has the size of a release's, and gradients pass through it."""

import numpy as np
import torch

from sketchlearn.meta.noise import simulate_release_noise
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
