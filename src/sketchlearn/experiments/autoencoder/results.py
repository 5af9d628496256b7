"""All that the experiment found, as text and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from sketchlearn.experiments.autoencoder.comparison import (
    Accuracies,
    accuracy_table,
    narrow_table,
)
from sketchlearn.experiments.autoencoder.drift import DriftCurve, drift_table
from sketchlearn.experiments.autoencoder.row_counts import RowCurve, row_count_table
from sketchlearn.experiments.autoencoder.sketch_sizes import GapClosed, gap_table
from sketchlearn.version import __version__

__all__ = ["AutoencoderResults"]


@final
@dataclass(frozen=True, eq=False)
class AutoencoderResults:
    """Everything, part by part; parts without results are empty."""

    accuracies: Accuracies
    gaps: Sequence[GapClosed]
    curves: Sequence[RowCurve]
    drift: Sequence[DriftCurve]
    skipped: tuple[str, ...]
    """What was left out, and why."""

    def show(self) -> str:
        """All tables."""
        tables = [accuracy_table(self.accuracies)]
        if self.accuracies.narrow:
            tables.append(narrow_table(self.accuracies))
        if self.gaps:
            tables.append(gap_table(self.gaps))
        if self.curves:
            tables.append(row_count_table(self.curves))
        if self.drift:
            tables.append(drift_table(self.drift))
        return "\n\n".join([*tables, *["\n".join(self.skipped)] * bool(self.skipped)])

    def to_json(self, plan: Mapping[str, Any]) -> str:
        """Every number, as text."""
        content = {
            "sketchlearn": __version__,
            "plan": dict(plan),
            **self.accuracies.to_dict(),
            "sketches": [one.to_dict() for one in self.gaps],
            "rows_in_sketch": [curve.to_dict() for curve in self.curves],
            "drift": [curve.to_dict() for curve in self.drift],
            "skipped": list(self.skipped),
        }
        return json.dumps(_plain(content), indent=1, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """NaN and infinities, which JSON does not have, become null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
