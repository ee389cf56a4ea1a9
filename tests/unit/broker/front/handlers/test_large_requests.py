"""Requests that are large on purpose: bounded in items, done in many turns, in order, answered."""

from __future__ import annotations

import gc
import random
import struct
from collections.abc import Callable
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.app import Broker
from broker.partition.core import batch_checks
from client.node.turns import Turns
from client.wire.kafka import fetch as fetch_wire
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.batches import records
from client.wire.kafka.batches.records import (
    BatchHeader,
    Codec,
    Record,
    build_batch,
    compress,
    pack_batch,
    parse_header,
)
from client.wire.kafka.codec import encode_error
from client.wire.steps import STEP_ITEMS, STEP_RECORDS
from tests.fakes.broker import FakeCloud, until
from tests.fakes.wire_client import WireClient
from tests.unit.broker.front.handlers.requests import (
    NOW_MS,
    batch,
    create_topic,
    fetch_fields,
    produce,
    produce_fields,
)

TINY = b"\x0c\x00\x00\x00\x00\x00\x00"
"""A record with an empty key and an empty value."""
KEYLESS = b"\x0c\x00\x00\x00\x01\x00\x00"


def many(count: int, record: bytes = TINY, codec: Codec = Codec.NONE, **fields: Any) -> bytes:
    """Return a batch of `count` records of seven bytes."""
    head = parse_header(build_batch([Record(b"k", b"v", NOW_MS)]))
    fields = {
        "record_count": count, "last_offset_delta": count - 1, "attributes": int(codec), **fields
    }  # fmt: skip
    return pack_batch(BatchHeader(*head)._replace(**fields), compress(codec, record * count))


async def stored(partition: Any, data: bytes) -> None:
    """Store a batch as a version has done it that believed headers."""
    partition.append(data, from_client=False)
    end = partition.log_end_offset
    await until(lambda: partition.high_watermark == end)


@pytest.fixture
def read_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read records as where nothing was compiled, however it is here."""
    monkeypatch.setattr(records, "compiled", None)
    monkeypatch.setattr(batch_checks, "IS_COMPILED", False)


async def compacted(broker: Broker) -> Any:
    return await create_topic(broker, config={"cleanup.policy": "compact"})


class NoTurns(Turns):
    """Nobody's turn ever comes."""

    def on_turn(self, call: Callable[[], None]) -> Callable[[], None]:
        return lambda: None


# --- records that are read ------------------------------------------------------------------------


@pytest.mark.usefixtures("read_in_python")
async def test_records_are_read_in_many_turns(broker: Broker, client: WireClient) -> None:
    await compacted(broker)
    turns = broker.services.turns
    assert (await produce(client, batch(b"v"))).base_offset == 0
    assert turns.taken == 0  # ordinary batches take none
    assert (await produce(client, many(10 * STEP_RECORDS))).base_offset == 1
    assert turns.taken >= 10
    refused = await produce(client, many(10 * STEP_RECORDS, KEYLESS))
    assert refused.error_code is ErrorCode.invalid_record
    assert "keys" in refused.error_message


@pytest.mark.parametrize("version", [3, 8, 11])
async def test_keyless_records_are_named(broker: Broker, client: WireClient, version: int) -> None:
    """KIP-467: producers fail these with the reason, and the others of the batch otherwise."""
    await compacted(broker)
    records = [Record(None if at % 3 == 1 else b"k", b"v", NOW_MS) for at in range(10)]
    refused = await produce(client, build_batch(records), version=version)
    assert refused.error_code is ErrorCode.invalid_record
    if version < 8:
        return
    named = [(one.batch_index, one.batch_index_error_message) for one in refused.record_errors]
    assert named == [(at, refused.error_message) for at in (1, 4, 7)]


