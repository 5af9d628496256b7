r"""The prior's update as it is trained, on batches: twins of the NumPy functions.

Formulas are those of :mod:`sketchlearn.decoders.moments.prior_update`.
"""

from __future__ import annotations

import math

from sketchlearn.decoders.moments.prior_update import JITTER, WEAKEST
from sketchlearn.meta.backend import Tensor, torch

__all__ = [
    "complete_correlation",
    "extend_correlation",
    "nystrom_loadings",
    "orthonormal",
]


def complete_correlation(
    omega: Tensor, seen: Tensor, prior: Tensor, noise: Tensor | None = None
) -> Tensor:
    """Correlations near a prior that agree with a sketch: block BFGS, unit diagonal.

    Parameters
    ----------
    omega, seen : tensors of shape (b, d, n_columns)
    prior : tensor of shape (b, d, d)
    noise : tensor of shape (b,), optional
        As in :func:`sketchlearn.decoders.moments.prior_update.complete_correlation`.

    Returns
    -------
    tensor of shape (b, d, d)

    Examples
    --------
    >>> P = torch.tensor([[[1.0, 0.6], [0.6, 1.0]]])
    >>> omega = torch.tensor([[[1.0], [0.0]]])
    >>> prior = torch.diag_embed(torch.tensor([[1.0, 0.64]]))
    >>> bool(torch.allclose(complete_correlation(omega, P @ omega, prior), P))
    True
    """
    noise = omega.new_zeros(len(omega)) if noise is None else noise
    _, vectors, trust = _directions(omega, seen, noise)
    strong = (trust > 0).to(omega)[:, None]
    tested = (omega @ vectors) * strong
    prior_seen = prior @ tested
    core = tested.mT @ prior_seen
    jitter = JITTER * torch.eye(core.shape[-1]).to(core)
    whole = (core + core.mT) / 2 + torch.diag_embed(1 - strong[:, 0]) + jitter
    root = torch.linalg.cholesky(whole)
    taken = torch.linalg.solve_triangular(root, prior_seen.mT, upper=False)
    known = nystrom_loadings(omega, seen, noise)
    seen_part = known @ known.mT
    rest = prior - taken.mT @ taken
    room = 1 - torch.diagonal(seen_part, dim1=1, dim2=2)
    wanted = torch.diagonal(rest, dim1=1, dim2=2)
    fit = (room.clamp_min(1e-12) / wanted.clamp_min(1e-9)).clamp_max(1.0).sqrt()
    shrink = (1 - room).clamp_min(1.0).rsqrt()
    result = rest * fit[:, :, None] * fit[:, None, :]
    result = result + seen_part * shrink[:, :, None] * shrink[:, None, :]
    return _unit_diagonal(result)


def extend_correlation(found: Tensor, between: Tensor, places: Tensor) -> Tensor:
    """Correlations of all features from those of some: (b, p, p) → (b, d, d).

    As :func:`sketchlearn.decoders.moments.prior_update.extend_correlation`.
    """
    inner = between[:, places[:, None], places]
    jitter = JITTER * torch.eye(len(places)).to(inner)
    weights = torch.linalg.solve(inner + jitter, between[:, places]).mT
    result = between + weights @ (found - inner) @ weights.mT
    explained = torch.diagonal(result, dim1=1, dim2=2)
    shrink = explained.clamp_min(1.0).rsqrt()
    result = result * shrink[:, :, None] * shrink[:, None, :]
    batch = torch.arange(len(result), device=result.device)[:, None, None]
    result = result.index_put((batch, places[:, None], places), found)
    return _unit_diagonal(result)


def orthonormal(omega: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
    """Columns of Ω made orthonormal, and P Ω along with them."""
    wide = omega.double()
    values, vectors = torch.linalg.eigh(wide.mT @ wide)
    floor = 1e-9 * values[:, -1:].clamp_min(1e-30)
    basis = (vectors * values.clamp_min(floor).rsqrt()[:, None]).to(omega.dtype)
    return omega @ basis, seen @ basis


def nystrom_loadings(
    omega: Tensor, seen: Tensor, noise: Tensor | None = None
) -> Tensor:
    """Loadings L with L Lᵀ = Y (ΩᵀY)⁺ Yᵀ, for orthonormal Ω, shrunk for noise."""
    noise = omega.new_zeros(len(omega)) if noise is None else noise
    values, vectors, trust = _directions(omega, seen, noise)
    root = (trust / values.clamp_min(WEAKEST)).sqrt()
    loadings: Tensor = seen @ (vectors * root[:, None])
    return loadings


def _directions(
    omega: Tensor, seen: Tensor, noise: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Eigenvalues and vectors of ΩᵀY, and how far each is no noise, in [0, 1]."""
    core = omega.mT @ seen
    values, vectors = torch.linalg.eigh((core + core.mT) / 2)
    edge = (2 * math.sqrt(core.shape[-1]) * noise)[:, None]
    trust = 1 - (edge / values.clamp_min(WEAKEST)).clamp_max(1.0) ** 2
    return values, vectors, trust


def _unit_diagonal(matrix: Tensor) -> Tensor:
    off = matrix - torch.diag_embed(torch.diagonal(matrix, dim1=1, dim2=2))
    unit: Tensor = off + torch.eye(off.shape[-1]).to(off)
    return unit
