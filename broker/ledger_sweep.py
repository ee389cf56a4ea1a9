"""Deletes ledgers that no partition lists and that none can ever list again.

This file is the only home of that sweep. A broker that dies between creating a ledger and
listing it, or between taking ledgers off the list and deleting them, leaves ledgers behind that
nobody would miss and nobody would delete. Each ledger says in its own metadata for which
partition and leader epoch it was made. It is listed by a compare-and-set on the version that its
creator had read, in that epoch; so once the list has reached a later epoch without it, that
compare-and-set cannot succeed any more, whatever its creator believes.

One live broker sweeps, the one with the lowest id; two at once would do no harm. Ledgers of other
applications are not touched.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from broker.core.segments import SegmentList, decode_segments
from broker.errors import LogCorrupt
from broker.ledgers import Ledgers
from broker.opening import APPLICATION, APPLICATION_NAME, LEADER_EPOCH, PARTITION, TOPIC_ID
from client.errors import LedgerError, MetadataError, NoNode, NoSuchLedger
from client.ids import BrokerId, LeaderEpoch, LedgerId
from client.metadata import paths
from client.metadata.store import MetadataStore

_LOG = logging.getLogger(__name__)

_INTERVAL_S: Final = 6 * 3600.0


class Purpose(NamedTuple):
    """What a ledger was created for."""

    topic_id: str
    partition: int
    leader_epoch: LeaderEpoch


class LiveBrokers(Protocol):
    """The part of the cluster's view that the sweep asks."""

    @property
    def brokers(self) -> Iterable[BrokerId]:
        """Ids of live brokers."""
        ...


class LedgerSweep:
    """A background task of every broker."""

    def __init__(
        self, store: MetadataStore, ledgers: Ledgers, cluster: LiveBrokers, me: BrokerId
    ) -> None:
        self._store = store
        self._ledgers = ledgers
        self._cluster = cluster
        self._me = me
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="ledger sweep")

    async def close(self) -> None:
        """Stop wherever it is."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def sweep(self) -> list[LedgerId]:
        """Make one round; return what was deleted. Raises MetadataError, LedgerError."""
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
            except (MetadataError, LedgerError, LogCorrupt) as error:
                _LOG.warning("sweep.failed error=%r", error)

    async def _listed(self) -> dict[LedgerId, None]:
        """Return every ledger that some list names: none of them needs a closer look."""
        found: dict[LedgerId, None] = {}
        for topic_id in await self._store.children(paths.PARTITIONS):
            try:
                indexes = await self._store.children(paths.topic_partitions(topic_id))
            except NoNode:
                continue
            for index in indexes:
                segments = await self._segments(topic_id, int(index))
                if segments is not None:
                    found.update((item.ledger_id, None) for item in segments.segments)
        return found

    async def _is_orphan(self, ledger_id: LedgerId) -> bool:
        try:
            metadata = await self._ledgers.describe(ledger_id)
        except NoSuchLedger:
            return False
        purpose = purpose_of(metadata.custom_metadata)
        if purpose is None:
            return False
        path = paths.partition(purpose.topic_id, purpose.partition)
        await self._store.sync(path)
        return is_orphan(
            ledger_id, purpose, await self._segments(purpose.topic_id, purpose.partition)
        )

    async def _segments(self, topic_id: str, index: int) -> SegmentList | None:
        try:
            node = await self._store.get(paths.partition(topic_id, index))
        except NoNode:
            return None
        return decode_segments(node.data)


def is_orphan(ledger_id: LedgerId, purpose: Purpose, segments: SegmentList | None) -> bool:
    """Whether no list can name the ledger any more; None: the partition was deleted."""
    if segments is None:
        return True
    return not segments.has(ledger_id) and segments.leader_epoch > purpose.leader_epoch


def purpose_of(labels: Mapping[str, bytes]) -> Purpose | None:
    """Read a ledger's custom metadata; None: it is not one of ours."""
    try:
        if labels[APPLICATION] != APPLICATION_NAME:
            return None
        epoch = LeaderEpoch(int(labels[LEADER_EPOCH]))
        return Purpose(labels[TOPIC_ID].decode(), int(labels[PARTITION]), epoch)
    except (KeyError, ValueError):
        return None
