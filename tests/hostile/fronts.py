"""The two ports that strangers reach, a broker's and a bookie's, as servers in the test's process.

A `Front` is one of them with small limits, and an honest client's request to it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

from bookie.server.server import BookieServer, RequestLimits, ServerLimits
from client.node.connection_limits import ConnectionLimits
from client.wire.bookkeeper import v2
from client.wire.bookkeeper.messages import Status
from client.wire.kafka.apis import ApiKey
from tests.fakes.bookie_box import BookieBox, add, read
from tests.fakes.broker import FakeCloud, until
from tests.fakes.wire_client import WireClient
from tests.unit.broker.front.handlers.requests import batch, create_topic, fetch_fields, produce

FRAME_BYTES_MAX = 1 << 20
"""The largest frame that either takes."""
HELD_BYTES_MAX = 2 << 20
"""What may be held of unfinished frames, and of unread answers."""
LARGE_BYTES = 900_000
KINDS = ("broker", "bookie")

ADD = b"".join(v2.encode_request(add(7, 0)))


class Front(NamedTuple):
    """A server on a free port of 127.0.0.1."""

    kind: str
    port: int
    server: Any
    honest: Callable[[], Awaitable[None]]
    """Connects, asks something and fails if there is no right answer."""
    store_large: Callable[[], Awaitable[bytes]]
    """Stores nearly a MB and returns the request that reads it."""

    async def connect(self) -> Stranger:
        """Connect without a word."""
        return Stranger(*await asyncio.open_connection("127.0.0.1", self.port))

    def let_time_pass(self, seconds: float) -> None:
        """Look after the connections as if so much time had gone by."""
        for held in (self.server.unfinished, self.server.unread):
            for holding in held._holdings.values():
                holding.since_s -= seconds
        for connection in self.server._connections:
            connection._last_heard_s -= seconds
        self.server._sweeper.cancel()
        self.server._sweep()

    async def settled(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition of the server holds."""
        await until(condition, 30.0)

    @property
    def refusals(self) -> int:
        """Connections that were turned away at the door."""
        metrics = self.server.metrics
        return metrics.connections_refused if self.is_broker else metrics.refused_connections

    @property
    def cut_off(self) -> int:
        """Connections that were closed because of what they held."""
        metrics = self.server.metrics
        return metrics.connections_cut_off if self.is_broker else metrics.cut_off_connections

    @property
    def is_broker(self) -> bool:
        """Whether it speaks Kafka's protocol."""
        return self.kind == "broker"


class Stranger(NamedTuple):
    """A connection that says anything at all."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, data: bytes) -> None:
        """Send bytes, framed or not."""
        self.writer.write(data)

    async def is_closed(self) -> bool:
        """Wait until the server closes; false if it says something first."""
        async with asyncio.timeout(20):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True

    def close(self) -> None:
        """Hang up."""
        self.writer.transport.abort()


@contextlib.asynccontextmanager
async def front(kind: str, **limits: int) -> AsyncIterator[Front]:
    """Serve; `limits` are settings that broker and bookie share."""
    settings = {
        "connections_max": 100,
        "connections_per_host_max": 100,
        "connection_idle_ms": 600_000,
        "frame_timeout_ms": 30_000,
        "unfinished_bytes_max": HELD_BYTES_MAX,
        "unread_bytes_max": HELD_BYTES_MAX,
        **limits,
    }
    async with _broker(settings) if kind == "broker" else _bookie(settings) as made:
        yield made


@contextlib.asynccontextmanager
async def _broker(settings: dict[str, int]) -> AsyncIterator[Front]:
    cloud = FakeCloud()
    broker = await cloud.start_broker(
        1,
        request_bytes_max=FRAME_BYTES_MAX,
        control_request_bytes_max=FRAME_BYTES_MAX,
        fetch_bytes_max=FRAME_BYTES_MAX,
        send_buffer_bytes_max=1024,
        **settings,
    )

    async def honest() -> None:
        client = await WireClient.connect(broker.port)
        assert (await client.call(ApiKey.API_VERSIONS, 0)).api_keys
        await client.close()

    async def store_large() -> bytes:
        await create_topic(broker)
        client = await WireClient.connect(broker.port)
        assert (await produce(client, batch(bytes(LARGE_BYTES)))).error_code == 0
        await client.close()
        fields = fetch_fields(0, bytes_max=1 << 20, partition_bytes_max=1 << 20)
        return client.frame(ApiKey.FETCH, 12, fields)

    try:
        yield Front("broker", broker.port, broker.server, honest, store_large)
    finally:
        await cloud.close()


@contextlib.asynccontextmanager
async def _bookie(settings: dict[str, int]) -> AsyncIterator[Front]:
    box = BookieBox()
    limits = ServerLimits(
        connections=ConnectionLimits(
            connections_max=settings["connections_max"],
            connections_per_host_max=settings["connections_per_host_max"],
            connection_idle_s=settings["connection_idle_ms"] / 1000,
            frame_timeout_s=settings["frame_timeout_ms"] / 1000,
            unfinished_bytes_max=settings["unfinished_bytes_max"],
            unread_bytes_max=settings["unread_bytes_max"],
            unsent_bytes_max=1024,
        ),
        frame_bytes_max=FRAME_BYTES_MAX,
        requests_in_flight_max=1000,
        request_limiter=RequestLimits(1000, 1000, 1000, 1000, others_max=1000),
    )
    loop = asyncio.get_running_loop()
    server = BookieServer(box.handlers, box.backlog, limits, loop=loop, metrics=box.metrics)
    port = await server.start("127.0.0.1", 0)

    async def honest() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(ADD)
        async with asyncio.timeout(20):
            answer = await reader.readexactly(28)
        assert v2.decode_response(memoryview(answer)[4:]).status is Status.OK
        writer.close()

    async def store_large() -> bytes:
        assert await box.status(add(7, 5, bytes(LARGE_BYTES))) is Status.OK
        return b"".join(v2.encode_request(read(7, 5)))

    try:
        yield Front("bookie", port, server, honest, store_large)
    finally:
        server.stop()
