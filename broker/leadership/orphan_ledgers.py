"""Deletes ledgers that no partition lists and that none can ever list again.

A broker that dies between creating a ledger and listing it, or between removing ledgers from the
list and deleting them, leaves ledgers behind that nobody would ever delete. The metadata of each
ledger names the partition and the leader epoch it was created for. Its creator lists it by a
compare-and-set on the version that it had read in that epoch. So once the list has reached a later
epoch without the ledger, that compare-and-set can no longer succeed, whatever the creator believes.
A ledger that is listed as gone, with an object in its place, is like one that is not listed.

The same holds for the pages of a segment list (`client/segments/page_nodes.py`), which are swept,
too.

The live broker with the lowest id sweeps; two sweeps at once would do no harm. Ledgers of other
applications are not touched. A round needs eight bytes of memory per listed ledger.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from broker.partition.ledgers import (
    APPLICATION,
    APPLICATION_NAME,
    LEADER_EPOCH,
    PARTITION,
    TOPIC_ID,
    Ledgers,
)
from client.errors import LedgerError, LogCorrupt, MetadataError, NoNode, NoSuchLedger
from client.ids import BrokerId, LeaderEpoch, LedgerId
from client.log.segments import SegmentList, decode_segments
from client.metadata import paths
from client.metadata.store import MetadataStore
from client.node import background
from client.segments.page_nodes import delete_pages, orphan_pages
from client.segments.pages import SegmentPages

_LOG = logging.getLogger(__name__)

_INTERVAL_S: Final = 6 * 3600.0
_RUN_BITS: Final = 16
_DIGITS_MAX: Final = 10
_INT32_MAX: Final = 2**31 - 1


class Purpose(NamedTuple):
    """What a ledger was created for."""

    topic_id: str
    partition: int
    leader_epoch: LeaderEpoch


class LiveBrokers(Protocol):
    """The part of the cluster's view that the sweep needs."""

    @property
    def brokers(self) -> Iterable[BrokerId]:
        """Ids of live brokers."""
        ...


