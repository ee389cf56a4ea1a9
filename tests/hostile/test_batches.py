"""Record batches that lie, and compressed ones that inflate beyond all measure."""

from __future__ import annotations

import struct
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable
from typing import Any

import cramjam
import pytest
from crc32c import crc32c

from broker.app import Broker
from broker.errors import InvalidRecord
from broker.partition.core.batch_checks import BatchLimits, check_batch
from client.errors import RemoteProtocolError
from client.spark.decode.decode import DamagedBatch, Wanted, decode
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.batches.records import (
    BatchHeader,
    Codec,
    Record,
    build_batch,
    cautious_bytes_max,
    compress,
    decompress,
    pack_batch,
    parse_header,
    records,
)
from tests.fakes.admin import AdminCloud
from tests.fakes.broker import until
from tests.fakes.wire_client import WireClient
from tests.unit.broker.front.handlers.requests import NOW_MS, batch, create_topic, produce

CORRUPT_MESSAGE, INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION, INVALID_RECORD = 2, 32, 76, 87
MESSAGE_TOO_LARGE = 10
MIB = 1 << 20
BOMB_BYTES = 40 * MIB
PEAK_BYTES_MAX = 40 * MIB
"""The 16 MiB that a server inflates, twice, and what else a request needs."""
CPU_S_MAX = 3.0
CODECS = list(Codec)[1:]


def changed(at: int, layout: str, value: int, *, sealed: bool = True) -> bytes:
    """Return a good batch with one field of its header changed."""
    data = bytearray(batch(b"a", b"b"))
    struct.pack_into(layout, data, at, value)
    if sealed:
        struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return bytes(data)


def with_both_counts(count: int, codec: Codec = Codec.NONE) -> bytes:
    data = bytearray(batch(b"a", codec=codec))
    struct.pack_into(">i", data, 23, count - 1)
    struct.pack_into(">i", data, 57, count)
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return bytes(data)


LIES = {
    "crc": (changed(17, ">I", 1, sealed=False), CORRUPT_MESSAGE),
    "a flipped bit": (batch(b"abc").replace(b"abc", b"abd"), CORRUPT_MESSAGE),
    "magic 1": (changed(16, ">b", 1), INVALID_RECORD),
    "magic 3": (changed(16, ">b", 3), INVALID_RECORD),
    "base offset": (changed(0, ">q", 7, sealed=False), INVALID_RECORD),
    "longer than it is": (changed(8, ">i", 5000, sealed=False), INVALID_RECORD),
    "shorter than a header": (changed(8, ">i", 10, sealed=False), INVALID_RECORD),
    "negative length": (changed(8, ">i", -5, sealed=False), INVALID_RECORD),
    "offset delta above the count": (changed(23, ">i", 2), INVALID_RECORD),
    "negative offset delta": (changed(23, ">i", -1), INVALID_RECORD),
    "count below the delta": (changed(57, ">i", 1), INVALID_RECORD),
    "no records": (with_both_counts(0), INVALID_RECORD),
    "negative count": (with_both_counts(-1), INVALID_RECORD),
    "a count without room": (with_both_counts(2**31 - 1), INVALID_RECORD),
    "a compressed count without room": (with_both_counts(2**31 - 1, Codec.ZSTD), INVALID_RECORD),
    "the far future": (changed(27, ">q", 2**62), INVALID_TIMESTAMP),
    "a timestamp of the broker's": (changed(21, ">h", 0x08), INVALID_TIMESTAMP),
    "control": (changed(21, ">h", 0x20), INVALID_RECORD),
    "codec 7": (changed(21, ">h", 7), UNSUPPORTED_COMPRESSION),
    "a producer without a sequence": (changed(43, ">q", 5), INVALID_RECORD),
    "too large": (batch(bytes(2 * MIB)), MESSAGE_TOO_LARGE),
    "cut off": (batch(b"abc")[:-1], INVALID_RECORD),
    "no header": (b"x" * 20, INVALID_RECORD),
}


@pytest.fixture
async def cloud() -> AsyncIterator[AdminCloud]:
    async with AdminCloud() as made:
        yield made


async def cost_of(run: Callable[[], Any]) -> Any:
    """Await something; fail if it takes too much memory or CPU."""
    began_s = time.process_time()
    tracemalloc.start()
    try:
        result = await run()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < PEAK_BYTES_MAX
    assert time.process_time() - began_s < CPU_S_MAX
    return result


@pytest.mark.parametrize("name", LIES)
async def test_a_batch_that_lies_is_refused_and_not_stored(cloud: AdminCloud, name: str) -> None:
    data, code = LIES[name]
    broker = cloud.brokers[1]
    partition = await create_topic(broker)
    client = await WireClient.connect(broker.port)
    assert (await produce(client, data)).error_code == code
    assert partition.log_end_offset == 0
    assert (await produce(client, batch(b"good"))).base_offset == 0
    await client.close()


def sealed(body: bytes, codec: Codec = Codec.NONE, count: int = 1) -> bytes:
    """Return a batch whose header is right, whatever the body."""
    head = parse_header(batch(b"x"))
    fields: dict[str, Any] = {
        "attributes": int(codec), "record_count": count, "last_offset_delta": count - 1,
    }  # fmt: skip
    return pack_batch(BatchHeader(*head)._replace(**fields), body)


