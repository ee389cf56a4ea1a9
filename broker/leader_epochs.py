"""Leader epochs as metadata answers need them: of partitions led anywhere in the cluster.

This file is the only home of that cache. Clients drop metadata whose leader epoch is older than
one they have seen, so every broker must know the true epochs, and may be late but never wrong.
The epoch stands in the partition's segment list, which changes with takeovers, rolls and trims;
a list is read when a client first asks for its topic, and again after a watch said it changed.
Those who ask at the same time wait for the same reading.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final
from uuid import UUID

from broker import background
from broker.core.segments import NO_EPOCH, decode_segments
from broker.core.topology import TopicInfo
from broker.errors import LogCorrupt
from client.errors import MetadataError, NoNode
from client.ids import LeaderEpoch
from client.metadata import paths
from client.metadata.store import MetadataStore

log = logging.getLogger(__name__)

_READS_AT_ONCE: Final = 64
_WAIT_MAX_S: Final = 3.0
"""For those who ask: an old answer is better than none while the store is slow, or away."""


class _Topic:
    """What is known of one topic's partitions."""

    __slots__ = ("epochs", "reading", "stale", "watchers")

    def __init__(self) -> None:
        self.epochs: list[LeaderEpoch] = []
        self.stale: set[int] = set()
        """Partitions that were not read, or changed since."""
        self.watchers: list[Callable[[], None]] = []
        self.reading: asyncio.Task[None] | None = None
        """Reads what was stale when it began."""

    def grow(self, count: int) -> None:
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

    def of(self, topic: TopicInfo) -> tuple[LeaderEpoch, ...]:
        """Return the epoch of each partition as far as it is known; -1: not known."""
        known = self._known.get(topic.topic_id)
        found = tuple(known.epochs[: topic.partition_count]) if known is not None else ()
        return found + (NO_EPOCH,) * (topic.partition_count - len(found))

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
            known.reading = asyncio.get_running_loop().create_task(
                self._read_stale(topic, known), name=f"epochs {topic.name}"
            )
        if known.reading is not None:
            await asyncio.shield(known.reading)

    async def _read_stale(self, topic: TopicInfo, known: _Topic) -> None:
        try:
            indexes = sorted(known.stale)
            for start in range(0, len(indexes), _READS_AT_ONCE):
                reads = [
                    self._read(paths.partition(topic.id_text, index), known, index)
                    for index in indexes[start : start + _READS_AT_ONCE]
                ]
                await asyncio.gather(*reads)
        finally:
            known.reading = None

    async def _read(self, path: str, known: _Topic, index: int) -> None:
        known.stale.discard(index)
        try:
            node = await self._store.get(path, known.watchers[index])
            epoch = decode_segments(node.data).leader_epoch
        except NoNode:
            known.stale.add(index)
        except (MetadataError, LogCorrupt) as error:
            known.stale.add(index)
            log.warning("epoch.unknown path=%s error=%r", path, error)
        else:
            known.epochs[index] = max(known.epochs[index], epoch)
