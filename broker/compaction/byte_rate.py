"""Keeps the compaction of a broker within this many bytes a second, read and written together."""

from __future__ import annotations

import asyncio
from typing import Final

_BURST_S: Final = 1.0


class ByteRate:
    """What was used beyond the rate is waited for before more is used."""

    def __init__(self, bytes_per_s: int) -> None:
        """`bytes_per_s`: 0 for as many as there are."""
        self._bytes_per_s = bytes_per_s
        self._free_s = float("-inf")
        """When what was used so far would be over, at exactly the rate."""

    async def use(self, size: int) -> None:
        """Use so many bytes, and wait as long as that is too many."""
        if not self._bytes_per_s:
            return
        now_s = asyncio.get_running_loop().time()
        self._free_s = max(self._free_s, now_s - _BURST_S) + size / self._bytes_per_s
        if self._free_s > now_s:
            await asyncio.sleep(self._free_s - now_s)
