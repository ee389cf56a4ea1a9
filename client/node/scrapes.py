"""What `/metrics` answers: made once a second, whoever asks, and the same for all who do.

Making it takes a few microseconds a series on the event loop that serves records, so a client that
asks as fast as it can must not be able to spend them as often as it asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aiohttp import web

from client.node.exposition import CONTENT_TYPE

AGE_S_MAX: Final = 1.0
"""Far less than Prometheus waits between two scrapes."""


class Scrapes:
    """The answers of one port."""

    def __init__(self, make: Callable[[], bytes]) -> None:
        """`make`: returns everything in Prometheus' text format."""
        self._make = make
        self._body = b""
        self._made_s: float | None = None

    def answer(self) -> web.Response:
        """Return the metrics as they are, or were less than a second ago."""
        now_s = asyncio.get_running_loop().time()
        if self._made_s is None or now_s - self._made_s >= AGE_S_MAX:
            self._body, self._made_s = self._make(), now_s
        return web.Response(body=self._body, headers={"Content-Type": CONTENT_TYPE})
