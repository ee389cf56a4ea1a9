"""`compression.type` of a topic and of all brokers: what is stored, in which order, and what a
producer is told."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.app import Broker
from broker.front.codec_thread import CodecThread, Work
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.batches.records import (
    CODEC_MASK,
    Codec,
    Record,
    build_batch,
    headers,
    records,
)
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

NAMES = {"uncompressed": Codec.NONE, **{one.name.lower(): one for one in list(Codec)[1:]}}
TOPIC, BROKER = 2, 4


async def stored(client: WireClient, offset: int = 0, **fields: Any) -> list[tuple[Codec, bytes]]:
    """Return codec and first value of every batch."""
    found = await fetch(client, offset, **fields)
    data = bytes(found.records or b"")
    return [
        (Codec(header.attributes & CODEC_MASK), next(records(data[at : at + header.size])).value)
        for at, header in headers(data)
    ]


class HeldThread(CodecThread):
    """Does its work when it is told to."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker.metrics)
        self.waiting: list[Callable[[], None]] = []

    def _begin(self, work: Work) -> asyncio.Future[Any]:
        made: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def finish() -> None:
            if not made.cancelled():
                made.set_result(work())

        self.waiting.append(finish)
        return made


@pytest.mark.parametrize("wanted", NAMES)
@pytest.mark.parametrize("sent", list(Codec))
async def test_a_topic_has_the_codec_that_it_wants(
    broker: Broker, client: WireClient, wanted: str, sent: Codec
) -> None:
    await create_topic(broker, config={"compression.type": wanted})
    answer = await produce(client, batch(b"a" * 500, b"b", codec=sent))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.none, 0)
    assert await stored(client) == [(NAMES[wanted], b"a" * 500)]
    assert broker.metrics.recompressed_batches == (NAMES[wanted] is not sent)
    assert broker.metrics.produced_records == 2


async def test_it_is_compressed_on_another_thread(
    broker: Broker, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    begin = CodecThread._begin

    def noted(self: CodecThread, work: Work) -> asyncio.Future[Any]:
        return begin(self, lambda: (seen.append(threading.get_ident()), work())[1])

    monkeypatch.setattr(CodecThread, "_begin", noted)
    await create_topic(broker, config={"compression.type": "zstd"})
    await produce(client, batch(b"a"))
    assert seen and threading.get_ident() not in seen


async def test_batches_of_a_connection_keep_their_order(broker: Broker, client: WireClient) -> None:
    """What needs nothing done waits behind what does: in the same request, and in the next."""
    partition = await create_topic(broker, config={"compression.type": "gzip"})
    await create_topic(broker, "other")
    thread = broker.services.codecs = HeldThread(broker)
    client.send(ApiKey.PRODUCE, 9, **produce_fields(batch(b"one")))
    client.send(ApiKey.PRODUCE, 9, **produce_fields(batch(b"two", codec=Codec.GZIP)))
    client.send(ApiKey.PRODUCE, 9, **produce_fields(batch(b"x"), topic="other"))
    await breathe()
    assert partition.log_end_offset == 0
    other = await WireClient.connect(broker.port)
    assert (await produce(other, batch(b"x"), topic="other")).error_code is ErrorCode.none
    first = await produce(other, batch(b"overtakes", codec=Codec.GZIP))
    assert first.base_offset == 0
    thread.waiting.pop()()
    offsets = [
        (await client.receive()).responses[0].partition_responses[0].base_offset for _ in range(3)
    ]
    assert offsets == [1, 2, 1]
    assert await stored(client) == [
        (Codec.GZIP, b"overtakes"), (Codec.GZIP, b"one"), (Codec.GZIP, b"two"),
    ]  # fmt: skip
    await other.close()


async def test_batches_of_a_request_keep_their_order(broker: Broker, client: WireClient) -> None:
    await create_topic(broker, config={"compression.type": "lz4"})
    fields = produce_fields(None)
    codecs = [random.Random(3).choice(list(Codec)) for _ in range(60)]
    rows = [
        {"index": 0, "records": batch(b"%d" % at, codec=codec)} for at, codec in enumerate(codecs)
    ]
    fields["topic_data"] = [{"name": "t", "partition_data": rows}]
    answer = await client.call(ApiKey.PRODUCE, 9, **fields)
    told = [row.base_offset for row in answer.responses[0].partition_responses]
    assert told == list(range(60))
    assert await stored(client) == [(Codec.LZ4, b"%d" % at) for at in range(60)]


async def test_a_repeated_batch_is_known_whatever_it_comes_as(
    broker: Broker, client: WireClient
) -> None:
    partition = await create_topic(broker, config={"compression.type": "zstd"})
    numbered = partial(batch, b"v", b"w", producer_id=7, producer_epoch=0)
    for codec in (Codec.NONE, Codec.NONE, Codec.GZIP, Codec.ZSTD):
        answer = await produce(client, numbered(base_sequence=0, codec=codec))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.none, 0)
    assert (await produce(client, numbered(base_sequence=2))).base_offset == 2
    gap = await produce(client, numbered(base_sequence=9))
    assert gap.error_code is ErrorCode.out_of_order_sequence_number
    assert partition.high_watermark == 4


