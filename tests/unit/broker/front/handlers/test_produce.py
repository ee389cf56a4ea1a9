"""Produce: order, acknowledgement, refusals and what a client learns from them."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from broker.app import Broker
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.batches.records import Codec, Record, build_batch
from tests.fakes.broker import FakeCloud, until
from tests.fakes.wire_client import WireClient
from tests.unit.broker.front.handlers.requests import (
    NOW_MS,
    batch,
    breathe,
    create_topic,
    fetch,
    produce,
    produce_fields,
)


@pytest.mark.parametrize("version", range(3, 13))
@pytest.mark.parametrize("acks", [1, -1])
async def test_a_batch_is_stored_and_acknowledged(
    broker: Broker, client: WireClient, version: int, acks: int
) -> None:
    partition = await create_topic(broker)
    for base_offset in (0, 2):
        answer = await produce(client, batch(b"a", b"b"), version=version, acks=acks)
        assert answer.error_code is ErrorCode.none
        assert answer.base_offset == base_offset
        assert answer.log_append_time is None
        assert getattr(answer, "log_start_offset", 0) == 0
    assert partition.high_watermark == 4


@pytest.mark.parametrize("size", [1, 200])
async def test_a_topic_named_by_its_id_takes_a_batch(
    broker: Broker, client: WireClient, size: int
) -> None:
    partition = await create_topic(broker)
    topic_id = partition.topic.topic_id
    fields = produce_fields(batch(b"v" * size), topic_id=topic_id)
    answer = await client.call(ApiKey.PRODUCE, 13, **fields)
    assert answer.responses[0].topic_id == topic_id
    (row,) = answer.responses[0].partition_responses
    assert (row.error_code, row.base_offset) == (ErrorCode.none, 0)
    assert partition.high_watermark == 1
    assert broker.metrics.produced_records == 1


async def test_an_id_that_no_topic_has_takes_nothing(broker: Broker, client: WireClient) -> None:
    unknown = UUID(int=77)
    refused = await produce(client, batch(b"v"), version=13, topic_id=unknown)
    assert refused.error_code is ErrorCode.unknown_topic_id
    none = await produce(client, batch(b"v"), version=13, topic_id=None)
    assert none.error_code is ErrorCode.unknown_topic_id


async def test_a_topic_that_was_made_again_takes_nothing_that_was_meant_for_the_old_one(
    broker: Broker, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its partition is led already, and the view of the cluster still has the old id."""
    partition = await create_topic(broker)
    old = replace(partition.topic, topic_id=UUID(int=77))
    monkeypatch.setitem(broker.cluster.topic_by_id, old.topic_id, old)  # type: ignore[arg-type]
    refused = await produce(client, batch(b"v"), version=13, topic_id=old.topic_id)
    assert refused.error_code is ErrorCode.unknown_topic_id
    assert partition.log_end_offset == 0


async def test_the_answer_waits_for_the_ack_quorum(cloud: FakeCloud, client: WireClient) -> None:
    partition = await create_topic(cloud.brokers[1])
    ledgers = cloud.ledgers.clients[0]
    ledgers.hold_answers = True
    client.send(ApiKey.PRODUCE, 9, **produce_fields(batch(b"a")))
    await breathe()
    assert partition.log_end_offset == 1
    assert partition.high_watermark == 0
    with pytest.raises(TimeoutError):
        await client.receive_raw(0.02)
    ledgers.release()
    await until(lambda: partition.high_watermark == 1)
    await client.receive_raw()


async def test_requests_of_a_connection_are_pipelined_in_order(
    broker: Broker, client: WireClient
) -> None:
    await create_topic(broker)
    for number in range(50):
        client.send(ApiKey.PRODUCE, 9, **produce_fields(batch(b"%d" % number)))
    client.send(ApiKey.API_VERSIONS, 0)
    for number in range(50):
        answer = await client.receive()
        assert answer.responses[0].partition_responses[0].base_offset == number
    await client.receive()


async def test_an_idempotent_producers_sequence_is_checked(cloud: FakeCloud) -> None:
    broker = await cloud.start_broker(1, producer_settling_ms=0)
    client = await WireClient.connect(broker.port)
    await create_topic(broker)

    def numbered(sequence: int, epoch: int = 0) -> bytes:
        return batch(b"v", producer_id=7, producer_epoch=epoch, base_sequence=sequence)

    assert (await produce(client, numbered(0))).base_offset == 0
    assert (await produce(client, numbered(1))).base_offset == 1
    again = await produce(client, numbered(0))
    assert (again.error_code, again.base_offset) == (ErrorCode.none, 0)
    gap = await produce(client, numbered(5))
    assert gap.error_code is ErrorCode.out_of_order_sequence_number
    assert (await produce(client, numbered(0, epoch=1))).error_code is ErrorCode.none
    old = await produce(client, numbered(2))
    assert old.error_code is ErrorCode.invalid_producer_epoch
    await client.close()


