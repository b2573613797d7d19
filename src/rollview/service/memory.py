"""Memory that a long run has used for a moment, given back to the system.

Rows pass through a process in bursts, in many threads. What is freed stays with the allocators, each of which
keeps some for every thread, so that a process would look as if it leaked for hours. Commands have Arrow use
the C library's allocator (`cli.main`), which can be told to return what nobody uses.
"""

from __future__ import annotations

import ctypes

import pyarrow as pa


def give_back() -> None:
    """Lets the allocators return what nothing uses; where the C library cannot, only Arrow's does."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
