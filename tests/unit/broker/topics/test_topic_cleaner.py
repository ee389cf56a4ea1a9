"""What is left of deleted topics goes, step by step and after any interruption."""

from __future__ import annotations

import asyncio
import logging

import pytest

from broker.app import Broker
from broker.topics.topic_cleaner import ORPHAN_AGE_MS, TopicCleaner
from client.errors import WriteFailed
from client.ids import LedgerId, Offset
from client.log.segments import decode_segments
from client.metadata import paths
from client.metadata.memory import Fault, MemoryStore, Operation
from tests.fakes.bad_nodes import HUGE_JSON, NEWER_FORMAT, NO_JSON
from tests.fakes.broker import FakeCloud, until
from tests.fakes.clock import FakeClock
from tests.unit.broker.front.handlers.requests import batch, create_topic


@pytest.fixture
async def cloud() -> FakeCloud:
    return FakeCloud()


@pytest.fixture
async def broker(cloud: FakeCloud) -> Broker:
    return await cloud.start_broker(1)


def cleaner_of(broker: Broker) -> TopicCleaner:
    return next(task for task in broker._background if isinstance(task, TopicCleaner))


async def children(store: MemoryStore, path: str) -> list[str]:
    return await store.children(path)


async def gone(cloud: FakeCloud, topic_id: str) -> None:
    """Wait until nothing of the topic is left."""
    store = cloud.tree.session()
    for path in (paths.topic_partitions(topic_id), paths.deleted_topic(topic_id)):
        looked = asyncio.Event()
        async with asyncio.timeout(10):
            while await store.exists(path, looked.set) is not None:
                await looked.wait()
                looked.clear()


async def test_a_deleted_topics_ledgers_and_nodes_go(cloud: FakeCloud, broker: Broker) -> None:
    partition = await create_topic(broker, partition_count=3)
    partition.append(batch(b"a"))
    await until(lambda: partition.high_watermark == 1)
    await partition.changes.roll()
    kept = await create_topic(broker, "kept")
    assert len(cloud.ledgers.ledgers) == 5
    await broker.topics.delete("t")
    await gone(cloud, partition.topic.id_text)
    await until(lambda: len(cloud.ledgers.ledgers) == 1)
    assert await children(cloud.tree.session(), paths.PARTITIONS) == [kept.topic.id_text]
    assert kept.is_open
    await cloud.close()


async def test_nothing_alarming_is_logged_of_a_topic_that_goes_in_use(
    cloud: FakeCloud, caplog: pytest.LogCaptureFixture
) -> None:
    """Batches are on their way and consumers wait, on the broker that deletes and on another."""
    brokers = [await cloud.start_broker(number) for number in (1, 2)]
    topic = await brokers[0].topics.create("t", partition_count=4)
    led = [broker.partitions for broker in brokers]
    await until(
        lambda: (
            all(any(one.find("t", each) for one in led) for each in range(4))
            and all(any(one.find("t", each) for each in range(4)) for one in led)
        )
    )
    used = [found for one in led for each in range(4) if (found := one.find("t", each))]
    caplog.set_level(logging.WARNING)
    for partition in used:
        partition.on_high_watermark(Offset(9), lambda: None, read_committed=False)
        partition.append(batch(b"a"))
    await brokers[0].topics.delete("t")
    await gone(cloud, topic.id_text)
    await until(lambda: not any(partition.is_open for partition in used))
    alarming = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.getMessage() for record in alarming] == []
    await cloud.close()