@pytest.mark.usefixtures("read_in_python")
async def test_batches_stay_in_order_behind_one_that_is_checked(
    broker: Broker, client: WireClient
) -> None:
    """An idempotent producer sends on without waiting; nothing may overtake."""
    partition = await compacted(broker)
    count = 3 * STEP_RECORDS
    numbered = {"producer_id": 7, "producer_epoch": 0}
    client.send(ApiKey.PRODUCE, 9, **produce_fields(many(count, **numbered, base_sequence=0)))
    for at in range(20):
        later = batch(b"v", **numbered, base_sequence=count + at)
        client.send(ApiKey.PRODUCE, 9, **produce_fields(later))
    offsets = []
    for _ in range(21):
        (answer,) = (await client.receive()).responses[0].partition_responses
        assert answer.error_code is ErrorCode.none
        offsets.append(answer.base_offset)
    assert offsets == [0, *range(count, count + 20)]
    assert partition.high_watermark == count + 20


async def test_one_request_has_so_many_records_opened_and_no_more(cloud: FakeCloud) -> None:
    broker = await cloud.start_broker(1, opened_records_max=10_000)
    client = await WireClient.connect(broker.port)
    await compacted(broker)
    row = {"index": 0, "records": many(4_000, codec=Codec.ZSTD)}
    fields = produce_fields(None)
    fields["topic_data"] = [{"name": "t", "partition_data": [row] * 4}]
    answer = await client.call(ApiKey.PRODUCE, 9, **fields)
    codes = [one.error_code for one in answer.responses[0].partition_responses]
    assert codes == [ErrorCode.none] * 2 + [ErrorCode.message_too_large] * 2
    assert (await produce(client, many(4_000, codec=Codec.ZSTD))).error_code is ErrorCode.none
    assert (await produce(client, many(40_000))).error_code is ErrorCode.none  # paid for in bytes
    await client.close()


async def test_a_large_compressed_batch_takes_turns_of_its_own(
    broker: Broker, client: WireClient
) -> None:
    """What fits into 4 MiB is inflated at once; a request is not begun as a whole either way."""
    partition = await create_topic(broker)
    turns = broker.services.turns
    small = build_batch([Record(b"k", bytes(3 << 20), NOW_MS)], codec=Codec.LZ4)
    assert (await produce(client, small)).base_offset == 0
    assert turns.taken == 0
    noise = random.Random(1).randbytes(100_000)
    large = build_batch([Record(b"k", noise + bytes(5 << 20), NOW_MS)], codec=Codec.LZ4)
    assert (await produce(client, large)).base_offset == 1
    assert turns.taken == 2
    fields = produce_fields(None)
    fields["topic_data"] = [{"name": "t", "partition_data": [{"index": 0, "records": small}] * 9}]
    answer = await client.call(ApiKey.PRODUCE, 9, **fields)
    assert len(answer.responses[0].partition_responses) == 9
    assert turns.taken == 4
    assert partition.high_watermark == 11


async def test_a_few_bytes_that_claim_many_records_are_not_opened(
    broker: Broker, client: WireClient
) -> None:
    """Java's producer splits a batch that gets this answer."""
    await compacted(broker)
    data = batch(b"v")
    lie = pack_batch(
        parse_header(data)._replace(record_count=99_999, last_offset_delta=99_998, attributes=4),
        b"no zstd at all",
    )
    answer = await produce(client, lie)
    assert answer.error_code is ErrorCode.message_too_large
    assert "99999 records" in answer.error_message


@pytest.mark.usefixtures("read_in_python")
async def test_a_client_that_hangs_up_stops_the_work(broker: Broker) -> None:
    partition = await compacted(broker)
    client = await WireClient.connect(broker.port)
    client.send(ApiKey.PRODUCE, 9, **produce_fields(many(30 * STEP_RECORDS)))
    await until(lambda: broker.services.turns.taken >= 2)
    await client.close()
    await until(lambda: broker.server.connection_count == 0)
    taken = broker.services.turns.taken
    await broker.services.turns.next()
    assert broker.services.turns.taken <= taken + 2
    assert partition.log_end_offset == 0


@pytest.mark.usefixtures("read_in_python")
async def test_a_batch_whose_check_takes_too_long_was_not_applied(
    broker: Broker, client: WireClient
) -> None:
    partition = await compacted(broker)
    turns, broker.services.turns = broker.services.turns, NoTurns()
    for held in (many(2 * STEP_RECORDS), many(2 * STEP_RECORDS, KEYLESS)):
        answer = await produce(client, held, timeout_ms=1)
        assert answer.error_code is ErrorCode.not_enough_replicas  # which clients retry
    broker.services.turns = turns
    assert partition.log_end_offset == 0
    assert (await produce(client, batch(b"v"))).base_offset == 0


