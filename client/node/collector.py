"""Python's collector of reference cycles, set as a server needs it.

Left alone the collector looks at young objects after every 700 allocations, and every so often at
all there are: every batch in a cache, every class of every protocol. Nothing on the way of an
entry makes cycles, so it may run seldom.

Nothing else happens while it runs. An object is looked at once when it is young and once when it is
middle-aged, whatever the thresholds; they say how many at a time: 125,000 take some 20 ms.
"""

from __future__ import annotations

import gc
from typing import Final

_THRESHOLDS: Final = (25_000, 5, 400)


def collect_seldom() -> None:
    """Call when a program is about to serve: what exists now is never looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
