"""Share groups with order by key, and records that wait before they are delivered again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from broker.app import Broker
from client.wire.kafka.batches.records import Codec, Record, build_batch
from tests.fakes.broker import FakeCloud, until
from tests.fakes.clock import FakeClock
from tests.fakes.wire_client import WireClient
from tests.unit.broker.front.handlers.requests import NOW_MS, create_topic, produce
from tests.unit.broker.front.handlers.share_members import (
    ACCEPT,
    REJECT,
    RELEASE,
    lent,
    member,
    set_group,
    start_broker,
)


@pytest.fixture
async def broker(cloud: FakeCloud) -> AsyncIterator[Broker]:
    found = await start_broker(cloud)
    await create_topic(found, "t")
    await set_group(found, "share.auto.offset.reset", "earliest")
    yield found


async def publish(broker: Broker, keys: str, codec: Codec = Codec.NONE) -> None:
    """Publish one batch; a key is a letter, '-' is none."""
    client = await WireClient.connect(broker.port)
    found = [Record(None if key == "-" else key.encode(), b"v", NOW_MS) for key in keys]
    answer = await produce(client, build_batch(found, codec=codec))
    assert not answer.error_code.value
    await client.close()


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
async def test_one_record_of_each_key_is_in_flight(broker: Broker, codec: Codec) -> None:
    await set_group(broker, "share.order", "key")
    await publish(broker, "aab-a-b", codec)
    one, two = await member(broker), await member(broker, "member-2")
    assert lent(await one.fetch()) == [(0, 0, 1), (2, 3, 1), (5, 5, 1)]
    assert lent(await two.fetch()) == []
    assert await one.settled([(2, 2, [ACCEPT])]) == ("none", "none")
    assert lent(await two.fetch()) == [(6, 6, 1)], "the next of b"
    assert await one.settled([(0, 0, [RELEASE])]) == ("none", "none")
    assert lent(await two.fetch()) == [(0, 0, 2)], "the same of a, not the next"
    assert await two.settled([(0, 0, [REJECT])]) == ("none", "none")
    assert lent(await one.fetch()) == [(1, 1, 1)]
    assert await one.settled([(1, 1, [ACCEPT])]) == ("none", "none")
    assert lent(await one.fetch()) == [(4, 4, 1)]


async def test_keys_of_later_batches_wait_too(broker: Broker) -> None:
    await set_group(broker, "share.order", "key")
    for keys in ("ab", "ba", "c"):
        await publish(broker, keys)
    one = await member(broker)
    assert lent(await one.fetch()) == [(0, 1, 1), (4, 4, 1)]
    assert await one.settled([(0, 1, [ACCEPT])]) == ("none", "none")
    assert lent(await one.fetch()) == [(2, 3, 1)]


async def test_order_begins_when_what_was_lent_without_has_come_back(broker: Broker) -> None:
    await publish(broker, "aa")
    await publish(broker, "a")
    one = await member(broker)
    assert lent(await one.fetch(max_records=1)) == [(0, 1, 1)]
    await set_group(broker, "share.order", "key")
    assert lent(await one.fetch()) == []
    assert await one.settled([(0, 1, [RELEASE])]) == ("none", "none")
    assert lent(await one.fetch()) == [(0, 0, 2)]


async def test_what_is_released_waits_longer_each_time(broker: Broker) -> None:
    await set_group(broker, "share.release.delay.ms", "1000")
    await set_group(broker, "share.release.delay.max.ms", "1500")
    clock = broker.services.clock
    assert isinstance(clock, FakeClock)
    await publish(broker, "ab")
    one = await member(broker)
    assert lent(await one.fetch()) == [(0, 1, 1)]
    assert await one.settled([(0, 1, [RELEASE, ACCEPT])]) == ("none", "none")
    for deliveries, wait_ms in ((2, 1_000), (3, 1_500)):
        clock.ms += wait_ms - 1
        assert lent(await one.fetch()) == []
        clock.ms += 1
        assert lent(await one.fetch()) == [(0, 0, deliveries)]
        assert await one.settled([(0, 0, [RELEASE])]) == ("none", "none")


async def test_whoever_waits_gets_it_on_time_without_asking_again(broker: Broker) -> None:
    await set_group(broker, "share.release.delay.ms", "50")
    await publish(broker, "a")
    one = await member(broker)
    await one.fetch()
    assert await one.settled([(0, 0, [RELEASE])]) == ("none", "none")
    asked = asyncio.create_task(one.fetch(max_wait=5_000))
    clock = broker.services.clock
    assert isinstance(clock, FakeClock)
    await asyncio.sleep(0.01)
    assert not asked.done()
    clock.ms += 50
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    assert lent(await asked) == [(0, 0, 2)]
    assert loop.time() - began_s < 0.1


async def test_a_record_waits_through_a_takeover(cloud: FakeCloud, broker: Broker) -> None:
    await set_group(broker, "share.release.delay.ms", "60000")
    await publish(broker, "ab")
    one = await member(broker)
    await one.fetch()
    assert await one.settled([(0, 1, [RELEASE, ACCEPT])]) == ("none", "none")
    await broker.close()
    cloud.brokers.clear()
    other = await start_broker(cloud, 2)
    await until(lambda: other.partitions.find("t", 0) is not None)
    two = await member(other, "member-2")
    assert lent(await two.fetch()) == []
    clock = other.services.clock
    assert isinstance(clock, FakeClock)
    clock.ms += 60_000
    assert lent(await two.fetch()) == [(0, 0, 2)]
