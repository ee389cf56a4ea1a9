"""Produce, Fetch, ListOffsets and DescribeProducers where there are transactions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.app import Broker
from broker.errors import CoordinatorLoading, TransactionAbortable
from broker.partition.partition import Partition
from client.ids import ProducerId
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.batches.control_batch import Marker, build_marker
from client.wire.kafka.batches.records import headers
from tests.fakes.broker import until
from tests.fakes.transactions import FakeVerifier, end
from tests.fakes.wire_client import WireClient
from tests.unit.broker.front.handlers.requests import (
    NOW_MS,
    batch,
    breathe,
    create_topic,
    fetch,
    fetch_fields,
    produce,
    produce_fields,
)


@pytest.fixture
def verifier(broker: Broker) -> FakeVerifier:
    made = FakeVerifier()
    broker.log_services.coordinators.verifier = made
    return made


@pytest.fixture
async def partition(broker: Broker, verifier: FakeVerifier) -> Partition:
    return await create_topic(broker)


def data(pid: int = 1, *, epoch: int = 0, sequence: int = 0) -> bytes:
    return batch(
        b"x",
        producer_id=ProducerId(pid),
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
    )


async def write(client: WireClient, records: bytes, version: int = 9, **more: Any) -> Any:
    fields = {**produce_fields(records, **more), "transactional_id": "tx"}
    answer = await client.call(ApiKey.PRODUCE, version, **fields)
    return answer.responses[0].partition_responses[0]


def base_offsets(answer: Any) -> list[int]:
    return [header.base_offset for _, header in headers(bytes(answer.records))]


def aborted(answer: Any) -> list[tuple[int, int]]:
    return [(one.producer_id, one.first_offset) for one in answer.aborted_transactions]


@pytest.mark.parametrize("version", range(3, 12))
async def test_a_batch_of_a_transaction_is_stored_when_its_coordinator_vouches_for_it(
    partition: Partition, client: WireClient, verifier: FakeVerifier, version: int
) -> None:
    row = await write(client, data(), version)
    assert (row.error_code, row.base_offset) == (ErrorCode.none, 0)
    (asked,) = verifier.asked
    assert (asked.transactional_id, asked.is_tv2) == ("tx", False)


@pytest.mark.parametrize("version", [12, 13])
async def test_a_producer_of_the_second_generation_adds_the_partition_by_writing_to_it(
    partition: Partition, client: WireClient, verifier: FakeVerifier, version: int
) -> None:
    """Also where it names the topic by its id, as the Java client does."""
    named = {"topic_id": partition.topic.topic_id} if version >= 13 else {}
    row = await write(client, data(), version, **named)
    assert (row.error_code, row.base_offset) == (ErrorCode.none, 0)
    (asked,) = verifier.asked
    assert (asked.transactional_id, asked.is_tv2) == ("tx", True)


async def test_without_coordinators_it_is_refused(broker: Broker, client: WireClient) -> None:
    await create_topic(broker)
    broker.log_services.coordinators.verifier = None
    for row in (await write(client, data()), await produce(client, data())):
        assert row.error_code is ErrorCode.invalid_txn_state


async def test_without_a_transactional_id_it_is_refused(
    partition: Partition, client: WireClient
) -> None:
    assert (await produce(client, data())).error_code is ErrorCode.invalid_txn_state


async def test_what_is_no_transactional_batch_is_judged_as_ever(
    partition: Partition, client: WireClient, verifier: FakeVerifier
) -> None:
    assert (await write(client, batch(b"plain"))).error_code is ErrorCode.none
    assert (await write(client, b"short")).error_code is ErrorCode.invalid_record
    assert verifier.asked == []


async def test_a_client_may_not_write_markers(
    partition: Partition, client: WireClient, verifier: FakeVerifier
) -> None:
    await write(client, data())
    marker = build_marker(Marker(ProducerId(1), 0, True, 9), NOW_MS)
    assert (await write(client, marker)).error_code is ErrorCode.invalid_record
    assert partition.last_stable_offset == 0


@pytest.mark.parametrize(
    ("version", "code"), [(10, "invalid_txn_state"), (11, "transaction_abortable")]
)
async def test_old_clients_are_not_told_what_they_do_not_know(
    partition: Partition, client: WireClient, verifier: FakeVerifier, version: int, code: str
) -> None:
    verifier.refuse(TransactionAbortable("x"))
    assert (await write(client, data(), version)).error_code.name == code


async def test_a_coordinator_that_cannot_say_lets_the_client_send_again(
    partition: Partition, client: WireClient, verifier: FakeVerifier
) -> None:
    verifier.refuse(CoordinatorLoading("x"))
    assert (await write(client, data())).error_code is ErrorCode.not_enough_replicas
    verifier.vouch()
    assert (await write(client, data())).error_code is ErrorCode.none


async def test_the_answer_waits_no_longer_than_the_client_does(
    partition: Partition, client: WireClient, verifier: FakeVerifier
) -> None:
    gate = verifier.hold()
    fields = {**produce_fields(data(), timeout_ms=20), "transactional_id": "tx"}
    answer = await client.call(ApiKey.PRODUCE, 9, **fields)
    assert answer.responses[0].partition_responses[0].error_code is ErrorCode.request_timed_out
    gate.set()
    await until(lambda: partition.log_end_offset == 1)
    assert (await write(client, data())).base_offset == 0, "it was stored after all, once"


# --- Fetch --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4, 18))
async def test_committed_consumers_get_what_is_decided_and_are_told_what_to_pass_over(
    partition: Partition, client: WireClient, version: int
) -> None:
    named = {"topic_id": partition.topic.topic_id} if version >= 13 else {}
    await write(client, data(1))
    await write(client, data(2))
    await write(client, data(1, sequence=1))
    await end(partition, 1, commit=False)
    answer = await fetch(client, 0, version=version, **named)
    assert base_offsets(answer) == [0, 1, 2, 3]
    assert answer.aborted_transactions is None
    answer = await fetch(client, 0, version=version, **named, isolation=1)
    assert base_offsets(answer) == [0]
    assert (answer.high_watermark, answer.last_stable_offset) == (4, 1)
    assert aborted(answer) == [(1, 0)]
    await end(partition, 2, commit=False)
    answer = await fetch(client, 0, version=version, **named, isolation=1)
    assert base_offsets(answer) == [0, 1, 2, 3, 4]
    assert (answer.high_watermark, answer.last_stable_offset) == (5, 5)
    assert aborted(answer) == [(1, 0), (2, 1)]
    assert aborted(await fetch(client, 4, version=version, **named, isolation=1)) == [(2, 1)]
    assert aborted(await fetch(client, 5, version=version, **named, isolation=1)) == []


async def test_the_list_is_of_the_records_that_come_with_it(
    partition: Partition, client: WireClient
) -> None:
    for pid in (1, 2):
        await write(client, data(pid))
        await end(partition, pid, commit=False)
    answer = await fetch(client, 0, isolation=1, partition_bytes_max=len(data()))
    assert base_offsets(answer) == [0]
    assert aborted(answer) == [(1, 0)]
    answer = await fetch(client, 2, isolation=1)
    assert base_offsets(answer) == [2, 3]
    assert aborted(answer) == [(2, 2)], "the first one's marker is before: it would hide the next"


async def test_a_committed_consumer_waits_for_the_marker_not_for_data(
    partition: Partition, client: WireClient
) -> None:
    other = await WireClient.connect(client._writer.get_extra_info("peername")[1])
    await write(client, data())
    client.send(ApiKey.FETCH, 12, **fetch_fields(0, wait_ms=5_000, isolation=1))
    waiting = asyncio.create_task(client.receive())
    await until(lambda: len(partition._waits) == 1)
    assert len(partition._waits.stable) == 1
    await write(other, data(sequence=1))
    await breathe()
    assert not waiting.done(), "what is undecided does not wake it"
    await end(partition, commit=False)
    answer = (await waiting).responses[0].partitions[0]
    assert base_offsets(answer) == [0, 1, 2]
    assert aborted(answer) == [(1, 0)], "of the same moment as the records"
    assert len(partition._waits) == 0
    await other.close()


# --- ListOffsets, DeleteRecords, DescribeProducers ----------------------------------------------


async def test_offsets_of_committed_consumers_end_at_the_last_stable_one(
    partition: Partition, client: WireClient
) -> None:
    await produce(client, batch(b"plain"))
    await write(client, data())
    for isolation, expected in ((0, (2, 0)), (1, (1, 0))):
        for asked, found in zip((-1, NOW_MS), expected, strict=True):
            assert await listed(client, asked, isolation) == found
    await end(partition)
    assert await listed(client, -1, 1) == 3


async def test_a_time_that_only_undecided_records_reach_has_no_offset(
    partition: Partition, client: WireClient
) -> None:
    await write(client, data())
    for asked in (NOW_MS, -3):
        assert await listed(client, asked, 0) == 0
        assert await listed(client, asked, 1) == -1
    await end(partition)
    assert await listed(client, NOW_MS, 1) == 0


async def listed(client: WireClient, timestamp: int, isolation: int) -> int:
    row = {"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1}
    topic = {"name": "t", "partitions": [row]}
    answer = await client.call(
        ApiKey.LIST_OFFSETS, 8, replica_id=-1, isolation_level=isolation, topics=[topic]
    )
    return int(answer.topics[0].partitions[0].offset)


async def test_records_of_an_open_transaction_may_be_deleted(
    partition: Partition, client: WireClient
) -> None:
    await write(client, data())
    await write(client, data(sequence=1))
    assert await partition.changes.delete_records(partition.high_watermark) == 2
    assert partition.last_stable_offset == partition.log_start_offset == 2
    await write(client, data(sequence=2))
    assert partition.last_stable_offset == 2
    await end(partition, commit=False)
    assert partition.last_stable_offset == 4
    answer = await fetch(client, 2, isolation=1)
    assert base_offsets(answer) == [2, 3]
    assert aborted(answer) == [(1, 0)]


async def test_producers_are_described(partition: Partition, client: WireClient) -> None:
    await produce(client, batch(b"x", producer_id=ProducerId(7), producer_epoch=3, base_sequence=0))
    await end(partition, 2, epoch=1, coordinator=4)
    await write(client, data(1))
    topics = [
        {"name": "t", "partition_indexes": [0, 9]},
        {"name": "none", "partition_indexes": [0]},
    ]
    answer = await client.call(ApiKey.DESCRIBE_PRODUCERS, 0, topics=topics)
    known, missing = answer.topics[0].partitions
    rows = [
        (
            one.producer_id, one.producer_epoch, one.last_sequence, one.coordinator_epoch,
            one.current_txn_start_offset,
        )
        for one in known.active_producers
    ]  # fmt: skip
    assert rows == [(7, 3, 0, -1, -1), (2, 1, -1, 4, -1), (1, 0, 0, -1, 2)]
    assert all(one.last_timestamp > 0 for one in known.active_producers)
    assert (known.error_code, known.error_message) == (ErrorCode.none, None)
    for row in (missing, answer.topics[1].partitions[0]):
        assert row.error_code is ErrorCode.unknown_topic_or_partition
        assert row.error_message
        assert row.active_producers == ()
