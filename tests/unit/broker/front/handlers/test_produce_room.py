"""Produce to a partition that has reached its limit: the connection waits, in order."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.app import Broker
from broker.partition.partition import Partition
from client.ledger.config import LedgerClientConfig
from client.wire.kafka.apis import ApiKey
from tests.fakes.broker import FakeCloud, until
from tests.fakes.wire_client import WireClient
from tests.unit.broker.front.handlers.requests import batch, breathe, create_topic, produce_fields

_MIB = 1 << 20
LARGE = b"x" * 400_000
"""Two of these fit into a partition, a third one does not."""


async def full(cloud: FakeCloud, **settings: Any) -> tuple[Broker, Partition]:
    """Start a broker whose only partition holds one MiB, and whose bookies answer nothing."""
    broker = await cloud.start_broker(
        1,
        log_in_flight_bytes_max=_MIB,
        ledger=LedgerClientConfig(writer_in_flight_bytes_max=_MIB),
        **settings,
    )
    partition = await create_topic(broker)
    await until(lambda: not partition.usage.in_flight_bytes)
    cloud.ledgers.clients[0].hold_answers = True
    return broker, partition


def send(client: WireClient, *values: bytes, timeout_ms: int = 60_000, **fields: Any) -> None:
    records = batch(*values, **fields)
    client.send(ApiKey.PRODUCE, 9, **produce_fields(records, timeout_ms=timeout_ms))


async def outcome(client: WireClient) -> tuple[ErrorCode, int]:
    answer = (await client.receive()).responses[0].partition_responses[0]
    return answer.error_code, answer.base_offset


def confirm(cloud: FakeCloud) -> None:
    cloud.ledgers.clients[0].release()


async def test_what_finds_no_room_waits_with_all_behind_it_and_nothing_overtakes(
    cloud: FakeCloud,
) -> None:
    broker, partition = await full(cloud)
    client, other = [await WireClient.connect(broker.port) for _ in range(2)]
    for value in (LARGE, LARGE, LARGE, b"small"):
        send(client, value)
    await until(lambda: partition.log_end_offset == 2)
    send(other, b"another small one")
    await breathe()
    assert partition.log_end_offset == 2, "it would fit, but others were first"
    assert broker.server._connections
    held = [each for each in broker.server._connections if each.pause.is_muted]
    assert len(held) == 2
    assert any(not each.is_reading for each in held), "and it is not read any further"
    confirm(cloud)
    assert [await outcome(client) for _ in range(4)] == [
        (ErrorCode.none, offset) for offset in (0, 1, 2, 4)
    ]
    assert await outcome(other) == (ErrorCode.none, 3), "it came before the last one was begun"
    await until(lambda: all(each.is_reading for each in broker.server._connections))
    assert broker.server.in_flight_bytes == 0
    await client.close()
    await other.close()


async def test_a_batch_larger_than_the_limit_goes_alone(cloud: FakeCloud) -> None:
    broker, partition = await full(cloud)
    object.__setattr__(partition._services.limits, "in_flight_bytes_max", 1000)
    client = await WireClient.connect(broker.port)
    send(client, LARGE)
    send(client, LARGE)
    await breathe()
    assert partition.log_end_offset == 1
    confirm(cloud)
    assert [await outcome(client) for _ in range(2)] == [(ErrorCode.none, 0), (ErrorCode.none, 1)]
    await client.close()


async def test_who_waits_in_vain_may_try_again_and_nothing_was_applied(cloud: FakeCloud) -> None:
    broker, partition = await full(cloud)
    client = await WireClient.connect(broker.port)
    fields = {"producer_id": 7, "producer_epoch": 0}
    for sequence in range(2):
        send(client, LARGE, **fields, base_sequence=sequence)
    for sequence in (2, 3):
        send(client, LARGE, timeout_ms=300, **fields, base_sequence=sequence)
    await until(lambda: partition.log_end_offset == 2)
    deadlines = broker.services.deadlines
    await until(lambda: len(deadlines) == 3)  # a connection waits with one request at a time
    await until(lambda: len(deadlines) == 2)
    assert partition.log_end_offset == 2
    confirm(cloud)
    assert [await outcome(client) for _ in range(4)] == [
        (ErrorCode.none, 0),
        (ErrorCode.none, 1),
        (ErrorCode.not_enough_replicas, -1),
        (ErrorCode.not_enough_replicas, -1),
    ]
    for sequence in (2, 3):
        send(client, LARGE, **fields, base_sequence=sequence)
        assert await outcome(client) == (ErrorCode.none, sequence)
    await client.close()


async def test_who_goes_away_while_waiting_leaves_nothing_behind(cloud: FakeCloud) -> None:
    broker, partition = await full(cloud)
    client, other = [await WireClient.connect(broker.port) for _ in range(2)]
    for _ in range(3):
        send(client, LARGE)
    await until(lambda: partition.log_end_offset == 2)
    await breathe()
    send(other, b"small")
    await breathe()
    assert len(partition.admission._waits) == 2
    await client.close()
    await until(lambda: partition.log_end_offset == 3)
    confirm(cloud)
    assert await outcome(other) == (ErrorCode.none, 2)
    assert partition.high_watermark == 3
    assert not len(broker.services.deadlines)
    await other.close()


@pytest.mark.parametrize("acks", [-1, 0])
async def test_the_end_of_the_leadership_ends_the_waiting(cloud: FakeCloud, acks: int) -> None:
    broker, partition = await full(cloud)
    client = await WireClient.connect(broker.port)
    for _ in range(2):
        send(client, LARGE)
    await until(lambda: partition.log_end_offset == 2)
    client.send(ApiKey.PRODUCE, 9, **produce_fields(batch(LARGE), acks=acks, timeout_ms=60_000))
    await breathe()
    partition.resign("test")
    if acks:
        for _ in range(3):
            code, _ = await outcome(client)
            assert code is ErrorCode.not_leader_or_follower
        await client.close()
    else:
        client.forget_last()
        for _ in range(2):
            assert (await outcome(client))[0] is ErrorCode.not_leader_or_follower
        assert await client.is_closed()


async def test_other_partitions_of_a_request_wait_behind_the_full_one(cloud: FakeCloud) -> None:
    broker, first = await full(cloud)
    second = await create_topic_beside(cloud, broker)
    client = await WireClient.connect(broker.port)
    for _ in range(2):
        send(client, LARGE)
    await until(lambda: first.log_end_offset == 2)
    data = [
        {"name": name, "partition_data": [{"index": 0, "records": records}]}
        for name, records in (("u", batch(b"a")), ("t", batch(LARGE)), ("u", batch(b"b")))
    ]
    fields = {**produce_fields(b"", timeout_ms=60_000), "topic_data": data}
    client.send(ApiKey.PRODUCE, 9, **fields)
    await breathe()
    assert (first.log_end_offset, second.log_end_offset) == (2, 1)
    confirm(cloud)
    for offset in (0, 1):
        assert await outcome(client) == (ErrorCode.none, offset)
    rows = [topic.partition_responses[0] for topic in (await client.receive()).responses]
    assert [(row.error_code, row.base_offset) for row in rows] == [
        (ErrorCode.none, 0),
        (ErrorCode.none, 2),
        (ErrorCode.none, 1),
    ]
    await client.close()


async def create_topic_beside(cloud: FakeCloud, broker: Broker) -> Partition:
    """Create topic `u` while answers are held."""
    cloud.ledgers.clients[0].release()
    partition = await create_topic(broker, "u")
    await until(lambda: not partition.usage.in_flight_bytes)
    cloud.ledgers.clients[0].hold_answers = True
    return partition


def two_topics(unknown: str) -> dict[str, Any]:
    fields = produce_fields(batch(b"harmful"))
    fields["topic_data"] += produce_fields(batch(b"lost"), topic=unknown)["topic_data"]
    return fields


async def test_a_refusal_that_repeats_a_long_name_can_be_encoded(cloud: FakeCloud) -> None:
    broker, _ = await full(cloud)
    client, other = [await WireClient.connect(broker.port) for _ in range(2)]
    client.send(ApiKey.PRODUCE, 8, **two_topics("n" * 32_760))
    send(other, b"honest")
    await breathe()
    confirm(cloud)
    stored, refused = (await client.receive()).responses
    assert stored.partition_responses[0].error_code == ErrorCode.none
    assert refused.partition_responses[0].error_code == ErrorCode.unknown_topic_or_partition
    assert len(refused.partition_responses[0].error_message) < 2000
    assert await outcome(other) == (ErrorCode.none, 1)
    await client.close()
    await other.close()


async def test_an_answer_that_cannot_be_encoded_costs_its_own_connection_only(
    cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, partition = await full(cloud)
    client, other = [await WireClient.connect(broker.port) for _ in range(2)]
    monkeypatch.setattr("broker.front.handlers.produce.message_of", lambda _: "x" * 40_000)
    client.send(ApiKey.PRODUCE, 8, **two_topics("unknown"))
    await until(lambda: partition.log_end_offset == 1)
    send(other, b"honest")
    await until(lambda: partition.log_end_offset == 2)
    confirm(cloud)
    assert await client.is_closed()
    assert await outcome(other) == (ErrorCode.none, 1)
    assert broker.metrics.request_failures == {ApiKey.PRODUCE: 1}
    assert partition.is_open
    await other.close()


async def test_a_burst_goes_on_into_a_full_segment_by_a_tenth_only(cloud: FakeCloud) -> None:
    """While the next ledger is created, appends wait instead of making the segment larger."""
    broker = await cloud.start_broker(1, log_in_flight_bytes_max=64 * _MIB)
    partition = await create_topic(broker, config={"segment.bytes": str(_MIB)})
    client = await WireClient.connect(broker.port)
    sent, size = 60, 100_000
    created = cloud.ledgers.stop_at("create")
    for _ in range(sent):
        send(client, b"x" * size)
    for _ in range(10):
        await breathe()
    created.set()
    rows = [await outcome(client) for _ in range(sent)]
    assert rows == [(ErrorCode.none, offset) for offset in range(sent)]
    sizes = [one.facts.size_bytes for one in partition._leader.segments.segments if one.facts]
    assert len(sizes) >= 4
    assert max(sizes) <= 1.1 * _MIB + size + 10_000, sizes
    await client.close()
