"""A broker that does not lead serves what is sealed to consumers of its rack, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.app import Broker
from broker.compaction.config import CompactionConfig
from broker.errors import NotLeader
from broker.leadership.config import LEADER_SELECTOR, RACK_AWARE_SELECTOR, FollowerSettings
from broker.partition.partition import Partition
from client.errors import ConfigError
from client.ids import Offset
from client.metadata import paths
from client.wire.kafka.batches.records import headers
from tests.fakes.broker import FakeCloud, until
from tests.fakes.scrape import parse
from tests.fakes.wire_client import WireClient
from tests.unit.broker.front.handlers.requests import batch, fetch, produce

NEARBY = FollowerSettings(
    selector=RACK_AWARE_SELECTOR, behind_bytes_min=1, list_age_ms=0, list_timeout_ms=50
)
COMMITTED = 1


class Two:
    """Two brokers in two racks, and what consumers and a producer say to them."""

    def __init__(self, cloud: FakeCloud, partition: Partition) -> None:
        self.cloud = cloud
        self.partition = partition
        self.leader, self.other = self._brokers()
        self.clients: dict[Broker, WireClient] = {}

    def _brokers(self) -> tuple[Broker, Broker]:
        brokers = list(self.cloud.brokers.values())
        is_first = brokers[0].partitions.find("t", 0) is not None
        return (brokers[0], brokers[1]) if is_first else (brokers[1], brokers[0])

    async def client(self, broker: Broker) -> WireClient:
        if broker not in self.clients:
            self.clients[broker] = await WireClient.connect(broker.port)
        return self.clients[broker]

    async def seal(self, *values: bytes) -> None:
        """Produce a batch, and seal its segment."""
        answer = await produce(await self.client(self.leader), batch(*values))
        assert answer.error_code is ErrorCode.none
        await self.partition.changes.roll()
        end = self.partition.high_watermark
        await until(lambda: self.partition.usage.listed.segments[-1].base_offset == end)

    async def ask_leader(self, offset: int, **more: Any) -> Any:
        """Fetch as a consumer in the other broker's rack."""
        more = {"rack": self.other.config.rack, **more}
        return await fetch(await self.client(self.leader), offset, **more)

    async def ask_other(self, offset: int, **more: Any) -> Any:
        more = {"rack": self.other.config.rack, **more}
        return await fetch(await self.client(self.other), offset, **more)

    async def close(self) -> None:
        for client in self.clients.values():
            await client.close()


@contextlib.asynccontextmanager
async def started(
    follower: FollowerSettings,
    compaction: CompactionConfig | None = None,
    config: Mapping[str, str] | None = None,
) -> AsyncIterator[Two]:
    """`config`: of the topic."""
    cloud, more = FakeCloud(), {} if compaction is None else {"compaction": compaction}
    for node_id in (1, 2):
        await cloud.start_broker(node_id, rack=f"r{node_id}", follower=follower, **more)
    topic = await cloud.brokers[1].topics.create("t", config=config)
    await until(lambda: any(one.partitions.find("t", 0) for one in cloud.brokers.values()))
    await until(lambda: all(topic.name in one.cluster.topics for one in cloud.brokers.values()))
    (partition,) = (
        found for one in cloud.brokers.values() if (found := one.partitions.find("t", 0))
    )
    made = Two(cloud, partition)
    try:
        yield made
    finally:
        await made.close()
        await cloud.close()


@pytest.fixture
async def two() -> AsyncIterator[Two]:
    async with started(NEARBY) as made:
        yield made


def offsets(data: Any) -> list[int]:
    return [header.base_offset for _, header in headers(bytes(data.records))]


async def test_a_consumer_is_sent_to_its_rack_and_served_there(two: Two) -> None:
    for values in ((b"a", b"b"), (b"c",), (b"d",)):
        await two.seal(*values)
    sent = await two.ask_leader(0)
    assert sent.preferred_read_replica == two.other.config.node_id
    assert (sent.error_code, bytes(sent.records)) == (ErrorCode.none, b"")
    got = await two.ask_other(0)
    assert (got.error_code, offsets(got)) == (ErrorCode.none, [0])
    assert (got.high_watermark, got.log_start_offset) == (4, 0)
    assert got.preferred_read_replica == -1
    assert [offsets(await two.ask_other(at)) for at in (1, 2, 3)] == [[0], [2], [3]]


