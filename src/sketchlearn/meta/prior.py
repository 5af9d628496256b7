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
    FIRST_OUTPUTS,
    FrozenPrior,
    PriorSpec,
)
from sketchlearn.decoders.moments.prior_tokens import (
    KERNELS,
    PAIR_KERNELS,
    QUERY_ROWS,
    SHOWN_LAGS,
    UNSEEN,
)
from sketchlearn.files.weights import Weights
from sketchlearn.meta.backend import Tensor, nn, torch
from sketchlearn.meta.networks import export_tensors, import_tensors
from sketchlearn.meta.prior_update import (
    complete_correlation,
    extend_correlation,
    nystrom_loadings,
    orthonormal,
)
from sketchlearn.meta.seen_lags import lag_correlations

__all__ = ["PriorNetwork"]


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
            self.inputs = nn.Linear(spec.n_inputs, spec.width)
            self.blocks = nn.ModuleList(_Block(spec) for _ in range(spec.depth))
            self.norm = nn.LayerNorm(spec.width)
            self.outputs = nn.Linear(spec.width, spec.n_outputs)
            nn.init.normal_(self.outputs.weight, std=FIRST_OUTPUTS)
            nn.init.zeros_(self.outputs.bias)
            nn.init.zeros_(self.outputs.weight[spec.rank])

    @override
    def forward(
        self,
        omega: Tensor,
        seen: Tensor,
        *,
        places: Tensor | None = None,
        n_features: int | None = None,
        noise: Tensor | None = None,
    ) -> Tensor:
        """Correlations (b, d, d) from Ω and P Ω, both (b, p, n_columns).

        ``places`` has the p places of the features that were seen among all d,
        ``noise`` the standard deviation of the noise on P Ω, shape (b,). The network
        works in float32; everything else in the type of the inputs.
        """
        d = omega.shape[1] if n_features is None else n_features
        if places is None:
            places = torch.arange(d, device=omega.device)
        shortest = omega.norm(dim=1).min(dim=1).values.clamp_min(1e-30)
        noise = torch.zeros_like(shortest) if noise is None else noise / shortest
        omega, seen = orthonormal(omega, seen)
        loadings = nystrom_loadings(omega, seen, noise)
        said = _Said(self.spec, omega, seen, loadings, places, noise, d)
        tokens = self.inputs(said.tokens().float())
        pairs = said.pairs().float()
        for block in self.blocks:
            tokens = block(tokens, pairs)
        output = self.outputs(self.norm(tokens)).to(seen.dtype)
        prior = self._prior(output, said)[:, places[:, None], places]
        found = complete_correlation(omega, seen, prior, noise)
        if len(places) == d:
            return found
        between = _correlation(output[..., self.spec.rank + 1 + len(said.kernels) :])
        return extend_correlation(
            found, _with_kernels(between, said.kernels, ()), places
        )

    def freeze(self) -> FrozenPrior:
        """The prior as it is now, to decode with."""
        return FrozenPrior(self.spec, export_tensors(self))

    @classmethod
    def thaw(cls, frozen: FrozenPrior, spec: PriorSpec | None = None) -> Self:
        """A module to train on from where a frozen prior is, in evaluation mode.

        Parameters
        ----------
        frozen : FrozenPrior
            Where to start.
        spec : PriorSpec, optional
            Of a wider network, whose other weights stay as they begin, or are zero
            where they read what the frozen one does not know.
        """
        network = cls(spec or frozen.spec)
        tensors = export_tensors(network)
        for name, array in frozen.tensors.items():
            wider = tensors[name] * (name.startswith("outputs"))
            wider[tuple(slice(0, size) for size in array.shape)] = array
            tensors[name] = wider
        import_tensors(network, tensors)
        return network.eval()

    def to_weights(self, card: Mapping[str, Any] | None = None) -> Weights:
        """Spec, tensors and model card as one value, to be saved."""
        return self.freeze().to_weights(card)

    def _prior(self, output: Tensor, said: _Said) -> Tensor:
        """P₀, up to what the sketch leaves room for: (b, d, d)."""
        rank, last = self.spec.rank, self.spec.rank + 1 + len(said.kernels)
        scale = 0.6 * said.unseen * output[..., rank : rank + 1].clamp(-3, 3).exp()
        own = _correlation(
            torch.cat([output[..., :rank], output[..., rank + 1 : last]], 2)
        )
        correlation = _with_kernels(own[..., rank:], said.kernels, (own[..., :rank],))
        return correlation * scale * scale.mT


def _correlation(numbers: Tensor) -> Tensor:
    """Loadings that explain less than all of a variance of one."""
    return numbers / (1 + (numbers**2).sum(dim=2, keepdim=True)).sqrt()


def _with_kernels(
    weights: Tensor, kernels: list[Tensor], loadings: tuple[Tensor, ...]
) -> Tensor:
    """Unit diagonal, loadings, and kernels weighed by features: (b, d, d)."""
    start = weights.new_zeros(1, 1, 1)
    total = sum((part @ part.mT for part in loadings), start=start)
    for index, kernel in enumerate(kernels):
        weight = weights[..., index : index + 1]
        total = total + weight * kernel * weight.mT
    d = weights.shape[1]
    off = total - torch.diag_embed(torch.diagonal(total, dim1=1, dim2=2))
    unit: Tensor = off.expand(-1, d, d) + torch.eye(d).to(off)
    return unit


