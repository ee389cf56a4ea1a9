"""Tells whether this broker may still assume that its metadata session is alive.

Fencing keeps a zombie from writing, but not from answering reads with an outdated end of the log.
So a broker acts as a leader only if the metadata store has answered it within the last two thirds
of the session timeout, by the event loop's clock, counted from when the request was sent. A process
that was paused finds its lease expired before it reads anything from a socket.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from client.errors import MetadataError
from client.metadata import paths
from client.metadata.store import MetadataStore

_LOG = logging.getLogger(__name__)

_LEASE_SHARE: Final = 2 / 3
_REQUESTS_PER_TIMEOUT: Final = 6


class SessionLease:
    """A deadline that every answer of the metadata store extends."""

    def __init__(self, session_timeout_s: float) -> None:
        self.session_timeout_s = session_timeout_s
        self._valid_until_s = float("-inf")
        self._due = asyncio.Event()
        self._listeners: list[Callable[[float], None]] = []

    def add_listener(self, listener: Callable[[float], None]) -> None:
        """Call `listener` after each answer, with the time at which its request was sent."""
        self._listeners.append(listener)

    def is_valid(self, now_s: float) -> bool:
        """Whether we may answer for the partitions that we lead."""
        return now_s < self._valid_until_s

    def renew(self, asked_s: float) -> None:
        """The store answered a request that was sent at `asked_s`."""
        self._valid_until_s = max(
            self._valid_until_s, asked_s + _LEASE_SHARE * self.session_timeout_s
        )
        for listener in self._listeners:
            listener(asked_s)

    def end(self) -> None:
        """The session has expired."""
        self._valid_until_s = float("-inf")

    async def ask(self, store: MetadataStore) -> None:
        """Send one request and renew the lease. Raises MetadataError."""
        asked_s = asyncio.get_running_loop().time()
        await store.exists(paths.BROKERS)
        self.renew(asked_s)

    def ask_soon(self) -> None:
        """Let `keep` send a request now: the connection is back."""
        self._due.set()

    async def keep(self, store: MetadataStore) -> None:
        """Renew the lease again and again, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self.session_timeout_s / _REQUESTS_PER_TIMEOUT):
                    await self._due.wait()
            except TimeoutError:
                pass
            self._due.clear()
            try:
                await self.ask(store)
            except MetadataError as error:
                _LOG.warning("lease.unanswered error=%r", error)