async def test_the_answer_that_sends_it_away_does_not_wait(two: Two) -> None:
    await two.seal(b"a")
    sent = await two.ask_leader(0, wait_ms=60_000, bytes_min=1 << 20)
    assert sent.preferred_read_replica == two.other.config.node_id


async def test_who_comes_back_without_having_got_further_is_served_by_the_leader(two: Two) -> None:
    await two.seal(b"a")
    assert (await two.ask_leader(0)).preferred_read_replica >= 0
    back = await two.ask_leader(0)
    assert (back.preferred_read_replica, offsets(back)) == (-1, [0])
    assert (await two.ask_leader(0)).preferred_read_replica >= 0, "and is sent away again later"


@pytest.mark.parametrize("more", [{"rack": ""}, {"rack": "nobody's"}, {"version": 10}])
async def test_others_are_served_by_the_leader(two: Two, more: dict[str, Any]) -> None:
    await two.seal(b"a")
    got = await two.ask_leader(0, **more)
    assert offsets(got) == [0]
    assert getattr(got, "preferred_read_replica", -1) == -1


async def test_consumers_of_other_racks_are_not_served_there(two: Two) -> None:
    await two.seal(b"a")
    for rack in ("", "nobody's", two.leader.config.rack):
        refused = await two.ask_other(0, rack=rack)
        assert refused.error_code is ErrorCode.not_leader_or_follower


async def test_consumers_of_the_leaders_own_rack_stay(two: Two) -> None:
    await two.seal(b"a")
    got = await two.ask_leader(0, rack=two.leader.config.rack)
    assert (got.preferred_read_replica, offsets(got)) == (-1, [0])


async def test_what_is_not_sealed_is_the_leaders(two: Two) -> None:
    await two.seal(b"a")
    await produce(await two.client(two.leader), batch(b"b"))
    at_leader = await two.ask_leader(1)
    assert (at_leader.preferred_read_replica, offsets(at_leader)) == (-1, [1])
    refused = await two.ask_other(1)
    assert refused.error_code is ErrorCode.not_leader_or_follower
    assert bytes(refused.records) == b""


async def test_few_sealed_bytes_are_not_worth_going_there() -> None:
    async with started(FollowerSettings(selector=RACK_AWARE_SELECTOR)) as two:
        await two.seal(b"a")
        got = await two.ask_leader(0)
        assert (got.preferred_read_replica, offsets(got)) == (-1, [0])
        assert offsets(await two.ask_other(0)) == [0], "whoever comes is served all the same"


@pytest.mark.parametrize("selector", [None, LEADER_SELECTOR])
async def test_nobody_is_sent_away_or_served_unless_it_is_asked_for(selector: str | None) -> None:
    async with started(FollowerSettings(selector=selector, behind_bytes_min=1)) as two:
        await two.seal(b"a")
        got = await two.ask_leader(0)
        assert (got.preferred_read_replica, offsets(got)) == (-1, [0])
        assert (await two.ask_other(0)).error_code is ErrorCode.not_leader_or_follower


async def test_nobody_hears_there_that_an_offset_is_out_of_range(two: Two) -> None:
    await two.seal(b"a")
    await two.seal(b"b")
    assert offsets(await two.ask_other(0)) == [0]
    await two.partition.changes.delete_records(Offset(1))
    for offset in (0, 99):
        refused = await two.ask_other(offset)
        assert refused.error_code is ErrorCode.not_leader_or_follower


