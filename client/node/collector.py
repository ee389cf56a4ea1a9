"""Python's collector of reference cycles, set as a server needs it.

Left alone the collector looks at young objects after every 700 allocations, and every so often at
all there are: every batch in a cache, every class of every protocol. Nothing on the way of an
entry makes cycles, so it may run seldom.
"""

from __future__ import annotations

import gc
from typing import Final

_THRESHOLDS: Final = (50_000, 20, 50)


def collect_seldom() -> None:
    """Call when a program is about to serve: what exists now is never looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
