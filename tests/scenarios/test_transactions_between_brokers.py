"""Transactions whose coordinator, partitions and group are at different brokers, by sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, TypeVar
from uuid import UUID, uuid4

import pytest
from kio.schema.errors import ErrorCode

from broker.app import Broker
from broker.coordinator.core.connection_order import Session
from broker.coordinator.core.routing import (
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    coordinator_partition,
)
from broker.coordinator.runtime import Phase
from broker.errors import BrokerError, TransactionAbortable
from broker.groups.core.group_types import Commit, OffsetToCommit
from broker.partition.core.append_queue import Append
from broker.partition.core.held_batches import ProducerTransaction
from broker.partition.partition import Partition
from broker.transactions.config import TransactionSettings
from broker.transactions.core.link_messages import MARKERS, MarkersRequest, MarkerTopic, SentMarker
from broker.transactions.core.marker_queue import Outcome
from broker.transactions.core.transaction import (
    AddPartitions,
    EndTransaction,
    InitProducerId,
    ProducerIdAndEpoch,
    TransactionPartition,
    TransactionState,
    TransactionVersion,
)
from broker.transactions.transactions import TransactionCoordinator
from client.ids import BrokerId, LeaderEpoch
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.batches.records import Record, build_batch
from tests.fakes.broker import FakeCloud, until
from tests.fakes.wire_client import WireClient

T = TypeVar("T")

ID = "payments"
GROUP = "readers"
PARTITIONS = 6
SETTINGS: dict[str, Any] = {
    "transactions": TransactionSettings(enabled=True, topic_partitions=4),
    "offsets_topic_partitions": 4,
    "default_replication_factor": 1,
    "default_min_insync_replicas": 1,
}


@pytest.fixture
async def cloud() -> AsyncIterator[FakeCloud]:
    made = FakeCloud()
    yield made
    await made.close()


class Cluster:
    """Three brokers, a topic, and a producer by hand."""

    def __init__(self, cloud: FakeCloud) -> None:
        self.cloud = cloud
        self.producer = ProducerIdAndEpoch(0, 0)  # type: ignore[arg-type]
        self.sequences: dict[tuple[int, int], int] = {}

    async def start(self, count: int = 3) -> Cluster:
        for node_id in range(1, count + 1):
            await self.cloud.start_broker(node_id, **SETTINGS)
        await self.any.topics.create("t", PARTITIONS)
        await self.any.transactions.find(ID)
        await self.any.groups.find(GROUP)
        await until(lambda: all(self.leads(name) for name in ("t", OFFSETS_TOPIC)))
        await self.coordinator()
        return self

    @property
    def brokers(self) -> list[Broker]:
        return list(self.cloud.brokers.values())

    @property
    def any(self) -> Broker:
        return self.brokers[0]

    def leads(self, topic: str) -> bool:
        """Whether every partition has a leader, and all brokers know which."""
        info = self.any.cluster.topics[topic]
        for index in range(info.partition_count):
            leaders = {one.cluster.preferred_leader(info, index) for one in self.brokers}
            if len(leaders) != 1 or self.find(topic, index) is None:
                return False
        return True

    def find(self, topic: str, index: int) -> Partition | None:
        for one in self.brokers:
            partition = one.partitions.find(topic, index)
            if partition is not None:
                return partition
        return None

    def leader(self, index: int, topic: str = "t") -> Partition:
        partition = self.find(topic, index)
        assert partition is not None
        return partition

    def broker_of(self, partition: Partition) -> Broker:
        return next(
            one
            for one in self.brokers
            if one.partitions.find(partition.topic.name, partition.index) is partition
        )

    async def coordinator(self) -> TransactionCoordinator:
        """Return the one that serves the id."""
        found: list[TransactionCoordinator] = []

        def is_there() -> bool:
            topic = self.any.cluster.topics[TRANSACTIONS_TOPIC]
            index = coordinator_partition(ID, topic.partition_count)
            found[:] = [
                coordinator
                for one in self.brokers
                for coordinator in one.transactions.coordinators()
                if coordinator.partition.index == index and coordinator.phase is Phase.ACTIVE
            ]
            return len(found) == 1

        await until(is_there)
        return found[0]

    def places(self, *indexes: int, topic: str = "t") -> tuple[TransactionPartition, ...]:
        topic_id = self.any.cluster.topics[topic].topic_id
        return tuple(TransactionPartition(topic, topic_id, index) for index in indexes)

    async def ask(self, make: Callable[[TransactionCoordinator], Coroutine[Any, Any, T]]) -> T:
        """Ask the coordinator as clients do: again, while the answer is retriable."""
        for _ in range(500):
            try:
                return await make(await self.coordinator())
            except BrokerError as error:
                if not error.retriable:
                    raise
                await asyncio.sleep(0.01)
        raise AssertionError("it never answered")

    async def init(self) -> None:
        self.producer = await self.ask(lambda one: one.init_producer_id(InitProducerId(ID, 60_000)))

    async def add(self, *indexes: int, topic: str = "t") -> None:
        request = AddPartitions(ID, self.producer, self.places(*indexes, topic=topic))
        await self.ask(lambda one: one.add_partitions(request))

    async def send(self, index: int, *, tv2: bool = False) -> Append:
        """Produce a record, as a client does: again, while the answer is retriable."""
        transaction = ProducerTransaction(ID, is_tv2=tv2)
        key = index, self.producer.epoch
        batch = build_batch(
            [Record(None, b"x", 5)],
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            base_sequence=self.sequences.get(key, 0),
            transactional=True,
        )
        for _ in range(500):
            try:
                append = self.leader(index).append(batch, transaction=transaction)
                await settled(append)
            except (BrokerError, AssertionError) as error:
                if isinstance(error, BrokerError) and not error.retriable:
                    raise
                await asyncio.sleep(0.01)
            else:
                self.sequences[key] = self.sequences.get(key, 0) + 1
                return append
        raise AssertionError("it was never taken")

    async def end(self, *, commit: bool = True, tv2: bool = False) -> None:
        version = TransactionVersion.TV2 if tv2 else TransactionVersion.TV0
        request = EndTransaction(ID, self.producer, commit, version)
        self.producer = await self.ask(lambda one: one.end_transaction(request))

    async def is_complete(self) -> TransactionState:
        """Wait until all markers are written."""
        done = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
        for _ in range(1_000):
            stored = (await self.coordinator()).last_view.describe(ID)
            if stored is not None and stored.state in done:
                return stored.state
            await asyncio.sleep(0.01)
        raise AssertionError("it never completed")

    def stable(self) -> list[bool]:
        """Whether each partition is stable to its end."""
        partitions = [self.leader(index) for index in range(PARTITIONS)]
        return [one.last_stable_offset == one.log_end_offset for one in partitions]

    def markers(self) -> int:
        """How many markers are in the topic, beside the records that were sent."""
        records = sum(self.sequences.values())
        return sum(self.leader(index).log_end_offset for index in range(PARTITIONS)) - records

    async def stop(self, broker: Broker) -> None:
        """A broker goes; the others take over."""
        node_id = broker.config.node_id
        await self.cloud.brokers.pop(node_id).close()
        await until(lambda: all(node_id not in one.cluster.brokers for one in self.brokers))
        await until(lambda: all(self.leads(name) for name in ("t", OFFSETS_TOPIC)))


async def settled(append: Append) -> None:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    append.on_done(lambda _: None if done.done() else done.set_result(None))
    await done
    if append.error is not None:
        raise append.error


@pytest.mark.parametrize("tv2", [False, True], ids=["classic", "tv2"])
async def test_partitions_at_all_brokers_end_together(cloud: FakeCloud, tv2: bool) -> None:
    cluster = await Cluster(cloud).start()
    assert len({cluster.broker_of(cluster.leader(index)).port for index in range(6)}) == 3
    await cluster.init()
    for commit in (True, False, True):
        if not tv2:
            await cluster.add(*range(PARTITIONS))
        await asyncio.gather(*(cluster.send(index, tv2=tv2) for index in range(PARTITIONS)))
        assert cluster.stable() == [False] * PARTITIONS
        await cluster.end(commit=commit, tv2=tv2)
        await cluster.is_complete()
        assert cluster.stable() == [True] * PARTITIONS
    assert cluster.markers() == 3 * PARTITIONS, "one for each transaction"


async def test_a_partition_that_is_not_in_the_transaction_takes_nothing(cloud: FakeCloud) -> None:
    cluster = await Cluster(cloud).start()
    await cluster.init()
    await cluster.add(0)
    with pytest.raises(TransactionAbortable):
        await cluster.send(1)
    assert cluster.leader(1).log_end_offset == 0


async def test_the_next_coordinator_ends_what_was_decided(
    cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator's broker stops after the decision, before any marker is written."""
    cluster = await Cluster(cloud).start()
    await cluster.init()
    await cluster.add(*range(PARTITIONS))
    for index in range(PARTITIONS):
        await cluster.send(index)
    coordinator = await cluster.coordinator()
    old = cluster.broker_of(coordinator.partition)
    monkeypatch.setattr(type(coordinator), "_sender", lambda _: Deaf())
    await cluster.end()
    monkeypatch.undo()
    assert cluster.stable() == [False] * PARTITIONS
    await cluster.stop(old)
    assert await cluster.is_complete() is TransactionState.COMPLETE_COMMIT
    assert cluster.stable() == [True] * PARTITIONS
    assert (await cluster.coordinator()).epoch > coordinator.epoch