async def test_leader_epochs_are_compared(two: Two) -> None:
    await two.seal(b"a")
    epoch = two.partition.leader_epoch
    assert offsets(await two.ask_other(0, leader_epoch=epoch)) == [0]
    newer = await two.ask_other(0, leader_epoch=epoch + 1)
    assert newer.error_code is ErrorCode.unknown_leader_epoch
    older = await two.ask_other(0, leader_epoch=epoch - 1) if epoch else None
    assert older is None or older.error_code is ErrorCode.fenced_leader_epoch


async def test_readers_of_committed_records_get_what_is_decided(two: Two) -> None:
    await two.seal(b"a")
    got = await two.ask_other(0, isolation=COMMITTED)
    assert (offsets(got), got.aborted_transactions) == ([0], ())
    assert got.last_stable_offset == got.high_watermark == 1
    assert (await two.ask_leader(0, isolation=COMMITTED)).preferred_read_replica >= 0


async def test_a_deleted_topic_is_the_leaders_business(two: Two) -> None:
    await two.seal(b"a")
    path = paths.partition(two.partition.topic.id_text, 0)
    listed = two.partition.usage.listed.condemned()
    await two.cloud.tree.session().set(path, listed.encode(), -1)
    refused = await two.ask_other(0)
    assert refused.error_code is ErrorCode.not_leader_or_follower


async def test_a_list_that_cannot_be_read_sends_consumers_to_the_leader(two: Two) -> None:
    await two.seal(b"a")
    two.cloud.tree.suspend(two.cloud.stores[two.other.config.node_id])
    refused = await two.ask_other(0)
    assert refused.error_code is ErrorCode.not_leader_or_follower


async def test_a_list_may_be_old_until_something_is_not_in_it() -> None:
    old = FollowerSettings(selector=RACK_AWARE_SELECTOR, list_age_ms=3_600_000)
    async with started(old) as two:
        await two.seal(b"a")
        assert offsets(await two.ask_other(0)) == [0]
        await two.seal(b"b")
        await asyncio.sleep(0.11)
        assert offsets(await two.ask_other(1)) == [1]


async def test_a_list_of_before_a_compaction_is_read_anew_once_its_ledgers_are_gone() -> None:
    old = FollowerSettings(selector=RACK_AWARE_SELECTOR, behind_bytes_min=1, list_age_ms=3_600_000)
    at_once = CompactionConfig(grace_ms=0, check_interval_ms=20, bytes_per_s=0, in_child=False)
    topic = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"}
    async with started(old, at_once, topic) as two:
        for number in range(6):
            await two.seal(b"%d" % number)
        seen: list[int] = []
        offset = 0
        while offset < 6:
            seen += offsets(await two.ask_other(offset))
            offset = seen[-1] + 1
        assert seen == [0, 1, 2, 3, 4, 5]
        gone = [one.ledger_id for one in two.partition.usage.listed.segments[:5]]
        two.leader.compactor.ask(two.partition)
        await until(lambda: two.partition.usage.listed.compaction.cleaned_until > 0)
        await until(lambda: two.partition.usage.listed.compaction.retired == ())
        await until(lambda: {*two.cloud.ledgers.ledgers} & {*gone} == set())
        answer = await two.ask_other(0)
        assert answer.error_code is ErrorCode.none
        assert offsets(answer)[0] == two.partition.usage.listed.compaction.cleaned_until - 1


async def test_only_so_many_partitions_are_kept() -> None:
    few = FollowerSettings(selector=RACK_AWARE_SELECTOR, partitions_max=2)
    async with started(few) as two:
        await two.cloud.brokers[1].topics.create("many", partition_count=4)
        followers = two.other.services.followers
        await until(lambda: "many" in two.other.cluster.topics)
        found = [followers.find("many", at, NotLeader("led elsewhere")) for at in (0, 1, 2, 0, 3)]
        assert followers.find("many", 0, NotLeader("led elsewhere")) is found[3]
        assert found[3] is not found[0], "it was let go in between"
        shown = parse(two.other.metrics.exposition())
        assert shown["quire_broker_follower_partitions"] == 2


def test_other_selectors_are_refused() -> None:
    with pytest.raises(ConfigError, match="RackAwareReplicaSelector or"):
        FollowerSettings(selector="mine")
