"""How much one writer may have under way, and who waits until it is less.

Covers a writer's back-pressure: entries that are not confirmed and entries that some bookie has
still to answer have a limit each, the former a smaller one beside other writers
(`core/writer_window.py`). Who waits is called back on a later turn of the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from client import callbacks
from client.errors import LedgerError, WriteFailed
from client.ledger.config import LedgerClientConfig
from client.ledger.core.adds import Adds
from client.ledger.write.core.writer_window import ActiveWriters, WriterWindow


class WriterRoom:
    """The room of one writer; `wake` whenever something about its adds has changed."""

    __slots__ = ("_adds", "_on_raised", "_unanswered_bytes_max", "waiters", "window")

    def __init__(
        self,
        adds: Adds,
        config: LedgerClientConfig,
        active_writers: ActiveWriters,
        on_raised: Callable[[LedgerError], None],
    ) -> None:
        """`active_writers`: of those that send to the same bookies. `on_raised`: ends the writer,
        with this error."""
        self._adds = adds
        self.window = WriterWindow(
            active_writers,
            config.writer_in_flight_bytes_max,
            shared_bytes_min=config.writer_shared_bytes_min,
            target_s=config.writer_shared_delay_ms / 1000,
        )
        self._unanswered_bytes_max = config.writer_unanswered_bytes_max
        self._on_raised = on_raised
        self.waiters: list[asyncio.Future[None]] = []

    @property
    def is_free(self) -> bool:
        """Whether the next entry may be sent; one that is larger than the limits goes alone."""
        adds = self._adds
        return (
            adds.length - adds.confirmed_length < self.window.size
            and adds.pending_bytes < self._unanswered_bytes_max
        )

    @property
    def is_shared(self) -> bool:
        """Whether a writer that adds little has added something of late (WINDOW-LITTLE)."""
        return self.window.is_shared

    def on_free(self, call: Callable[[], None]) -> None:
        """Call once, later on the loop, when there is room again or the writer has ended."""

        def look(_waiter: asyncio.Future[None]) -> None:
            if not self.is_free and self._adds.error is None:
                self.on_free(call)
                return
            try:
                call()
            except callbacks.RAISED as raised:
                callbacks.failed(callbacks.Kind.WRITER_ROOM, raised)
                error = WriteFailed(f"a callback that waited for room failed: {raised!r}")
                error.__cause__ = raised
                self._on_raised(error)

        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter.add_done_callback(look)
        self.waiters.append(waiter)

    async def changed(self) -> None:
        """Return after something about the adds has changed."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiters.append(waiter)
        await waiter

    def wake(self) -> None:
        """Something about the adds has changed: let everybody look who waits."""
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