class OrphanLedgers:
    """A background task of every broker."""

    def __init__(
        self, store: MetadataStore, ledgers: Ledgers, cluster: LiveBrokers, me: BrokerId
    ) -> None:
        self._store = store
        self._ledgers = ledgers
        self._cluster = cluster
        self._me = me
        self._mislabelled_count = 0
        """Ledgers with our application name but labels that we never write. Only the first one of
        each round is logged."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task."""
        self._task = background.keep(self._run, "orphan-sweep")

    async def close(self) -> None:
        """Stop the task, even in the middle of a round."""
        await background.stop(self._task)

    async def sweep(self) -> list[LedgerId]:
        """Make one round; return the deleted ledgers. Raises MetadataError, LedgerError."""
        self._mislabelled_count = 0
        listed = await self._listed()
        deleted: list[LedgerId] = []
        async for ledger_id in self._ledgers.ledgers():
            if ledger_id not in listed and await self._is_orphan(ledger_id):
                _LOG.info("sweep.orphan ledger=%d", ledger_id)
                with contextlib.suppress(NoSuchLedger):
                    await self._ledgers.delete(ledger_id)
                deleted.append(ledger_id)
        return deleted

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_INTERVAL_S)
            if min(self._cluster.brokers, default=None) != self._me:
                continue
            try:
                await self.sweep()
                await self.sweep_pages()
            except (MetadataError, LedgerError, LogCorrupt) as error:
                _LOG.warning("sweep.failed error=%r", error)

    async def sweep_pages(self) -> list[str]:
        """Delete pages that no list can name any more; return their paths. Raises MetadataError."""
        deleted: list[str] = []
        for topic_id, index in await self._partitions():
            path = paths.partition(topic_id, index)
            try:
                names = await orphan_pages(self._store, path)
            except NoNode:
                continue  # the list has changed meanwhile, or is gone: left to the next round
            except LogCorrupt as error:
                self._store.unreadable.note(path, error)
                continue
            for name in names:
                _LOG.info("sweep.page path=%s", paths.segment_page(path, *name))
            await delete_pages(self._store, path, names)
            deleted += [paths.segment_page(path, *name) for name in names]
        return deleted

    async def _partitions(self) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        for topic_id in await self._store.children(paths.PARTITIONS):
            try:
                indexes = await self._store.children(paths.topic_partitions(topic_id))
            except NoNode:
                continue
            found += [(topic_id, int(index)) for index in indexes]
        return found

    async def _listed(self) -> LedgerSet:
        """Return every ledger that a segment list names: these need no closer look."""
        found = LedgerSet()
        for topic_id, index in await self._partitions():
            try:
                segments = await self._segments(topic_id, index)
            except LogCorrupt:
                continue  # its ledgers get the closer look, which lets them be
            if segments is None:
                continue
            pages = SegmentPages(self._store, paths.partition(topic_id, index))
            # The list changed, or a page is unreadable: its ledgers get the closer look.
            with contextlib.suppress(NoNode, LogCorrupt):
                async for item in pages.segments(segments):
                    if not item.is_ledger_gone:  # whoever dropped it may have died before deleting
                        found.add(item.ledger_id)
        found.sort()
        return found

    async def _is_orphan(self, ledger_id: LedgerId) -> bool:
        try:
            metadata = await self._ledgers.describe(ledger_id)
        except NoSuchLedger:
            return False
        purpose = purpose_of(metadata.custom_metadata)
        if purpose is None:
            if metadata.custom_metadata.get(APPLICATION) == APPLICATION_NAME:
                self._mislabelled_count += 1
                if self._mislabelled_count == 1:
                    _LOG.warning("sweep.mislabelled ledger=%d", ledger_id)
            return False
        path = paths.partition(purpose.topic_id, purpose.partition)
        await self._store.sync(path)
        try:
            segments = await self._segments(purpose.topic_id, purpose.partition)
        except LogCorrupt:
            return False  # what cannot be read may list it (UNREADABLE-STAYS)
        if segments is None:
            return True
        if segments.leader_epoch <= purpose.leader_epoch:
            return False
        try:
            return not await SegmentPages(self._store, path).has(segments, ledger_id)
        except NoNode:
            return False  # the list has changed meanwhile: left to the next round
        except LogCorrupt as error:
            self._store.unreadable.note(path, error)
            return False

    async def _segments(self, topic_id: str, index: int) -> SegmentList | None:
        """Return the list of a partition; None: there is none. Raises LogCorrupt."""
        path = paths.partition(topic_id, index)
        try:
            node = await self._store.get(path)
        except NoNode:
            return None
        return self._store.unreadable.decode(path, node.data, decode_segments)


class LedgerSet:
    """Ledger ids at eight bytes each: a cluster may have tens of millions."""

    def __init__(self) -> None:
        self._runs: dict[int, array[int]] = {}
        """By their higher bits, so that each array to sort is small."""

    def add(self, ledger_id: LedgerId) -> None:
        """Add an id. Call `sort` before any lookup."""
        self._runs.setdefault(ledger_id >> _RUN_BITS, array("q")).append(ledger_id)

    def sort(self) -> None:
        """Sort the ids, once all of them were added."""
        for key, ids in self._runs.items():
            self._runs[key] = array("q", sorted(ids))

    def __contains__(self, ledger_id: LedgerId) -> bool:
        ids = self._runs.get(ledger_id >> _RUN_BITS, array("q"))
        at = bisect_left(ids, ledger_id)
        return at < len(ids) and ids[at] == ledger_id


def purpose_of(labels: Mapping[str, bytes]) -> Purpose | None:
    """Read a ledger's custom metadata; None: the ledger is not ours.

    Any client can write such labels. Only the exact form that we write is accepted, because the
    topic id becomes part of a path, and the ledger of an impossible partition would look orphaned.
    """
    try:
        if labels[APPLICATION] != APPLICATION_NAME:
            return None
        topic_id = labels[TOPIC_ID].decode()
        if str(UUID(topic_id)) != topic_id:
            return None
        partition, epoch = _number(labels[PARTITION]), _number(labels[LEADER_EPOCH])
        return Purpose(topic_id, partition, LeaderEpoch(epoch))
    except (KeyError, ValueError):
        return None


def _number(label: bytes) -> int:
    """Parse a 32-bit number in the form that we write. Raises ValueError."""
    if len(label) > _DIGITS_MAX or not label.isdigit() or str(int(label)).encode() != label:
        raise ValueError("not a partition or epoch")
    number = int(label)
    if number > _INT32_MAX:
        raise ValueError("beyond 32 bits")
    return number