async def test_a_producer_that_counts_on_is_served_at_once_by_a_log_that_was_never_led(
    broker: Broker, client: WireClient
) -> None:
    """Java's producer goes on counting after its topic was deleted and made again.

    Although its batches were refused meanwhile, nothing is missing.
    """
    later = [batch(b"v", producer_id=7, producer_epoch=0, base_sequence=n) for n in (40, 41)]
    for one in later:
        unknown = await produce(client, one)
        assert unknown.error_code is ErrorCode.unknown_topic_or_partition
    await create_topic(broker)
    for offset, one in enumerate(later):
        row = await produce(client, one)
        assert (row.error_code, row.base_offset) == (ErrorCode.none, offset)


async def test_a_gap_right_after_the_leadership_began_is_not_the_producers_fault(
    broker: Broker, client: WireClient
) -> None:
    """It sent two batches without waiting; the first was refused, then we began to lead.

    OUT_OF_ORDER_SEQUENCE_NUMBER makes librdkafka send everything unacknowledged again under a
    new epoch, in all partitions, and what had survived there is then stored twice.
    """
    first, second = (
        batch(b"v", producer_id=7, producer_epoch=0, base_sequence=number) for number in (0, 1)
    )
    unknown = await produce(client, first)
    assert unknown.error_code is ErrorCode.unknown_topic_or_partition
    await create_topic(broker)
    assert (await produce(client, second)).error_code is ErrorCode.not_leader_or_follower
    assert (await produce(client, first)).base_offset == 0
    assert (await produce(client, second)).base_offset == 1


def damaged() -> bytes:
    whole = bytearray(batch(b"value"))
    whole[-1] ^= 1
    return bytes(whole)


def with_magic(magic: int) -> bytes:
    whole = bytearray(batch(b"value"))
    whole[16] = magic
    return bytes(whole)


def at(offset: int, layout: str, value: int) -> bytes:
    whole = bytearray(batch(b"value"))
    struct.pack_into(layout, whole, offset, value)
    return bytes(whole)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (None, ErrorCode.invalid_record),
        (b"", ErrorCode.invalid_record),
        (b"\x00" * 10, ErrorCode.invalid_record),
        (batch(b"a") + batch(b"b"), ErrorCode.invalid_record),
        (with_magic(1), ErrorCode.invalid_record),
        (damaged(), ErrorCode.corrupt_message),
        (at(0, ">q", 5), ErrorCode.invalid_record),
        (at(8, ">i", -1), ErrorCode.invalid_record),
        (batch(b"x" * 2_000_000), ErrorCode.message_too_large),
        (batch(b"a", control=True), ErrorCode.invalid_record),
    ],
)
async def test_bad_batches_are_refused(
    broker: Broker, client: WireClient, records: bytes | None, code: ErrorCode
) -> None:
    partition = await create_topic(broker)
    answer = await produce(client, records)
    assert answer.error_code is code
    assert answer.base_offset == -1
    assert answer.error_message
    assert partition.log_end_offset == 0


async def test_other_refusals(broker: Broker, client: WireClient) -> None:
    await create_topic(broker)
    await create_topic(broker, "__consumer_offsets", internal=True)
    good = batch(b"a")
    unknown = ErrorCode.unknown_topic_or_partition
    assert (await produce(client, good, topic="none")).error_code is unknown
    assert (await produce(client, good, partition=1)).error_code is unknown
    assert (await produce(client, good, partition=-1)).error_code is unknown
    assert (await produce(client, good, acks=2)).error_code is ErrorCode.invalid_required_acks
    internal = await produce(client, good, topic="__consumer_offsets")
    assert internal.error_code is ErrorCode.invalid_topic_exception
    zstd = await produce(client, batch(b"a", codec=Codec.ZSTD), version=6)
    assert zstd.error_code is ErrorCode.unsupported_compression_type
    assert (await produce(client, batch(b"a", codec=Codec.ZSTD), version=7)).error_code == 0
    future = await produce(client, batch_at(NOW_MS + 2 * 3_600_000))
    assert future.error_code is ErrorCode.invalid_timestamp


def batch_at(timestamp_ms: int) -> bytes:
    return build_batch([Record(b"k", b"v", timestamp_ms)])


async def test_one_bad_partition_does_not_spoil_the_others(
    broker: Broker, client: WireClient
) -> None:
    await create_topic(broker, partition_count=3)
    fields = produce_fields(batch(b"a"))
    rows = [{"index": 0, "records": batch(b"a")}, {"index": 9, "records": batch(b"b")},
            {"index": 2, "records": batch(b"c")}]  # fmt: skip
    fields["topic_data"] = [{"name": "t", "partition_data": rows}]
    answer = await client.call(ApiKey.PRODUCE, 9, **fields)
    results = answer.responses[0].partition_responses
    assert [result.index for result in results] == [0, 9, 2]
    assert [int(result.error_code) for result in results] == [0, 3, 0]


