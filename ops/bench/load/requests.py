"""Unbatched produce requests: one record each, one under way on each connection.

The request is made once and sent again and again, so that the generator costs little beside the
broker: librdkafka with one producer per connection would need hundreds of threads. Its bytes are
Produce version 8, which Kafka 4 and Quire both take; an answer's error code is checked.
"""

from __future__ import annotations

import asyncio
import struct
import time
from typing import Any, Final

import uvloop
from confluent_kafka.admin import AdminClient

from client.wire.kafka.produce_client import VERSION, encode_produce
from client.wire.kafka.record_builder import Record, build_batch
from client.wire.kafka.requests import request_frame
from ops.bench.load.channel import LoadFailed, tell
from ops.bench.spread import percentile

_PRODUCE: Final = 0
_ACKS_ALL: Final = -1
_TIMEOUT_MS: Final = 30_000
_SIZE: Final = struct.Struct(">i")


def error_code(frame: bytes, topic: str) -> int:
    """Return the error of a Produce v8 response for one topic and partition.

    Behind the length: correlation id i32, topics i32, name, partitions i32, index i32, code i16.
    """
    code: int
    (code,) = struct.unpack_from(">h", frame, 4 + 4 + 4 + 2 + len(topic.encode()) + 4 + 4)
    return code


class _Connection(asyncio.Protocol):
    """Sends the next request when the answer to the last one is there."""

    def __init__(self, frame: bytes, topic: str, answered: asyncio.Event) -> None:
        self._answered = answered
        self._frame = frame
        self._topic = topic
        self._buffer = b""
        self._sent_s = 0.0
        self._transport: Any = None
        self.answers: list[tuple[float, float]] = []
        """(end s, latency s)."""
        self.stopped = False
        self.failure: str | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) < _SIZE.size:
            return
        (size,) = _SIZE.unpack_from(self._buffer)
        if len(self._buffer) < _SIZE.size + size:
            return
        if code := error_code(self._buffer, self._topic):
            self.failure = f"a request was answered with error {code}"
            self.stopped = True
        self._buffer = b""
        self._answered.set()
        now_s = time.monotonic()
        self.answers.append((now_s, now_s - self._sent_s))
        if not self.stopped:
            self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.stopped:
            self._answered.set()
            self.failure = f"the broker closed the connection ({exc})"

    def _send(self) -> None:
        self._sent_s = time.monotonic()
        self._transport.write(self._frame)

    def close(self) -> None:
        """Send nothing more."""
        self.stopped = True
        self._transport.close()


def leader_address(servers: str, topic: str) -> tuple[str, int]:
    """Ask who leads partition 0."""
    found = AdminClient({"bootstrap.servers": servers}).list_topics(topic, timeout=30)
    broker = found.brokers[found.topics[topic].partitions[0].leader]
    return str(broker.host), broker.port


def run(
    servers: str, topic: str, value_bytes: int, connections: int, warm_up_s: float, measure_s: float
) -> None:
    """Events: begin, end (requests, seconds, p50_ms, p99_ms). Starts by itself."""
    uvloop.run(_run(servers, topic, value_bytes, connections, warm_up_s, measure_s))


async def _run(
    servers: str, topic: str, value_bytes: int, connections: int, warm_up_s: float, measure_s: float
) -> None:
    batch = build_batch([Record(None, bytes(value_bytes), time.time_ns() // 1_000_000)])
    body = encode_produce(_ACKS_ALL, _TIMEOUT_MS, {topic: [(0, batch)]})
    frame = request_frame(_PRODUCE, VERSION, 1, "quire-bench", body)
    host, port = leader_address(servers, topic)
    loop = asyncio.get_running_loop()
    answered = asyncio.Event()
    opened = []
    for _ in range(connections):
        _, connection = await loop.create_connection(
            lambda: _Connection(frame, topic, answered), host, port
        )
        opened.append(connection)
    await asyncio.sleep(warm_up_s)
    answered.clear()
    begin_s = time.monotonic()
    tell("begin")
    await asyncio.sleep(measure_s)
    await answered.wait()  # a system may be slower than the span is long
    end_s = time.monotonic()
    for connection in opened:
        connection.close()
    failures = [connection.failure for connection in opened if connection.failure]
    if failures:
        raise LoadFailed(failures[0])
    took_s = sorted(
        late_s
        for connection in opened
        for at_s, late_s in connection.answers
        if begin_s <= at_s < end_s
    )
    tell(
        "end",
        requests=len(took_s),
        seconds=end_s - begin_s,
        p50_ms=percentile(took_s, 0.5) * 1e3,
        p99_ms=percentile(took_s, 0.99) * 1e3,
    )