class Deaf:
    """A sender of markers that sends none."""

    def add(self, _: object) -> None: ...


async def test_a_marker_follows_its_partition_to_the_next_leader(cloud: FakeCloud) -> None:
    cluster = await Cluster(cloud).start()
    await cluster.init()
    await cluster.add(*range(PARTITIONS))
    for index in range(PARTITIONS):
        await cluster.send(index)
    coordinator = await cluster.coordinator()
    home = cluster.broker_of(coordinator.partition)
    other = next(one for one in cluster.brokers if one is not home)
    stopping = asyncio.create_task(cluster.stop(other))
    await cluster.end()
    await stopping
    assert await cluster.is_complete() is TransactionState.COMPLETE_COMMIT
    assert cluster.stable() == [True] * PARTITIONS
    assert cluster.markers() == PARTITIONS


async def test_a_late_marker_of_an_old_session_ends_nothing(cloud: FakeCloud) -> None:
    """It says how the last transaction ended; the classic protocol cannot tell it from this one."""
    cluster = await Cluster(cloud).start(2)
    await cluster.init()
    coordinator = await cluster.coordinator()
    home = cluster.broker_of(coordinator.partition)
    remote = next(one for one in cluster.brokers if one is not home)
    index = next(
        index for index in range(PARTITIONS) if cluster.broker_of(cluster.leader(index)) is remote
    )
    for commit in (True, False):
        await cluster.add(index)
        await cluster.send(index)
        if commit:
            await cluster.end()
            await cluster.is_complete()
    late = SentMarker(
        MarkerTopic(cluster.leader(index).topic.topic_id, "t"),
        index,
        cluster.leader(index).leader_epoch,
        cluster.producer.producer_id,
        cluster.producer.epoch,
        True,
        False,
    )
    partition = coordinator.partition.index

    async def deliver(session: Session, marker: SentMarker) -> tuple[bool, Sequence[Outcome]]:
        request = MarkersRequest(partition, session, [marker])
        receive = remote.services.markers.receive  # type: ignore[attr-defined]
        answer = await receive(home.config.node_id, request)
        return answer.is_heard, list(answer.outcomes)

    epoch = coordinator.epoch
    assert await deliver(Session(epoch, 0), late) == (False, [])
    assert await deliver(Session(LeaderEpoch(epoch - 1), 1 << 40), late) == (False, [])
    elsewhere = late._replace(leader_epoch=LeaderEpoch(late.leader_epoch + 1))
    assert await deliver(Session(epoch, 1 << 40), elsewhere) == (True, [Outcome.FAILED])
    recreated = late._replace(topic=MarkerTopic(UUID(int=1), "t"))
    assert (await deliver(Session(epoch, 1 << 40), recreated))[1] == [Outcome.FAILED]
    assert not cluster.stable()[index]
    assert await deliver(Session(epoch, 1 << 40), late) == (True, [Outcome.WRITTEN])
    assert cluster.stable()[index], "in the newest session, for this leader, it would have"


