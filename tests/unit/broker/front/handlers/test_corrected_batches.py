"""A batch whose header has another newest time than its records: what is stored, found, read."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from crc32c import crc32c

from broker.app import Broker
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.batches.records import (
    Codec,
    Record,
    build_batch,
    crc_of,
    parse_header,
    records,
)
from tests.fakes.wire_client import WireClient
from tests.unit.broker.front.handlers.requests import NOW_MS, create_topic, fetch, produce

TIMES = [NOW_MS, NOW_MS + 10_000, NOW_MS + 20_000]


def lying(told_ms: int, codec: Codec, pad: int = 0) -> bytes:
    made = [Record(b"k", bytes(pad), time) for time in TIMES]
    data = bytearray(build_batch(made, codec=codec))
    struct.pack_into(">q", data, 35, told_ms)
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return bytes(data)


async def found_at(client: WireClient, timestamp: int) -> tuple[int, int]:
    row = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
    fields: dict[str, Any] = {
        "replica_id": -1, "isolation_level": 0, "topics": [{"name": "t", "partitions": [row]}]
    }  # fmt: skip
    answer = await client.call(ApiKey.LIST_OFFSETS, 7, **fields)
    (one,) = answer.topics[0].partitions
    return one.offset, one.timestamp if isinstance(one.timestamp, int) else -2


@pytest.mark.parametrize("pad", [0, 50_000], ids=["copied", "in two pieces"])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP], ids=lambda codec: codec.name)
@pytest.mark.parametrize("told_ms", [-1, NOW_MS, NOW_MS - 3_600_000, NOW_MS + 3_000_000])
async def test_the_header_is_corrected_and_searches_find_every_record(
    broker: Broker, client: WireClient, told_ms: int, codec: Codec, pad: int
) -> None:
    partition = await create_topic(broker)
    sent = lying(told_ms, codec, pad)
    assert (await produce(client, sent)).base_offset == 0
    stored = bytes((await fetch(client, 0)).records)
    header = parse_header(stored)
    assert header.max_timestamp == TIMES[-1]
    assert header.crc == crc_of(memoryview(stored))
    assert stored[61:] == sent[61:]  # the records are the producer's
    assert [one.timestamp_ms for one in records(stored)] == TIMES
    assert partition._leader.log.active.max_timestamp_ms == TIMES[-1]
    for at, time in enumerate(TIMES):
        assert (await found_at(client, time))[0] == at
        assert (await found_at(client, time - 5_000))[0] == at
    assert (await found_at(client, TIMES[-1] + 1))[0] == -1
