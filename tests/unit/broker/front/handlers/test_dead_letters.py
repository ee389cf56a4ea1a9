"""Dead letters of share groups: never lost, written once; topics that refuse."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from broker.app import Broker
from broker.front.shares import dead_letters
from broker.partition.core.shares.share_partition import ShareCounts
from broker.partition.partition import Partition
from client.ids import Offset
from client.wire.kafka.batches.records import Record, headers, records
from tests.fakes.broker import FakeCloud, until
from tests.unit.broker.front.handlers.requests import create_topic
from tests.unit.broker.front.handlers.share_members import (
    ACCEPT,
    REJECT,
    RELEASE,
    lent,
    member,
    publish,
    set_group,
    start_broker,
)

TOPIC = "errors.deadletterqueue.topic.name"
COPY = "errors.deadletterqueue.copy.record.enable"
SWITCH = "errors.deadletterqueue.group.enable"


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "_PAUSE_S", (0.01, 0.02))


@pytest.fixture
async def broker(cloud: FakeCloud) -> AsyncIterator[Broker]:
    found = await start_broker(cloud)
    await create_topic(found, "t")
    await set_group(found, "share.auto.offset.reset", "earliest")
    await set_group(found, "share.delivery.count.limit", "2")
    await set_group(found, TOPIC, "dlq.g")
    yield found


async def letters_topic(broker: Broker, partitions: int = 1, **config: str) -> Partition:
    return await create_topic(
        broker, "dlq.g", partition_count=partitions, config={SWITCH: "true", **config}
    )


def counts(broker: Broker) -> ShareCounts:
    partition = broker.partitions.find("t", 0)
    assert partition is not None
    (share,) = partition.shares.states
    return share.counts()


async def letters(partition: Partition) -> list[Record]:
    if not partition.high_watermark:
        return []
    fetched = await partition.reader.read(
        Offset(0), 1 << 24, at_least_one=True, read_committed=False
    )
    data = b"".join(fetched.buffers)
    found = list(headers(data))
    return [one for at, header in found for one in records(data[at : at + header.size])]


def shown(record: Record) -> dict[str, str]:
    return {
        name.removeprefix("__dlq.errors."): (value or b"").decode()
        for name, value in record.headers
    }


async def test_what_is_rejected_and_what_comes_back_too_often_gets_a_letter(
    broker: Broker,
) -> None:
    target = await letters_topic(broker)
    await publish(broker, 3)
    one = await member(broker)
    assert lent(await one.fetch()) == [(0, 2, 1)]
    assert await one.settled([(0, 2, [REJECT, RELEASE, ACCEPT])]) == ("none", "none")
    await until(lambda: target.high_watermark == 1)
    assert lent(await one.fetch()) == [(1, 1, 2)]
    assert await one.settled([(1, 1, [RELEASE])]) == ("none", "none")
    await until(lambda: target.high_watermark == 2)
    await until(lambda: counts(broker) == (0, 0, 0, 0))
    rejected, exceeded = await letters(target)
    about = {"topic": "t", "partition": "0", "group": "g"}
    assert shown(rejected) == {
        **about, "offset": "0", "delivery.count": "1", "message": "Offset rejected by client.",
    }  # fmt: skip
    assert shown(exceeded) == {
        **about, "offset": "1", "delivery.count": "2",
        "message": "Offset delivery count exceeded the threshold.",
    }  # fmt: skip
    assert [name for name, _ in rejected.headers] == [
        f"__dlq.errors.{name}"
        for name in ("topic", "partition", "offset", "group", "delivery.count", "message")
    ]
    assert (rejected.key, rejected.value) == (None, None)
    assert broker.metrics.dead_letters == 2


async def test_with_a_copy_of_the_record(broker: Broker) -> None:
    target = await letters_topic(broker, 3)
    await set_group(broker, COPY, "true")
    await publish(broker, 3)
    one = await member(broker)
    await one.fetch()
    assert await one.settled([(0, 2, [ACCEPT, REJECT, REJECT])]) == ("none", "none")
    await until(lambda: target.high_watermark == 2)
    found = await letters(target)
    assert [(one.key, one.value) for one in found] == [(b"k", b"v1"), (b"k", b"v2")]
    assert [shown(one)["offset"] for one in found] == ["1", "2"]


@pytest.mark.parametrize(
    ("settings", "topic", "problem"),
    [
        ({TOPIC: "dlq.g"}, {}, "takes no dead letters"),
        ({TOPIC: "g.dead"}, {}, "does not begin with 'dlq.'"),
        ({TOPIC: "dlq.none"}, {}, "does not exist"),
        ({TOPIC: ""}, {}, "no topic for dead letters any more"),
    ],
)
async def test_a_topic_that_refuses_keeps_the_record_waiting(
    broker: Broker, settings: dict[str, str], topic: dict[str, str], problem: str
) -> None:
    target = await create_topic(broker, "dlq.g", config=topic)
    await publish(broker, 2)
    one = await member(broker)
    await one.fetch()
    partition = broker.partitions.find("t", 0)
    assert partition is not None
    tell, broker.log_services.archiving.tell = broker.log_services.archiving.tell, lambda *_: None
    assert await one.settled([(0, 1, [REJECT])]) == ("none", "none")
    for name, value in settings.items():
        await set_group(broker, name, value)
    broker.log_services.archiving.tell = tell
    broker.letters.on_opened(partition)
    await until(lambda: broker.metrics.dead_letter_failures >= 3)
    (row,) = broker.letters.rows("g")
    assert (row.first, row.last, row.deliveries, row.reason) == (
        0, 1, 1, "Offset rejected by client.",
    )  # fmt: skip
    assert problem in row.problem and row.attempts >= 3
    assert counts(broker) == (0, 0, 0, 2)
    assert broker.letters.waiting == 2
    assert partition.shares.states.get("g") is not None
    assert lent(await one.fetch()) == [], "what waits is not lent"

    await set_group(broker, TOPIC, "dlq.g")
    await broker.topics.configure(
        "dlq.g", lambda before: before.parse({**before.overrides, SWITCH: "true"})
    )
    await until(lambda: target.high_watermark == 2)
    await until(lambda: counts(broker) == (0, 0, 0, 0))
    assert broker.letters.rows("g") == []


async def test_topics_are_created_if_the_brokers_may(cloud: FakeCloud) -> None:
    found = await start_broker(cloud, errors_deadletterqueue_auto_create_topics_enable=True)
    await create_topic(found, "t")
    await set_group(found, "share.auto.offset.reset", "earliest")
    await set_group(found, TOPIC, "dlq.g")
    await publish(found, 1)
    one = await member(found)
    await one.fetch()
    assert await one.settled([(0, 0, [REJECT])]) == ("none", "none")
    await until(lambda: found.metrics.dead_letters == 1)
    topic = found.cluster.topics["dlq.g"]
    assert topic.config.overrides[SWITCH] == "true"


async def test_an_answer_that_is_lost_costs_no_second_letter(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = await letters_topic(broker)
    send, lost = broker.letters.send, 3

    async def loses(topic: object, index: int, batch: bytes) -> object:
        nonlocal lost
        answer = await send(topic, index, batch)  # type: ignore[arg-type]
        if lost:
            lost -= 1
            raise dead_letters.PeerUnanswered("lost")
        return answer

    monkeypatch.setattr(broker.letters, "send", loses)
    await publish(broker, 4)
    one = await member(broker)
    await one.fetch()
    assert await one.settled([(2, 3, [REJECT])]) == ("none", "none")
    await until(lambda: lost < 3)
    assert await one.settled([(0, 1, [REJECT])]) == ("none", "none")
    await until(lambda: counts(broker) == (0, 0, 0, 0))
    assert [shown(one)["offset"] for one in await letters(target)] == ["2", "3", "0", "1"]


async def test_whoever_takes_over_goes_on(cloud: FakeCloud, broker: Broker) -> None:
    await publish(broker, 2)
    one = await member(broker)
    await one.fetch()
    assert await one.settled([(0, 1, [REJECT, ACCEPT])]) == ("none", "none")
    await until(lambda: broker.metrics.dead_letter_failures > 0)
    await broker.close()
    cloud.brokers.clear()
    other = await start_broker(cloud, 2)
    target = await letters_topic(other)
    await until(lambda: target.high_watermark == 1)
    assert [shown(one)["offset"] for one in await letters(target)] == ["0"]
    await until(lambda: counts(other) == (0, 0, 0, 0))


async def test_what_the_log_does_not_have_any_more_gets_a_letter_all_the_same(
    broker: Broker,
) -> None:
    await set_group(broker, COPY, "true")
    await publish(broker, 2)
    one = await member(broker)
    await one.fetch()
    assert await one.settled([(0, 1, [REJECT, REJECT])]) == ("none", "none")
    await until(lambda: broker.metrics.dead_letter_failures > 0)
    partition = broker.partitions.find("t", 0)
    assert partition is not None
    await partition.changes.delete_records(Offset(1))
    assert lent(await one.fetch()) == []
    assert counts(broker).archiving == 2
    target = await letters_topic(broker)
    await until(lambda: target.high_watermark == 2)
    first, second = await letters(target)
    assert (shown(first)["offset"], first.value) == ("0", None)
    assert (shown(second)["offset"], second.value) == ("1", b"v1")


async def test_a_letter_that_fits_no_batch_has_headers_only(broker: Broker) -> None:
    target = await letters_topic(broker, **{"max.message.bytes": "400"})
    await set_group(broker, COPY, "true")
    partition = broker.partitions.find("t", 0)
    assert partition is not None
    await publish(broker, 60)
    one = await member(broker)
    await one.fetch()
    assert await one.settled([(0, 59, [REJECT])]) == ("none", "none")
    await until(lambda: counts(broker) == (0, 0, 0, 0))
    assert [shown(one)["offset"] for one in await letters(target)] == [str(n) for n in range(60)]


async def test_without_the_level_there_are_no_dead_letters(broker: Broker) -> None:
    target = await letters_topic(broker)
    await publish(broker, 1)
    one = await member(broker)
    await one.fetch()
    features = broker.services.features
    features.finalized = features.finalized._replace(levels={"share.version": 1})
    assert await one.settled([(0, 0, [REJECT])]) == ("none", "none")
    assert counts(broker) == (0, 0, 0, 0)
    assert target.high_watermark == 0
