"""Requests for a partition that a broker is about to lead, and answers that name its leader."""

from __future__ import annotations

import asyncio

import pytest
from kio.schema.errors import ErrorCode

from broker.app import Broker
from client.errors import ConnectionLoss
from client.wire.kafka.apis import ApiKey
from tests.fakes.broker import FakeCloud, until
from tests.fakes.wire_client import WireClient
from tests.unit.broker.front.handlers.requests import (
    batch,
    breathe,
    create_topic,
    fetch,
    fetch_fields,
    produce,
    produce_fields,
)


async def opening(cloud: FakeCloud, broker: Broker, name: str = "t") -> asyncio.Event:
    """Create a topic that is being opened until the returned event is set."""
    cloud.ledgers.gate.pop("create", None)
    gate = cloud.ledgers.stop_at("create")
    topic = await broker.topics.create(name)
    await until(lambda: (topic.topic_id, 0) in broker.partitions._opening)
    return gate


async def led(broker: Broker, name: str = "t") -> None:
    await until(lambda: broker.partitions.find(name, 0) is not None)


async def test_a_produce_waits_until_the_partition_is_led(
    cloud: FakeCloud, broker: Broker, client: WireClient
) -> None:
    gate = await opening(cloud, broker)
    for number in range(5):
        client.send(ApiKey.PRODUCE, 9, **produce_fields(batch(b"%d" % number)))
    await breathe()
    assert 0 < broker.partitions.awaited.held_bytes == broker.server.in_flight_bytes, "one waits"
    gate.set()
    for number in range(5):
        row = (await client.receive()).responses[0].partition_responses[0]
        assert (row.error_code, row.base_offset) == (ErrorCode.none, number)
    assert broker.partitions.awaited.held_bytes == broker.server.in_flight_bytes == 0


async def test_nothing_sent_with_acks_0_is_lost_although_the_client_hangs_up(
    cloud: FakeCloud, broker: Broker, client: WireClient
) -> None:
    gate = await opening(cloud, broker)
    client.send(ApiKey.PRODUCE, 9, **produce_fields(batch(b"a", b"b"), acks=0))
    await until(lambda: broker.partitions.awaited.held_bytes > 0)
    await client.close()
    await until(lambda: broker.server.connection_count == 0)
    gate.set()
    await led(broker)
    await until(lambda: broker.partitions.leader("t", 0).high_watermark == 2)
    assert broker.partitions.awaited.held_bytes == 0


async def test_many_with_acks_0_keep_their_order(
    cloud: FakeCloud, broker: Broker, client: WireClient
) -> None:
    gate = await opening(cloud, broker)
    sent = [b"%d" % number for number in range(50)]
    for value in sent:
        client.send(ApiKey.PRODUCE, 9, **produce_fields(batch(value), acks=0))
        client.forget_last()
    client.send(ApiKey.API_VERSIONS, 0)
    await breathe()
    gate.set()
    await client.receive()
    await until(lambda: broker.partitions.leader("t", 0).high_watermark == 50)
    data = bytes((await fetch(client, 0)).records)
    places = [data.index(b"k\x04" + value if len(value) > 1 else value) for value in sent[10:]]
    assert places == sorted(places)


async def test_what_comes_next_is_not_read_beyond_what_one_read_brought(cloud: FakeCloud) -> None:
    broker = await cloud.start_broker(1, partition_hold_max_ms=60_000)
    client = await WireClient.connect(broker.port)
    gate = await opening(cloud, broker)
    request = client.frame(ApiKey.PRODUCE, 9, produce_fields(batch(b"x" * 200_000)))
    for _ in range(100):
        client.send_raw(request)
    for _ in range(10):
        await breathe()
    (connection,) = broker.server._connections
    assert connection._wire.open_slots == 1
    assert not connection.is_reading
    assert sum(map(len, connection._backlog)) < 1 << 20
    gate.set()
    await led(broker)
    await until(lambda: broker.partitions.leader("t", 0).high_watermark == 100)
    await client.close()


async def test_a_produce_waits_no_longer_than_allowed_and_then_is_not_stored(
    cloud: FakeCloud,
) -> None:
    broker = await cloud.start_broker(1, partition_hold_max_ms=200)
    client = await WireClient.connect(broker.port)
    gate = await opening(cloud, broker)
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    row = await produce(client, batch(b"a"))
    assert row.error_code is ErrorCode.not_leader_or_follower
    assert loop.time() - began_s >= 0.1
    assert broker.partitions.awaited.left_s((broker.cluster.topic("t").topic_id, 0)) == 0
    began_s = loop.time()
    row = await produce(client, batch(b"b"))
    assert row.error_code is ErrorCode.not_leader_or_follower
    assert loop.time() - began_s < 0.1, "it was waited for already"
    gate.set()
    await led(broker)
    assert (await produce(client, batch(b"c"))).base_offset == 0
    await client.close()


async def test_a_produce_waits_no_longer_than_it_wants_to(cloud: FakeCloud) -> None:
    broker = await cloud.start_broker(1, partition_hold_max_ms=60_000)
    client = await WireClient.connect(broker.port)
    gate = await opening(cloud, broker)
    row = await produce(client, batch(b"a"), timeout_ms=50)
    assert row.error_code is ErrorCode.not_leader_or_follower
    gate.set()
    await led(broker)
    assert (await produce(client, batch(b"c"))).base_offset == 0
    await client.close()