# --- searches by time -----------------------------------------------------------------------------


def list_offsets(*partitions: int, timestamp: int = -1, topic: str = "t") -> dict[str, Any]:
    rows = [
        {"partition_index": index, "current_leader_epoch": -1, "timestamp": timestamp}
        for index in partitions
    ]
    return {
        "replica_id": -1, "isolation_level": 0, "topics": [{"name": topic, "partitions": rows}]
    }  # fmt: skip


async def test_a_search_goes_through_many_records_in_many_turns(
    broker: Broker, client: WireClient
) -> None:
    """The header claims a timestamp that no record has."""
    partition = await create_topic(broker)
    count = 5 * STEP_RECORDS
    for _ in range(4):
        await stored(partition, many(count, max_timestamp=NOW_MS + 100))
    await produce(client, build_batch([Record(b"k", b"v", NOW_MS + 50)]))
    before = broker.services.turns.taken
    answer = await client.call(ApiKey.LIST_OFFSETS, 7, **list_offsets(0, timestamp=NOW_MS + 50))
    (found,) = answer.topics[0].partitions
    assert (found.offset, found.error_code) == (4 * count, ErrorCode.none)
    assert broker.services.turns.taken - before >= 20


async def test_a_search_that_would_open_too_much_ends_at_a_batch(cloud: FakeCloud) -> None:
    """Whoever reads from there on misses nothing."""
    broker = await cloud.start_broker(1, opened_records_max=10_000)
    client = await WireClient.connect(broker.port)
    partition = await create_topic(broker)
    for _ in range(4):
        await stored(partition, many(4_000, max_timestamp=NOW_MS + 100))
    answer = await client.call(ApiKey.LIST_OFFSETS, 7, **list_offsets(0, timestamp=NOW_MS + 50))
    assert answer.topics[0].partitions[0].offset == 8_000
    await client.close()


# --- items ----------------------------------------------------------------------------------------


async def test_a_fetch_answers_a_partition_once_as_the_last_of_its_names_asks(
    broker: Broker, client: WireClient
) -> None:
    await create_topic(broker)
    await produce(client, batch(b"a"))
    await produce(client, batch(b"b"))
    fields = fetch_fields(0)
    (topic,) = fields["topics"]
    (row,) = topic["partitions"]
    topic["partitions"] = [row] * 1_000 + [{**row, "fetch_offset": 1}]
    fields["topics"] = [topic, topic]
    answer = await client.call(ApiKey.FETCH, 12, **fields)
    (found,) = answer.responses
    (data,) = found.partitions
    assert parse_header(bytes(data.records)).base_offset == 1
    assert broker.services.turns.taken >= 2


def raw_fetch(count: int, version: int = 11) -> bytes:
    """Return the frame of a Fetch of partition 0 of `t`, so many times."""
    layout = fetch_wire._partition_layout(version)
    row = layout.pack(0, -1, 0, 0, 1) if version == 11 else layout.pack(0, 0, 1)
    head = struct.pack(">iiiib", -1, 0, 1, 1, 0)
    if version == 11:
        head += struct.pack(">ii", 0, -1)
    body = head + struct.pack(">ih1si", 1, 1, b"t", count) + row * count
    if version == 11:
        body += struct.pack(">ih", 0, 0)
    frame = struct.pack(">hhih", ApiKey.FETCH, version, 1, 4) + b"test" + body
    return struct.pack(">i", len(frame)) + frame


async def test_a_fetch_of_too_many_partitions_is_refused(
    broker: Broker, client: WireClient
) -> None:
    await create_topic(broker)
    client.send_raw(raw_fetch(450_000))
    frame = await client.receive_raw()
    (code,) = struct.unpack_from(">h", frame, 8)
    assert code == ErrorCode.invalid_request
    assert len(frame) < 100
    client.send_raw(raw_fetch(450_000, version=4))  # its answer has no place for an error
    assert await client.is_closed()