async def test_acks_0_has_no_answer(broker: Broker, client: WireClient) -> None:
    partition = await create_topic(broker)
    client.send(ApiKey.PRODUCE, 9, **produce_fields(batch(b"a"), acks=0))
    client.forget_last()
    # The next answer on the connection is the next request's.
    await client.call(ApiKey.API_VERSIONS, 0)
    assert partition.high_watermark == 1


async def test_an_error_with_acks_0_closes_the_connection(
    broker: Broker, client: WireClient
) -> None:
    client.send(ApiKey.PRODUCE, 9, **produce_fields(batch(b"a"), acks=0, topic="none"))
    assert await client.is_closed()


async def test_unconfirmed_appends_time_out(cloud: FakeCloud, client: WireClient) -> None:
    await create_topic(cloud.brokers[1], partition_count=2)
    cloud.ledgers.clients[0].hold_answers = True
    answer = await produce(client, batch(b"a"), partition=1, timeout_ms=10)
    assert (answer.index, answer.error_code) == (1, ErrorCode.request_timed_out)
    cloud.ledgers.clients[0].release()
    await breathe()
    assert len(cloud.brokers[1].services.deadlines) == 0


async def test_a_lost_leadership_is_answered_as_such(cloud: FakeCloud, client: WireClient) -> None:
    partition = await create_topic(cloud.brokers[1])
    cloud.ledgers.clients[0].hold_answers = True
    client.send(ApiKey.PRODUCE, 11, **produce_fields(batch(b"a")))
    await breathe()
    partition.resign("test")
    result = (await client.receive()).responses[0].partition_responses[0]
    assert result.error_code is ErrorCode.not_leader_or_follower
    assert result.base_offset == -1
    cloud.ledgers.clients[0].hold_answers = False


async def test_log_append_time(broker: Broker, client: WireClient) -> None:
    await create_topic(broker, config={"message.timestamp.type": "LogAppendTime"})
    answer = await produce(client, batch(b"a"))
    assert answer.log_append_time is not None
    assert int(answer.log_append_time.timestamp() * 1000) == NOW_MS


async def test_another_brokers_partition_is_refused_with_a_hint(cloud: FakeCloud) -> None:
    first = await cloud.start_broker(1)
    second = await cloud.start_broker(2)
    topic = await first.topics.create("t", 4)
    await until(lambda: "t" in second.cluster.topics)
    index = next(i for i in range(4) if second.cluster.preferred_leader(topic, i) == 2)
    client = await WireClient.connect(first.port)
    fields = produce_fields(batch(b"a"), partition=index)
    answer = await client.call(ApiKey.PRODUCE, 11, **fields)
    result = answer.responses[0].partition_responses[0]
    assert result.error_code is ErrorCode.not_leader_or_follower
    assert result.current_leader.leader_id == 2
    (endpoint,) = answer.node_endpoints
    assert (endpoint.node_id, endpoint.host, endpoint.port) == (2, "127.0.0.1", second.port)
    await client.close()


async def test_old_message_formats_close_the_connection(broker: Broker, client: WireClient) -> None:
    partition = await create_topic(broker)
    frame = bytearray(client.frame(ApiKey.PRODUCE, 3, produce_fields(batch(b"a"))))
    struct.pack_into(">h", frame, 6, 2)
    client.send_raw(bytes(frame))
    assert await client.is_closed()
    assert partition.log_end_offset == 0


async def test_the_producer_of_a_lost_connection_is_forgotten(
    cloud: FakeCloud, client: WireClient
) -> None:
    partition = await create_topic(cloud.brokers[1])
    cloud.ledgers.clients[0].hold_answers = True
    client.send(ApiKey.PRODUCE, 9, **produce_fields(batch(b"a")))
    await breathe()
    await client.close()
    await breathe()
    cloud.ledgers.clients[0].release()
    await until(lambda: partition.high_watermark == 1)
    assert cloud.brokers[1].server.in_flight_bytes == 0


async def test_what_is_produced_is_fetched_byte_for_byte(
    broker: Broker, client: WireClient
) -> None:
    await create_topic(broker)
    sent = [batch(b"x" * 100, codec=codec) for codec in Codec]
    for records in sent:
        await produce(client, records)
    data: Any = await fetch(client, 0)
    received = bytes(data.records)
    at_byte = 0
    for records in sent:
        assert received[at_byte + 16 : at_byte + len(records)] == records[16:]
        at_byte += len(records)
    assert at_byte == len(received)


async def test_fenced_ledgers_end_the_leadership(cloud: FakeCloud, client: WireClient) -> None:
    partition = await create_topic(cloud.brokers[1])
    other = cloud.ledgers.client("other")
    await other.recover(cloud.ledgers.clients[0].writers[-1].ledger_id)
    answer = await produce(client, batch(b"a"))
    assert answer.error_code is ErrorCode.not_leader_or_follower
    assert not partition.is_open
    # The broker is still wanted, so it opens the partition again.
    await until(lambda: cloud.brokers[1].partitions.find("t", 0) is not None)
    assert (await produce(client, batch(b"a"))).error_code is ErrorCode.none
