"""Carries out a takeover: the steps of `core/takeover.py`, one at a time.

It decides nothing: the core says which step is next.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import NamedTuple, assert_never

from broker.cluster.core.topology import TopicInfo
from broker.cluster.owner_node import NOTHING_READ, OwnerClaim
from broker.errors import BrokerError, NotLeader
from broker.partition.core.replay import LedgerTail
from broker.partition.core.takeover import (
    Claim,
    Commit,
    CommitLost,
    Committed,
    CommitUnknown,
    FindEnd,
    PlanLedger,
    ReadBack,
    ReadList,
    Recover,
    Replay,
    Resign,
    Serve,
    Step,
    Takeover,
)
from broker.partition.core.transactions.log_fold import LogFold
from broker.partition.ledger_creation import plan_ledger, warn_if_shrunk
from broker.partition.ledger_views import replay_ledger
from broker.partition.ledgers import PlannedLedger, Reader, Writer
from broker.partition.log_services import LogServices
from broker.partition.segment_node import SegmentNode, decoded
from client.errors import (
    ConnectionLoss,
    LedgerError,
    LogCorrupt,
    MetadataError,
    NodeExists,
    NoNode,
    NoSuchLedger,
    VersionConflict,
)
from client.ids import LeaderEpoch, LedgerId, Offset
from client.log.aborted_index import LedgerAborted
from client.log.segment_pages import NewPage
from client.log.segments import SegmentList
from client.metadata.store import Change

_LOG = logging.getLogger(__name__)


class Opened(NamedTuple):
    """The result of a successful takeover, for the new leader."""

    segments: SegmentList
    version: int
    writer: Writer
    log_end_offset: Offset
    fold: LogFold
    """Of the log up to its end."""
    earlier: Mapping[LedgerId, LedgerAborted]
    """Aborted transactions of earlier ledgers, for our first snapshot."""


class Opening:
    """One attempt to lead one partition."""

    def __init__(
        self,
        services: LogServices,
        topic: TopicInfo,
        index: int,
        is_claimed: Callable[[], bool],
        replays: AbstractAsyncContextManager[None] | None = None,
        claim: OwnerClaim = NOTHING_READ,
    ) -> None:
        """`is_claimed`: whether we hold the owner ephemeral and are still the preferred leader.

        `replays`: entered while the end of the log is replayed. `claim`: may bring the segment
        list's node, where recoveries begin, and a ledger id; then the takeover succeeds only at
        that node's version (LIST-WITH-CLAIM).
        """
        self._services = services
        self._topic = topic
        self._index = index
        self._is_claimed = is_claimed
        self._replays = nullcontext() if replays is None else replays
        self._claim = claim
        self._node = SegmentNode(services.requests, topic, index, services.pages)
        self._takeover = Takeover(services.limits.segment_page_entries)
        self._starts = {start.ledger_id: start for start in claim.starts}
        self._readers: dict[LedgerId, Reader] = {}
        self._close: Change | None = None
        """Closes the last ledger."""
        self._planned: PlannedLedger | None = None

    async def run(self) -> Opened:
        """Take over. Raises NotLeader if it failed; LogCorrupt if it cannot succeed."""
        return self._opened(await self._serve())

    async def _serve(self) -> Serve:
        step = self._takeover.start()
        while not isinstance(step, Serve):
            if isinstance(step, Resign):
                raise NotLeader(f"{self._topic.name}-{self._index}: {step.reason}")
            try:
                step = await self._do(step)
            except LogCorrupt:
                raise
            except (LedgerError, MetadataError, BrokerError) as error:
                _LOG.warning(
                    "takeover.failed topic=%s partition=%d state=%s error=%r",
                    self._topic.name,
                    self._index,
                    self._takeover.describe(),
                    error,
                )
                step = self._takeover.on_failed(repr(error))
        return step

    def _opened(self, step: Serve) -> Opened:
        assert self._planned is not None
        writer = self._planned.created()
        warn_if_shrunk(writer, self._topic, self._index)
        fold = step.tail.fold if step.tail is not None else LogFold(self._services.limits)
        _LOG.info(
            "takeover.leading topic=%s partition=%d epoch=%d ledger=%d log_end=%d",
            self._topic.name,
            self._index,
            step.segments.leader_epoch,
            step.ledger_id,
            step.log_end_offset,
        )
        return Opened(step.segments, step.version, writer, step.log_end_offset, fold, step.earlier)

    async def _do(self, step: Step) -> Step:
        takeover = self._takeover
        match step:
            case Claim():
                if self._is_claimed():
                    return takeover.on_claimed()
                return takeover.on_failed("this broker should no longer lead the partition")
            case ReadList():
                if self._claim.beside is not None:
                    return takeover.on_list(*decoded(self._claim.beside))
                return takeover.on_list(*await self._node.read())
            case Recover(ledger_id) | FindEnd(ledger_id):
                return await self._recover(ledger_id, is_last=isinstance(step, FindEnd))
            case Replay(ledger_id):
                return takeover.on_replayed(ledger_id, await self._replay(ledger_id))
            case PlanLedger(epoch):
                return await self._plan(epoch)
            case Commit(segments, expected_version, pages):
                return await self._commit(segments, expected_version, pages)
            case ReadBack():
                return await self._read_back()
            case Serve() | Resign():
                raise AssertionError(step)
        assert_never(step)

    async def _recover(self, ledger_id: LedgerId, *, is_last: bool) -> Step:
        recoveries = self._services.ledgers.recoveries
        start = self._starts.get(ledger_id)
        try:
            if is_last:
                found = await recoveries.find_end(ledger_id, start)
                self._readers[ledger_id], self._close = found.reader, found.close
            else:
                self._readers[ledger_id] = await recoveries.recover(ledger_id, start)
        except NoSuchLedger:
            # A trim by the leader that we are about to replace deletes ledgers, but changes the
            # list first. If the list is unchanged, the ledger is missing and must not be skipped.
            _, version = await self._node.read_back()
            if not self._takeover.is_current(version):
                return self._takeover.on_failed("the segment list changed")
            raise LogCorrupt(
                f"{self._topic.name}-{self._index} lists ledger {ledger_id}, which does not exist"
            ) from None
        return self._takeover.on_recovered(ledger_id)

    async def _replay(self, ledger_id: LedgerId) -> LedgerTail | None:
        reader = self._readers.get(ledger_id)
        if reader is None:
            reader = await self._services.ledgers.open(ledger_id)
        if reader.last_entry < 0:
            return None
        async with self._replays:
            now_ms = self._services.clock.now_ms()
            return await replay_ledger(reader, self._services.limits, now_ms)

    async def _plan(self, epoch: LeaderEpoch) -> Step:
        ledgers, ledger_id = self._services.ledgers, self._claim.ledger_id
        self._planned = await plan_ledger(ledgers, self._topic, self._index, epoch, ledger_id)
        now_ms = self._services.clock.now_ms()
        return self._takeover.on_planned(self._planned.ledger_id, now_ms)

    async def _commit(
        self, segments: SegmentList, expected_version: int, pages: Sequence[NewPage]
    ) -> Step:
        assert self._planned is not None
        close = () if self._close is None else (self._close,)
        first = (*close, *self._planned.changes)
        try:
            await self._node.write_pages(pages)
            version = await self._node.set(segments, expected_version, first)
        except (VersionConflict, NoNode, NodeExists):
            return self._takeover.on_commit(CommitLost())
        except ConnectionLoss:
            return self._takeover.on_commit(CommitUnknown())
        return self._takeover.on_commit(Committed(version))

    async def _read_back(self) -> Step:
        try:
            found = await self._node.read_back()
        except ConnectionLoss:
            return ReadBack()
        return self._takeover.on_read_back(*found)
