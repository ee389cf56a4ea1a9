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


class _Known:
    """What is known of one partition."""

    __slots__ = ("epoch", "fresh", "watcher")

    def __init__(self) -> None:
        self.epoch = NO_EPOCH
        self.fresh = False
        self.watcher: Callable[[], None] = self.on_changed

    def on_changed(self) -> None:
        self.fresh = False


class LeaderEpochs:
    """(topic, partition index) -> leader epoch."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._known: dict[UUID, list[_Known]] = {}

    def get(self, topic: TopicInfo, index: int) -> LeaderEpoch:
        """Return the epoch as far as it is known; -1: not known."""
        known = self._known.get(topic.topic_id)
        return known[index].epoch if known is not None and index < len(known) else NO_EPOCH

    async def load(self, topics: Iterable[TopicInfo]) -> None:
        """Read what is not known, or changed. Old knowledge stands where the store fails."""
        reads = []
        for topic in topics:
            known = self._known.setdefault(topic.topic_id, [])
            while len(known) < topic.partition_count:
                known.append(_Known())
            for index, partition in enumerate(known):
                if not partition.fresh:
                    reads.append(
                        partial(self._read, paths.partition(topic.id_text, index), partition)
                    )
        for start in range(0, len(reads), _READS_AT_ONCE):
            await asyncio.gather(*(read() for read in reads[start : start + _READS_AT_ONCE]))

    def keep_only(self, topic_ids: Iterable[UUID]) -> None:
        """Forget topics that are gone."""
        kept = dict.fromkeys(topic_ids)
        self._known = {topic_id: rows for topic_id, rows in self._known.items() if topic_id in kept}

    async def _read(self, path: str, partition: _Known) -> None:
        partition.fresh = True
        try:
            node = await self._store.get(path, partition.watcher)
            epoch = decode_segments(node.data).leader_epoch
        except NoNode:
            partition.fresh = False
        except (MetadataError, LogCorrupt) as error:
            partition.fresh = False
            log.warning("epoch.unknown path=%s error=%r", path, error)
        else:
            partition.epoch = max(partition.epoch, epoch)
