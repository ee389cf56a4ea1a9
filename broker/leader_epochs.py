"""Leader epochs as metadata answers need them: of partitions led anywhere in the cluster.

This file is the only home of that cache. Clients drop metadata whose leader epoch is older than
one they have seen, so every broker must know the true epochs, and may be late but never wrong.
The epoch stands in the partition's segment list, which changes with takeovers, rolls and trims;
a list is read when a client first asks for its topic, and again after a watch said it changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final
from uuid import UUID

from broker.core.segments import NO_EPOCH, decode_segments
from broker.core.topology import TopicInfo
from broker.errors import LogCorrupt
from client.errors import MetadataError, NoNode
from client.ids import LeaderEpoch
from client.metadata import paths
from client.metadata.store import MetadataStore

log = logging.getLogger(__name__)

_READS_AT_ONCE: Final = 64


class _Topic:
    """What is known of one topic's partitions."""

    __slots__ = ("epochs", "stale", "watchers")

    def __init__(self) -> None:
        self.epochs: list[LeaderEpoch] = []
        self.stale: set[int] = set()
        """Partitions that were not read, or changed since."""
        self.watchers: list[Callable[[], None]] = []

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

    async def load(self, topics: Iterable[TopicInfo]) -> None:
        """Read what is not known, or changed. Old knowledge stands where the store fails.

        Costs nothing for what did not change: answers that wait ask again and again.
        """
        reads = []
        for topic in topics:
            known = self._known.get(topic.topic_id)
            if known is None:
                known = self._known[topic.topic_id] = _Topic()
            known.grow(topic.partition_count)
            reads += [
                partial(self._read, paths.partition(topic.id_text, index), known, index)
                for index in sorted(known.stale)
            ]
        for start in range(0, len(reads), _READS_AT_ONCE):
            await asyncio.gather(*(read() for read in reads[start : start + _READS_AT_ONCE]))

    def keep_only(self, topic_ids: Iterable[UUID]) -> None:
        """Forget topics that are gone."""
        kept = dict.fromkeys(topic_ids)
        self._known = {
            topic_id: known for topic_id, known in self._known.items() if topic_id in kept
        }

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
