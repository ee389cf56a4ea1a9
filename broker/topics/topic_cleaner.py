"""Deletes what is left of deleted topics: ledgers, partition nodes, tombstones.

A crash at any point does no harm, because each step can be repeated:

1. the topic node goes, if a broker of an earlier release made the tombstone and died before it had
   removed the node;
2. each partition's segment list is condemned by compare-and-set: from then on nobody can open
   the partition or add a ledger to it, so the list is complete;
3. the listed ledgers and objects go, then the pages of the list, then the partition's node;
4. the directory goes, and last the tombstone.

One live broker cleans up, the preferred leader of the topic's first partition; two at once would do
no harm. A partition directory without topic and tombstone was left by an interrupted creation, or
by a leader that learned late of the deletion. It is swept up too, once it is old enough that no
creation can still be under way, and only after a fresh read of every topic.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final
from uuid import UUID

from broker.cluster.cluster import Cluster
from broker.cluster.core.assignment import preferred_leaders
from broker.cluster.core.topology import TopicInfo
from broker.errors import BrokerError, InvalidTopicName
from broker.partition.archive import Archive
from broker.partition.ledgers import Ledgers
from broker.topics.core.topic_rules import check_name
from broker.topics.topic_changes import TopicChanges
from client.errors import (
    LedgerError,
    LogCorrupt,
    MetadataError,
    NoNode,
    NoSuchLedger,
    ObjectStoreError,
    StoreRefuses,
    VersionConflict,
)
from client.ids import BrokerId, Clock
from client.log.segment_object import folder_of
from client.log.segments import SegmentList, decode_segments
from client.metadata import paths
from client.metadata.store import MetadataStore
from client.node import background
from client.segments.page_nodes import delete_all_pages
from client.segments.pages import SegmentPages

log = logging.getLogger(__name__)

_RETRY_S: Final = 5.0
_SWEEP_S: Final = 600.0
ORPHAN_AGE_MS: Final = 600_000


class TopicCleaner:
    """A background task of every broker."""

    def __init__(
        self,
        store: MetadataStore,
        cluster: Cluster,
        changes: TopicChanges,
        ledgers: Ledgers,
        node_id: BrokerId,
        clock: Clock,
        archive: Archive | None = None,
    ) -> None:
        self._archive = archive
        self._store = store
        self._cluster = cluster
        self._changes = changes
        self._ledgers = ledgers
        self._node_id = node_id
        self._clock = clock
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        cluster.add_listener(self._wake.set)

    def start(self) -> None:
        """Begin."""
        self._task = background.keep(self._run, "topic-cleaner")

    async def close(self) -> None:
        """Stop wherever it is."""
        await background.stop(self._task)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        sweep_at_s = loop.time() + _SWEEP_S
        while True:
            self._wake.clear()
            delay_s = _SWEEP_S
            try:
                await self.clean()
                if loop.time() >= sweep_at_s:
                    sweep_at_s = loop.time() + _SWEEP_S
                    await self.sweep()
            except (
                MetadataError, LedgerError, LogCorrupt, BrokerError, ObjectStoreError
            ) as error:  # fmt: skip
                log.warning("cleaner.retry error=%r", error)
                delay_s = _RETRY_S
            try:
                async with asyncio.timeout(delay_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def clean(self) -> None:
        """Finish every deletion that is this broker's to finish.

        A tombstone, a definition or a list that cannot be read is left alone, and named; so is all
        that its topic has left. The other deletions go on (UNREADABLE-STAYS).
        """
        for name in await self._store.children(paths.DELETED, self._wake.set):
            try:
                topic_id = UUID(name)
                if self._is_mine(topic_id):
                    await self._clean_topic(topic_id)
            except (LogCorrupt, ValueError) as error:
                self._store.unreadable.note(f"{paths.DELETED}/{name}", error)

    async def sweep(self) -> None:
        """Delete old partition directories that belong to no topic.

        Each directory's version is read before the topics are, and the directory is set at that
        version before anything in it is deleted: so no creation has come through since it was read,
        and none can any more.
        """
        await self._store.sync(paths.PARTITIONS)
        old = await self._old_directories()
        known: dict[str, None] = dict.fromkeys(await self._store.children(paths.DELETED))
        for name in await self._store.children(paths.TOPICS):
            try:
                node = await self._store.get(paths.topic(name))
                known[TopicInfo.decode(name, node.data).id_text] = None
            except NoNode:
                continue
            except LogCorrupt as error:
                # Its directory might be any of them: nothing may be swept up.
                self._store.unreadable.note(paths.topic(name), error)
                return
        for id_text, version in old.items():
            if id_text in known:
                continue
            try:
                await self._store.set(paths.topic_partitions(id_text), b"", version)
            except (NoNode, VersionConflict):
                continue
            log.info("cleaner.orphan topic_id=%s", id_text)
            await self._clean_partitions(id_text)

    async def _old_directories(self) -> dict[str, int]:
        """Return the versions of those that no topic in our view has, and no creation is making."""
        old: dict[str, int] = {}
        for id_text in await self._store.children(paths.PARTITIONS):
            try:
                topic_id = UUID(id_text)
            except ValueError:
                continue  # nobody's who follows our rules
            if topic_id in self._cluster.topic_by_id or not self._is_mine(topic_id):
                continue
            node = await self._store.exists(paths.topic_partitions(id_text))
            if node and self._clock.now_ms() - node.ctime_ms >= ORPHAN_AGE_MS:
                old[id_text] = node.version
        return old

    def _is_mine(self, topic_id: UUID) -> bool:
        owners = preferred_leaders(topic_id, 1, self._cluster.brokers)
        return bool(owners) and owners[0] == self._node_id

    async def _clean_topic(self, topic_id: UUID) -> None:
        tombstone = paths.deleted_topic(str(topic_id))
        try:
            name = (await self._store.get(tombstone)).data.decode()
            check_name(name)
        except NoNode:
            return
        except InvalidTopicName as error:
            raise LogCorrupt(f"a tombstone names no topic: {error}") from error
        await self._changes.remove_definition(name, topic_id)
        await self._clean_partitions(str(topic_id))
        try:
            await self._store.delete(tombstone)
        except NoNode:
            return
        log.info("cleaner.done topic=%s topic_id=%s", name, topic_id)

    async def _clean_partitions(self, id_text: str) -> None:
        """Raises NotEmpty when somebody added a node meanwhile: then it is tried again later."""
        directory = paths.topic_partitions(id_text)
        with contextlib.suppress(NoNode):
            for index in await self._store.children(directory):
                await self._clean_partition(paths.partition(id_text, int(index)))
            await self._store.delete(directory)

    async def _clean_partition(self, path: str) -> None:
        """Condemn the list, delete its ledgers, then the node and what is below it."""
        with contextlib.suppress(NoNode):
            listed = await self._condemn(path)
            await self._delete_objects(path, listed)
            await self._delete_ledgers(path, listed)
            await delete_all_pages(self._store, path)
            for child in await self._store.children(path):
                with contextlib.suppress(NoNode):
                    await self._store.delete(f"{path}/{child}")
            await self._store.delete(path)

    async def _delete_ledgers(self, path: str, listed: SegmentList) -> None:
        """Pages go after the ledgers of all of them: if one is missing, that has been done."""
        for retired in listed.compaction.retired:
            with contextlib.suppress(NoSuchLedger):
                await self._ledgers.delete(retired.ledger_id)
        pages = SegmentPages(self._store, path)
        with contextlib.suppress(NoNode):
            async for segment in pages.segments(listed):
                # A missing one was deleted by an interrupted attempt.
                with contextlib.suppress(NoSuchLedger):
                    await self._ledgers.delete(segment.ledger_id)

    async def _delete_objects(self, path: str, listed: SegmentList) -> None:
        """Delete all that the object store has of a partition: whatever is in its folder, for its
        id is never used again. Raises ObjectStoreError: it is tried again later."""
        if not listed.offload.used:
            return
        if self._archive is None:
            raise StoreRefuses(
                f"{path} has objects, and this broker has no object store: set offload.store_url"
            )
        store = self._archive.store
        topic_id, _, index = path.removeprefix(f"{paths.PARTITIONS}/").partition("/")
        async for found in store.list(folder_of(topic_id, int(index))):
            await store.delete(found.name)

    async def _condemn(self, path: str) -> SegmentList:
        """Return the final list of a partition that nobody can open any more."""
        while True:
            node = await self._store.get(path)
            segments = self._store.unreadable.decode(path, node.data, decode_segments)
            if segments.deleted:
                return segments
            with contextlib.suppress(VersionConflict):
                await self._store.set(path, segments.condemned().encode(), node.version)
