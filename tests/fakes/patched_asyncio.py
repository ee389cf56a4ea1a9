"""Patches `writelines` of the standard library's event loop in the releases where it is broken.

In Python 3.12.0 to 3.12.8, 3.13.0 and 3.13.1 it never pauses the protocol, however much waits to be
sent (CVE-2024-12254), so limits of unsent bytes cannot be tested there. Our programs run on uvloop,
which is not affected.
"""

from __future__ import annotations

import sys
from asyncio import selector_events
from typing import Any


def patch_asyncio() -> None:
    """Call before any event loop runs; does nothing where there is nothing to patch."""
    version = sys.version_info[:3]
    if not ((3, 12, 0) <= version < (3, 12, 9) or (3, 13, 0) <= version < (3, 13, 2)):
        return
    transport: Any = selector_events._SelectorSocketTransport  # type: ignore[attr-defined]
    broken = transport.writelines

    def writelines(self: Any, buffers: Any) -> None:
        broken(self, buffers)
        if self._buffer:
            self._maybe_pause_protocol()

    transport.writelines = writelines