async def test_the_brokers_time_and_a_codec_together(broker: Broker, client: WireClient) -> None:
    settings = {"compression.type": "lz4", "message.timestamp.type": "LogAppendTime"}
    await create_topic(broker, config=settings)
    old = build_batch([Record(b"k", b"v", 5)])
    answer = await produce(client, old)
    data = bytes((await fetch(client, 0)).records)
    ((_, header),) = headers(data)
    assert header.has_log_append_time
    assert header.attributes & CODEC_MASK == Codec.LZ4
    assert next(records(data)).timestamp_ms == header.max_timestamp > NOW_MS - 1
    assert answer.log_append_time is not None


async def test_what_is_wrong_is_refused_before_it_is_compressed(
    broker: Broker, client: WireClient
) -> None:
    await create_topic(broker, config={"compression.type": "zstd", "cleanup.policy": "compact"})
    keyless = build_batch([Record(None, b"v", NOW_MS)])
    assert (await produce(client, keyless)).error_code is ErrorCode.invalid_record
    late = build_batch([Record(b"k", b"v", NOW_MS + 10**9)])
    assert (await produce(client, late)).error_code is ErrorCode.invalid_timestamp
    bad = bytearray(batch(b"v"))
    bad[-1] ^= 1
    assert (await produce(client, bytes(bad))).error_code is ErrorCode.corrupt_message
    assert (await produce(client, b"short")).error_code is ErrorCode.invalid_record
    assert (await produce(client, batch(b"v"))).base_offset == 0
    assert broker.metrics.recompressed_batches == 1


async def test_a_batch_that_becomes_too_large_is_refused_and_the_next_ones_are_not(
    broker: Broker, client: WireClient
) -> None:
    settings = {"compression.type": "uncompressed", "max.message.bytes": "2000"}
    await create_topic(broker, config=settings)
    fields = produce_fields(None)
    sizes = 5_000, 10, 3_000, 500
    rows = [{"index": 0, "records": batch(bytes(size), codec=Codec.GZIP)} for size in sizes]
    fields["topic_data"] = [{"name": "t", "partition_data": rows}]
    answer = await client.call(ApiKey.PRODUCE, 9, **fields)
    told = [(one.error_code, one.base_offset) for one in answer.responses[0].partition_responses]
    assert told == [
        (ErrorCode.message_too_large, -1), (ErrorCode.none, 0),
        (ErrorCode.message_too_large, -1), (ErrorCode.none, 1),
    ]  # fmt: skip
    assert await stored(client) == [(Codec.NONE, bytes(10)), (Codec.NONE, bytes(500))]
    # As in Kafka what comes is judged as well, though it would be stored as less.
    await create_topic(broker, "s", config={**settings, "compression.type": "gzip"})
    large = await produce(client, batch(bytes(5_000)), topic="s")
    assert large.error_code is ErrorCode.message_too_large


async def test_a_batch_waits_for_room_as_large_as_it_is_stored(
    cloud: FakeCloud, broker: Broker, client: WireClient
) -> None:
    """And is counted meanwhile."""
    partition = await create_topic(broker, config={"compression.type": "uncompressed"})
    log = partition._leader.log
    log.limits = dataclasses.replace(log.limits, in_flight_bytes_max=100_000)
    ledgers = cloud.ledgers.clients[0]
    memory = ledgers.memory
    before = memory.size
    ledgers.hold_answers = True
    for size in (60_000, 70_000):
        client.send(ApiKey.PRODUCE, 9, **produce_fields(batch(bytes(size), codec=Codec.GZIP)))
    await until(lambda: broker.metrics.recompressed_batches == 2)
    await breathe()
    assert partition.log_end_offset == 1
    assert memory.size > before + 70_000
    ledgers.release()
    for offset in (0, 1):
        (row,) = (await client.receive()).responses[0].partition_responses
        assert (row.error_code, row.base_offset) == (ErrorCode.none, offset)
    await until(lambda: memory.size == before)


