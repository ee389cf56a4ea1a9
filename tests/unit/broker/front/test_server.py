"""Hostile bytes, limits and order on the broker's connections."""

from __future__ import annotations

import asyncio
import logging
import random
import struct
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from broker.app import Broker
from broker.cluster.core.topology import TopicInfo
from broker.config import TelemetrySettings
from broker.errors import CoordinatorNotAvailable
from broker.front.dispatch import Dispatcher, Handler
from broker.front.handlers.registry import handlers
from broker.front.server import DECODED_TIMES, REQUEST_BYTES
from broker.front.services import Call, Services
from client.wire.kafka.apis import ApiKey, schema_versions
from tests.fakes.broker import FakeCloud, until
from tests.fakes.wire_client import WireClient
from tests.unit.broker.front.handlers.requests import (
    batch,
    breathe,
    create_topic,
    fetch_fields,
    produce,
    produce_fields,
)


@pytest.fixture
async def cloud() -> AsyncIterator[FakeCloud]:
    made = FakeCloud()
    yield made
    await made.close()


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header(key: int, version: int, client_id: bytes | None = b"x") -> bytes:
    size = -1 if client_id is None else len(client_id)
    return struct.pack(">hhih", key, version, 1, size) + (client_id or b"")


HOSTILE = {
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "tls": bytes.fromhex("16030100f5010000f10303"),
    "negative length": struct.pack(">i", -1),
    "huge length": struct.pack(">i", 0x7FFF_FFFF),
    "empty frame": framed(b""),
    "no room for a header": framed(b"\x00\x03\x00\x01"),
    "unknown api": framed(header(4000, 0)),
    "negative api": framed(header(-1, 0)),
    "unserved api": framed(header(24, 0)),
    "unknown version": framed(header(ApiKey.METADATA, 99)),
    "negative version": framed(header(ApiKey.METADATA, -1)),
    "client id too long": framed(struct.pack(">hhih", ApiKey.METADATA, 1, 1, 500) + b"x"),
    "client id length": framed(struct.pack(">hhih", ApiKey.METADATA, 1, 1, -7)),
    "client id not text": framed(header(ApiKey.METADATA, 1, b"\xff\xfe") + bytes(4)),
    "body missing": framed(header(ApiKey.METADATA, 1)),
    "count too large": framed(header(ApiKey.METADATA, 1) + struct.pack(">i", 0x7FFF_FFFF)),
    "count negative": framed(header(ApiKey.METADATA, 1) + struct.pack(">i", -9)),
    "header tags": framed(header(ApiKey.METADATA, 9) + b"\xff\xff\xff\xff\x0f"),
    "string too long": framed(header(ApiKey.METADATA, 1) + struct.pack(">ih", 1, 500) + b"x"),
    "produce body": framed(header(ApiKey.PRODUCE, 9) + b"\x00\x00"),
    "produce count": framed(
        header(ApiKey.PRODUCE, 3) + struct.pack(">hhii", -1, 1, 1, 0x7FFF_FFFF)
    ),
    "fetch count": framed(
        header(ApiKey.FETCH, 4) + struct.pack(">iiiibi", -1, 0, 1, 1, 0, 0x7FFF_FFFF)
    ),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
async def test_hostile_bytes_close_that_connection_with_one_line(
    cloud: FakeCloud, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await cloud.start_broker(1)
    bystander = await WireClient.connect(broker.port)
    hostile = await WireClient.connect(broker.port)
    with caplog.at_level(logging.WARNING):
        hostile.send_raw(data)
        assert await hostile.is_closed()
    lines = [record.message for record in caplog.records if "connection." in record.message]
    assert len(lines) == 1
    assert lines[0].startswith("connection.failed peer=127.0.0.1")
    assert (await bystander.call(ApiKey.API_VERSIONS, 0)).api_keys
    assert broker.server.in_flight_bytes == 0
    await bystander.close()


async def test_random_requests_break_nothing_else(cloud: FakeCloud) -> None:
    broker = await cloud.start_broker(1)
    await create_topic(broker)
    rng = random.Random(5)
    bystander = await WireClient.connect(broker.port)
    for _ in range(150):
        key = rng.choice(list(ApiKey))
        version = rng.randint(*schema_versions(key))
        body = header(key, version) + rng.randbytes(rng.choice((0, 1, 8, 60)))
        hostile = await WireClient.connect(broker.port)
        hostile.send_raw(framed(body) + HOSTILE["negative length"])
        async with asyncio.timeout(10):
            while not await hostile.is_closed():
                pass
    assert (await bystander.call(ApiKey.API_VERSIONS, 0)).api_keys
    assert not broker.metrics.request_failures
    await bystander.close()


async def test_what_came_before_bad_bytes_is_still_served(cloud: FakeCloud) -> None:
    broker = await cloud.start_broker(1)
    partition = await create_topic(broker)
    client = await WireClient.connect(broker.port)
    good = client.frame(ApiKey.PRODUCE, 9, produce_fields(batch(b"a")))
    client.send_raw(good + framed(header(4000, 0)))
    await until(lambda: partition.high_watermark == 1)


async def test_bytes_may_come_one_by_one(cloud: FakeCloud) -> None:
    broker = await cloud.start_broker(1)
    client = await WireClient.connect(broker.port)
    for byte in client.frame(ApiKey.METADATA, 12, {}):
        client.send_raw(bytes((byte,)))
        await asyncio.sleep(0)
    assert (await client.receive()).brokers


async def test_requests_over_the_limits_close_the_connection(cloud: FakeCloud) -> None:
    broker = await cloud.start_broker(
        1,
        request_bytes_max=64 * 1024,
        control_request_bytes_max=1024,
        telemetry=TelemetrySettings(push_bytes_max=1024),
    )
    await create_topic(broker)
    client = await WireClient.connect(broker.port)
    fine = await produce(client, batch(b"x" * 50_000))
    assert fine.error_code == 0
    client.send(ApiKey.METADATA, 12, topics=[{"name": "x" * 2000, "topic_id": None}])
    assert await client.is_closed()
    client = await WireClient.connect(broker.port)
    client.send(ApiKey.PRODUCE, 9, **produce_fields(batch(b"x" * 70_000)))
    assert await client.is_closed()


async def test_too_many_connections_are_refused(cloud: FakeCloud) -> None:
    broker = await cloud.start_broker(1, connections_max=2)
    clients = [await WireClient.connect(broker.port) for _ in range(2)]
    for client in clients:
        await client.call(ApiKey.API_VERSIONS, 0)
    third = await WireClient.connect(broker.port)
    assert await third.is_closed()
    assert broker.metrics.connections_refused == 1
    await clients[0].close()
    await until(lambda: len(broker.server._connections) == 1)
    again = await WireClient.connect(broker.port)
    await again.call(ApiKey.API_VERSIONS, 0)
    await again.close()
    await clients[1].close()


async def test_too_many_connections_of_one_host_are_refused(cloud: FakeCloud) -> None:
    broker = await cloud.start_broker(1, connections_per_host_max=1)
    first = await WireClient.connect(broker.port)
    await first.call(ApiKey.API_VERSIONS, 0)
    assert await (await WireClient.connect(broker.port)).is_closed()
    await first.close()
    await until(lambda: not broker.server._quotas.total)


async def test_silent_connections_are_closed(cloud: FakeCloud) -> None:
    broker = await cloud.start_broker(1, connection_idle_ms=1_000)
    server = broker.server
    quiet = await WireClient.connect(broker.port)
    waiting = await WireClient.connect(broker.port)
    await create_topic(broker)
    waiting.send(ApiKey.FETCH, 12, **fetch_fields(0, wait_ms=60_000))
    await breathe()
    long_ago = asyncio.get_running_loop().time() - 10
    for connection in server._connections:
        connection._last_heard_s = long_ago
    server._sweep()
    assert await quiet.is_closed()
    assert len(server._connections) == 1
    await waiting.close()


class TestBackPressure:
    """A connection is not read while too much of it is unanswered."""

    async def unconfirmed(self, cloud: FakeCloud, **settings: Any) -> tuple[Broker, Any]:
        broker = await cloud.start_broker(1)
        for name, value in settings.items():
            # Below what a configuration may say, so that one small request fills it.
            object.__setattr__(broker.server.config, name, value)
        partition = await create_topic(broker)
        # Its leader's own first entry counts, too, until it is confirmed.
        await until(lambda: partition.is_open and not partition.usage.in_flight_bytes)
        cloud.ledgers.clients[0].hold_answers = True
        return broker, partition

    async def confirm(self, cloud: FakeCloud) -> None:
        cloud.ledgers.clients[0].hold_answers = False
        cloud.ledgers.clients[0].release()
        await breathe()

    @pytest.mark.parametrize(
        "settings",
        [
            {"connection_in_flight_bytes_max": 1},
            {"connection_requests_max": 1},
            {"in_flight_bytes_max": 1},
        ],
    )
    async def test_each_limit_holds_requests_back_in_order(
        self, cloud: FakeCloud, settings: dict[str, int]
    ) -> None:
        broker, partition = await self.unconfirmed(cloud, **settings)
        client = await WireClient.connect(broker.port)
        for number in range(10):
            client.send(ApiKey.PRODUCE, 9, **produce_fields(batch(b"%d" % number)))
        await breathe()
        assert partition.log_end_offset == 1
        (connection,) = broker.server._connections
        assert not connection.is_reading
        await self.confirm(cloud)
        for number in range(10):
            answer = await client.receive()
            assert answer.responses[0].partition_responses[0].base_offset == number
        await until(lambda: connection.is_reading)
        assert broker.server.in_flight_bytes == 0
        await client.close()

    async def test_a_request_counts_for_what_it_takes_in_memory(self, cloud: FakeCloud) -> None:
        broker, _ = await self.unconfirmed(cloud)
        client, consumer = [await WireClient.connect(broker.port) for _ in range(2)]
        said = client.frame(ApiKey.PRODUCE, 9, produce_fields(batch(b"a")))
        client.send_raw(said)
        as_sent = REQUEST_BYTES + len(said) - 4
        await until(lambda: broker.server.in_flight_bytes == as_sent)
        asked = consumer.frame(ApiKey.FETCH, 12, fetch_fields(0, wait_ms=60_000))
        consumer.send_raw(asked)
        decoded = REQUEST_BYTES + DECODED_TIMES * (len(asked) - 4)
        await until(lambda: broker.server.in_flight_bytes == as_sent + decoded)
        await self.confirm(cloud)
        await client.receive_raw()
        await consumer.receive_raw()
        assert broker.server.in_flight_bytes == 0
        await client.close()
        await consumer.close()

    async def test_a_long_backlog_needs_no_deep_stack(self, cloud: FakeCloud) -> None:
        broker = await cloud.start_broker(1, connection_in_flight_bytes_max=1)
        client = await WireClient.connect(broker.port)
        one = client.frame(ApiKey.API_VERSIONS, 0, {})
        client.send_raw(one * 5000)
        answers = {await client.receive_raw() for _ in range(5000)}
        assert len(answers) == 1  # to the same bytes, the same answer
        await client.close()

    async def test_the_brokers_limit_is_shared(self, cloud: FakeCloud) -> None:
        broker, partition = await self.unconfirmed(cloud, in_flight_bytes_max=1)
        clients = [await WireClient.connect(broker.port) for _ in range(3)]
        for client in clients:
            client.send(ApiKey.PRODUCE, 9, **produce_fields(batch(b"a")))
        await until(lambda: partition.log_end_offset == 1)
        await breathe()
        assert partition.log_end_offset == 1
        await self.confirm(cloud)
        for client in clients:
            await client.receive()
        assert partition.high_watermark == 3
        for client in clients:
            await client.close()

    async def test_connections_that_wait_for_the_brokers_room_take_turns(
        self, cloud: FakeCloud
    ) -> None:
        """Whoever sends much shall not take the room of all who send little."""
        broker, partition = await self.unconfirmed(cloud, in_flight_bytes_max=1)
        first, busy, *quiet = [await WireClient.connect(broker.port) for _ in range(5)]
        first.send(ApiKey.PRODUCE, 9, **produce_fields(batch(b"first")))
        await until(lambda: partition.log_end_offset == 1)
        for _ in range(10):
            busy.send(ApiKey.PRODUCE, 9, **produce_fields(batch(b"busy")))
        await breathe()
        for client in quiet:
            client.send(ApiKey.PRODUCE, 9, **produce_fields(batch(b"quiet")))
        await breathe()
        await self.confirm(cloud)
        offsets = [
            (await client.receive()).responses[0].partition_responses[0].base_offset
            for client in quiet
        ]
        assert offsets == [2, 3, 4], "one of the busy one's ten was before them"
        for offset in (1, *range(5, 14)):
            answer = await busy.receive()
            assert answer.responses[0].partition_responses[0].base_offset == offset
        for client in (first, busy, *quiet):
            await client.close()

    async def test_who_hangs_up_takes_no_batch_out_of_the_count(self, cloud: FakeCloud) -> None:
        """Or else clients that come, send and go fill the memory of a broker with slow bookies."""
        records = batch(b"x" * 10_000)
        broker, partition = await self.unconfirmed(cloud, in_flight_bytes_max=4 * len(records))
        for _ in range(20):
            client = await WireClient.connect(broker.port)
            client.send(ApiKey.PRODUCE, 9, **produce_fields(records))
            await breathe()
            await client.close()
            await breathe()
        assert partition.usage.in_flight_bytes == 4 * len(records)
        assert 4 * len(records) <= broker.server.in_flight_bytes < 5 * len(records)
        await self.confirm(cloud)
        await until(lambda: not broker.server.in_flight_bytes)

    async def test_the_bytes_of_a_batch_go_with_the_leadership(self, cloud: FakeCloud) -> None:
        broker, partition = await self.unconfirmed(cloud)
        cloud.ledgers.clients[0].room_bytes = 1
        client = await WireClient.connect(broker.port)
        for _ in range(3):
            client.send(ApiKey.PRODUCE, 9, **produce_fields(batch(b"x" * 300_000)))
        await until(lambda: partition.log_end_offset == 3)
        await client.close()
        await breathe()
        assert broker.server.in_flight_bytes > 900_000
        partition.resign("test")
        await until(lambda: not broker.server.in_flight_bytes)

    async def test_a_change_that_waits_is_held_without_its_client(self, cloud: FakeCloud) -> None:
        broker = await cloud.start_broker(1)
        gate, done = asyncio.Event(), asyncio.Event()

        async def wait(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
            await gate.wait()
            done.set()
            return {}

        client = await self.one_that_waits(broker, ApiKey.DELETE_GROUPS, wait)
        client.send(ApiKey.DELETE_GROUPS, 2, groups_names=["x" * 2000])
        await until(lambda: broker.server.in_flight_bytes > 2000)
        await client.close()
        await breathe()
        assert broker.server.in_flight_bytes > 2000
        gate.set()
        await until(lambda: not broker.server.in_flight_bytes)
        assert done.is_set()

    @pytest.mark.parametrize("count", [1, 5000], ids=["decoded at once", "decoded in steps"])
    async def test_a_question_ends_with_its_client(self, cloud: FakeCloud, count: int) -> None:
        broker = await cloud.start_broker(1)
        asked, ended = asyncio.Event(), asyncio.Event()

        async def wait(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
            try:
                asked.set()
                await asyncio.get_running_loop().create_future()
            finally:
                ended.set()
            return {}

        client = await self.one_that_waits(broker, ApiKey.FIND_COORDINATOR, wait)
        client.send(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["x" * 500] * count)
        await asked.wait()
        assert broker.server.in_flight_bytes > 500
        await client.close()
        await until(lambda: not broker.server.in_flight_bytes)
        assert ended.is_set()

    async def test_what_was_asked_before_ends_no_later_request(self, cloud: FakeCloud) -> None:
        broker = await cloud.start_broker(1)
        gate, done = asyncio.Event(), asyncio.Event()

        async def wait(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
            await gate.wait()
            done.set()
            return {}

        client = await self.one_that_waits(broker, ApiKey.DELETE_GROUPS, wait)
        await client.call(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"])
        client.send(ApiKey.DELETE_GROUPS, 2, groups_names=["g"])
        await until(lambda: broker.server.in_flight_bytes > 0)
        await client.close()
        gate.set()
        await until(lambda: not broker.server.in_flight_bytes)
        assert done.is_set()

    async def test_a_topic_that_was_asked_for_is_made_though_its_client_has_gone(
        self, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        broker = await cloud.start_broker(1)
        topics, begun, gate = broker.services.topics, asyncio.Event(), asyncio.Event()
        create = topics.create

        async def create_late(name: str) -> TopicInfo:
            begun.set()
            await gate.wait()
            return await create(name)

        monkeypatch.setattr(topics, "create", create_late)
        client = await WireClient.connect(broker.port)
        client.send(ApiKey.METADATA, 12, topics=[{"name": "t", "topic_id": None}])
        await begun.wait()
        await client.close()
        await until(lambda: not broker.server.in_flight_bytes)
        gate.set()
        await until(lambda: "t" in broker.cluster.topics)

    async def one_that_waits(self, broker: Broker, key: ApiKey, handle: Any) -> WireClient:
        """Return a client of a broker whose handler of one API is another one."""
        table = [row._replace(handle=handle) if row.key == key else row for row in handlers()]
        broker.server.dispatcher = Dispatcher(broker.services, table)
        return await WireClient.connect(broker.port)

    async def test_requests_that_wait_for_their_group_keep_nobody_from_starting(
        self, cloud: FakeCloud
    ) -> None:
        limit = 64 * 1024
        broker = await cloud.start_broker(1, group_requests_bytes_max=2 * limit)
        object.__setattr__(broker.server.config, "in_flight_bytes_max", limit)
        gate = asyncio.Event()

        async def wait(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
            await gate.wait()
            raise CoordinatorNotAvailable("closed")

        table = [
            row._replace(handle=wait) if row.key == ApiKey.JOIN_GROUP else row for row in handlers()
        ]
        broker.server.dispatcher = Dispatcher(broker.services, table)
        protocols = [{"name": "range", "metadata": bytes(limit // DECODED_TIMES)}]
        clients = [await WireClient.connect(broker.port) for _ in range(2)]
        for client in clients:
            client.send(
                ApiKey.JOIN_GROUP, 5, group_id="g", session_timeout=10_000,
                rebalance_timeout=10_000, member_id="", group_instance_id=None,
                protocol_type="consumer", protocols=protocols,
            )  # fmt: skip
        refused = await clients[1].receive()
        assert refused.error_code.name == "coordinator_not_available"
        assert broker.server.in_flight_bytes == 0
        answer = await clients[1].call(ApiKey.METADATA, 12, topics=[])
        assert answer.brokers
        gate.set()
        assert (await clients[0].receive()).error_code.name == "coordinator_not_available"
        for client in clients:
            await client.close()

    async def test_a_fetch_that_waits_is_forgotten_with_its_client(self, cloud: FakeCloud) -> None:
        broker = await cloud.start_broker(1)
        await create_topic(broker)
        client = await WireClient.connect(broker.port)
        client.send(ApiKey.FETCH, 12, **fetch_fields(0, wait_ms=60_000))
        await until(lambda: broker.server.in_flight_bytes > 0)
        await client.close()
        await until(lambda: not broker.server.in_flight_bytes)

    async def test_what_a_broken_handler_held_is_held_no_longer(self, cloud: FakeCloud) -> None:
        broker = await cloud.start_broker(1)

        def start(services: Services, call: Call, body: Any, channel: Any, size: int) -> None:
            channel.open(call.api_key, size)
            raise ZeroDivisionError

        table = [
            row._replace(start=start) if row.key == ApiKey.FETCH else row for row in handlers()
        ]
        broker.server.dispatcher = Dispatcher(broker.services, table)
        client = await WireClient.connect(broker.port)
        client.send(ApiKey.FETCH, 12, **fetch_fields(0))
        assert await client.is_closed()
        assert broker.server.in_flight_bytes == 0

    async def test_a_client_that_does_not_read_is_not_served_on(self, cloud: FakeCloud) -> None:
        broker = await cloud.start_broker(
            1, send_buffer_bytes_max=1024, tail_cache_bytes_max=1 << 26
        )
        await create_topic(broker, config={"max.message.bytes": "5000000"})
        client = await WireClient.connect(broker.port)
        stored = await produce(client, batch(b"x" * 4_000_000))
        assert stored.error_code == 0
        greedy = await WireClient.connect(broker.port)
        greedy._writer.transport.pause_reading()  # type: ignore[attr-defined]
        fields = fetch_fields(0, bytes_max=1 << 26, partition_bytes_max=1 << 26)
        for _ in range(20):
            greedy.send(ApiKey.FETCH, 12, **fields)
        await asyncio.sleep(0.2)
        assert 0 < broker.metrics.fetched_bytes < 6 * 4_000_000
        greedy._writer.transport.resume_reading()  # type: ignore[attr-defined]
        for _ in range(20):
            await greedy.receive()
        await greedy.close()
        await client.close()

    async def test_answers_that_wait_for_their_turn_count_as_unsent(self, cloud: FakeCloud) -> None:
        broker = await cloud.start_broker(1, send_buffer_bytes_max=1024)
        partition = await create_topic(broker)
        client = await WireClient.connect(broker.port)
        await produce(client, batch(b"x" * 100_000))
        cloud.ledgers.clients[0].hold_answers = True
        client.send(ApiKey.PRODUCE, 9, **produce_fields(batch(b"a")))
        for _ in range(20):
            client.send(ApiKey.FETCH, 12, **fetch_fields(0))
        await breathe()
        assert broker.metrics.fetched_bytes < 200_000
        assert 100_000 < broker.server.unsent_bytes < 200_000
        assert broker.server.unread.total_bytes == broker.server.unsent_bytes
        await self.confirm(cloud)
        for _ in range(21):
            await client.receive()
        assert broker.server.unread.total_bytes == 0
        assert partition.high_watermark == 2
        assert broker.metrics.fetched_bytes > 2_000_000
        await client.close()


class TestDispatch:
    """Order of handlers, and what becomes of their failures."""

    async def serve(self, cloud: FakeCloud, key: ApiKey, handle: Any) -> WireClient:
        broker = await cloud.start_broker(1)
        table = [row._replace(handle=handle) if row.key == key else row for row in handlers()]
        broker.server.dispatcher = Dispatcher(broker.services, table)
        return await WireClient.connect(broker.port)

    async def test_asynchronous_handlers_run_one_at_a_time_in_order(self, cloud: FakeCloud) -> None:
        events: list[str] = []

        async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
            events.append(f"begin {call.correlation_id}")
            await asyncio.sleep(0.01 if call.correlation_id == 1 else 0)
            events.append(f"end {call.correlation_id}")
            return {"error_code": 0}

        client = await self.serve(cloud, ApiKey.HEARTBEAT, handle)
        for _ in range(3):
            client.send(ApiKey.HEARTBEAT, 4)
        client.send(ApiKey.API_VERSIONS, 0)
        for _ in range(4):
            await client.receive()
        assert events == [f"{what} {number}" for number in (1, 2, 3) for what in ("begin", "end")]
        await client.close()

    @pytest.mark.parametrize("is_async", [False, True])
    @pytest.mark.parametrize(
        ("error", "code", "failures"),
        [(CoordinatorNotAvailable("x"), 15, 0), (ZeroDivisionError("secret"), -1, 1)],
    )
    async def test_errors_become_the_answer_if_it_has_a_place(
        self, cloud: FakeCloud, is_async: bool, error: Exception, code: int, failures: int
    ) -> None:
        def handle(services: Services, call: Call, request: Any) -> Any:
            raise error

        async def handle_later(services: Services, call: Call, request: Any) -> Any:
            raise error

        client = await self.serve(cloud, ApiKey.HEARTBEAT, handle_later if is_async else handle)
        answer = await client.call(ApiKey.HEARTBEAT, 4)
        assert int(answer.error_code) == code
        assert sum(cloud.brokers[1].metrics.request_failures.values()) == failures
        assert (await client.call(ApiKey.API_VERSIONS, 0)).api_keys
        await client.close()

    async def test_where_an_answer_has_no_place_the_connection_closes(
        self, cloud: FakeCloud
    ) -> None:
        async def handle(services: Services, call: Call, request: Any) -> Any:
            raise ZeroDivisionError

        client = await self.serve(cloud, ApiKey.METADATA, handle)
        client.send(ApiKey.METADATA, 12)
        assert await client.is_closed()

    async def test_an_answer_that_does_not_fit_the_schema_is_our_error(
        self, cloud: FakeCloud
    ) -> None:
        client = await self.serve(cloud, ApiKey.HEARTBEAT, lambda *_: {"error_code": "what"})
        assert int((await client.call(ApiKey.HEARTBEAT, 4)).error_code) == -1
        await client.close()

    async def test_closing_cancels_what_runs(self, cloud: FakeCloud) -> None:
        begun = asyncio.Event()
        ended: list[bool] = []

        async def handle(services: Services, call: Call, request: Any) -> Any:
            begun.set()
            try:
                await asyncio.sleep(3600)
            finally:
                ended.append(True)

        client = await self.serve(cloud, ApiKey.HEARTBEAT, handle)
        client.send(ApiKey.HEARTBEAT, 4)
        await begun.wait()
        await cloud.brokers[1].server.close()
        assert ended == [True]

    def test_the_registry_is_whole(self) -> None:
        for row in handlers():
            assert isinstance(row, Handler)
            assert (row.handle is None) != (row.start is None)
            assert row.versions[0] <= row.versions[1]


async def test_a_long_client_id_is_kept_in_part(cloud: FakeCloud) -> None:
    """Or whatever remembers clients would hold 32 KiB for each, four times that for some."""
    seen: list[str | None] = []

    def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
        seen.append(call.client_id)
        return {"error_code": 0, "api_keys": []}

    broker = await cloud.start_broker(1)
    handler = Handler(int(ApiKey.API_VERSIONS), (0, 4), handle, None)
    broker.server.dispatcher = Dispatcher(broker.services, [handler])
    client = await WireClient.connect(broker.port)
    for text in (b"", b"x" * 255, b"x" * 32_767):
        client.send_raw(framed(header(ApiKey.API_VERSIONS, 0, text)))
    await until(lambda: len(seen) == 3)
    assert seen == ["", "x" * 255, "x" * 255]
    await client.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_request_that_is_cancelled_before_it_begins_holds_nothing(
    cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await cloud.start_broker()
    client = await WireClient.connect(broker.port)
    dispatcher, cancelled = broker.server.dispatcher, []

    def run(*arguments: Any) -> None:
        original(*arguments)
        cancelled.extend(task for task in dispatcher._tasks if task.cancel())

    original = dispatcher._run
    monkeypatch.setattr(dispatcher, "_run", run)
    client.send(ApiKey.LIST_GROUPS, 4, states_filter=[])  # its handler is never awaited
    await until(lambda: bool(cancelled))
    await until(lambda: not dispatcher._tasks)
    assert broker.server.in_flight_bytes == 0
    await client.close()
