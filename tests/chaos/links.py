"""TCP links on loopback that can be cut, held, slowed down and made one-way.

Every node is reached through a link, so that it can be cut off from clients, from other nodes or
from the metadata store while its process lives. All links run on one event loop in one thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import uvloop

_CHUNK_BYTES = 1 << 16


class Address(NamedTuple):
    """Where to listen or connect."""

    host: str
    port: int


class Link:
    """Forwards one address to another. Change the fields and call `cut` on the links' loop only."""

    def __init__(self, near: Address, far: Address) -> None:
        self.near = near
        self.delay_s = 0.0
        """Added to every chunk, in each direction."""
        self.is_cut = False
        """Refuse and reset."""
        self._far = far
        self._open = {True: asyncio.Event(), False: asyncio.Event()}
        for way in self._open.values():
            way.set()
        self._writers: set[asyncio.StreamWriter] = set()

    def hold(self, *, requests: bool = True, answers: bool = True) -> None:
        """Let nothing through, silently; what is on its way arrives when the link heals."""
        for way, held in ((True, requests), (False, answers)):
            if held:
                self._open[way].clear()

    def cut(self) -> None:
        """Reset every connection and each new one."""
        self.is_cut = True
        self.reset()

    def reset(self) -> None:
        """Reset every connection there is."""
        for writer in list(self._writers):
            writer.transport.abort()

    def heal(self) -> None:
        """Be a good link again."""
        self.is_cut = False
        self.delay_s = 0.0
        for way in self._open.values():
            way.set()

    async def serve(self) -> None:
        """Listen."""
        await asyncio.start_server(self._accept, *self.near)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self.is_cut:
                raise ConnectionResetError
            far_reader, far_writer = await asyncio.open_connection(*self._far)
        except OSError:
            writer.transport.abort()
            return
        both = (writer, far_writer)
        self._writers.update(both)
        try:
            await asyncio.gather(
                self._pump(reader, far_writer, True), self._pump(far_reader, writer, False)
            )
        finally:
            self._writers.difference_update(both)
            for each in both:
                each.transport.abort()

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, is_request: bool
    ) -> None:
        try:
            while chunk := await source.read(_CHUNK_BYTES):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                await self._open[is_request].wait()
                sink.write(chunk)
                await sink.drain()
            sink.close()
        except (OSError, RuntimeError):  # uvloop's word for a transport that was aborted
            sink.transport.abort()


class Links:
    """All links, and the thread they run in."""

    def __init__(self) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def make(self, near: Address, far: Address) -> Link:
        """Return a link that forwards."""

        async def begin() -> Link:
            link = Link(near, far)
            await link.serve()
            return link

        return self._run(begin())

    def do(self, what: Callable[[], None]) -> None:
        """Change links: runs `what` on their loop."""

        async def change() -> None:
            what()

        self._run(change())

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)
