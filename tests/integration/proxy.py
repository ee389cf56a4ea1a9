"""A TCP proxy on loopback whose link a test can cut, heal and slow down."""

import asyncio


class Proxy:
    """Forwards `127.0.0.1:port` to `127.0.0.1:target`. Runs on the test's own event loop."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self.delay_s = 0.0
        """Added to every chunk, in each direction."""
        self._target = target
        self._server: asyncio.Server | None = None
        self._links: dict[asyncio.StreamWriter, asyncio.StreamWriter] = {}
        self._pumps: set[asyncio.Task[None]] = set()

    async def heal(self) -> None:
        """Listen, on the same port as before."""
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Reset every connection and refuse new ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for near, far in list(self._links.items()):
            near.transport.abort()
            far.transport.abort()
        self._links.clear()

    async def close(self) -> None:
        await self.cut()
        for pump in list(self._pumps):
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._links[writer] = far_writer
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            pump = asyncio.create_task(self._pump(source, sink))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while chunk := await source.read(65536):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                sink.write(chunk)
                await sink.drain()
        except OSError:
            pass
        sink.close()
