"""All that a streaming experiment found, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, final

from sketchlearn.experiments.counts.dataset_errors import (
    DatasetErrors,
    dataset_tables,
)
from sketchlearn.experiments.counts.plan import CountsPlan
from sketchlearn.experiments.counts.search import TableSearch, ZipfLaw
from sketchlearn.experiments.counts.sets import CountTask
from sketchlearn.experiments.counts.timing import BatchSeconds, seconds_table
from sketchlearn.experiments.counts.zipf_errors import (
    ZipfErrors,
    ZipfPoint,
    bytes_table,
    zipf_tables,
)
from sketchlearn.report import format_table
from sketchlearn.version import __version__

__all__ = ["CountsResults"]

NetworkErrors = Mapping[str, Mapping[ZipfLaw, ZipfPoint]]
"""By pooling or activation, and law."""


@final
@dataclass(frozen=True, eq=False)
class CountsResults:
    """Everything, part by part."""

    search: TableSearch
    zipf: ZipfErrors
    datasets: DatasetErrors
    seconds: BatchSeconds
    poolings: NetworkErrors
    activations: NetworkErrors
    skipped: tuple[str, ...]
    """What was left out, and why."""

    def show(self, task: CountTask) -> str:
        """All tables."""
        tables = [*zipf_tables(task, self.zipf), bytes_table(task, self.zipf)]
        tables += _network_tables(self.poolings, "SQNet by pooling")
        tables += _network_tables(self.activations, "RFQNet by activation")
        if self.datasets.widths:
            tables.append(dataset_tables(task, self.datasets))
        tables.append(seconds_table(self.seconds))
        return "\n\n".join([*tables, *["\n".join(self.skipped)] * bool(self.skipped)])

    def to_json(self, plan: CountsPlan) -> str:
        """Every number, as text."""
        zipf = [
            {"method": name, "size": size, **asdict(law), **asdict(point)}
            for name, by_size in self.zipf.items()
            for size, laws in by_size.items()
            for law, point in laws.items()
        ]
        content: dict[str, Any] = {
            "sketchlearn": __version__,
            "plan": asdict(plan),
            "zipf": zipf,
            "search": self._searched(),
            "poolings": _listed(self.poolings),
            "activations": _listed(self.activations),
            "datasets": self.datasets.to_dict(),
            "seconds": asdict(self.seconds),
            "skipped": list(self.skipped),
        }
        return json.dumps(content, indent=1, allow_nan=False) + "\n"

    def _searched(self) -> list[dict[str, Any]]:
        return [
            {
                "method": name,
                "size": size,
                **asdict(law),
                "widths": [table.width for table in one.tables],
                "errors": one.errors.tolist(),
            }
            for name, by_size in self.search.items()
            for size, laws in by_size.items()
            for law, one in laws.items()
        ]


def _network_tables(errors: NetworkErrors, title: str) -> list[str]:
    if len(errors) < 2:
        return []
    laws = list(next(iter(errors.values())))
    heads = ["mean square error", *(f"alpha {law.alpha:g}" for law in laws)]
    rows = [
        [kind, *(f"{points[law].error:.1e}" for law in laws)]
        for kind, points in errors.items()
    ]
    title = f"{title} (and seconds of training), N = {laws[0].n_rows}"
    return [format_table(heads, rows, title=title)]


def _listed(errors: NetworkErrors) -> list[dict[str, Any]]:
    return [
        {"kind": kind, **asdict(law), **asdict(point)}
        for kind, points in errors.items()
        for law, point in points.items()
    ]