@pytest.mark.parametrize("fails_at", [None, 1, 3, 5])
async def test_a_long_lists_ledgers_and_pages_go(
    cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch, fails_at: int | None
) -> None:
    """All ledgers before any page: whoever comes after an interruption finds the rest."""
    monkeypatch.setattr("broker.topics.topic_cleaner._RETRY_S", 0.01)
    broker = await cloud.start_broker(1, log_segment_page_entries=2)
    partition = await create_topic(broker)
    for number in range(9):
        partition.append(batch(b"a"))
        await until(lambda end=number: partition.high_watermark == end + 1)
        await partition.changes.roll()
    node = paths.partition(partition.topic.id_text, 0)
    assert await children(cloud.tree.session(), paths.segment_pages(node))
    deletes: list[str] = []

    def lose(operation: Operation) -> Fault | None:
        if operation.name != "delete" or "/pages/" not in operation.path:
            return None
        assert not cloud.ledgers.ledgers, "a ledger is left, and a page goes"
        deletes.append(operation.path)
        return Fault.LOSE_REQUEST if len(deletes) == fails_at else None

    cloud.tree.on_request = lose
    await broker.topics.delete("t")
    await gone(cloud, partition.topic.id_text)
    assert not cloud.ledgers.ledgers
    assert len(deletes) >= 5, "four pages, and their folder"
    await cloud.close()


async def test_nobody_can_open_a_partition_whose_ledgers_go(
    cloud: FakeCloud, broker: Broker
) -> None:
    partition = await create_topic(broker)
    gate = cloud.ledgers.stop_at("delete")
    await broker.topics.delete("t")
    store = cloud.tree.session()
    node = paths.partition(partition.topic.id_text, 0)
    async with asyncio.timeout(10):
        changed = asyncio.Event()
        while not decode_segments((await store.get(node, changed.set)).data).deleted:
            await changed.wait()
            changed.clear()
    assert len(cloud.ledgers.ledgers) == 1
    gate.set()
    await gone(cloud, partition.topic.id_text)
    await cloud.close()


async def test_ledgers_that_are_gone_already_are_no_obstacle(
    cloud: FakeCloud, broker: Broker
) -> None:
    partition = await create_topic(broker)
    cloud.ledgers.ledgers.clear()
    await broker.topics.delete("t")
    await gone(cloud, partition.topic.id_text)
    await cloud.close()


