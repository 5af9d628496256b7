"""Sets of rows of items that follow the paper's extended Zipf law, items in any order.

Nothing of a dataset is in them: a network trained on them serves any stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.decoders.counts.zipf import draw_zipf_counts, zipf_probabilities
from sketchlearn.errors import ConfigError
from sketchlearn.meta.count_sets import AbstractSets, SetGroup
from sketchlearn.meta.settings import require_settings

__all__ = ["CHECKED_ALPHAS", "ZipfSets"]

CHECKED_ALPHAS = tuple(step / 4 for step in range(9))
"""Where networks are judged: the axis of the paper's figures."""


@final
@dataclass(frozen=True, kw_only=True)
class ZipfSets(AbstractSets):
    """Sets of a Zipf law whose parameters change from group to group.

    Examples
    --------
    >>> sets = ZipfSets(n_features=20, batch=4, group=2, max_rows=5)
    >>> [g.counts.shape for g in sets.draw(np.random.default_rng(0), with_rows=True)]
    [(2, 20), (2, 20)]
    """

    n_features: int = 1000
    """Items, d."""

    batch: int = 500
    """Sets of a batch."""

    row_batch: int | None = None
    """Sets of a batch of a network that needs rows and not only their counts, where
    that is another number: rows are a hundred times the work."""

    group: int = 10
    """Sets that share α, β and N. The paper draws one law for a whole batch; a batch
    norm, whose running statistics are those of all laws, needs a mixture in each."""

    min_rows: int = 1
    """Fewest rows of a set, N."""

    max_rows: int = 100
    """Most rows of a set."""

    alpha: tuple[float, float] = (0.0, 2.0)
    """Range of α, drawn uniformly."""

    beta: tuple[float, float] = (0.0, 1.0)
    """Range of β, drawn uniformly."""

    emphasis: tuple[float, float] = (0.75, 1.5)
    """Range of α of the groups that are drawn where networks find it hardest."""

    emphasised: float = 0.0
    """Share of such groups."""

    checked_sets: int = 20
    """Sets of each law of the validation, which has ``max_rows`` rows."""

    checked_beta: float | None = None
    """β of the validation; the largest of the range by default."""

    def __post_init__(self) -> None:
        for name in ("n_features", "batch", "group", "min_rows", "checked_sets"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ConfigError(f"{name} must be a whole number >= 1; got {value!r}.")
        if self.max_rows < self.min_rows:
            raise ConfigError(
                f"max_rows must be at least min_rows = {self.min_rows}; got "
                f"{self.max_rows}."
            )

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """Build from a table of a TOML file; unknown keys are refused."""
        require_settings(settings, cls, "[problem]")
        ranges = ("alpha", "beta", "emphasis")
        pairs = {name: tuple(settings[name]) for name in ranges if name in settings}
        return cls(**{**settings, **pairs})

    @override
    def draw(self, rng: np.random.Generator, *, with_rows: bool) -> list[SetGroup]:
        groups = []
        batch = self.row_batch if with_rows and self.row_batch else self.batch
        for _ in range(-(-batch // self.group)):
            hard = rng.random() < self.emphasised
            alpha = rng.uniform(*(self.emphasis if hard else self.alpha))
            n_rows = int(rng.integers(self.min_rows, self.max_rows + 1))
            law = (alpha, rng.uniform(*self.beta), n_rows)
            groups.append(self._group(rng, *law, min(self.group, batch), with_rows))
        return groups

    @override
    def validation(self, *, with_rows: bool) -> dict[str, list[SetGroup]]:
        rng = np.random.default_rng([self.n_features, self.max_rows])
        beta = self.beta[1] if self.checked_beta is None else self.checked_beta
        law = (beta, self.max_rows, self.checked_sets, with_rows)
        return {f"{a:g}": [self._group(rng, a, *law)] for a in CHECKED_ALPHAS}

    def _group(
        self,
        rng: np.random.Generator,
        alpha: float,
        beta: float,
        n_rows: int,
        n_sets: int,
        with_rows: bool,
    ) -> SetGroup:
        if not with_rows:
            counts = draw_zipf_counts(
                rng, self.n_features, n_rows, alpha, beta, n_sets=n_sets
            )
            return SetGroup(counts, n_rows)
        law = zipf_probabilities(self.n_features, alpha, beta).astype(np.float32)
        laws = rng.permuted(np.tile(law, (n_sets, 1)), axis=1)
        rows = _rows_of(rng, laws, n_rows)
        return SetGroup(rows.sum(axis=1, dtype=np.int64), n_rows, rows)


def _rows_of(
    rng: np.random.Generator, laws: NDArray[np.float32], n_rows: int
) -> NDArray[np.uint8]:
    """Rows of each set: (sets, n_items) → (sets, n_rows, n_items)."""
    chance = rng.random((len(laws), n_rows, laws.shape[1]), dtype=np.float32)
    rows: NDArray[np.uint8] = (chance < laws[:, None]).view(np.uint8)
    return rows
