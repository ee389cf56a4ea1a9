"""Writes topics to the metadata store: creation, deletion, growth, settings, assignments.

The order of the writes makes each change safe to interrupt anywhere:

- Create: the partition nodes first, under a fresh topic id that nobody knows; the topic node
  last. Its creation is the commit point. Nodes left by an interrupted creation have no topic and
  are swept up by `broker/topics/topic_cleaner.py`.
- Delete: a tombstone first, which is the commit point; then the topic node, which is what makes
  the topic disappear from every broker's view. The cleaner deletes ledgers and partition nodes,
  and the topic node too if the deleting broker died before it did.
- Grow: the new partition nodes first, then the topic node by compare-and-set.
- Configure, assign: the topic node by compare-and-set.

A lost answer (ConnectionLoss) is settled by reading back: a topic id, or the bytes written, tell
our own write from somebody else's.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final
from uuid import UUID

from broker.cluster.core.topic_config import TopicConfig
from broker.cluster.core.topology import TopicInfo
from broker.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidTopicName,
    RequestTimedOut,
    TopicExists,
    UnknownTopicOrPartition,
)
from broker.topics.core.topic_rules import (
    Assignments,
    TopicShape,
    check_name,
    check_partition_count,
    check_quorums,
    check_replicas,
)
from client.errors import ConnectionLoss, NodeExists, NoNode, VersionConflict
from client.ids import BrokerId, Clock, Rng
from client.metadata import paths
from client.metadata.store import Create, MetadataStore

log = logging.getLogger(__name__)

_NODES_PER_TRANSACTION: Final = 1_000
"""A transaction is one packet of at most 1 MiB (`jute.maxbuffer`)."""
_TRY_COUNT_MAX: Final = 8


class TopicChanges:
    """Writes topic definitions. All methods raise MetadataError when the store cannot be asked."""

    def __init__(
        self, store: MetadataStore, clock: Clock, rng: Rng, ledgers_root: str = paths.LEDGERS_ROOT
    ) -> None:
        self._store = store
        self._ledgers_root = ledgers_root
        self._clock = clock
        self._rng = rng

    async def bookie_count(self) -> int:
        """Return how many bookies the cluster ever had (their cookies), or has now if more."""
        counts = [0]
        root = self._ledgers_root
        for path in (paths.cookies(root), paths.available(root)):
            try:
                names = await self._store.children(path)
            except NoNode:
                continue
            counts.append(sum(name != "readonly" for name in names))
        return max(counts)

    async def create(
        self, name: str, shape: TopicShape, *, internal: bool, assignments: Assignments
    ) -> TopicInfo:
        """Create a topic. Raises TopicExists."""
        topic = TopicInfo(
            name=name,
            topic_id=UUID(int=self._rng.getrandbits(128), version=4),
            partition_count=shape.partition_count,
            replication_factor=shape.replication_factor,
            config=shape.config,
            internal=internal,
            created_ms=self._clock.now_ms(),
            assignments=assignments,
        )
        await self._create_missing([Create(paths.topic_partitions(topic.id_text))])
        await self._create_partitions(topic, 0)
        data = topic.encode()
        for _ in range(_TRY_COUNT_MAX):
            try:
                await self._store.create(paths.topic(name), data)
            except ConnectionLoss:
                continue  # the next attempt tells whether this one came through
            except NodeExists as error:
                node = await self._store.get(paths.topic(name))
                if node.data == data:
                    break
                raise TopicExists(f"topic {name!r} already exists") from error
            break
        else:
            raise RequestTimedOut(
                f"the metadata store did not answer while topic {name!r} was created"
            )
        log.info(
            "topic.created topic=%s topic_id=%s partitions=%d",
            name,
            topic.id_text,
            topic.partition_count,
        )
        return topic

    async def delete(self, topic: TopicInfo) -> None:
        """Delete a topic; its ledgers go later. Returns also if somebody else deleted it."""
        await self._create_missing(
            [Create(paths.deleted_topic(topic.id_text), topic.name.encode())]
        )
        await self.remove_definition(topic.name, topic.topic_id)
        log.info("topic.deleted topic=%s topic_id=%s", topic.name, topic.id_text)

    async def remove_definition(self, name: str, topic_id: UUID) -> None:
        """Remove the topic node if it still defines that topic."""
        for _ in range(_TRY_COUNT_MAX):
            try:
                node = await self._store.get(paths.topic(name))
                if TopicInfo.decode(name, node.data).topic_id != topic_id:
                    return
                await self._store.delete(paths.topic(name), node.version)
            except (VersionConflict, ConnectionLoss):
                continue
            except NoNode:
                return
            return
        raise RequestTimedOut(f"the metadata store did not answer while topic {name!r} was deleted")

    async def grow(
        self,
        name: str,
        count: int,
        count_max: int,
        replicas: Sequence[tuple[BrokerId, ...]] | None,
        live: Collection[BrokerId],
        *,
        dry_run: bool,
    ) -> TopicInfo:
        """Raise the number of partitions to `count`.

        `replicas`: a list of `live` brokers for each new partition; None: the plan chooses. Raises
        InvalidPartitions, InvalidReplicaAssignment.
        """

        def grown(topic: TopicInfo) -> TopicInfo:
            if count <= topic.partition_count:
                raise InvalidPartitions(
                    f"topic {name!r} already has {topic.partition_count} partitions; it can only"
                    f" grow, not to {count}"
                )
            check_partition_count(count, count_max)
            if replicas is not None and len(replicas) != count - topic.partition_count:
                raise InvalidReplicaAssignment(
                    f"topic {name!r} gets {count - topic.partition_count} partitions, the"
                    f" assignment is for {len(replicas)}"
                )
            for one in replicas or ():
                check_replicas(one, live)
            added = dict(enumerate(replicas or (), topic.partition_count))
            return dataclasses.replace(
                topic,
                partition_count=count,
                grown_from=(*topic.grown_from, topic.partition_count),
                assignments={**topic.assignments, **added},
            )

        return await self._change(name, grown, dry_run=dry_run)

    async def configure(
        self, name: str, change: Callable[[TopicConfig], TopicConfig], *, dry_run: bool
    ) -> TopicInfo:
        """Replace a topic's settings by `change` of them. Raises InvalidTopicConfig."""

        def configured(topic: TopicInfo) -> TopicInfo:
            config = change(topic.config)
            check_quorums(config, topic.replication_factor)
            return dataclasses.replace(topic, config=config)

        return await self._change(name, configured, dry_run=dry_run)

    async def assign(self, name: str, changes: Assignments) -> TopicInfo:
        """Set replica lists by partition index; an empty one leaves the choice to the plan.

        Raises UnknownTopicOrPartition: nothing was changed.
        """

        def assigned(topic: TopicInfo) -> TopicInfo:
            for index in changes:
                if not 0 <= index < topic.partition_count:
                    raise UnknownTopicOrPartition(f"topic {name!r} has no partition {index}")
            lists = {**topic.assignments, **changes}
            kept = {index: brokers for index, brokers in lists.items() if brokers}
            return dataclasses.replace(topic, assignments=kept)

        return await self._change(name, assigned, dry_run=False)

    async def _change(
        self, name: str, change: Callable[[TopicInfo], TopicInfo], *, dry_run: bool
    ) -> TopicInfo:
        try:
            check_name(name)
        except InvalidTopicName as error:
            raise UnknownTopicOrPartition(f"no topic {name!r}: {error}") from error
        unsettled: bytes | None = None
        for _ in range(_TRY_COUNT_MAX):
            try:
                node = await self._store.get(paths.topic(name))
            except NoNode as error:
                raise UnknownTopicOrPartition(f"no topic {name!r}") from error
            topic = TopicInfo.decode(name, node.data)
            if node.data == unsettled:
                return topic
            changed = change(topic)
            if dry_run or changed == topic:
                return changed
            await self._create_partitions(changed, topic.partition_count)
            unsettled = changed.encode()
            try:
                await self._store.set(paths.topic(name), unsettled, node.version)
            except VersionConflict:
                unsettled = None
                continue
            except ConnectionLoss:
                continue
            except NoNode as error:
                raise UnknownTopicOrPartition(f"no topic {name!r}") from error
            return changed
        raise RequestTimedOut(f"the metadata store did not answer while topic {name!r} was changed")

    async def _create_partitions(self, topic: TopicInfo, first: int) -> None:
        nodes = [
            Create(paths.partition(topic.id_text, index))
            for index in range(first, topic.partition_count)
        ]
        for start in range(0, len(nodes), _NODES_PER_TRANSACTION):
            await self._create_missing(nodes[start : start + _NODES_PER_TRANSACTION])

    async def _create_missing(self, nodes: list[Create]) -> None:
        """Create nodes; what already exists was left by an interrupted attempt."""
        for _ in range(_TRY_COUNT_MAX):
            try:
                await self._store.multi(nodes)
            except NodeExists:
                for node in nodes if len(nodes) > 1 else ():
                    await self._create_missing([node])
            except ConnectionLoss:
                continue
            return
        path = nodes[0].path
        raise RequestTimedOut(f"the metadata store did not answer while {path} was created")