async def test_a_failed_step_is_taken_again(
    cloud: FakeCloud, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.topics.topic_cleaner._RETRY_S", 0.01)
    partition = await create_topic(broker, partition_count=2)
    cloud.ledgers.fail_next("delete", WriteFailed("not now"))
    await broker.topics.delete("t")
    await gone(cloud, partition.topic.id_text)
    assert not cloud.ledgers.ledgers
    await cloud.close()


async def test_the_cleaner_finishes_what_a_dead_broker_began(
    cloud: FakeCloud, broker: Broker
) -> None:
    """It died between the tombstone and the removal of the topic node."""
    partition = await create_topic(broker)
    topic = partition.topic
    store = cloud.tree.session()
    await store.create(paths.deleted_topic(topic.id_text), b"t")
    await gone(cloud, topic.id_text)
    await until(lambda: not broker.cluster.topics)
    assert not cloud.ledgers.ledgers
    await cloud.close()


async def test_a_namesake_made_meanwhile_is_left_alone(cloud: FakeCloud, broker: Broker) -> None:
    new = await create_topic(broker)
    old = "00000000-0000-4000-8000-000000000001"
    await cloud.tree.session().create(paths.deleted_topic(old), b"t")
    await gone(cloud, old)
    assert broker.cluster.topics["t"].topic_id == new.topic.topic_id
    assert new.is_open
    await cloud.close()


async def test_every_lost_answer_is_survived(
    cloud: FakeCloud, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.topics.topic_cleaner._RETRY_S", 0.01)
    partition = await create_topic(broker, partition_count=2)
    hit: dict[tuple[str, str], int] = {}

    def once_each(operation: Operation) -> Fault | None:
        key = (operation.name, operation.path)
        hit[key] = hit.get(key, 0) + 1
        if operation.session_id != cloud.stores[1].session_id or hit[key] > 1:
            return None
        return Fault.LOSE_REPLY if operation.name in ("delete", "set") else None

    cloud.tree.on_request = once_each
    await broker.topics.delete("t")
    await gone(cloud, partition.topic.id_text)
    cloud.tree.on_request = lambda operation: None
    await cloud.close()


async def test_old_partition_nodes_without_topic_are_swept_up(
    cloud: FakeCloud, broker: Broker
) -> None:
    kept = await create_topic(broker)
    store = cloud.tree.session()
    orphan = "00000000-0000-4000-8000-000000000001"
    ledger = await cloud.ledgers.client().create(ensemble_size=1, write_quorum=1, ack_quorum=1)
    segments = (
        b'{"version":1,"leader_epoch":0,"log_start_offset":0,"segments":'
        b'[{"ledger":%d,"base_offset":0,"leader_epoch":0,"created_ms":0}]}' % ledger.ledger_id
    )
    await store.create(paths.partition(orphan, 0), segments, make_parents=True)
    node = await store.exists(paths.topic_partitions(orphan))
    assert node is not None
    clock = cloud.clock
    assert isinstance(clock, FakeClock)
    clock.ms = node.ctime_ms + ORPHAN_AGE_MS - 1
    await cleaner_of(broker).sweep()
    assert await store.exists(paths.topic_partitions(orphan)) is not None
    clock.ms += 1
    await cleaner_of(broker).sweep()
    assert await store.exists(paths.topic_partitions(orphan)) is None
    assert LedgerId(ledger.ledger_id) not in cloud.ledgers.ledgers
    assert await children(store, paths.PARTITIONS) == [kept.topic.id_text]
    await cloud.close()


async def test_an_unreadable_topic_stops_the_sweep(cloud: FakeCloud, broker: Broker) -> None:
    store = cloud.tree.session()
    orphan = "00000000-0000-4000-8000-000000000001"
    await store.create(paths.partition(orphan, 0), make_parents=True)
    await store.create(paths.topic("damaged"), b"?")
    clock = cloud.clock
    assert isinstance(clock, FakeClock)
    clock.ms += 10 * ORPHAN_AGE_MS
    await cleaner_of(broker).sweep()
    assert await store.exists(paths.topic_partitions(orphan)) is not None
    await cloud.close()


@pytest.mark.parametrize("bad", [NO_JSON, NEWER_FORMAT, HUGE_JSON])
@pytest.mark.parametrize("what", ["tombstone", "a tombstone's name", "definition", "list"])
async def test_what_cannot_be_read_is_left_alone_and_other_deletions_go_on(
    cloud: FakeCloud, broker: Broker, monkeypatch: pytest.MonkeyPatch, what: str, bad: bytes
) -> None:
    monkeypatch.setattr("broker.topics.topic_cleaner._RETRY_S", 0.01)
    partition = await create_topic(broker)
    ledgers = [*cloud.ledgers.ledgers]
    other = await create_topic(broker, "u")
    topic, store = partition.topic, cloud.tree.session()
    cleaner = cleaner_of(broker)
    await cleaner.close()
    tombstone, name = paths.deleted_topic(topic.id_text), bad if what == "tombstone" else b"t"
    place = {
        "tombstone": tombstone,
        "a tombstone's name": f"{paths.DELETED}/no uuid",
        "definition": paths.topic("t"),
        "list": paths.partition(topic.id_text, 0),
    }[what]
    await store.create(place, bad) if "name" in what else None
    await store.create(tombstone, name) if "name" not in what else None
    if what in ("definition", "list"):
        await store.set(place, bad)
    await broker.topics.delete("u")
    cleaner.start()
    await gone(cloud, other.topic.id_text)
    unreadable = broker.store.unreadable
    await until(lambda: place in unreadable.all() or tombstone in unreadable.all())
    await cleaner.sweep()
    assert (await store.get(place)).data == bad
    assert {*ledgers} <= {*cloud.ledgers.ledgers}, "what belongs to it is there"
    await cloud.close()