async def test_other_requests_of_too_many_items_are_refused(cloud: FakeCloud) -> None:
    broker = await cloud.start_broker(1, request_items_max=1_000)
    client = await WireClient.connect(broker.port)
    groups = [{"group_id": "g", "topics": None}] * 1_001
    for _ in range(2):
        answer = await client.call(
            ApiKey.LEAVE_GROUP, 5, group_id="g",
            members=[{"member_id": "m", "group_instance_id": None, "reason": None}] * 1_001,
        )  # fmt: skip
        assert answer.error_code is ErrorCode.invalid_request
    assert encode_error(ApiKey.OFFSET_FETCH, 8, 1, 42) is None
    client.send(ApiKey.OFFSET_FETCH, 8, groups=groups, require_stable=False)
    assert await client.is_closed()


async def test_a_produce_of_very_many_partitions_takes_many_turns(
    broker: Broker, client: WireClient
) -> None:
    partition = await create_topic(broker)
    row = {"index": 0, "records": batch(b"v")}
    fields = produce_fields(None)
    fields["topic_data"] = [{"name": "t", "partition_data": [row] * (5 * STEP_ITEMS)}]
    client.send(ApiKey.PRODUCE, 9, **fields)
    client.send(ApiKey.PRODUCE, 9, **produce_fields(batch(b"last")))
    answers = (await client.receive()).responses[0].partition_responses
    assert [one.base_offset for one in answers] == list(range(5 * STEP_ITEMS))
    last = (await client.receive()).responses[0].partition_responses[0]
    assert last.base_offset == 5 * STEP_ITEMS
    assert partition.high_watermark == 5 * STEP_ITEMS + 1
    assert broker.services.turns.taken >= 10


async def test_list_offsets_refuses_a_partition_that_is_named_twice(
    broker: Broker, client: WireClient
) -> None:
    await create_topic(broker, partition_count=2)
    answer = await client.call(ApiKey.LIST_OFFSETS, 7, **list_offsets(0, 1, 0))
    codes = [one.error_code for one in answer.topics[0].partitions]
    assert codes == [ErrorCode.invalid_request, ErrorCode.none, ErrorCode.invalid_request]


async def test_a_large_request_is_decoded_and_answered_in_many_turns(
    broker: Broker, client: WireClient
) -> None:
    await create_topic(broker)
    answer = await client.call(ApiKey.LIST_OFFSETS, 7, **list_offsets(*range(6 * STEP_ITEMS)))
    codes = [one.error_code for one in answer.topics[0].partitions]
    assert codes == [ErrorCode.none] + [ErrorCode.unknown_topic_or_partition] * (6 * STEP_ITEMS - 1)
    assert broker.services.turns.taken >= 6 * 3  # decoding, two passes of the handler, encoding
    assert (await client.call(ApiKey.API_VERSIONS, 0)).api_keys


async def test_a_resource_that_is_named_often_is_described_once(
    broker: Broker, client: WireClient
) -> None:
    await create_topic(broker)
    one = {"resource_type": 2, "resource_name": "t", "configuration_keys": None}
    asked = {"include_synonyms": False, "include_documentation": False}
    answer = await client.call(ApiKey.DESCRIBE_CONFIGS, 4, resources=[one] * 1_000, **asked)
    assert len(answer.results) == 1
    assert len(answer.results[0].configs) > 10


async def test_a_resource_that_is_named_twice_is_not_changed(
    broker: Broker, client: WireClient
) -> None:
    await create_topic(broker)
    configs = [{"name": "retention.ms", "config_operation": 0, "value": "1000"}]
    one = {"resource_type": 2, "resource_name": "t", "configs": configs}
    answer = await client.call(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[one] * 2, validate_only=False
    )
    assert [row.error_code for row in answer.responses] == [ErrorCode.invalid_request] * 2
    assert not broker.cluster.topics["t"].config.overrides


async def test_metadata_describes_a_topic_once(broker: Broker, client: WireClient) -> None:
    await create_topic(broker)
    asked = [{"topic_id": None, "name": name} for name in ("t", "a b", "t", "a b")]
    answer = await client.call(
        ApiKey.METADATA, 12, topics=asked, allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )  # fmt: skip
    assert [one.name for one in answer.topics] == ["t", "a b"]


