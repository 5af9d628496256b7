"""What users say of rows where they open them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import pyarrow as pa

__all__ = ["RowOptions"]


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
