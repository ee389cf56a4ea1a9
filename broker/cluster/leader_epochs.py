"""Caches the leader epochs of all partitions in the cluster, for metadata answers.

Clients drop metadata whose leader epoch is older than one they have seen, so every broker must know
the true epochs: it may be late, never wrong. The epoch is part of the partition's segment list,
which changes with takeovers, rolls and trims. A list is read when a client first asks for its
topic, and again after a watch said that it changed, together with others; concurrent requests
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
from client.log.segments import NO_EPOCH, decode_segments
from client.metadata import paths
from client.metadata.store import MetadataStore, Versioned
from client.node import background

log = logging.getLogger(__name__)

_READS_AT_ONCE: Final = 256
_WAIT_MAX_S: Final = 3.0
"""For those who ask: an old answer is better than none while the store is slow, or away."""


class _Topic:
    """What is known of one topic's partitions."""

    __slots__ = ("epochs", "reading", "shown", "shown_unled", "stale", "unled", "watchers")

    def __init__(self) -> None:
        self.epochs: list[LeaderEpoch] = []
        self.stale: set[int] = set()
        """Partitions that were not read, or changed since."""
        self.unled: set[int] = set()
        """Partitions that had no leader yet when they were read."""
        self.shown: tuple[LeaderEpoch, ...] | None = None
        self.shown_unled: frozenset[int] | None = None
        """The same, for those who ask; None: it has changed. Answers that wait ask all the time."""
        self.watchers: list[Callable[[], None]] = []
        self.reading: asyncio.Task[None] | None = None
        """Reads what was stale when it began."""

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
        """Return the epoch as far as it is known; -1: not known."""
        known = self._known.get(topic.topic_id)
        return known.epochs[index] if known is not None and index < len(known.epochs) else NO_EPOCH

    def current(self, topic: TopicInfo, index: int) -> LeaderEpoch | None:
        """Return the epoch if it was read and has not changed since; None: `load` first.

        None too for a partition that nobody has led yet.
        """
        known = self._known.get(topic.topic_id)
        if known is None or index >= len(known.epochs):
            return None
        return None if index in known.stale or index in known.unled else known.epochs[index]

    def of(self, topic: TopicInfo) -> tuple[LeaderEpoch, ...]:
        """Return the epoch of each partition as far as it is known; -1: not known."""
        known, count = self._known.get(topic.topic_id), topic.partition_count
        if known is None:
            return (NO_EPOCH,) * count
        if known.shown is None:
            known.shown = tuple(known.epochs)
        found = known.shown
        return found if len(found) == count else (found + (NO_EPOCH,) * count)[:count]

    def unled(self, topic: TopicInfo) -> frozenset[int]:
        """Return the partitions that nobody opened yet, with those that `load` was not asked for.

        A partition that the store does not tell of is none of them: it may have a leader.
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
        """Read what is not known, or changed; what the store does not tell stays as it was known.

        Costs nothing for what did not change: answers that wait ask again and again.
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
        """End what is being read. Who waits for it is cancelled."""
        for known in list(self._known.values()):
            await background.stop(known.reading)

    def keep_only(self, topic_ids: Iterable[UUID]) -> None:
        """Forget topics that are gone."""
        kept = dict.fromkeys(topic_ids)
        self._known = {
            topic_id: known for topic_id, known in self._known.items() if topic_id in kept
        }

    async def _refresh(self, topic: TopicInfo, known: _Topic) -> None:
        if known.reading is not None:
            await asyncio.shield(known.reading)
        # That may have read before what changed meanwhile: once more, and no more than once.
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
            _note(known, index, path, node)

    async def _get(
        self, places: Sequence[str], watchers: Sequence[Callable[[], None]]
    ) -> list[Versioned | None]:
        if len(places) > 1:
            return await self._store.get_many(places, watchers)
        try:
            return [await self._store.get(places[0], watchers[0])]
        except NoNode:
            return [None]


def _note(known: _Topic, index: int, path: str, node: Versioned | None) -> None:
    """Take what was read of a partition; what tells nothing is to be read again."""
    is_unled = False
    if node is None:
        known.stale.add(index)
    else:
        try:
            epoch = decode_segments(node.data).leader_epoch
        except LogCorrupt as error:
            known.stale.add(index)
            log.warning("epoch.unknown path=%s error=%r", path, error)
        else:
            if epoch > known.epochs[index]:
                known.epochs[index] = epoch
                known.on_changed()
            is_unled = known.epochs[index] == NO_EPOCH
    if is_unled != (index in known.unled):
        (known.unled.add if is_unled else known.unled.discard)(index)
        known.on_changed()
