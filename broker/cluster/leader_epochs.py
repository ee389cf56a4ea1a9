"""Caches the leader epochs of all partitions in the cluster, for metadata answers.

Clients drop metadata whose leader epoch is older than one that they have seen, so every broker must
know the true epochs: its view may be late, but never wrong. The epoch is part of the partition's
segment list, which changes with takeovers, rolls and trims. A list is read when a client first asks
for its topic, and again after a watch has fired. Lists are read in batches, and concurrent requests
share one read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from broker.cluster.core.topology import TopicInfo
from client.errors import LogCorrupt, MetadataError, NoNode
from client.ids import LeaderEpoch
from client.log.segments import NO_EPOCH, decode_epoch
from client.metadata import paths
from client.metadata.store import MetadataStore, Versioned
from client.metadata.unreadable import UnreadableNodes
from client.node import background

log = logging.getLogger(__name__)

_READS_AT_ONCE: Final = 256
_WAIT_MAX_S: Final = 3.0
"""Longest wait of a request: an old answer is better than none while the store is slow or down."""


class _Topic:
    """The known state of one topic's partitions."""

    __slots__ = ("epochs", "reading", "shown", "shown_unled", "stale", "unled", "watchers")

    def __init__(self) -> None:
        self.epochs: list[LeaderEpoch] = []
        self.stale: set[int] = set()
        """Partitions that were not read yet, or have changed since."""
        self.unled: set[int] = set()
        """Partitions that had no leader yet when they were read."""
        self.shown: tuple[LeaderEpoch, ...] | None = None
        self.shown_unled: frozenset[int] | None = None
        """Cached copies of `epochs` and `unled`; None: outdated. Waiting answers ask often."""
        self.watchers: list[Callable[[], None]] = []
        self.reading: asyncio.Task[None] | None = None
        """Reads what was stale when the task began."""

    def on_changed(self) -> None:
        self.shown = self.shown_unled = None

    def grow(self, count: int) -> None:
        if count > len(self.epochs):
            self.on_changed()
        for index in range(len(self.epochs), count):
            self.epochs.append(NO_EPOCH)
            self.stale.add(index)
            self.watchers.append(partial(self.stale.add, index))


class LeaderEpochs:
    """(topic, partition index) -> leader epoch."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._known: dict[UUID, _Topic] = {}

    def get(self, topic: TopicInfo, index: int) -> LeaderEpoch:
        """Return the last known epoch; -1: not known."""
        known = self._known.get(topic.topic_id)
        return known.epochs[index] if known is not None and index < len(known.epochs) else NO_EPOCH

    def current(self, topic: TopicInfo, index: int) -> LeaderEpoch | None:
        """Return the epoch if it was read and has not changed since; None: call `load` first.

        Also None for a partition that no broker has led yet.
        """
        known = self._known.get(topic.topic_id)
        if known is None or index >= len(known.epochs):
            return None
        return None if index in known.stale or index in known.unled else known.epochs[index]

    def of(self, topic: TopicInfo) -> tuple[LeaderEpoch, ...]:
        """Return the last known epoch of each partition; -1: not known."""
        known, count = self._known.get(topic.topic_id), topic.partition_count
        if known is None:
            return (NO_EPOCH,) * count
        if known.shown is None:
            known.shown = tuple(known.epochs)
        found = known.shown
        return found if len(found) == count else (found + (NO_EPOCH,) * count)[:count]

    def unled(self, topic: TopicInfo) -> frozenset[int]:
        """Return the partitions that no broker has led yet, and those that were never loaded.

        A partition whose node could not be read is not included: it may have a leader.
        """
        known, count = self._known.get(topic.topic_id), topic.partition_count
        if known is None:
            return frozenset(range(count))
        if known.shown_unled is None:
            known.shown_unled = frozenset(known.unled)
        if count <= len(known.epochs):
            return known.shown_unled
        return known.shown_unled.union(range(len(known.epochs), count))

    async def load(self, topics: Iterable[TopicInfo]) -> None:
        """Read the epochs that are not known, or have changed. Those that cannot be read keep
        their last known value.

        Costs nothing if nothing has changed: waiting answers call it again and again.
        """
        asked = []
        for topic in topics:
            known = self._known.get(topic.topic_id)
            if known is None:
                known = self._known[topic.topic_id] = _Topic()
            known.grow(topic.partition_count)
            asked.append((topic, known))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_WAIT_MAX_S):
                for topic, known in asked:
                    await self._refresh(topic, known)

    async def close(self) -> None:
        """Stop all reads. Callers that wait for them are cancelled."""
        for known in list(self._known.values()):
            await background.stop(known.reading)

    def keep_only(self, topic_ids: Iterable[UUID]) -> None:
        """Forget topics that no longer exist."""
        kept = dict.fromkeys(topic_ids)
        self._known = {
            topic_id: known for topic_id, known in self._known.items() if topic_id in kept
        }

    async def _refresh(self, topic: TopicInfo, known: _Topic) -> None:
        if known.reading is not None:
            await asyncio.shield(known.reading)
        # That read may have missed changes that came after it began: read once more, and only once.
        if known.reading is None and known.stale:
            known.reading = background.begin(self._read_stale(topic, known), f"epochs {topic.name}")
        if known.reading is not None:
            await asyncio.shield(known.reading)

    async def _read_stale(self, topic: TopicInfo, known: _Topic) -> None:
        try:
            indexes = sorted(known.stale)
            for start in range(0, len(indexes), _READS_AT_ONCE):
                await self._read(topic, known, indexes[start : start + _READS_AT_ONCE])
        finally:
            known.reading = None

    async def _read(self, topic: TopicInfo, known: _Topic, indexes: Sequence[int]) -> None:
        known.stale.difference_update(indexes)
        places = [paths.partition(topic.id_text, index) for index in indexes]
        try:
            nodes = await self._get(places, [known.watchers[index] for index in indexes])
        except MetadataError as error:
            known.stale.update(indexes)
            known.unled.difference_update(indexes)
            known.on_changed()
            log.warning("epoch.unknown path=%s error=%r", places[0], error)
            return
        for index, path, node in zip(indexes, places, nodes, strict=True):
            _note(known, index, path, node, self._store.unreadable)

    async def _get(
        self, places: Sequence[str], watchers: Sequence[Callable[[], None]]
    ) -> list[Versioned | None]:
        if len(places) > 1:
            return await self._store.get_many(places, watchers)
        try:
            return [await self._store.get(places[0], watchers[0])]
        except NoNode:
            return [None]


def _note(
    known: _Topic, index: int, path: str, node: Versioned | None, unreadable: UnreadableNodes
) -> None:
    """Note what was read of a partition; an unreadable node stays stale, to be read again."""
    is_unled = False
    if node is None:
        known.stale.add(index)
    else:
        try:
            epoch = decode_epoch(node.data)
        except LogCorrupt as error:
            known.stale.add(index)
            unreadable.note(path, error)
        else:
            if epoch > known.epochs[index]:
                known.epochs[index] = epoch
                known.on_changed()
            is_unled = known.epochs[index] == NO_EPOCH
    if is_unled != (index in known.unled):
        (known.unled.add if is_unled else known.unled.discard)(index)
        known.on_changed()