async def test_who_hangs_up_meanwhile_has_nothing_stored(
    broker: Broker, client: WireClient
) -> None:
    partition = await create_topic(broker, config={"compression.type": "zstd"})
    thread = broker.services.codecs = HeldThread(broker)
    other = await WireClient.connect(broker.port)
    other.send(ApiKey.PRODUCE, 9, **produce_fields(batch(b"v")))
    await until(lambda: bool(thread.waiting))
    await other.close()
    await breathe()
    thread.waiting.pop()()
    await breathe()
    assert partition.log_end_offset == 0
    client.send(ApiKey.PRODUCE, 9, **produce_fields(batch(b"v"), timeout_ms=1))
    await until(lambda: bool(thread.waiting))
    (row,) = (await client.receive()).responses[0].partition_responses
    assert row.error_code is ErrorCode.not_enough_replicas
    thread.waiting.pop()()
    await breathe()
    assert partition.log_end_offset == 0


async def test_a_fault_of_ours_costs_the_connection_and_no_other(
    broker: Broker, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create_topic(broker, config={"compression.type": "zstd"})
    with monkeypatch.context() as patched:
        patched.setattr("broker.front.handlers.produce.recompressed", lambda *_: 1 / 0)
        client.send(ApiKey.PRODUCE, 9, **produce_fields(batch(b"v"), acks=0))
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await client.receive()
    other = await WireClient.connect(broker.port)
    assert (await produce(other, batch(b"v"))).base_offset == 0
    await other.close()


async def configure(
    client: WireClient, name: str, value: str | None, *, kind: int = TOPIC, of: str = "t"
) -> Any:
    row = {"name": name, "config_operation": int(value is None), "value": value}
    fields = {
        "resources": [{"resource_type": kind, "resource_name": of, "configs": [row]}],
        "validate_only": False,
    }
    return (await client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, **fields)).responses[0]


async def described(client: WireClient, name: str, *, kind: int = TOPIC, of: str = "t") -> Any:
    resource = {"resource_type": kind, "resource_name": of, "configuration_keys": [name]}
    answer = await client.call(
        ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource], include_synonyms=True,
        include_documentation=True,
    )  # fmt: skip
    (row,) = answer.results[0].configs
    return row


async def test_it_is_changed_while_it_is_written_to(broker: Broker, client: WireClient) -> None:
    await create_topic(broker)
    found = []
    for value in ("producer", "gzip", "uncompressed", "zstd", None):
        assert (await configure(client, "compression.type", value)).error_code is ErrorCode.none
        row = await described(client, "compression.type")
        assert row.value == (value or "producer")
        await produce(client, batch(b"v", codec=Codec.SNAPPY))
        found += [value]
    codecs = [codec for codec, _ in await stored(client)]
    assert codecs == [Codec.SNAPPY, Codec.GZIP, Codec.NONE, Codec.ZSTD, Codec.SNAPPY]
    for name, value in (
        ("compression.type", "none"), ("compression.type", "GZIP"), ("compression.gzip.level", "0"),
        ("compression.gzip.level", "10"), ("compression.lz4.level", "18"),
        ("compression.lz4.level", "0"), ("compression.zstd.level", "23"),
    ):  # fmt: skip
        refused = await configure(client, name, value)
        assert refused.error_code is ErrorCode.invalid_config


async def test_the_brokers_default_holds_for_topics_that_say_nothing(
    broker: Broker, client: WireClient
) -> None:
    await create_topic(broker)
    await create_topic(broker, "own", config={"compression.type": "producer"})
    for name, value in (("compression.type", "gzip"), ("compression.gzip.level", "9")):
        done = await configure(client, name, value, kind=BROKER, of="")
        assert done.error_code is ErrorCode.none
    row = await described(client, "compression.type")
    assert (row.value, int(row.config_source)) == ("gzip", 3)
    assert (await described(client, "compression.type", kind=BROKER, of="1")).value == "gzip"
    await until(
        lambda: (
            broker.cluster.topic("t").config.compression is not None
            and broker.cluster.topic("t").config.compression.level == 9
        )
    )
    await breathe()
    for topic, codec in (("t", Codec.GZIP), ("own", Codec.NONE)):
        await produce(client, batch(b"v"), topic=topic)
        assert await stored(client, topic=topic) == [(codec, b"v")]
    refused = await configure(client, "compression.type", "brotli", kind=BROKER, of="")
    assert refused.error_code is ErrorCode.invalid_request


async def test_old_producers_may_write_what_is_stored_by_a_newer_codec(
    broker: Broker, client: WireClient
) -> None:
    """Who can send no zstd may still write to a topic that has it."""
    await create_topic(broker, config={"compression.type": "zstd"})
    answer = await produce(client, batch(b"v"), version=3)
    assert answer.error_code is ErrorCode.none
    assert await stored(client) == [(Codec.ZSTD, b"v")]