@final
class _Said:
    """What the sketch says of features and of pairs of them."""

    def __init__(
        self,
        spec: PriorSpec,
        omega: Tensor,
        seen: Tensor,
        loadings: Tensor,
        places: Tensor,
        noise: Tensor,
        d: int,
    ) -> None:
        self._spec, self._places, self._d, self._noise = spec, places, d, noise
        self._omega, self._seen = omega, seen
        self._strongest = loadings
        self._loadings = self._spread(loadings)
        self._explained = (self._loadings**2).sum(dim=2, keepdim=True)
        self.unseen = (1 - self._explained).clamp_min(UNSEEN).sqrt()
        self.kernels: list[Tensor] = []
        if spec.ordered:
            lag, self._shared = lag_correlations(omega, seen, places, d, noise)
            every = torch.arange(d, device=seen.device)
            apart = (every[:, None] - every).abs()
            self._lag = lag
            steps = apart.to(seen)
            fixed = [torch.exp(-steps / reach)[None] for reach in KERNELS]
            self.kernels = [*fixed, lag[:, apart]]

    def _spread(self, values: Tensor) -> Tensor:
        """Zeros where nothing was seen: (b, p, n) → (b, d, n)."""
        if len(self._places) == self._d:
            return values
        whole = values.new_zeros(len(values), self._d, values.shape[2])
        whole[:, self._places] = values
        return whole

    def tokens(self) -> Tensor:
        """What is said of each feature: (b, d, n_inputs)."""
        b, d, columns = len(self._seen), self._d, self._omega.shape[2]
        most = self._spec.n_loadings
        u, s, _ = torch.linalg.svd(self._strongest, full_matrices=False)
        signs = torch.where((u**3).sum(dim=1, keepdim=True) < 0, -1.0, 1.0)
        keep = min(s.shape[1], most)
        pad = (0, most - keep)
        strongest = nn.functional.pad((u * signs * s[:, None])[..., :keep], pad)
        spectrum = nn.functional.pad(s[:, :keep] / math.sqrt(d), pad)[:, None]
        omega, seen = self._spread(self._omega), self._spread(self._seen)
        energy = torch.log1p((seen**2).mean(dim=2, keepdim=True) * d)
        leverage = ((omega**2).sum(dim=2, keepdim=True) * d / columns + 1e-6).log()
        sizes = torch.tensor([math.log(d) / 5, math.log(columns) / 3]).to(seen)
        shared = [spectrum.expand(b, d, -1), sizes.expand(b, d, -1)]
        share = torch.full_like(self._explained, 5 * columns / d)
        own = [self._spread(strongest), self._explained, 0.3 * energy, 0.3 * leverage]
        said = [*own, share, *shared]
        return torch.cat([*said, *self._of_places(omega, seen)], dim=2)

    def _of_places(self, omega: Tensor, seen: Tensor) -> list[Tensor]:
        """What a feature's neighbours say of it, and of all: (b, d, 10)."""
        if not self._spec.ordered:
            return []
        b, d, p = len(seen), self._d, len(self._places)
        is_seen = seen.new_zeros(1, d, 1)
        is_seen[:, self._places] = 1.0
        likely = (self.kernels[-1] @ omega - omega) * is_seen
        found = (seen - omega) * is_seen
        agree = (found * likely).sum(dim=2, keepdim=True)
        length = (likely**2).sum(dim=2, keepdim=True)
        size = (found**2).sum(dim=2, keepdim=True)
        own = [
            (agree / (length + 0.05)).clamp(-3, 3),
            agree / (length * size + 1e-4).sqrt(),
            (1 - is_seen).expand(b, -1, -1),
        ]
        lags = [self._lag[:, min(step, d - 1)] for step in SHOWN_LAGS]
        level = 0.3 * (self._noise + 1e-4).log() + 2
        thin = torch.full_like(level, math.log(d / p))
        shared = torch.stack([*lags, self._shared, level, thin], dim=1)
        return [*own, shared[:, None].expand(b, d, -1)]

    def pairs(self) -> Tensor:
        """What is said of each pair of features: (n_pairs, b, d, d)."""
        loadings = self._loadings
        directions = loadings / self._explained.clamp_min(1e-6).sqrt()
        product, cosine = loadings @ loadings.mT, directions @ directions.mT
        relative = 0.2 * product / (self.unseen * self.unseen.mT)
        said = [product, cosine, cosine**3, relative]
        if self._spec.ordered:
            chosen = [self.kernels[KERNELS.index(reach)] for reach in PAIR_KERNELS]
            said += [part.expand_as(product) for part in (self.kernels[-1], *chosen)]
        return torch.stack(said)


@final
class _Block(nn.Module):
    """Attention over features with a bias for each pair, then a two-layer network."""

    def __init__(self, spec: PriorSpec) -> None:
        super().__init__()
        self.n_heads, width = spec.n_heads, spec.width
        self.norm, self.attend = nn.LayerNorm(width), nn.Linear(width, 3 * width)

        self.pair_bias = nn.Parameter(torch.zeros(spec.n_heads, spec.n_pairs))
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
