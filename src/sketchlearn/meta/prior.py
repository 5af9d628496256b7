"""The learned prior as it is trained, on batches of datasets.

This is the torch twin of
:class:`~sketchlearn.decoders.moments.prior_network.FrozenPrior`: the same formula,
tensors and names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self, final

from typing_extensions import override

from sketchlearn.decoders.moments.prior_network import (
    N_PAIRS,
    N_SCALARS,
    QUERY_ROWS,
    UNSEEN,
    FrozenPrior,
    PriorSpec,
)
from sketchlearn.files.weights import Weights
from sketchlearn.meta.backend import Tensor, nn, torch
from sketchlearn.meta.networks import export_tensors, import_tensors

__all__ = ["PriorNetwork", "complete_correlation"]


@final
class PriorNetwork(nn.Module):
    """The formula of :class:`~sketchlearn.decoders.moments.prior_network.FrozenPrior`.

    Parameters
    ----------
    spec : PriorSpec
        Sizes.
    seed : int
        Seed of the first weights, which leave the features almost independent.

    Examples
    --------
    >>> net = PriorNetwork(PriorSpec(width=8, depth=1, n_heads=2, rank=2))
    >>> P, omega = torch.full((1, 5, 5), 0.5) + torch.eye(5) / 2, torch.ones(1, 5, 1)
    >>> net(omega, P @ omega).shape
    torch.Size([1, 5, 5])
    """

    def __init__(self, spec: PriorSpec, *, seed: int = 0) -> None:
        super().__init__()
        self.spec = spec
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            self.inputs = nn.Linear(2 * spec.n_loadings + N_SCALARS, spec.width)
            self.blocks = nn.ModuleList(
                _Block(spec.width, spec.n_heads) for _ in range(spec.depth)
            )
            self.norm = nn.LayerNorm(spec.width)
            self.outputs = nn.Linear(spec.width, spec.rank + 1)
            nn.init.normal_(self.outputs.weight, std=0.05)
            nn.init.zeros_(self.outputs.bias)
            nn.init.zeros_(self.outputs.weight[-1])

    @override
    def forward(self, omega: Tensor, seen: Tensor) -> Tensor:
        """Correlations (b, d, d) from Ω and P Ω, both (b, d, n_columns).

        The network works in float32; everything else in the type of the inputs.
        """
        omega, seen = _orthonormal(omega, seen)
        loadings = _nystrom(omega, seen)
        explained = (loadings**2).sum(dim=2, keepdim=True)
        unseen = (1 - explained).clamp_min(UNSEEN).sqrt()
        tokens = self.inputs(self._tokens(omega, seen, loadings, explained).float())
        pairs = _pairs(loadings.float(), explained.float(), unseen.float())
        for block in self.blocks:
            tokens = block(tokens, pairs)
        output = self.outputs(self.norm(tokens)).to(seen.dtype)
        h, scale = output[..., :-1], 0.6 * unseen * output[..., -1:].clamp(-3, 3).exp()
        h = h / (1 + (h**2).sum(dim=2, keepdim=True)).sqrt()
        diagonal = (scale**2 * (1 - (h**2).sum(dim=2, keepdim=True))).squeeze(2)
        return complete_correlation(omega, seen, diagonal, h * scale)

    def freeze(self) -> FrozenPrior:
        """The prior as it is now, to decode with."""
        return FrozenPrior(self.spec, export_tensors(self))

    @classmethod
    def thaw(cls, frozen: FrozenPrior) -> Self:
        """A module to train on from where a frozen prior is, in evaluation mode."""
        network = cls(frozen.spec)
        import_tensors(network, frozen.tensors)
        return network.eval()

    def to_weights(self, card: Mapping[str, Any] | None = None) -> Weights:
        """Spec, tensors and model card as one value, to be saved."""
        return self.freeze().to_weights(card)

    def _tokens(
        self, omega: Tensor, seen: Tensor, loadings: Tensor, explained: Tensor
    ) -> Tensor:
        """What is said of each feature: (b, d, 2 n_loadings + 6)."""
        b, d, columns = omega.shape
        u, s, _ = torch.linalg.svd(loadings, full_matrices=False)
        signs = torch.where((u**3).sum(dim=1, keepdim=True) < 0, -1.0, 1.0)
        keep = min(columns, self.spec.n_loadings)
        pad = (0, self.spec.n_loadings - keep)
        strongest = nn.functional.pad((u * signs * s[:, None])[..., :keep], pad)
        spectrum = nn.functional.pad(s[:, :keep] / math.sqrt(d), pad)[:, None]
        energy = torch.log1p((seen**2).mean(dim=2, keepdim=True) * d)
        leverage = ((omega**2).sum(dim=2, keepdim=True) * d / columns + 1e-6).log()
        sizes = torch.tensor([math.log(d) / 5, math.log(columns) / 3]).to(seen)
        shared = [spectrum.expand(b, d, -1), sizes.expand(b, d, -1)]
        share = torch.full_like(explained, 5 * columns / d)
        own = [strongest, explained, 0.3 * energy, 0.3 * leverage, share]
        return torch.cat([*own, *shared], dim=2)


@final
class _Block(nn.Module):
    """Attention over features with a bias for each pair, then a two-layer network."""

    def __init__(self, width: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.norm, self.attend = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.pair_bias = nn.Parameter(torch.zeros(n_heads, N_PAIRS))
        self.mix = nn.Linear(width, width)
        self.feed = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, 2 * width),
            nn.GELU(),
            nn.Linear(2 * width, width),
        )

    @override
    def forward(self, tokens: Tensor, pairs: Tensor) -> Tensor:
        b, d, width = tokens.shape
        size = width // self.n_heads
        split = self.attend(self.norm(tokens)).view(b, d, 3, self.n_heads, size)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        parts = []
        for start in range(0, d, QUERY_ROWS):
            rows = slice(start, start + QUERY_ROWS)
            bias = torch.einsum("hp,pbij->bhij", self.pair_bias, pairs[:, :, rows])
            scores = query[:, :, rows] @ key.mT * size**-0.5 + bias
            parts.append(scores.softmax(dim=-1) @ value)
        attended = torch.cat(parts, dim=2).transpose(1, 2).reshape(b, d, width)
        tokens = tokens + self.mix(attended)
        updated: Tensor = tokens + self.feed(tokens)
        return updated


def complete_correlation(
    omega: Tensor, seen: Tensor, diagonal: Tensor, loadings: Tensor
) -> Tensor:
    """Correlations near a prior that agree with a sketch: block BFGS, unit diagonal.

    Parameters
    ----------
    omega, seen : tensors of shape (b, d, n_columns)
    diagonal, loadings : tensors of shape (b, d) and (b, d, rank)
        As in :func:`sketchlearn.decoders.moments.prior_update.complete_correlation`.

    Returns
    -------
    tensor of shape (b, d, d)

    Examples
    --------
    >>> P = torch.tensor([[[1.0, 0.6], [0.6, 1.0]]])
    >>> omega = torch.tensor([[[1.0], [0.0]]])
    >>> prior = torch.tensor([[1.0, 0.64]]), torch.zeros(1, 2, 1)
    >>> bool(torch.allclose(complete_correlation(omega, P @ omega, *prior), P))
    True
    """
    prior_seen = diagonal[..., None] * omega + loadings @ (loadings.mT @ omega)
    core = omega.mT @ prior_seen
    jitter = 1e-5 * torch.eye(core.shape[-1]).to(core)
    root = torch.linalg.cholesky((core + core.mT) / 2 + jitter)
    taken = torch.linalg.solve_triangular(root, prior_seen.mT, upper=False)
    known = _nystrom(omega, seen)
    seen_part = known @ known.mT
    rest = loadings @ loadings.mT - taken.mT @ taken
    room = 1 - torch.diagonal(seen_part, dim1=1, dim2=2)
    wanted = torch.diagonal(rest, dim1=1, dim2=2) + diagonal
    fit = (room.clamp_min(0) / wanted.clamp_min(1e-9)).clamp_max(1.0).sqrt()
    shrink = (1 - room).clamp_min(1.0).rsqrt()
    result = rest * fit[:, :, None] * fit[:, None, :]
    result = result + seen_part * shrink[:, :, None] * shrink[:, None, :]
    off = result - torch.diag_embed(torch.diagonal(result, dim1=1, dim2=2))
    unit: Tensor = off + torch.eye(off.shape[-1]).to(off)
    return unit


def _orthonormal(omega: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
    """Columns of Ω made orthonormal, and P Ω along with them."""
    wide = omega.double()
    values, vectors = torch.linalg.eigh(wide.mT @ wide)
    floor = 1e-9 * values[:, -1:].clamp_min(1e-30)
    basis = (vectors * values.clamp_min(floor).rsqrt()[:, None]).to(omega.dtype)
    return omega @ basis, seen @ basis


def _nystrom(omega: Tensor, seen: Tensor) -> Tensor:
    """Loadings L with L Lᵀ = Y (ΩᵀY)⁺ Yᵀ, for orthonormal Ω."""
    core = omega.mT @ seen
    values, vectors = torch.linalg.eigh((core + core.mT) / 2)
    loadings: Tensor = seen @ (vectors * values.clamp_min(1e-4).rsqrt()[:, None])
    return loadings


def _pairs(loadings: Tensor, explained: Tensor, unseen: Tensor) -> Tensor:
    """What is said of each pair of features: (4, b, d, d)."""
    directions = loadings / explained.clamp_min(1e-6).sqrt()
    product, cosine = loadings @ loadings.mT, directions @ directions.mT
    relative = 0.2 * product / (unseen * unseen.mT)
    return torch.stack([product, cosine, cosine**3, relative])
