"""Fetch: whole batches, limits, long polls, and errors that do not wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from broker.app import Broker
from client.errors import ReadFailed
from client.ids import Offset
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.batches.records import Codec, headers
from tests.fakes.broker import FakeCloud, until
from tests.fakes.scrape import parse
from tests.fakes.wire_client import WireClient
from tests.unit.broker.front.handlers.requests import (
    batch,
    breathe,
    create_topic,
    fetch,
    fetch_fields,
    produce,
    produce_fields,
)


def base_offsets(data: Any) -> list[int]:
    return [header.base_offset for _, header in headers(bytes(data.records))]


@pytest.mark.parametrize("version", range(4, 13))
async def test_what_was_produced_is_fetched(
    broker: Broker, client: WireClient, version: int
) -> None:
    await create_topic(broker)
    await produce(client, batch(b"a", b"b"))
    await produce(client, batch(b"c"))
    data = await fetch(client, 0, version=version)
    assert data.error_code is ErrorCode.none
    assert base_offsets(data) == [0, 2]
    assert (data.high_watermark, data.last_stable_offset) == (3, 3)
    assert getattr(data, "log_start_offset", 0) == 0
    assert data.aborted_transactions is None
    committed = await fetch(client, 0, version=version, isolation=1)
    assert base_offsets(committed) == [0, 2]
    assert committed.aborted_transactions == ()


async def test_the_batch_around_the_offset_comes_whole(broker: Broker, client: WireClient) -> None:
    await create_topic(broker)
    await produce(client, batch(b"a", b"b", b"c"))
    await produce(client, batch(b"d"))
    assert base_offsets(await fetch(client, 1)) == [0, 3]
    assert base_offsets(await fetch(client, 3)) == [3]
    at_end = await fetch(client, 4)
    assert (at_end.error_code, bytes(at_end.records)) == (ErrorCode.none, b"")


async def test_the_first_batch_comes_whatever_its_size(broker: Broker, client: WireClient) -> None:
    await create_topic(broker)
    await produce(client, batch(b"x" * 1000))
    await produce(client, batch(b"y" * 1000))
    for limits in ({"bytes_max": 1}, {"partition_bytes_max": 1}, {"bytes_max": 0}):
        assert base_offsets(await fetch(client, 0, **limits)) == [0]


async def test_limits_hold_after_the_first_batch(broker: Broker, client: WireClient) -> None:
    await create_topic(broker, partition_count=2)
    size = len(batch(b"x" * 1000))
    for partition in (0, 1):
        for _ in range(3):
            await produce(client, batch(b"x" * 1000), partition=partition)
    fields = fetch_fields(0, bytes_max=3 * size, partition_bytes_max=2 * size)
    partitions = fields["topics"][0]["partitions"]
    partitions.append({**partitions[0], "partition": 1})
    answer = await client.call(ApiKey.FETCH, 12, **fields)
    first, second = answer.responses[0].partitions
    assert base_offsets(first) == [0, 1]
    assert base_offsets(second) == [0]
    partitions.reverse()
    answer = await client.call(ApiKey.FETCH, 12, **fields)
    first, second = answer.responses[0].partitions
    assert (first.partition_index, base_offsets(first)) == (1, [0, 1])
    assert base_offsets(second) == [0]
    # Nothing is left for the second one, which still says where it stands.
    fields["max_bytes"] = size
    _, second = (await client.call(ApiKey.FETCH, 12, **fields)).responses[0].partitions
    assert (bytes(second.records), second.high_watermark) == (b"", 3)


async def test_a_long_poll_ends_when_data_is_confirmed(
    cloud: FakeCloud, client: WireClient
) -> None:
    broker = cloud.brokers[1]
    await create_topic(broker)
    producer = await WireClient.connect(broker.port)
    ledgers = cloud.ledgers.clients[0]
    ledgers.hold_answers = True
    client.send(ApiKey.FETCH, 12, **fetch_fields(0, wait_ms=60_000))
    producer.send(ApiKey.PRODUCE, 9, **produce_fields(batch(b"a")))
    await breathe()
    with pytest.raises(TimeoutError):
        await client.receive_raw(0.02)
    ledgers.release()
    ledgers.hold_answers = False
    data = (await client.receive()).responses[0].partitions[0]
    assert base_offsets(data) == [0]
    await producer.close()


async def test_a_long_poll_gathers_min_bytes(
    broker: Broker, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = await create_topic(broker)
    producer = await WireClient.connect(broker.port)
    size = len(batch(b"a"))
    looks = []
    real = partition.on_high_watermark

    def counted(above: Offset, call: Callable[[], None], **how: bool) -> Callable[[], None]:
        looks.append(above)
        return real(above, call, **how)

    monkeypatch.setattr(partition, "on_high_watermark", counted)
    client.send(ApiKey.FETCH, 12, **fetch_fields(0, wait_ms=60_000, bytes_min=2 * size))
    await produce(producer, batch(b"a"))
    with pytest.raises(TimeoutError):
        await client.receive_raw(0.02)
    assert looks == [0, 1]
    await produce(producer, batch(b"b"))
    data = (await client.receive()).responses[0].partitions[0]
    assert base_offsets(data) == [0, 1]
    assert len(partition._waits) == 0
    await producer.close()


async def test_a_long_poll_ends_with_its_time(broker: Broker, client: WireClient) -> None:
    partition = await create_topic(broker)
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    data = await fetch(client, 0, wait_ms=50)
    assert loop.time() - begun_s >= 0.045
    assert (data.error_code, data.high_watermark) == (ErrorCode.none, 0)
    assert len(partition._waits) == 0


async def test_a_long_poll_ends_with_the_leadership(broker: Broker, client: WireClient) -> None:
    partition = await create_topic(broker)
    client.send(ApiKey.FETCH, 12, **fetch_fields(0, wait_ms=60_000))
    await breathe()
    partition.resign("test")
    data = (await client.receive()).responses[0].partitions[0]
    assert data.error_code is ErrorCode.not_leader_or_follower


async def test_a_long_poll_ends_with_the_connection(broker: Broker, client: WireClient) -> None:
    partition = await create_topic(broker)
    client.send(ApiKey.FETCH, 12, **fetch_fields(0, wait_ms=60_000))
    await breathe()
    assert len(partition._waits) == 1
    await client.close()
    await until(lambda: len(partition._waits) == 0)
    assert broker.server.in_flight_bytes == 0


async def test_a_long_poll_holds_back_what_follows(broker: Broker, client: WireClient) -> None:
    partition = await create_topic(broker)
    client.send(ApiKey.FETCH, 12, **fetch_fields(0, wait_ms=50))
    client.send(ApiKey.PRODUCE, 9, **produce_fields(batch(b"a")))
    await breathe()
    assert partition.log_end_offset == 0
    assert bytes((await client.receive()).responses[0].partitions[0].records) == b""
    assert (await client.receive()).responses[0].partition_responses[0].error_code == 0


async def test_errors_do_not_wait(broker: Broker, client: WireClient) -> None:
    await create_topic(broker)
    fields = fetch_fields(0, wait_ms=60_000)
    rows = fields["topics"][0]["partitions"]
    rows.append({**rows[0], "partition": 7})
    first, second = (await client.call(ApiKey.FETCH, 12, **fields)).responses[0].partitions
    assert (int(first.error_code), int(second.error_code)) == (0, 3)
    assert (second.high_watermark, second.log_start_offset) == (-1, -1)


async def test_offsets_out_of_range(broker: Broker, client: WireClient) -> None:
    partition = await create_topic(broker)
    for _ in range(3):
        await produce(client, batch(b"a"))
    for offset in (-1, 4, 1 << 40):
        data = await fetch(client, offset, wait_ms=60_000)
        assert data.error_code is ErrorCode.offset_out_of_range
        assert (data.high_watermark, data.log_start_offset) == (3, 0)
    answer = await client.call(
        ApiKey.DELETE_RECORDS, 2, timeout=1000,
        topics=[{"name": "t", "partitions": [{"partition_index": 0, "offset": 2}]}],
    )  # fmt: skip
    assert answer.topics[0].partitions[0].low_watermark == 2
    assert partition.log_start_offset == 2
    assert (await fetch(client, 1)).error_code is ErrorCode.offset_out_of_range
    assert base_offsets(await fetch(client, 2)) == [2]


@pytest.mark.parametrize("version", [4, 12])
async def test_isolation_levels_that_do_not_exist(
    broker: Broker, client: WireClient, version: int
) -> None:
    await create_topic(broker)
    for isolation in (2, -1):
        part = await fetch(client, 0, version=version, isolation=isolation)
        assert part.error_code == ErrorCode.invalid_request


async def test_leader_epochs_are_compared(broker: Broker, client: WireClient) -> None:
    partition = await create_topic(broker)
    epoch = partition.leader_epoch
    for known in (epoch, -1, -2):  # below 0: none is known
        assert (await fetch(client, 0, leader_epoch=known)).error_code is ErrorCode.none
    older = await fetch(client, 0, leader_epoch=epoch + 1)
    assert older.error_code is ErrorCode.unknown_leader_epoch
    partition.leader_epoch += 1  # type: ignore[assignment]
    newer = await fetch(client, 0, leader_epoch=epoch)
    assert newer.error_code is ErrorCode.fenced_leader_epoch


async def test_a_session_has_what_changed(broker: Broker, client: WireClient) -> None:
    await create_topic(broker, partition_count=2)
    fields = fetch_fields(0, session_epoch=0)
    rows = fields["topics"][0]["partitions"]
    rows.append({**rows[0], "partition": 1})
    full = await client.call(ApiKey.FETCH, 12, **fields)
    assert full.session_id
    assert len(full.responses[0].partitions) == 2
    inside = {"session_id": full.session_id}
    nothing = fetch_fields(0, **inside, session_epoch=1) | {"topics": []}
    answer = await client.call(ApiKey.FETCH, 12, **nothing)
    assert (answer.session_id, answer.responses) == (full.session_id, ())
    await produce(client, batch(b"a"), partition=1)
    answer = await client.call(ApiKey.FETCH, 12, **nothing | {"session_epoch": 2})
    (row,) = answer.responses[0].partitions
    assert (row.partition_index, base_offsets(row)) == (1, [0])
    again = await client.call(ApiKey.FETCH, 12, **nothing | {"session_epoch": 2})
    assert again.error_code is ErrorCode.invalid_fetch_session_epoch
    forgotten = [{"topic": "t", "partitions": [1]}]
    answer = await client.call(
        ApiKey.FETCH, 12, **nothing | {"session_epoch": 3, "forgotten_topics_data": forgotten}
    )
    assert answer.responses == ()
    leaving = await client.call(ApiKey.FETCH, 12, **fetch_fields(0, **inside))
    assert (leaving.session_id, leaving.error_code) == (0, ErrorCode.none)
    gone = await client.call(ApiKey.FETCH, 12, **nothing | {"session_epoch": 4})
    assert gone.error_code is ErrorCode.fetch_session_id_not_found
    assert len(broker.services.fetch_sessions) == 0


async def test_a_session_waits_for_any_of_its_partitions(
    broker: Broker, client: WireClient
) -> None:
    await create_topic(broker)
    full = await client.call(ApiKey.FETCH, 12, **fetch_fields(0, session_epoch=0))
    inside = fetch_fields(0, session_id=full.session_id, session_epoch=1, wait_ms=60_000)
    client.send(ApiKey.FETCH, 12, **inside | {"topics": []})
    await breathe()
    producer = await WireClient.connect(broker.port)
    await produce(producer, batch(b"a"))
    data = (await client.receive()).responses[0].partitions[0]
    assert base_offsets(data) == [0]
    await producer.close()


async def test_without_room_for_sessions_all_are_declined(cloud: FakeCloud) -> None:
    broker = await cloud.start_broker(1, fetch_sessions_max=0)
    client = await WireClient.connect(broker.port)
    await create_topic(broker)
    full = await client.call(ApiKey.FETCH, 12, **fetch_fields(0, session_epoch=0))
    assert (full.session_id, full.error_code) == (0, ErrorCode.none)
    await client.close()


def by_id(fields: dict[str, Any], topic_id: UUID) -> dict[str, Any]:
    (topic,) = fields["topics"]
    return fields | {"topics": [{"topic_id": topic_id, "partitions": topic["partitions"]}]}


@pytest.mark.parametrize("version", range(13, 19))
async def test_topics_by_id(broker: Broker, client: WireClient, version: int) -> None:
    partition = await create_topic(broker)
    await produce(client, batch(b"a"))
    topic_id = partition.topic.topic_id
    fields = by_id(fetch_fields(0, session_epoch=0), topic_id)
    answer = await client.call(ApiKey.FETCH, version, **fields)
    (topic,) = answer.responses
    assert topic.topic_id == topic_id
    assert base_offsets(topic.partitions[0]) == [0]
    inside = {"session_id": answer.session_id, "session_epoch": 1}
    mixed = await client.call(ApiKey.FETCH, 12, **fetch_fields(0, **inside))
    assert mixed.error_code is ErrorCode.fetch_session_topic_id_error
    unknown = UUID(int=7)
    answer = await client.call(ApiKey.FETCH, version, **by_id(fetch_fields(0), unknown))
    (topic,) = answer.responses
    assert topic.topic_id == unknown
    assert topic.partitions[0].error_code is ErrorCode.unknown_topic_id


async def test_a_new_leader_comes_with_its_address(cloud: FakeCloud, client: WireClient) -> None:
    broker = cloud.brokers[1]
    other = await cloud.start_broker(2)
    topic = await broker.topics.create("t", 4)
    await until(lambda: any(other.partitions.find("t", index) for index in range(4)))
    index = next(one for one in range(4) if other.partitions.find("t", one))
    await until(lambda: broker.partitions.find("t", index) is None)
    fields = by_id(fetch_fields(0, partition=index), topic.topic_id)
    answer = await client.call(ApiKey.FETCH, 16, **fields)
    row = answer.responses[0].partitions[0]
    assert row.error_code is ErrorCode.not_leader_or_follower
    assert row.current_leader.leader_id == 2
    assert [(one.node_id, one.port) for one in answer.node_endpoints] == [(2, other.port)]


async def test_a_fetch_of_nothing_returns_at_once(broker: Broker, client: WireClient) -> None:
    fields = fetch_fields(0, wait_ms=60_000)
    fields["topics"] = []
    assert (await client.call(ApiKey.FETCH, 12, **fields)).responses == ()


async def test_old_clients_are_not_sent_zstd(broker: Broker, client: WireClient) -> None:
    await create_topic(broker)
    await produce(client, batch(b"a"))
    await produce(client, batch(b"a", codec=Codec.ZSTD))
    old = await fetch(client, 0, version=9)
    assert old.error_code is ErrorCode.unsupported_compression_type
    assert base_offsets(await fetch(client, 0, version=10)) == [0, 1]


class TestFromBookies:
    """Records that are not in memory any more."""

    @pytest.fixture
    async def broker(self, cloud: FakeCloud) -> Broker:
        return await cloud.start_broker(1, tail_cache_bytes_max=0)

    async def test_old_records_are_read(self, cloud: FakeCloud, client: WireClient) -> None:
        await create_topic(cloud.brokers[1])
        for _ in range(3):
            await produce(client, batch(b"a"))
        before = cloud.ledgers.read_count
        data = await fetch(client, 1, wait_ms=60_000, bytes_min=1 << 19)
        assert base_offsets(data) == [1, 2]
        assert cloud.ledgers.read_count > before
        assert cloud.brokers[1].services.reading.taken == 0

    async def test_a_budget_bounds_what_is_read_at_once(
        self, cloud: FakeCloud, client: WireClient
    ) -> None:
        await create_topic(cloud.brokers[1], partition_count=2)
        for partition in (0, 1):
            await produce(client, batch(b"a"), partition=partition)
        cloud.brokers[1].services.reading.bytes_max = 10
        fields = fetch_fields(0, bytes_max=8 << 20)
        rows = fields["topics"][0]["partitions"]
        rows.append({**rows[0], "partition": 1})
        first, second = (await client.call(ApiKey.FETCH, 12, **fields)).responses[0].partitions
        assert base_offsets(first) == [0]
        assert (int(second.error_code), bytes(second.records)) == (0, b"")

    async def test_an_answer_that_waits_for_its_turn_is_held_and_who_wants_more_waits(
        self, cloud: FakeCloud, client: WireClient
    ) -> None:
        broker = cloud.brokers[1]
        await create_topic(broker)
        await produce(client, batch(b"x" * 10_000))
        reading = broker.services.reading
        reading.bytes_max = 15_000
        cloud.ledgers.clients[0].hold_answers = True
        client.send(ApiKey.PRODUCE, 9, **produce_fields(batch(b"a")))
        client.send(ApiKey.FETCH, 12, **fetch_fields(0))
        await until(lambda: broker.metrics.fetched_bytes > 10_000)
        assert reading.taken > 10_000, "the answer is behind that of the produce"
        other = await WireClient.connect(broker.port)
        other.send(ApiKey.FETCH, 12, **fetch_fields(0))
        await breathe()
        assert broker.metrics.fetched_bytes < 20_000
        await client.close()
        assert base_offsets((await other.receive()).responses[0].partitions[0]) == [0]
        await until(lambda: not reading.taken)
        cloud.ledgers.clients[0].release()
        await other.close()

    async def test_a_failed_read_is_an_error_of_its_partition(
        self, cloud: FakeCloud, client: WireClient
    ) -> None:
        await create_topic(cloud.brokers[1])
        await produce(client, batch(b"a"))
        cloud.ledgers.fail_next("read", ReadFailed("no bookie"))
        data = await fetch(client, 0, wait_ms=60_000)
        assert data.error_code is ErrorCode.kafka_storage_error
        assert base_offsets(await fetch(client, 0)) == [0]

    async def test_a_lost_connection_stops_the_reading(
        self, cloud: FakeCloud, client: WireClient
    ) -> None:
        await create_topic(cloud.brokers[1])
        await produce(client, batch(b"a"))
        gate = cloud.ledgers.stop_at("read")
        client.send(ApiKey.FETCH, 12, **fetch_fields(0))
        await until(lambda: cloud.brokers[1].services.reading.taken > 0)
        await client.close()
        await until(lambda: cloud.brokers[1].services.reading.taken == 0)
        gate.set()


@pytest.mark.parametrize(
    ("own", "said", "relation"),
    [("a", "a", "same"), ("a", "b", "other"), ("a", "", "unknown"), (None, "a", "unknown")],
)
async def test_bytes_are_counted_by_the_rack_of_who_gets_them(
    cloud: FakeCloud, own: str | None, said: str, relation: str
) -> None:
    broker = await cloud.start_broker(1, rack=own)
    await create_topic(broker)
    client = await WireClient.connect(broker.port)
    await produce(client, batch(b"a", b"b"))
    data = await fetch(client, 0, rack=said)
    await client.close()
    name = "quire_broker_fetched_rack_bytes_total"
    found = parse(broker.metrics.exposition())
    assert {key: size for key, size in found.items() if key.startswith(name)} == {
        f'{name}{{rack="{one}"}}': len(data.records) * (one == relation)
        for one in ("same", "other", "unknown")
    }