async def test_other_partitions_of_the_request_are_appended_meanwhile(
    cloud: FakeCloud, broker: Broker, client: WireClient
) -> None:
    partition = await create_topic(broker, "led")
    gate = await opening(cloud, broker)
    fields = produce_fields(batch(b"a"))
    fields["topic_data"] += produce_fields(batch(b"b"), topic="led")["topic_data"]
    fields["topic_data"] += produce_fields(batch(b"c"))["topic_data"]
    client.send(ApiKey.PRODUCE, 9, **fields)
    await until(lambda: partition.high_watermark == 1)
    gate.set()
    rows = [topic.partition_responses[0] for topic in (await client.receive()).responses]
    assert [row.error_code for row in rows] == [ErrorCode.none] * 3
    assert [row.base_offset for row in rows] == [0, 0, 1]


async def test_too_many_bytes_do_not_wait(cloud: FakeCloud) -> None:
    broker = await cloud.start_broker(
        1, partition_hold_max_ms=60_000, partition_hold_bytes_max=1_000
    )
    client = await WireClient.connect(broker.port)
    await opening(cloud, broker)
    row = await produce(client, batch(b"x" * 1_000))
    assert row.error_code is ErrorCode.not_leader_or_follower
    await client.close()
    cloud.ledgers.gate.clear()


async def test_a_broker_that_is_not_wanted_any_more_refuses_at_once(cloud: FakeCloud) -> None:
    broker = await cloud.start_broker(1, partition_hold_max_ms=60_000)
    client = await WireClient.connect(broker.port)
    gate = await opening(cloud, broker)
    client.send(ApiKey.PRODUCE, 9, **produce_fields(batch(b"a")))
    await until(lambda: broker.partitions.awaited.held_bytes > 0)
    await broker.topics.delete("t")
    row = (await client.receive()).responses[0].partition_responses[0]
    assert row.error_code is ErrorCode.unknown_topic_or_partition
    gate.set()
    await client.close()


async def test_a_list_of_offsets_waits_too(
    cloud: FakeCloud, broker: Broker, client: WireClient
) -> None:
    gate = await opening(cloud, broker)
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -2}
    client.send(
        ApiKey.LIST_OFFSETS, 5, replica_id=-1, isolation_level=0,
        topics=[{"name": "t", "partitions": [partition]}],
    )  # fmt: skip
    with pytest.raises(TimeoutError):
        await client.receive_raw(0.05)
    gate.set()
    assert b"\x00\x01t" in await client.receive_raw()


async def test_a_long_poll_waits_for_the_leader_like_for_data(
    cloud: FakeCloud, broker: Broker, client: WireClient
) -> None:
    gate = await opening(cloud, broker)
    client.send(ApiKey.FETCH, 12, **fetch_fields(0, wait_ms=5_000))
    with pytest.raises(TimeoutError):
        await client.receive_raw(0.05)
    gate.set()
    await led(broker)
    other = await WireClient.connect(broker.port)
    await produce(other, batch(b"a"))
    row = (await client.receive()).responses[0].partitions[0]
    assert (row.error_code, row.high_watermark) == (ErrorCode.none, 1)
    await other.close()


async def test_a_fetch_is_told_when_the_leader_does_not_come(
    cloud: FakeCloud, broker: Broker, client: WireClient
) -> None:
    await opening(cloud, broker)
    assert (await fetch(client, 0)).error_code is ErrorCode.not_leader_or_follower, "no wait"
    row = await fetch(client, 0, wait_ms=50)
    assert row.error_code is ErrorCode.not_leader_or_follower
    cloud.ledgers.gate.clear()


async def metadata(client: WireClient, topics: list[str] | None) -> tuple[ErrorCode, int]:
    named = None if topics is None else [{"topic_id": None, "name": name} for name in topics]
    client.send(ApiKey.METADATA, 9, topics=named, allow_auto_topic_creation=True)
    (topic,) = (await client.receive()).topics
    return topic.partitions[0].error_code, topic.partitions[0].leader_id


@pytest.mark.parametrize("topics", [["t"], None])
async def test_who_is_named_has_opened_the_partition(
    cloud: FakeCloud, broker: Broker, client: WireClient, topics: list[str] | None
) -> None:
    gate = await opening(cloud, broker)
    asyncio.get_running_loop().call_later(0.05, gate.set)
    assert await metadata(client, topics) == (ErrorCode.none, 1)
    assert broker.partitions.find("t", 0) is not None


async def test_nobody_is_named_who_could_not_open_it_yet(
    cloud: FakeCloud, broker: Broker, client: WireClient
) -> None:
    gate = await opening(cloud, broker)
    assert await metadata(client, ["t"]) == (ErrorCode.leader_not_available, -1)
    gate.set()
    await led(broker)
    assert await metadata(client, ["t"]) == (ErrorCode.none, 1)


async def test_a_topic_made_by_its_first_mention_takes_the_first_produce_of_its_client(
    broker: Broker, client: WireClient
) -> None:
    assert await metadata(client, ["fresh"]) == (ErrorCode.none, 1)
    assert (await produce(client, batch(b"a"), topic="fresh")).error_code is ErrorCode.none


async def test_a_takeover_that_fails_once_loses_nothing(
    cloud: FakeCloud, broker: Broker, client: WireClient
) -> None:
    gate = await opening(cloud, broker)
    cloud.ledgers.fail_next("create", ConnectionLoss("none"))
    client.send(ApiKey.PRODUCE, 9, **produce_fields(batch(b"a")))
    await breathe()
    gate.set()
    row = (await client.receive()).responses[0].partition_responses[0]
    assert row.error_code is ErrorCode.none
