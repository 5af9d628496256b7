"""What users say of rows where they open them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, final

import pyarrow as pa

from sketchlearn.errors import RowsError, quote
from sketchlearn.rows.columns import Columns, check_columns, check_encodings

__all__ = ["RowOptions", "check_jobs", "row_options"]

MOST_JOBS = 1024
"""More threads than this are a mistake."""


@final
@dataclass(frozen=True)
class RowOptions:
    """What was said of the rows where they were opened; see ``open_rows``."""

    columns: tuple[str, ...] | tuple[int, ...] | None
    is_whole: bool
    """Whether all columns were asked for: a later one too many is an error."""
    encodings: Mapping[str, pa.Array]
    on_invalid: str
    progress: bool | None
    n_features: int | None
    batch_rows: int | None
    above: float | None = None
    """Numbers become 1 above it and else 0; None leaves them as they are."""
    order: tuple[int, ...] | None = None
    """Features to take, where not all of them in the order of the columns."""
    n_jobs: int | None = None
    """Threads to sketch them with; None leaves it to the settings of BLAS."""


def row_options(
    *,
    columns: Columns = None,
    encodings: Mapping[str, Sequence[Any]] | None = None,
    on_invalid: str = "raise",
    progress: bool | None = None,
    n_features: int | None = None,
    batch_rows: int | None = None,
    above: float | None = None,
    n_jobs: int | None = None,
) -> RowOptions:
    """What users say, after checking that it makes sense; see ``open_rows``."""
    if on_invalid not in ("raise", "drop"):
        raise RowsError(f"on_invalid must be 'raise' or 'drop'; got {on_invalid!r}.")
    if batch_rows is not None and batch_rows < 1:
        raise RowsError(f"batch_rows must be at least 1; got {batch_rows}.")
    return RowOptions(
        columns=check_columns(columns),
        is_whole=columns is None,
        encodings=check_encodings(encodings),
        on_invalid=on_invalid,
        progress=progress,
        n_features=n_features,
        batch_rows=batch_rows,
        above=above,
        n_jobs=check_jobs(n_jobs),
    )


def check_jobs(n_jobs: Any) -> int | None:
    """A number of threads: at least one, -1 for all cores, None for the settings'."""
    if n_jobs is None:
        return None
    whole = isinstance(n_jobs, Integral) and not isinstance(n_jobs, bool)
    if not whole or not (n_jobs == -1 or 1 <= n_jobs <= MOST_JOBS):
        raise RowsError(
            f"n_jobs must be a number of threads from 1 to {MOST_JOBS}, -1 for one per "
            f"core, or None; got {quote(n_jobs)}."
        )
    return int(n_jobs)
