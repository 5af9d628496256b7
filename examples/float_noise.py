"""Why sketchlearn never adds noise in floating point: a test you can run.

A value x is 0 or 1, and somebody publishes x + noise, with the noise that (1, 1e-5)
differential privacy asks for. Floats lie closer together near zero: a noise value
below one quarter has digits that 1 + noise cannot have, because they were rounded
away. Seeing such digits proves that x was 0. The event below can therefore happen for
x = 0 only, and its probability is a lower bound on the delta that was really spent.

Noise of whole lattice steps has no such digits: 1 is a lattice point like any other.
"""

import numpy as np
import torch

from sketchlearn.privacy.mechanisms import gaussian_sigma
from sketchlearn.privacy.noise import discrete_gaussian

DRAWS = 400_000
EPSILON, DELTA = 1.0, 1e-5
LATTICE_BITS = 44
SIGMA = gaussian_sigma(1.0, EPSILON, DELTA)

rng = np.random.default_rng(0)
generator = torch.Generator().manual_seed(0)


def one_normal():
    """What most programs do."""
    return rng.normal(0.0, SIGMA, DRAWS)


def two_normals():
    """A sum of two, said to hide the digits (the recipe of diffprivlib)."""
    return (rng.normal(0, SIGMA, DRAWS) + rng.normal(0, SIGMA, DRAWS)) / 2**0.5


def four_normals():
    """A sum of four (the recipe of Opacus' secure mode)."""
    return sum(rng.normal(0, SIGMA, DRAWS) for _ in range(4)) / 2


def torch_normal():
    """The same in single precision, as a graphics card would."""
    return (torch.randn(DRAWS, generator=generator) * SIGMA).numpy()


def lattice_noise():
    """Ours: exact discrete Gaussian integers, in steps of 2**-44."""
    return discrete_gaussian(round(SIGMA * 2**LATTICE_BITS), DRAWS)


def share_with_impossible_digits(published, digits):
    """How often: below 1/4, and not a multiple of 2**-digits."""
    scaled = np.ldexp(published.astype(np.float64), digits)
    return np.mean((np.abs(published) < 0.25) & (scaled != np.rint(scaled)))


def float_shares(draw, digits):
    """P[event] for x = 0 and for x = 1, the sum taken in the noise's own type."""
    return [
        share_with_impossible_digits(x + noise, digits)
        for x, noise in ((np.float32(0), draw()), (np.float32(1), draw()))
    ]


def lattice_shares():
    """The same for ours, where a published value is an integer number of steps."""
    shares = []
    for x in (0, 1):
        published = [x * 2**LATTICE_BITS + steps for steps in lattice_noise()]
        values = np.array([float(steps) for steps in published])
        assert [int(value) for value in values] == published  # nothing was rounded
        published_floats = values * 2.0**-LATTICE_BITS
        shares.append(share_with_impossible_digits(published_floats, LATTICE_BITS))
    return shares


print(f"promised: epsilon = {EPSILON:g}, delta = {DELTA:g}; noise {SIGMA:.4f}")
print(f"{'noise':<34}{'P[event|x=0]':>14}{'P[event|x=1]':>14}   delta really spent")
for name, draw, digits in (
    ("numpy normal, float64", one_normal, 53),
    ("sum of 2 normals, float64", two_normals, 53),
    ("sum of 4 normals, float64", four_normals, 53),
    ("torch normal, float32", torch_normal, 24),
):
    zero, one = float_shares(draw, digits)
    print(f"{name:<34}{zero:>14.4f}{one:>14.4f}   at least {zero:.4f}")
zero, one = lattice_shares()
print(f"{'ours, multiples of 2**-44':<34}{zero:>14.4f}{one:>14.4f}   as promised")
assert (zero, one) == (0.0, 0.0)
