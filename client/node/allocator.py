"""Configures the C library's allocator for programs that receive and send megabytes.

Left alone, glibc gives large blocks back to the kernel as soon as they are free, and the next one
is fresh memory, of which the kernel clears each page at its first touch, which can cost more than
what is done with the bytes. What is kept instead is bounded, for each of the few arenas.
"""

from __future__ import annotations

import ctypes
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3

_BLOCK_BYTES_MAX: Final = 16 << 20
"""Larger blocks still come from the kernel, and go back there."""
_KEPT_BYTES_MAX: Final = 16 << 20
"""Free memory at the end of an arena beyond which all of it is given back."""


def keep_freed_memory() -> bool:
    """Call when a program is about to serve. Return whether the C library has such settings."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return False  # not glibc
    return bool(
        mallopt(_M_MMAP_THRESHOLD, _BLOCK_BYTES_MAX) and mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES_MAX)
    )