async def test_a_peer_that_hangs_keeps_nobody_else_waiting(
    cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await Cluster(cloud).start()
    await cluster.init()
    await cluster.add(*range(PARTITIONS))
    for index in range(PARTITIONS):
        await cluster.send(index)
    home = cluster.broker_of((await cluster.coordinator()).partition)
    hanging = next(one for one in cluster.brokers if one is not home)
    gate = asyncio.Event()
    write = hanging.services.markers

    async def hang(sender: BrokerId, request: MarkersRequest) -> Any:
        await gate.wait()
        return await type(write).receive(write, sender, request)  # type: ignore[attr-defined]

    hanging.services.link.serve(MARKERS, hang)  # type: ignore[attr-defined]
    await cluster.end()
    there = [cluster.broker_of(cluster.leader(index)) is hanging for index in range(PARTITIONS)]
    await until(lambda: cluster.stable() == [not one for one in there])
    gate.set()
    assert await cluster.is_complete() is TransactionState.COMPLETE_COMMIT
    assert cluster.stable() == [True] * PARTITIONS


# --- a group's offsets -----------------------------------------------------------------------


class Group:
    """The group's coordinator, asked over the wire."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.topic_id: UUID | None = None
        """What is committed for, from version 6 on; None: the topic that the cluster has."""

    async def client(self) -> WireClient:
        broker = await self.cluster.any.groups.find(GROUP)
        return await WireClient.connect(broker.port)

    async def commit(self, offset: int, *, version: int = 3) -> ErrorCode:
        """A TxnOffsetCommit, again while that helps."""
        code = ErrorCode.unknown_server_error
        for _ in range(300):
            code = await self.commit_once(offset, version=version)
            if not code.retriable:
                return code
            await asyncio.sleep(0.01)
        return code

    async def commit_once(self, offset: int, *, version: int = 3) -> ErrorCode:
        client = await self.client()
        producer = self.cluster.producer
        partition = {
            "partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1,
            "committed_metadata": "",
        }  # fmt: skip
        topic_id = self.topic_id or self.cluster.any.cluster.topics["t"].topic_id
        answer = await client.call(
            ApiKey.TXN_OFFSET_COMMIT, version, transactional_id=ID, group_id=GROUP,
            producer_id=producer.producer_id, producer_epoch=producer.epoch, generation_id=-1,
            generation_id_or_member_epoch=-1, member_id="", group_instance_id=None,
            topics=[{"name": "t", "topic_id": topic_id, "partitions": [partition]}],
        )  # fmt: skip
        await client.close()
        code: ErrorCode = answer.topics[0].partitions[0].error_code
        return code

    async def fetch(self, *, stable: bool = True) -> tuple[int, ErrorCode]:
        for _ in range(300):
            client = await self.client()
            answer = await client.call(
                ApiKey.OFFSET_FETCH, 7, group_id=GROUP, require_stable=stable,
                topics=[{"name": "t", "partition_indexes": [0]}],
            )  # fmt: skip
            await client.close()
            if not answer.error_code.retriable:
                row = answer.topics[0].partitions[0]
                return row.committed_offset, row.error_code
            await asyncio.sleep(0.01)
        raise AssertionError("it never answered")

    async def add(self) -> None:
        topic = self.cluster.any.cluster.topics[OFFSETS_TOPIC]
        index = coordinator_partition(GROUP, topic.partition_count)
        await self.cluster.add(index, topic=OFFSETS_TOPIC)


UNSTABLE = (-1, ErrorCode.unstable_offset_commit)


@pytest.mark.parametrize("version", [3, 5, 6])
async def test_offsets_end_with_the_records(cloud: FakeCloud, version: int) -> None:
    tv2 = version >= 5
    cluster = await Cluster(cloud).start()
    group = Group(cluster)
    await cluster.init()
    shown = -1
    for offset, commit in ((5, True), (6, False), (7, True)):
        if not tv2:
            await cluster.add(0)
            await group.add()
        await cluster.send(0, tv2=tv2)
        assert await group.commit(offset, version=version) is ErrorCode.none
        assert await group.fetch() == UNSTABLE
        assert await group.fetch(stable=False) == (shown, ErrorCode.none)
        await cluster.end(commit=commit, tv2=tv2)
        await cluster.is_complete()
        shown = offset if commit else shown
        assert await group.fetch() == (shown, ErrorCode.none)


async def test_offsets_of_a_topic_that_is_not_known_by_its_id(cloud: FakeCloud) -> None:
    """It may have been made anew under its name: what was read of the old one says nothing."""
    cluster = await Cluster(cloud).start()
    group = Group(cluster)
    await cluster.init()
    await cluster.send(0, tv2=True)
    group.topic_id = uuid4()
    assert await group.commit_once(5, version=6) is ErrorCode.unknown_topic_id
    group.topic_id = None
    assert await group.commit(6, version=6) is ErrorCode.none
    await cluster.end(tv2=True)
    await cluster.is_complete()
    assert await group.fetch() == (6, ErrorCode.none)


async def test_offsets_survive_their_coordinator(cloud: FakeCloud) -> None:
    """The group moves while its offsets are pending, and again when they are published."""
    cluster = await Cluster(cloud).start()
    group = Group(cluster)
    await cluster.init()
    await group.add()
    assert await group.commit(5) is ErrorCode.none
    old = (await cluster.any.groups.find(GROUP)).id
    await cluster.stop(cloud.brokers[old])
    assert await group.fetch() == UNSTABLE
    await cluster.end()
    await cluster.is_complete()
    assert await group.fetch() == (5, ErrorCode.none)
    old = (await cluster.any.groups.find(GROUP)).id
    await cluster.stop(cloud.brokers[old])
    assert await group.fetch() == (5, ErrorCode.none)


async def test_offsets_are_refused_outside_of_a_transaction(cloud: FakeCloud) -> None:
    cluster = await Cluster(cloud).start()
    group = Group(cluster)
    await cluster.init()
    assert await group.commit(5) is ErrorCode.invalid_txn_state
    assert await group.commit(5, version=4) is ErrorCode.transaction_abortable
    assert await group.fetch() == (-1, ErrorCode.none)
    await group.add()
    assert await group.commit(5) is ErrorCode.none
    cluster.producer = cluster.producer._replace(epoch=cluster.producer.epoch - 1)
    assert await group.commit_once(6) in (
        ErrorCode.invalid_producer_epoch,
        ErrorCode.invalid_request,
    )


async def test_a_copy_of_the_log_waits_for_what_is_pending(cloud: FakeCloud) -> None:
    """What a transaction may change is copied when it is over; only then the log is trimmed."""
    cluster = Cluster(cloud)
    for node_id in (1, 2):
        await cloud.start_broker(node_id, **SETTINGS, group_log_copy_bytes=2_000)
    await cluster.any.topics.create("t", PARTITIONS)
    await cluster.any.transactions.find(ID)
    await cluster.any.groups.find(GROUP)
    await until(lambda: all(cluster.leads(name) for name in ("t", OFFSETS_TOPIC)))
    group = Group(cluster)
    await cluster.init()
    commit = Commit(GROUP, "", None, -1)
    first = [OffsetToCommit("t", index, 1, -1, "") for index in range(PARTITIONS)]
    home = cloud.brokers[(await cluster.any.groups.find(GROUP)).id]
    await home.groups.coordinator(GROUP).commit(commit, first)
    await group.add()
    assert await group.commit(5) is ErrorCode.none
    log = home.groups.coordinator(GROUP).partition
    pending = log.log_end_offset - 1
    for offset in range(2, 200):
        others = [OffsetToCommit("t", index, offset, -1, "") for index in range(1, PARTITIONS)]
        await home.groups.coordinator(GROUP).commit(commit, others)
        await asyncio.sleep(0)
    await asyncio.sleep(0.5)
    assert log.log_start_offset == 0, "the open transaction hides the copy from readers"
    assert await group.fetch() == UNSTABLE
    assert await group.fetch(stable=False) == (1, ErrorCode.none)
    await cluster.end(commit=False)
    await cluster.is_complete()
    await until(lambda: log.log_start_offset > 0)
    assert log.log_start_offset <= pending, "the log is kept from what was pending on"
    await cluster.stop(home)
    assert await group.fetch() == (1, ErrorCode.none)
    view = cluster.any.groups.coordinator(GROUP).view().committed(GROUP)
    assert {committed.offset for key, committed in view if key.partition} == {199}


# --- an operator -----------------------------------------------------------------------------


async def test_an_operator_ends_a_transaction(cloud: FakeCloud) -> None:
    cluster = await Cluster(cloud).start(2)
    await cluster.init()
    await cluster.add(0)
    await cluster.send(0)
    partition = cluster.leader(0)
    client = await WireClient.connect(cluster.broker_of(partition).port)
    topics = [{"name": "t", "partition_indexes": [0, 17]}, {"name": "u", "partition_indexes": [0]},
              {"name": TRANSACTIONS_TOPIC, "partition_indexes": [0]}]  # fmt: skip
    answer = await client.call(
        ApiKey.WRITE_TXN_MARKERS, 1,
        markers=[{
            "producer_id": cluster.producer.producer_id, "producer_epoch": cluster.producer.epoch,
            "transaction_result": False, "coordinator_epoch": 0, "topics": topics,
        }],
    )  # fmt: skip
    codes = [[row.error_code for row in topic.partitions] for topic in answer.markers[0].topics]
    unknown = ErrorCode.unknown_topic_or_partition
    assert codes == [[ErrorCode.none, unknown], [unknown], [unknown]]
    assert cluster.stable()[0]
    await client.close()
