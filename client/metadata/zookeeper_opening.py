"""How the first connection comes about, and which servers have refused our login since the last.

While a session is opened, whoever opens it is told of a refusal, at once if no server is left;
later the log tells, once for each server and reason.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

_log = logging.getLogger(__name__)


class _Refusal(NamedTuple):
    host: str
    reason: str
    """And what to do."""

    def tell(self) -> None:
        _log.warning("metadata.login_refused host=%s reason=%r", self.host, self.reason)


class Opening:
    """Of one store, on its event loop."""

    def __init__(self, server_count: int, *, logs_in: bool) -> None:
        """`logs_in`: whether a connection is one only behind a login."""
        self.logs_in = logs_in
        self._server_count = server_count
        self._was_connected = False
        self._is_settled = asyncio.Event()
        """There was a connection, or all servers have refused us."""
        self._refusals: list[_Refusal] = []

    @property
    def refusal(self) -> str:
        """Why a server did not let us in, and what to do; empty if none refused us."""
        return self._refusals[-1].reason if self._refusals else ""

    async def wait(self, timeout_s: float) -> bool:
        """Wait for the first connection; return whether there is one."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._is_settled.wait()
        except TimeoutError:
            pass  # as if all had refused us
        return self._was_connected

    def connect(self) -> None:
        """Take notice of a connection."""
        if not self._was_connected:
            for refusal in dict.fromkeys(self._refusals):
                refusal.tell()  # it was not all of them
        self._refusals.clear()
        self._was_connected = True
        self._is_settled.set()

    def refuse(self, host: str, reason: str) -> None:
        """Take notice of a server that did not let us in."""
        refusal = _Refusal(host, reason)
        if not self._was_connected:
            self._refusals.append(refusal)
            if len(self._refusals) >= self._server_count:
                self._is_settled.set()
        elif refusal not in self._refusals:
            self._refusals.append(refusal)
            refusal.tell()