RECORDS = {
    "nothing": b"",
    "a length beyond the batch": b"\xfe\xff\xff\xff\x0f" + bytes(20),
    "a negative length": b"\x01" + bytes(20),
    "a varint without end": b"\xff" * 30,
    "a key beyond the record": b"\x0e\x00\x00\x00\x7e" + bytes(20),
    "a negative key": b"\x0e\x00\x00\x00\x05" + bytes(20),
    "headers without room": b"\x18\x00\x00\x00\x01\x01\xfe\xff\xff\xff\x0f" + bytes(20),
    "a negative count of headers": b"\x0e\x00\x00\x00\x02k\x01\x01" + bytes(20),
}


@pytest.mark.parametrize("body", RECORDS.values(), ids=RECORDS.keys())
@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
@pytest.mark.parametrize("keys_required", [False, True])
def test_records_that_lie_are_refused(body: bytes, codec: Codec, keys_required: bool) -> None:
    data = memoryview(sealed(compress(codec, body), codec))
    with pytest.raises(InvalidRecord):
        check_batch(data, BatchLimits(keys_required=keys_required), NOW_MS)
    with pytest.raises(RemoteProtocolError):
        list(records(data))


def bomb(codec: Codec, size: int = BOMB_BYTES) -> bytes:
    zeros = bytes(size)
    if codec is Codec.SNAPPY:  # the block form has one length for all
        return bytes(cramjam.snappy.compress_raw(zeros))
    return compress(codec, zeros)


def bomb_batch(codec: Codec) -> bytes:
    """One record of many zeros, compressed."""
    size = BOMB_BYTES if codec is not Codec.SNAPPY else 20 * MIB
    return build_batch([Record(b"k", bytes(size), NOW_MS)], codec=codec)


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
async def test_a_bomb_costs_no_more_than_the_cap(codec: Codec) -> None:
    data = bomb(codec)

    async def inflate() -> None:
        with pytest.raises(RemoteProtocolError):
            decompress(codec, data, cautious_bytes_max(len(data)))

    await cost_of(inflate)


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
@pytest.mark.parametrize("policy", ["delete", "compact"])
async def test_a_bomb_is_refused(cloud: AdminCloud, codec: Codec, policy: str) -> None:
    """As too large: Java's producer splits a batch that gets this answer, and an honest one may
    come through in halves."""
    data = bomb_batch(codec)
    config = {"cleanup.policy": policy, "max.message.bytes": "2000000"}
    broker, partition = await _with_topic(cloud, config)
    client = await WireClient.connect(broker.port)
    answer = await cost_of(lambda: produce(client, data))
    assert answer.error_code == MESSAGE_TOO_LARGE
    assert partition.log_end_offset == 0
    await client.close()


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
async def test_a_stored_bomb_harms_nobody_who_looks(cloud: AdminCloud, codec: Codec) -> None:
    """As versions that opened no batches have stored it: one is opened to find a time in it, or to
    show it to people."""
    data = bomb_batch(codec)
    broker, partition = await _with_topic(cloud, {"max.message.bytes": "2000000"})
    client = await WireClient.connect(broker.port)
    partition.append(data, from_client=False)
    await until(lambda: partition.high_watermark == 1)
    found = await cost_of(lambda: partition.reader.offset_for_timestamp(NOW_MS))
    assert found == (0, NOW_MS)
    path = "/admin/v1/topics/t/partitions/0/records"
    answer = await cost_of(lambda: cloud.ask("GET", path))
    assert answer.status == 200 and answer.body["records"] == []
    (unreadable,) = answer.body["unreadable"]
    assert (unreadable["offset"], unreadable["next_offset"]) == (0, 1)
    assert (await client.call(ApiKey.API_VERSIONS, 0)).api_keys
    await client.close()


async def _with_topic(cloud: AdminCloud, config: dict[str, str]) -> tuple[Broker, Any]:
    broker = cloud.brokers[1]
    return broker, await create_topic(broker, config=config)


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
async def test_a_bomb_ends_a_spark_task_with_a_sentence(codec: Codec) -> None:
    data = bomb_batch(codec)

    async def run() -> None:
        with pytest.raises(DamagedBatch, match="topic t partition 0"):
            list(decode([data], Wanted("t", 0, 0, 1, ["value"], decompressed_bytes_max=8 * MIB)))

    await cost_of(run)


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_a_stream_that_is_cut_off_is_damage(codec: Codec) -> None:
    whole = compress(codec, b"some text " * 1000)
    for cut in (0, 1, len(whole) // 2, len(whole) - 1):
        with pytest.raises(RemoteProtocolError):
            decompress(codec, whole[:cut], MIB)


@pytest.mark.parametrize(
    "claim",
    [b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x08" + b"\x00" * 40,
     b"\x82SNAPPY\x00" + bytes(8) + struct.pack(">i", 2**31 - 1),
     b"\x82SNAPPY\x00" + bytes(8) + struct.pack(">i", -1) + bytes(9)],
    ids=["4 GiB", "16 MiB in 44 bytes", "xerial block", "negative xerial block"],
)  # fmt: skip
async def test_what_snappy_claims_is_not_reserved(claim: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError):
            decompress(Codec.SNAPPY, claim, 64 * MIB)
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


async def test_damage_does_not_grow_the_output_buffer() -> None:
    """Only a buffer that is too small is a reason for a larger one."""
    tracemalloc.start()
    try:
        for codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD):
            with pytest.raises(RemoteProtocolError):
                decompress(codec, compress(codec, b"some text " * 100)[:-3], 256 * MIB)
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()
