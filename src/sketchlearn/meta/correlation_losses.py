"""How far correlations are from others, with gradients: errors and likelihoods."""

from __future__ import annotations

from typing import Any

from sketchlearn.meta.backend import Tensor, torch

__all__ = ["log_area_ratio", "stein_loss"]


def log_area_ratio(found: Tensor, truth: Tensor, gap: float = 0.02) -> Tensor:
    r"""Differentiable log ratio of reconstruction errors, the LRE of PCA.

    The area under the reconstruction error is :math:`\sum_j w_j\, v_j^\top R v_j` with
    eigenvectors :math:`v_j` of ``found`` and weights growing with the rank j. Its
    gradient (Daleckii and Krein) is
    :math:`V\big(V^\top R V \circ \tfrac{w_i - w_j}{\lambda_i - \lambda_j}\big)V^\top`;
    where eigenvalues are closer than ``gap`` the quotient is damped.

    Parameters
    ----------
    found, truth : tensors of shape (b, d, d)
        Symmetric; only ``found`` gets a gradient.
    gap : float
        Damping of the gradient, in units of eigenvalues.

    Examples
    --------
    >>> R = torch.diag(torch.tensor([3.0, 1.0]))[None]
    >>> log_area_ratio(R, R), log_area_ratio(torch.linalg.inv(R), R).exp()
    (tensor([0.]), tensor([3.]))
    """
    area: Tensor = _ErrorArea.apply(found, truth, gap)  # type: ignore[no-untyped-call]
    values = torch.linalg.eigvalsh(truth).flip(-1)
    exact: Tensor = (values * _rank_weights(truth)).sum(dim=-1)
    return area.log() - exact.log()


def stein_loss(found: Tensor, truth: Tensor) -> Tensor:
    r"""Gaussian likelihood loss :math:`(\mathrm{tr}\hat R^{-1}R + \log\det\hat R)/d`.

    ``found`` gets 0.01 added on its diagonal.
    """
    d = truth.shape[-1]
    root = torch.linalg.cholesky(found + 0.01 * torch.eye(d).to(found))
    trace = torch.diagonal(torch.cholesky_solve(truth, root), dim1=1, dim2=2)
    logs = torch.diagonal(root, dim1=1, dim2=2).log()
    loss: Tensor = (trace.sum(dim=1) + 2 * logs.sum(dim=1)) / d
    return loss


class _ErrorArea(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, found: Tensor, truth: Tensor, gap: float) -> Tensor:
        values, vectors = torch.linalg.eigh((found + found.mT) / 2)
        values, vectors = values.flip(-1), vectors.flip(-1)
        rotated = vectors.mT @ truth @ vectors
        ctx.save_for_backward(values, vectors, rotated)
        ctx.gap = gap
        captured = torch.diagonal(rotated, dim1=-2, dim2=-1)
        return (captured * _rank_weights(truth)).sum(dim=-1)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
        values, vectors, rotated = ctx.saved_tensors
        weights = _rank_weights(rotated)
        steps = values[..., :, None] - values[..., None, :]
        quotient = (weights[:, None] - weights) * steps / (steps**2 + ctx.gap**2)
        inner = vectors @ (rotated * quotient) @ vectors.mT
        return gradients[0][..., None, None] * inner, None, None


def _rank_weights(matrix: Tensor) -> Tensor:
    """Component j (from 0) is missing from the errors at ranks 1..j: trapezoid rule."""
    weights = torch.arange(matrix.shape[-1]).to(matrix) - 0.5
    weights[0] = 0.0
    return weights
