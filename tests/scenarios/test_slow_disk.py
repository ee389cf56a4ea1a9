"""A disk that does not keep up slows writers down; the bookie's memory stays within its limits.

Many clients send as fast as their sockets take it, in both wire versions, and half of them never
wait for an answer. The disk is held at every sync, so nothing becomes durable except when the test
lets a group go.
"""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from typing import Any

import pytest
import uvloop

from bookie.server.server import BookieServer, RequestLimits, ServerLimits
from client.node.connection_limits import ConnectionLimits
from client.wire.bookkeeper import v2, v3
from client.wire.bookkeeper.messages import Request, Status
from tests.fakes.bookie_box import LIMITS, BookieBox, add, payload_of, read

CLIENTS = 24
ENTRY_BYTES = 10_000
PENDING_BYTES_MAX = 200_000
CHUNK_BYTES = 256 * 1024
"""What one read of a socket brings at most (asyncio's and uvloop's buffer)."""
ROUNDS = 6
"""How often the disk is let go, for as long as it takes to have nothing more to do."""
OFFERED_BYTES = 400 * ENTRY_BYTES
"""What each client wants to send: all of them together 480 times the limit."""


class Flood(asyncio.Protocol):
    """A client that sends whenever its socket takes it."""

    def __init__(self, ledger: int, version: int) -> None:
        self.ledger = ledger
        self.version = version
        self.sent = 0
        self.received = 0
        self.answers: list[Any] = []
        self._may_send = True
        self._data = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.transport.set_write_buffer_limits(high=0)
        self.go_on()

    def pause_writing(self) -> None:
        self._may_send = False

    def resume_writing(self) -> None:
        self._may_send = True
        self.go_on()

    def go_on(self) -> None:
        while self._may_send and self.sent * ENTRY_BYTES < OFFERED_BYTES:
            self.transport.write(self.encode(add(self.ledger, self.sent, bytes(ENTRY_BYTES))))
            self.sent += 1

    def encode(self, request: Request) -> bytes:
        if self.version == 2:
            return b"".join(v2.encode_request(request))
        return b"".join(v3.encode_request(request, self.sent))

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= 4:
            size = 4 + int.from_bytes(self._data[:4], "big")
            if len(self._data) < size:
                return
            frame = memoryview(self._data[4:size])
            is_v2 = self.version == 2
            self.answers.append(
                v2.decode_response(frame) if is_v2 else v3.decode_response(frame)[1]
            )
            self._data = self._data[size:]


async def quiet(server: BookieServer, clients: list[Flood]) -> None:
    """Let everything happen that can without the disk: until nobody moves any more."""
    before = None
    while before != (now := (server.backlog.bytes, [(c.sent, len(c.answers)) for c in clients])):
        before = now
        for _ in range(50):
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("version", [2, 3])
def test_a_slow_disk_slows_writers_down_and_memory_stays_bounded(run: Any, version: int) -> None:
    """On both loops: they differ in when a connection may be told to wait."""
    run(flooded(version))


async def flooded(version: int) -> None:
    # One group takes all that is accepted, so that the first bytes are gone with the first two.
    whole = LIMITS._replace(group_bytes_max=CLIENTS * CHUNK_BYTES + PENDING_BYTES_MAX)
    box = BookieBox(limits=whole, pending_bytes_max=PENDING_BYTES_MAX, log_file_bytes_max=1 << 30)
    box.disk.hold = True
    limits = ServerLimits(
        connections=ConnectionLimits(
            connections_max=100,
            connections_per_host_max=100,
            connection_idle_s=600.0,
            frame_timeout_s=30.0,
            unfinished_bytes_max=1 << 24,
            unread_bytes_max=1 << 24,
            unsent_bytes_max=1 << 16,
        ),
        frame_bytes_max=100_000,
        requests_in_flight_max=10_000,
        request_limiter=RequestLimits(100_000, 1000, 1000, 1000, others_max=1000),
    )
    loop = asyncio.get_running_loop()
    server = BookieServer(box.handlers, box.backlog, limits, loop=loop, metrics=box.metrics)
    port = await server.start("127.0.0.1", 0)
    gc.collect()
    tracemalloc.start()
    clients: list[Flood] = []
    for number in range(CLIENTS):
        flood = Flood(100 + number, version)
        await loop.create_connection(lambda flood=flood: flood, "127.0.0.1", port)
        clients.append(flood)
    accepted: list[int] = []
    gauges = box.metrics.gauges
    for _ in range(ROUNDS):
        await quiet(server, clients)
        accepted.append(box.backlog.bytes)
        assert box.backlog.is_over
        assert gauges["connections_waiting_for_disk"]() == CLIENTS, "nobody is read"
        box.disk.release()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # Accepted: the limit, and what the last bytes of one connection completed; until the disk has
    # taken them also the first bytes of those that uvloop reads once, whatever it was told.
    assert max(accepted[2:]) <= PENDING_BYTES_MAX + CHUNK_BYTES + ENTRY_BYTES
    assert max(accepted[:2]) <= PENDING_BYTES_MAX + CLIENTS * (CHUNK_BYTES + ENTRY_BYTES)
    # Each accepted entry a few times over, and a half frame and a chunk for each connection.
    per_connection = 2 * CHUNK_BYTES + limits.frame_bytes_max
    offered = CLIENTS * OFFERED_BYTES
    assert peak < 8 * (PENDING_BYTES_MAX + CHUNK_BYTES) + CLIENTS * per_connection < offered / 3
    taken = box.metrics.added_bytes + box.backlog.bytes
    assert taken <= accepted[0] + ROUNDS * (PENDING_BYTES_MAX + CHUNK_BYTES) < offered / 10
    # The disk is well again: everything is taken, nothing was refused or lost.
    box.disk.hold = False
    box.disk.release()
    async with asyncio.timeout(60):
        while any(len(c.answers) * ENTRY_BYTES < OFFERED_BYTES for c in clients):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert {answer.status for each in clients for answer in each.answers} == {Status.OK}
    assert box.backlog.bytes == 0
    found = await box.call(read(100, 399))
    assert payload_of(100, found.entry) == bytes(ENTRY_BYTES)
    for client in clients:
        client.transport.close()
    server.stop()
