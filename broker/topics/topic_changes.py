"""Writes topics to the metadata store: creation, deletion, growth, settings, assignments.

The order of the writes makes each change safe to interrupt anywhere:

- Create: the partition nodes first, under a fresh topic id that nobody knows; the topic node
  last. Its creation is the commit point. Nodes left by an interrupted creation have no topic and
  are swept up by `broker/topics/topic_cleaner.py`.
- Delete: a tombstone, and the end of the topic node, which makes the topic disappear from every
  broker's view, in one transaction. The cleaner deletes ledgers and partition nodes. Earlier
  releases made the tombstone first, so the cleaner also removes a topic node that has one.
- Grow: the new partition nodes first, then the topic node.
- Configure, assign: the topic node.

The topic node can be made again under its path, so every change of it is bound to the topic's id
(`broker/cluster/bound_changes.py` has the rules). The anchor is the directory of the topic's
partitions: its path has the id, and it goes after the topic node.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final
from uuid import UUID

from broker.cluster.bound_changes import BoundChanges, Plan
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
    check_remote_storage,
    check_replicas,
)
from client.errors import ConnectionLoss, NodeExists, NoNode
from client.ids import BrokerId, Clock, Rng
from client.metadata import paths
from client.metadata.store import Change, Create, Delete, MetadataStore, SetData, Versioned

log = logging.getLogger(__name__)

_NODES_PER_TRANSACTION: Final = 1_000
"""A transaction is one packet of at most 1 MiB (`jute.maxbuffer`)."""
_TRY_COUNT_MAX: Final = 8


class TopicChanges:
    """Writes topic definitions. All methods raise MetadataError when the store cannot be asked."""

    def __init__(
        self,
        store: MetadataStore,
        clock: Clock,
        rng: Rng,
        ledgers_root: str = paths.LEDGERS_ROOT,
        has_object_store: bool = False,
    ) -> None:
        """`has_object_store`: whether topics may have remote.storage.enable."""
        self._store = store
        self._bound = BoundChanges(store)
        self._ledgers_root = ledgers_root
        self._clock = clock
        self._rng = rng
        self.has_object_store = has_object_store

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

        async def created(node: Versioned | None) -> Sequence[Change]:
            if node is not None:
                raise TopicExists(f"topic {name!r} already exists")
            return [Create(paths.topic(name), topic.encode())]

        try:
            await self._create_missing([Create(paths.topic_partitions(topic.id_text))])
            await self._create_partitions(topic, 0)
            await self._make(topic, created, is_first=True)
        except NoNode as error:
            # It has taken so long that its partition nodes were swept up.
            raise RequestTimedOut(f"topic {name!r} could not be created in time") from error
        log.info(
            "topic.created topic=%s topic_id=%s partitions=%d",
            name,
            topic.id_text,
            topic.partition_count,
        )
        return topic

    async def find(self, name: str) -> TopicInfo:
        """Return the topic that has this name now, whatever views show.

        Raises UnknownTopicOrPartition, LogCorrupt.
        """
        try:
            check_name(name)
        except InvalidTopicName as error:
            raise UnknownTopicOrPartition(f"no topic {name!r}: {error}") from error
        await self._store.sync(paths.topic(name))
        try:
            node = await self._store.get(paths.topic(name))
        except NoNode as error:
            raise UnknownTopicOrPartition(f"no topic {name!r}") from error
        return TopicInfo.decode(name, node.data)

    async def delete(self, topic: TopicInfo) -> None:
        """Delete a topic; its ledgers go later. Returns also if somebody does at the same time.

        Raises UnknownTopicOrPartition: it was gone, or another one has its name.
        """
        tombstone = paths.deleted_topic(topic.id_text)
        was_there = False

        async def deleted(node: Versioned | None) -> Sequence[Change]:
            nonlocal was_there
            try:
                _, version = _same(topic, node)
            except UnknownTopicOrPartition:
                if was_there:
                    return []  # the cleaner may have removed the anchor, and our token, since
                raise
            was_there = True
            changes: list[Change] = [Delete(paths.topic(topic.name), version)]
            if await self._store.exists(tombstone) is None:
                changes.append(Create(tombstone, topic.name.encode()))
            return changes

        await self._make(topic, deleted)
        log.info("topic.deleted topic=%s topic_id=%s", topic.name, topic.id_text)

    async def remove_definition(self, name: str, topic_id: UUID) -> None:
        """Remove the topic node if it still defines that topic."""

        async def removed(node: Versioned | None) -> Sequence[Change]:
            if node is None or TopicInfo.decode(name, node.data).topic_id != topic_id:
                return []
            return [Delete(paths.topic(name), node.version)]

        anchor = paths.topic_partitions(str(topic_id))
        await self._bound.make(anchor, paths.topic(name), removed, subject=f"topic {name!r}")

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
            config = change(topic.config).after(topic.config)
            check_quorums(config, topic.replication_factor)
            check_remote_storage(config, topic.config, has_object_store=self.has_object_store)
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
        topic = await self.find(name)
        if dry_run:
            return change(topic)
        result = topic

        async def changed(node: Versioned | None) -> Sequence[Change]:
            nonlocal result
            found, version = _same(topic, node)
            result = change(found)
            if result == found:
                return []
            try:
                await self._create_partitions(result, found.partition_count)
            except NoNode as error:
                raise UnknownTopicOrPartition(f"topic {name!r} was deleted") from error
            return [SetData(paths.topic(name), result.encode(), version)]

        await self._make(topic, changed)
        return result

    async def _make(self, topic: TopicInfo, plan: Plan, *, is_first: bool = False) -> None:
        await self._bound.make(
            paths.topic_partitions(topic.id_text),
            paths.topic(topic.name),
            plan,
            subject=f"topic {topic.name!r}",
            is_first=is_first,
        )

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


def _same(topic: TopicInfo, node: Versioned | None) -> tuple[TopicInfo, int]:
    """Return a topic's definition as it is now, and its version.

    Raises UnknownTopicOrPartition (it is gone, or another topic has its name), LogCorrupt.
    """
    if node is None:
        raise UnknownTopicOrPartition(f"no topic {topic.name!r}: it was deleted")
    found = TopicInfo.decode(topic.name, node.data)
    if found.topic_id != topic.topic_id:
        raise UnknownTopicOrPartition(
            f"topic {topic.name!r} with id {topic.topic_id} was deleted; one with id"
            f" {found.topic_id} has the name now"
        )
    return found, node.version
