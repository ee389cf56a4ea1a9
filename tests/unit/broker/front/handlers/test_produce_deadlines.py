"""Produce requests whose time ends: the answer is "unknown", and nothing else changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.app import Broker
from broker.front.deadlines import Deadlines
from broker.partition.partition import Partition
from client.ledger.config import LedgerClientConfig
from client.wire.kafka.apis import ApiKey
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

_MIB = 1 << 20
LARGE = b"x" * 700_000
"""One of these fits into a partition that holds one MiB, a second one does not."""
PRODUCER: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}


async def held(cloud: FakeCloud, **settings: Any) -> tuple[Broker, Partition]:
    """Start a broker whose bookies answer nothing from now on."""
    broker = await cloud.start_broker(1, **settings)
    partition = await create_topic(broker)
    await until(lambda: not partition.usage.in_flight_bytes)
    cloud.ledgers.clients[0].hold_answers = True
    return broker, partition


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.front.deadlines.INTERVAL_S", 0.01)


async def test_a_timed_out_append_may_be_confirmed_later_and_its_retry_is_a_duplicate(
    cloud: FakeCloud,
) -> None:
    broker, partition = await held(cloud)
    epoch = partition.leader_epoch
    client = await WireClient.connect(broker.port)
    records = batch(b"a", **PRODUCER, base_sequence=0)
    answer = await produce(client, records, timeout_ms=1)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.request_timed_out, -1)
    assert partition.is_open
    assert partition.log_end_offset == 1
    assert partition.high_watermark == 0
    cloud.ledgers.clients[0].release()
    await until(lambda: partition.high_watermark == 1)
    answer = await produce(client, records)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.none, 0)
    answer = await produce(client, batch(b"b", **PRODUCER, base_sequence=1))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.none, 1)
    assert partition.log_end_offset == 2
    assert partition.leader_epoch == epoch
    await client.close()


async def test_a_retry_of_what_is_still_under_way_waits_with_it(cloud: FakeCloud) -> None:
    broker, partition = await held(cloud)
    client, other = [await WireClient.connect(broker.port) for _ in range(2)]
    records = batch(b"a", **PRODUCER, base_sequence=0)
    for each in (client, other):
        answer = await produce(each, records, timeout_ms=1)
        assert answer.error_code is ErrorCode.request_timed_out
    other.send(ApiKey.PRODUCE, 9, **produce_fields(records, timeout_ms=60_000))
    await breathe()
    assert partition.log_end_offset == 1
    cloud.ledgers.clients[0].release()
    answer = (await other.receive()).responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (ErrorCode.none, 0)
    await client.close()
    await other.close()


async def test_what_follows_a_timed_out_append_is_accepted_behind_it(cloud: FakeCloud) -> None:
    broker, partition = await held(cloud)
    client, other = [await WireClient.connect(broker.port) for _ in range(2)]
    other.send(ApiKey.PRODUCE, 9, **produce_fields(batch(b"other"), timeout_ms=60_000))
    await until(lambda: partition.log_end_offset == 1)
    answer = await produce(client, batch(b"a", **PRODUCER, base_sequence=0), timeout_ms=1)
    assert answer.error_code is ErrorCode.request_timed_out
    client.send(ApiKey.PRODUCE, 9, **produce_fields(batch(b"b", **PRODUCER, base_sequence=1)))
    await until(lambda: partition.log_end_offset == 3)
    cloud.ledgers.clients[0].release()
    for each, offset in ((other, 0), (client, 2)):
        answer = (await each.receive()).responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (ErrorCode.none, offset)
        await each.close()


async def test_a_timed_out_append_whose_leadership_ends_is_not_answered_twice(
    cloud: FakeCloud,
) -> None:
    broker, partition = await held(cloud)
    client = await WireClient.connect(broker.port)
    answer = await produce(client, batch(b"a"), timeout_ms=1)
    assert answer.error_code is ErrorCode.request_timed_out
    partition.resign("test")
    cloud.ledgers.clients[0].release()
    await until(lambda: broker.partitions.find("t", 0) is not None)
    answer = await produce(client, batch(b"b"))
    assert answer.error_code is ErrorCode.none
    await client.close()


@pytest.mark.parametrize("size", [10, len(LARGE)])
async def test_slow_bookies_cost_a_sender_without_acks_neither_records_nor_its_connection(
    cloud: FakeCloud, size: int
) -> None:
    """The larger ones find no room, too: the second one waits for the first."""
    broker, partition = await held(
        cloud,
        log_in_flight_bytes_max=_MIB,
        ledger=LedgerClientConfig(writer_in_flight_bytes_max=_MIB),
    )
    client, other = [await WireClient.connect(broker.port) for _ in range(2)]
    for _ in range(2):
        client.send(ApiKey.PRODUCE, 9, **produce_fields(batch(b"x" * size), acks=0, timeout_ms=1))
        client.forget_last()
    await until(lambda: partition.log_end_offset >= 1)
    answer = await produce(other, batch(b"a"), timeout_ms=1)
    assert answer.error_code in (ErrorCode.request_timed_out, ErrorCode.not_enough_replicas)
    cloud.ledgers.clients[0].release()
    answer = await produce(client, batch(b"y"))
    assert answer.error_code is ErrorCode.none
    assert answer.base_offset == partition.high_watermark - 1
    assert partition.high_watermark >= 3
    await client.close()
    await other.close()


async def test_a_broker_that_closes_tells_everybody_who_waits_at_once(cloud: FakeCloud) -> None:
    broker, partition = await held(
        cloud,
        log_in_flight_bytes_max=_MIB,
        ledger=LedgerClientConfig(writer_in_flight_bytes_max=_MIB),
        shutdown_timeout_ms=60_000,
    )
    under_way, waiting, asking = [await WireClient.connect(broker.port) for _ in range(3)]
    under_way.send(ApiKey.PRODUCE, 9, **produce_fields(batch(LARGE), timeout_ms=60_000))
    await until(lambda: partition.log_end_offset == 1)
    waiting.send(ApiKey.PRODUCE, 9, **produce_fields(batch(LARGE), timeout_ms=60_000))
    asking.send(ApiKey.FETCH, 12, **fetch_fields(0, wait_ms=60_000))
    await until(lambda: len(partition.admission._waits) == 1)
    closing = asyncio.ensure_future(broker.close())
    # Who waits for room hears of it before the bookies have answered, and so does who comes now.
    answer = (await waiting.receive()).responses[0].partition_responses[0]
    assert answer.error_code is ErrorCode.not_leader_or_follower
    answer = await produce(waiting, batch(b"late"))
    assert answer.error_code is ErrorCode.not_leader_or_follower
    assert not closing.done()
    cloud.ledgers.clients[0].release()
    # What is confirmed in time is acknowledged, and who waits for records gets them.
    answer = (await under_way.receive()).responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (ErrorCode.none, 0)
    read = (await asking.receive()).responses[0].partitions[0]
    assert read.error_code in (ErrorCode.none, ErrorCode.not_leader_or_follower)
    await closing
    for each in (under_way, waiting, asking):
        assert await each.is_closed()


async def test_the_time_of_a_request_runs_from_its_arrival(
    cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeouts_s: list[float] = []
    original = Deadlines.after

    def after(self: Deadlines, timeout_s: float, call: Callable[[], None]) -> int:
        timeouts_s.append(timeout_s)
        return original(self, timeout_s, call)

    monkeypatch.setattr(Deadlines, "after", after)
    broker, _ = await held(
        cloud,
        log_in_flight_bytes_max=_MIB,
        ledger=LedgerClientConfig(writer_in_flight_bytes_max=_MIB),
    )
    client = await WireClient.connect(broker.port)
    for size, timeout_ms in ((700_000, 60_000), (700_000, 300), (1, 200)):
        fields = produce_fields(batch(b"x" * size), timeout_ms=timeout_ms)
        client.send(ApiKey.PRODUCE, 9, **fields)
    await until(lambda: len(timeouts_s) == 3)
    # The last one waited behind the second one, and for longer than it had.
    assert timeouts_s[2] == 0.001
    assert 50.0 < timeouts_s[0] <= 60.0
    cloud.ledgers.clients[0].release()
    await client.close()
