"""Unrolled descent is descent, and can be differentiated through."""

from itertools import permutations

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans

from sketchlearn.meta.descent import (
    descend,
    hungarian_loss,
    kmeans_loss,
    unrolled_centroids,
)

RNG = torch.Generator().manual_seed(0)
MATRIX = torch.randn(3, 12, generator=RNG, dtype=torch.float64)
TARGET = 0.3 * torch.randn(12, generator=RNG, dtype=torch.float64)
INITIAL = torch.randn(4, 3, generator=RNG, dtype=torch.float64)


def phi(rows):
    return torch.cos(rows @ MATRIX)


def run(optimiser, n_steps, **options):
    options = {"initial": INITIAL, "rate": 0.1, **options}
    return unrolled_centroids(
        TARGET, phi, n_steps=n_steps, optimiser=optimiser, **options
    )


def slope_by_hand(centroids):
    phases = centroids @ MATRIX.numpy()
    error = np.cos(phases).mean(axis=0) - TARGET.numpy()
    return 2 * (-np.sin(phases) * error / 4) @ MATRIX.numpy().T


def test_plain_steps_follow_the_slope_computed_by_hand():
    expected = INITIAL.numpy()
    for _ in range(30):
        expected = expected - 0.1 * slope_by_hand(expected)
    assert np.allclose(run("sgd", 30, backward_steps=0), expected)


def test_adam_steps_are_those_of_the_paper():
    expected, first, second = INITIAL.numpy(), 0.0, 0.0
    for i in range(1, 31):
        slope = slope_by_hand(expected)
        first = 0.9 * first + 0.1 * slope
        second = 0.999 * second + 0.001 * slope**2
        size = np.sqrt(second / (1 - 0.999**i))
        expected = expected - 0.1 / (1 - 0.9**i) * first / size
    assert np.allclose(run("adam", 30, backward_steps=0), expected, atol=1e-8)


def test_a_cosine_schedule_slows_down_from_the_whole_rate_to_nothing():
    """The slope of the sum is one everywhere: the way is the sum of the rates."""
    found = descend(
        lambda point: point,
        torch.zeros(3),
        rate=0.5,
        n_steps=4,
        optimiser="sgd",
        schedule="cosine",
    )
    rates = [0.5 * (1 + np.cos(np.pi * i / 4)) / 2 for i in range(4)]
    assert torch.allclose(found, torch.full((3,), -sum(rates)))


@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_the_gradient_through_all_steps_is_the_true_one(optimiser):
    def outcome(rate, std, matrix):
        return unrolled_centroids(
            TARGET,
            lambda rows: torch.cos(rows @ matrix),
            initial=std * INITIAL,
            rate=rate,
            n_steps=4,
            optimiser=optimiser,
        )

    one = torch.ones((), dtype=torch.float64)
    inputs = [0.1 * one, one.clone(), MATRIX.clone()]
    assert torch.autograd.gradcheck(outcome, [x.requires_grad_() for x in inputs])


def test_a_truncated_gradient_takes_the_earlier_steps_as_given():
    rate = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    whole = run("sgd", 10, rate=rate, backward_steps=3)
    middle = run("sgd", 7, backward_steps=0)
    tail = run("sgd", 3, initial=middle, rate=rate)
    assert torch.allclose(whole, tail)
    slopes = [torch.autograd.grad(x.square().sum(), rate)[0] for x in (whole, tail)]
    assert torch.allclose(*slopes)
    assert slopes[0] != 0


def test_decoding_alone_keeps_no_graph():
    matrix = MATRIX.clone().requires_grad_()
    found = unrolled_centroids(
        TARGET,
        lambda rows: torch.cos(rows @ matrix),
        initial=INITIAL,
        rate=0.1,
        n_steps=3,
        backward_steps=0,
    )
    assert not found.requires_grad


def test_sketches_side_by_side_do_not_touch_each_other():
    targets = torch.stack([TARGET, -TARGET])
    starts = torch.stack([INITIAL, INITIAL + 1])
    both = unrolled_centroids(targets, phi, initial=starts, rate=0.1, n_steps=5)
    for i in range(2):
        alone = unrolled_centroids(
            targets[i], phi, initial=starts[i], rate=0.1, n_steps=5
        )
        assert torch.allclose(both[i], alone)


def test_the_k_means_loss_is_the_inertia_of_scikit_learn():
    rows = np.random.default_rng(0).normal(size=(50, 3))
    lloyd = KMeans(4, n_init=1, random_state=0).fit(rows)
    loss = kmeans_loss(torch.tensor(rows), torch.tensor(lloyd.cluster_centers_))
    assert loss.item() * 50 == pytest.approx(lloyd.inertia_)


def test_the_hungarian_loss_is_the_least_over_all_pairings():
    left = torch.randn(2, 4, 3, generator=RNG, requires_grad=True)
    right = torch.randn(2, 4, 3, generator=RNG)
    losses = hungarian_loss(left, right)
    for i in range(2):
        tried = [
            (left[i] - right[i, list(order)]).square().sum(dim=-1).mean().item()
            for order in permutations(range(4))
        ]
        assert losses[i].item() == pytest.approx(min(tried), rel=1e-5)
    (slope,) = torch.autograd.grad(losses.sum(), left)
    assert slope.shape == left.shape
    assert (slope != 0).all()
