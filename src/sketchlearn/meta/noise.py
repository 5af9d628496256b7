"""Noise as a network meets it in training: simulated, and private for nobody.

DP-aware meta-training puts noise of the size of a release into the sketches it
trains on. This is not a release: the noise is an ordinary float tensor from an
ordinary generator. Real noise comes from :func:`sketchlearn.release` only.
"""

from __future__ import annotations

from sketchlearn.meta.backend import torch
from sketchlearn.privacy.mechanisms import gaussian_sigma

__all__ = ["simulate_release_noise"]


def simulate_release_noise(
    sums: torch.Tensor,
    counts: torch.Tensor,
    *,
    norm_bound: float,
    epsilon: float,
    delta: float,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    r"""Mean sketches as a release would show them, for training only.

    .. math::
        \tilde z = \frac{\sum_i \varphi(x_i) + \xi}{N}, \qquad
        \xi \sim \mathcal{N}(0, \sigma^2 I),

    with σ of the analytic Gaussian for one row of norm at most S. Differentiable in
    ``sums``.

    Parameters
    ----------
    sums : tensor of shape (..., sketch_size)
        Summed feature vectors, of rows already clipped to ``norm_bound``.
    counts : tensor of shape (...)
        Number of rows of each sum.
    norm_bound, epsilon, delta : float
        S and the promise to imitate.
    generator : torch.Generator, optional
        Source of the noise.

    Examples
    --------
    >>> sums, counts = torch.zeros(2, 5), torch.tensor([100.0, 1000.0])
    >>> noisy = simulate_release_noise(
    ...     sums, counts, norm_bound=1.0, epsilon=1.0, delta=1e-5
    ... )
    >>> noisy.shape
    torch.Size([2, 5])
    """
    sigma = gaussian_sigma(norm_bound, epsilon, delta)
    noise = torch.randn(
        sums.shape, generator=generator, dtype=sums.dtype, device=sums.device
    )
    return (sums + sigma * noise) / counts[..., None].clamp_min(1)