async def test_delete_records_goes_by_the_last_offset(broker: Broker, client: WireClient) -> None:
    await create_topic(broker)
    await produce(client, batch(b"a", b"b", b"c"))
    rows = [{"partition_index": 0, "offset": offset} for offset in (3, 1)]
    answer = await client.call(
        ApiKey.DELETE_RECORDS, 2, topics=[{"name": "t", "partitions": rows}], timeout=1_000
    )
    (found,) = answer.topics[0].partitions
    assert found.low_watermark == 1


@pytest.mark.parametrize("count", [100, 101])
async def test_a_member_offers_so_many_protocols(
    broker: Broker, client: WireClient, count: int
) -> None:
    found = await client.call(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g", "g"])
    assert len(found.coordinators) == 1
    protocols = [{"name": f"p{at}", "metadata": b""} for at in range(count)]
    answer = await client.call(
        ApiKey.JOIN_GROUP, 9, group_id="g", session_timeout=10_000, rebalance_timeout=10_000,
        member_id="", group_instance_id=None, protocol_type="consumer", protocols=protocols,
        reason=None,
    )  # fmt: skip
    assert (answer.error_code is ErrorCode.invalid_request) == (count == 101)


async def test_a_read_of_thousands_of_requests_takes_many_turns(
    broker: Broker, client: WireClient
) -> None:
    """They fit into one read of the socket, and were all served before anybody else was."""
    frames = [client.frame(ApiKey.API_VERSIONS, 0, {}) for _ in range(5_000)]
    client.send_raw(b"".join(frames))
    for _ in frames:
        assert (await client.receive()).api_keys
    assert broker.services.turns.taken >= 10


async def test_an_answer_has_so_many_batches_however_small(
    broker: Broker, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.front.handlers.fetch._ANSWER_BATCHES_MAX", 5)
    await create_topic(broker, partition_count=3)
    for partition in range(3):
        for _ in range(4):
            await produce(client, batch(b"v"), partition=partition)
    fields = fetch_fields(0)
    (topic,) = fields["topics"]
    (row,) = topic["partitions"]
    topic["partitions"] = [{**row, "partition": at} for at in range(3)]
    answer = await client.call(ApiKey.FETCH, 12, **fields)
    sizes = [len(one.records or b"") for one in answer.responses[0].partitions]
    assert [bool(size) for size in sizes] == [True, True, False]
    assert {one.error_code for one in answer.responses[0].partitions} == {ErrorCode.none}


# --- what is left of them -------------------------------------------------------------------------


def large_produce(records: bytes) -> dict[str, Any]:
    fields = produce_fields(None)
    row = {"index": 0, "records": records}
    fields["topic_data"] = [{"name": "t", "partition_data": [row] * (5 * STEP_ITEMS)}]
    return fields


def large_fetch() -> dict[str, Any]:
    fields = fetch_fields(0)
    (row,) = fields["topics"][0]["partitions"]
    rows = [{**row, "partition": index} for index in range(5 * STEP_ITEMS)]
    fields["topics"][0]["partitions"] = rows
    return fields


@pytest.mark.parametrize(
    ("key", "version", "fields"),
    [
        (ApiKey.PRODUCE, 9, large_produce(b"no batch")),
        (ApiKey.PRODUCE, 9, large_produce(batch(b"v"))),
        (ApiKey.FETCH, 12, large_fetch()),
        (ApiKey.LIST_OFFSETS, 7, list_offsets(*range(5 * STEP_ITEMS))),
    ],
)
async def test_what_a_large_request_made_goes_with_it(
    broker: Broker, client: WireClient, key: ApiKey, version: int, fields: dict[str, Any]
) -> None:
    """And does not wait in cycles for the collector, which stops the loop for all of it at once."""
    await create_topic(broker)
    left = []
    for _ in range(4):  # the first also leaves what is done once only, such as imports
        gc.collect()
        gc.disable()
        try:
            await client.call(key, version, **fields)
            await client.call(ApiKey.API_VERSIONS, 0)
            left.append(gc.collect())
        finally:
            gc.enable()
    assert min(left[1:]) < STEP_ITEMS  # cycles of a request are there each time it is sent
