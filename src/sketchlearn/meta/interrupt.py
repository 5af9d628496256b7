"""Ctrl-C as a polite question: the first ends a run cleanly, the second at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["catch_interrupt"]


@contextmanager
def catch_interrupt() -> Iterator[threading.Event]:
    """Set an event on the first Ctrl-C; only the main thread can."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def ask(number: int, frame: object) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
