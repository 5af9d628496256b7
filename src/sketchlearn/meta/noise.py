"""Noise as a network meets it in training: simulated, and private for nobody.

DP-aware meta-training puts noise of the size of a release into the sketches it
trains on. This is not a release: the noise is an ordinary float tensor from an
ordinary generator. Real noise comes from :func:`sketchlearn.release` only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from sketchlearn.decoders.moments.sketch_prior import SketchPrior
from sketchlearn.errors import ConfigError
from sketchlearn.meta.backend import Tensor, torch
from sketchlearn.privacy.mechanisms import gaussian_sigma

__all__ = ["SimulatedRelease", "simulate_release_noise"]


def simulate_release_noise(
    sums: Tensor,
    counts: Tensor,
    *,
    norm_bound: float,
    epsilon: float,
    delta: float,
    count_share: float = 0.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Mean sketches as a release would show them, for training only.

    .. math::
        \tilde z = \frac{\sum_i \varphi(x_i) + \xi}{N + \zeta}, \qquad
        \xi \sim \mathcal{N}(0, \sigma^2 I), \quad
        \zeta \sim \mathrm{Laplace}\Big(\frac{1}{c\,\epsilon}\Big),

    with σ of the analytic Gaussian of :math:`((1 - c)\,\epsilon, \delta)` for one row
    of norm at most S, as :func:`sketchlearn.release` with ``count="laplace"`` shares
    its budget. Differentiable in ``sums``.

    Parameters
    ----------
    sums : tensor of shape (..., sketch_size)
        Summed feature vectors, of rows already clipped to ``norm_bound``.
    counts : tensor of shape (...)
        Number of rows of each sum.
    norm_bound, epsilon, delta : float
        S and the promise to imitate.
    count_share : float
        Share c of ε for the count; 0 if it is public.
    generator : torch.Generator, optional
        Source of the noise.

    Examples
    --------
    >>> sums, counts = torch.zeros(2, 5), torch.tensor([100.0, 1000.0])
    >>> noisy = simulate_release_noise(
    ...     sums, counts, norm_bound=1.0, epsilon=1.0, delta=1e-5, count_share=0.1
    ... )
    >>> noisy.shape
    torch.Size([2, 5])
    """
    sigma = gaussian_sigma(norm_bound, (1 - count_share) * epsilon, delta)
    noise = torch.randn(
        sums.shape, generator=generator, dtype=sums.dtype, device=sums.device
    )
    if count_share:
        # The difference of two exponential draws has the law of Laplace.
        draws = torch.empty(2, *counts.shape, dtype=sums.dtype, device=sums.device)
        draws.exponential_(count_share * epsilon, generator=generator)
        counts = counts + draws[0] - draws[1]
    return (sums + sigma * noise) / counts[..., None].clamp_min(1)


@final
@dataclass(frozen=True)
class SimulatedRelease:
    """A release that training imitates, from the clipped sum to the cleaned mean.

    Examples
    --------
    >>> prior = SketchPrior(*np.array([[1.0], [-1.0], [1.0], [0.0], [0.25]]))
    >>> release = SimulatedRelease(epsilon=1.0, n_rows=100_000)
    >>> seen = release.clean_means(torch.tensor([[0.5], [7.0]]), prior, noise_seed=0)
    >>> [[round(number, 2) for number in row] for row in seen.tolist()]
    [[0.5], [1.0]]
    """

    epsilon: float
    delta: float = 1e-5
    n_rows: int = 4096
    """Rows of a dataset; the paper's number."""

    count_share: float = 0.1
    """Share of ε for the count; 0 if it is public."""

    def __post_init__(self) -> None:
        if not (self.epsilon > 0 and self.n_rows > 0 and 0 <= self.count_share < 1):
            raise ConfigError(
                "a release has epsilon > 0, n_rows > 0 and 0 <= count_share < 1; got "
                f"{self}."
            )

    def clean_means(
        self, means: Tensor, prior: SketchPrior, *, noise_seed: int
    ) -> Tensor:
        """Mean sketches, released and then cleaned as a Query Network does it.

        Parameters
        ----------
        means : tensor of shape (..., sketch_size)
            Of rows that were clipped to the prior's bound.
        prior : SketchPrior
            Bound, range and variances.
        noise_seed : int
            Same seed, same noise.
        """
        counts = means.new_full(means.shape[:-1], self.n_rows)
        noisy = simulate_release_noise(
            means * self.n_rows,
            counts,
            norm_bound=prior.norm_bound,
            epsilon=self.epsilon,
            delta=self.delta,
            count_share=self.count_share,
            generator=torch.Generator(means.device).manual_seed(noise_seed),
        )
        share = (1 - self.count_share) * self.epsilon
        sigma = gaussian_sigma(prior.norm_bound, share, self.delta) / self.n_rows
        low, high, centers, gains = (
            torch.as_tensor(np.array(part), dtype=means.dtype, device=means.device)
            for part in (prior.low, prior.high, prior.centers, prior.gains(sigma))
        )
        return centers + (noisy.clamp(low, high) - centers) * gains
