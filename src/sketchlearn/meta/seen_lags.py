r"""Correlations by distance as they are trained on: the twin of the NumPy function."""

from __future__ import annotations

from sketchlearn.decoders.moments.lag_correlations import (
    LAG_RIDGE,
    LAG_ROUGHNESS,
    LAGS,
    NOISE_RIDGE,
    penalty,
)
from sketchlearn.meta.backend import Tensor, nn, torch

__all__ = ["lag_correlations"]


def lag_correlations(
    omega: Tensor, seen: Tensor, places: Tensor, d: int, noise: Tensor
) -> tuple[Tensor, Tensor]:
    """Correlations at distances 0 .. d - 1, shape (b, d), and those of far ones, (b,).

    As :func:`sketchlearn.decoders.moments.lag_correlations.lag_correlations`.
    """
    b, _, columns = omega.shape
    steps = min(LAGS, d - 1)
    tests = omega.new_zeros(b, d, columns)
    tests[:, places] = omega
    around = nn.functional.pad(tests, (0, 0, steps, steps)).unfold(1, 2 * steps + 1, 1)
    both = around[..., steps + 1 :] + around[..., :steps].flip(-1)
    others = tests.sum(dim=1, keepdim=True) - tests
    design = torch.cat([both, others[..., None]], dim=-1)[:, places]
    design = design.reshape(b, -1, steps + 1)
    target = (seen - omega).reshape(b, -1, 1)
    gram = design.mT @ design
    size = torch.diagonal(gram, dim1=1, dim2=2)[:, :steps].sum(dim=1) / max(steps, 1)
    weight = size.clamp_min(1e-9) * (1 + (NOISE_RIDGE * noise) ** 2)
    ridge = torch.from_numpy(penalty(steps, LAG_RIDGE, LAG_ROUGHNESS)).to(seen)
    found = torch.linalg.solve(
        gram + weight[:, None, None] * ridge, design.mT @ target
    )[..., 0]
    far = found[:, -1]
    near = far[:, None].expand(b, d - 1).clone()
    near[:, :steps] = near[:, :steps] + found[:, :steps]
    ring = torch.cat([omega.new_ones(b, 1), near, near[:, :-1].flip(1)], dim=1)
    power = torch.fft.rfft(ring).real.clamp_min(0)
    curve = torch.fft.irfft(power, n=ring.shape[1])[:, :d]
    return curve / curve[:, :1].clamp_min(1e-6), far
