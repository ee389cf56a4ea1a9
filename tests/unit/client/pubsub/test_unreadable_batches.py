"""A subscriber at a batch that cannot be read: what is before it comes, and its place is named."""

from __future__ import annotations

from typing import Any

import pytest

from client.pubsub.errors import UnreadableBatch
from client.pubsub.subscriber import Subscriber
from client.wire.kafka.batches.records import Codec, Record, build_batch, pack_batch, parse_header
from tests.fakes.broker import FakeCloud, until
from tests.unit.broker.front.handlers.requests import NOW_MS, create_topic

GOOD = build_batch([Record(b"k", b"v", NOW_MS), Record(b"k", b"w", NOW_MS)])


def garbage(codec: Codec) -> bytes:
    return pack_batch(parse_header(GOOD)._replace(attributes=codec), b"nothing that it can open")


def cut() -> bytes:
    return pack_batch(parse_header(GOOD), b"\x7e" + GOOD[62:])


BAD = {codec.name: garbage(codec) for codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD)} | {
    "cut off": cut()
}


async def stored(partition: Any, *batches: bytes) -> None:
    """Store batches as a version has done it that believed headers."""
    for data in batches:
        partition.append(data, from_client=False)
    end = partition.log_end_offset
    await until(lambda: partition.high_watermark == end)


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
async def test_what_comes_before_is_handed_out_and_the_place_is_named(bad: bytes) -> None:
    cloud = FakeCloud()
    broker = await cloud.start_broker(1)
    await stored(await create_topic(broker), GOOD, GOOD, bad, GOOD)
    servers = f"127.0.0.1:{broker.port}"
    values: list[bytes | None] = []
    async with Subscriber("t", bootstrap_servers=servers, start="earliest") as subscriber:
        with pytest.raises(UnreadableBatch, match=r"offset 4 of t.*peek t 0 --offset 4"):
            while True:
                values += [one.value for one in await subscriber.next_batch(timeout_ms=500)]
    assert values == [b"v", b"w", b"v", b"w"]
    async with Subscriber("t", bootstrap_servers=servers, start="earliest") as subscriber:
        values.clear()
        with pytest.raises(UnreadableBatch, match="offset 4 of t partition 0"):
            async for one in subscriber:
                values.append(one.value)
    assert values == [b"v", b"w", b"v", b"w"]
    await cloud.close()
