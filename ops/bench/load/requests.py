"""Produce requests that were made before: what they cost is the broker's, not the generator's.

Each request is made once and sent again and again, so that the generator costs little beside the
broker: librdkafka with one producer per connection would need hundreds of threads, and records of
100 bytes keep it busier than the brokers. The bytes are Produce version 8, which Kafka 4 and Quire
both take; an answer's error code is checked.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import struct
import time
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import uvloop
from confluent_kafka.admin import AdminClient

from client.errors import RemoteProtocolError
from client.kafka_security import PLAIN_TEXT, ClientSecurity, security_of
from client.wire.kafka.batches.records import Record, build_batch
from client.wire.kafka.produce_client import VERSION, encode_produce
from client.wire.kafka.requests import request_frame
from client.wire.kafka.sasl_login import LoginRefused, SaslLogin
from ops.bench.load.channel import LoadFailed, tell
from ops.bench.login import login_of, properties_of
from ops.bench.spread import percentile

_PRODUCE: Final = 0
_ACKS_ALL: Final = -1
_TIMEOUT_MS: Final = 30_000
_SIZE: Final = struct.Struct(">i")

Address = tuple[str, int]


def error_code(answer: bytes | memoryview, topic: str) -> int:
    """Return the error of a Produce v8 response for one topic and partition.

    Correlation id i32, topics i32, name, partitions i32, index i32, code i16.
    """
    code: int
    (code,) = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(topic.encode()) + 4 + 4)
    return code


class _Connection(asyncio.Protocol):
    """Logs in, if it has to, and then sends the next request when one of those under way is
    answered."""

    def __init__(
        self,
        frames: Sequence[bytes],
        in_flight: int,
        topic: str,
        answered: asyncio.Event,
        login: SaslLogin | None = None,
    ) -> None:
        self._login = login
        self._answered = answered
        self._frames = itertools.cycle(frames)
        self._in_flight = in_flight
        self._topic = topic
        self._buffer = b""
        self._sent_s: deque[float] = deque()
        self._transport: Any = None
        self.answers: list[tuple[float, float]] = []
        """(end s, latency s)."""
        self.stopped = False
        self.failure: str | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        if self._login is None:
            self._begin()
        else:
            self._transport.write(self._login.start())

    def _begin(self) -> None:
        for _ in range(self._in_flight):
            self._send()

    def data_received(self, data: bytes) -> None:
        received = self._buffer + data
        at = 0
        while len(received) - at >= _SIZE.size:
            (size,) = _SIZE.unpack_from(received, at)
            end = at + _SIZE.size + size
            if len(received) < end:
                break
            self._on_answer(memoryview(received)[at + _SIZE.size : end])
            at = end
        self._buffer = received[at:]

    def _on_answer(self, answer: memoryview) -> None:
        if self._login is not None:
            self._on_login(self._login, answer)
            return
        if code := error_code(answer, self._topic):
            self._fail(f"a request was answered with error {code}")
        self._answered.set()
        now_s = time.monotonic()
        self.answers.append((now_s, now_s - self._sent_s.popleft()))
        if not self.stopped:
            self._send()

    def _on_login(self, login: SaslLogin, answer: memoryview) -> None:
        try:
            frame = login.on_answer(answer)
        except (LoginRefused, RemoteProtocolError) as error:
            self._fail(f"the login failed: {error}")
            return
        if frame is None:
            self._login = None
            self._begin()
        else:
            self._transport.write(frame)

    def _fail(self, reason: str) -> None:
        self.failure = reason
        self.stopped = True
        self._answered.set()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.stopped:
            self._fail(f"the broker closed the connection ({exc})")

    def _send(self) -> None:
        self._sent_s.append(time.monotonic())
        self._transport.write(next(self._frames))

    def close(self) -> None:
        """Send nothing more."""
        self.stopped = True
        self._transport.abort()


def leader_addresses(servers: str, topic: str, properties: Mapping[str, str]) -> dict[int, Address]:
    """Ask who leads each partition."""
    admin = AdminClient({"bootstrap.servers": servers, **properties})
    found = admin.list_topics(topic, timeout=30)
    brokers = {
        index: found.brokers[partition.leader]
        for index, partition in found.topics[topic].partitions.items()
    }
    return {index: (str(broker.host), broker.port) for index, broker in brokers.items()}


def ready_made(topic: str, partition: int, value_bytes: int, records: int) -> bytes:
    """Return a request with one batch of random values."""
    now_ms = time.time_ns() // 1_000_000
    batch = build_batch([Record(None, os.urandom(value_bytes), now_ms) for _ in range(records)])
    body = encode_produce(_ACKS_ALL, _TIMEOUT_MS, {topic: [(partition, batch)]})
    return request_frame(_PRODUCE, VERSION, 1, "quire-bench", body)


def run(
    servers: str,
    topic: str,
    value_bytes: int,
    connections: int,
    warm_up_s: float,
    measure_s: float,
    records: int = 1,
    in_flight: int = 1,
    properties: str = "",
) -> None:
    """Events: begin, end (requests, seconds, cpu_s, p50_ms, p99_ms). Starts by itself.

    `records` are in each request, `in_flight` requests under way on each of the `connections` to
    each broker that leads partitions of the topic; they go to its partitions in turn.
    `properties`: a file with further settings of clients.
    """
    settings = properties_of(properties)
    leaders = leader_addresses(servers, topic, settings)
    frames: dict[Address, list[bytes]] = {}
    for partition, address in leaders.items():
        frame = ready_made(topic, partition, value_bytes, records)
        frames.setdefault(address, []).append(frame)
    security = security_of(settings) if settings else PLAIN_TEXT
    uvloop.run(_run(topic, frames, connections, in_flight, warm_up_s, measure_s, security))


async def _run(
    topic: str,
    frames: dict[Address, list[bytes]],
    connections: int,
    in_flight: int,
    warm_up_s: float,
    measure_s: float,
    security: ClientSecurity,
) -> None:
    context = security.context() if security.is_tls else None
    loop = asyncio.get_running_loop()
    answered = asyncio.Event()
    opened = []
    for (host, port), requests in frames.items():
        for _ in range(connections):
            login = login_of(security)
            make = partial(_Connection, requests, in_flight, topic, answered, login)
            _, connection = await loop.create_connection(make, host, port, ssl=context)
            opened.append(connection)
    await asyncio.sleep(warm_up_s)
    answered.clear()
    begin_s, begin_cpu_s = time.monotonic(), time.process_time()
    tell("begin")
    await asyncio.sleep(measure_s)
    await answered.wait()  # a system may be slower than the span is long
    end_s, end_cpu_s = time.monotonic(), time.process_time()
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
        cpu_s=end_cpu_s - begin_cpu_s,
        p50_ms=percentile(took_s, 0.5) * 1e3,
        p99_ms=percentile(took_s, 0.99) * 1e3,
    )
