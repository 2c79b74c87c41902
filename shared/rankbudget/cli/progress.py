"""Says on the error stream what takes longer than a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

__all__ = ["step"]

PATIENCE = 1.0
"""Seconds of silence."""


@contextmanager
def step(label: str) -> Iterator[None]:
    """Writes `label ...` when the work inside takes longer than a second, and how long it took."""
    started, told = time.monotonic(), []

    def tell() -> None:
        told.append(True)
        sys.stderr.write(f"{label} ...\n")
        sys.stderr.flush()

    timer = Timer(PATIENCE, tell)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if told:
            sys.stderr.write(f"{label}: {time.monotonic() - started:.1f} s\n")
