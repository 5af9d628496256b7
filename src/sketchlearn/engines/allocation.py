"""Memory of workers: what is freed between two blocks of rows is used for the next.

Dask tells the allocator of its workers to give freed memory back at once
(``MALLOC_TRIM_THRESHOLD_``). Sketching frees and takes a few megabytes for every block
of rows, and would wait for the operating system to clear them each time: it takes twice
as long, or five times. So while a partition is sketched freed memory is kept, and given
back in the end.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any, final

__all__ = ["kept_memory"]

_VARIABLE = "MALLOC_TRIM_THRESHOLD_"
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of ``mallopt``, as glibc numbers them."""

_KEPT_BYTES = 256 * 2**20
"""Freed bytes that are kept meanwhile."""

_MAPPED_BYTES = 32 * 2**20
"""Larger blocks than this are always the operating system's: as much as glibc would
come to by itself, had nobody told it anything."""


@final
class _Users:
    """How many partitions are sketched in this process right now."""

    def __init__(self) -> None:
        self.lock, self.count = Lock(), 0


_USERS = _Users()


@contextmanager
def kept_memory() -> Iterator[None]:
    """Keep freed memory for the next block, where the allocator was told not to."""
    told, library = os.environ.get(_VARIABLE, ""), _glibc()
    if library is None or not told.isdecimal():
        yield
        return
    with _USERS.lock:
        _USERS.count += 1
        library.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        library.mallopt(_MMAP_THRESHOLD, _MAPPED_BYTES)
    try:
        yield
    finally:
        with _USERS.lock:
            _USERS.count -= 1
            if not _USERS.count:
                library.mallopt(_TRIM_THRESHOLD, min(int(told), 2**31 - 1))
                library.mallopt(_MMAP_THRESHOLD, _told_to_map())
                library.malloc_trim(0)


def _told_to_map() -> int:
    """From how many bytes on blocks were the operating system's before."""
    told = os.environ.get("MALLOC_MMAP_THRESHOLD_", "")
    return min(int(told), 2**25) if told.isdecimal() else 128 * 1024


@cache
def _glibc() -> Any:
    """The C library, if it is the one that is meant; None elsewhere."""
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    has_both = hasattr(library, "mallopt") and hasattr(library, "malloc_trim")
    return library if has_both and hasattr(library, "gnu_get_libc_version") else None
