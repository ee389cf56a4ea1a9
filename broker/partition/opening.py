"""Carries out a takeover: the steps of `core/takeover.py`, one at a time.

It decides nothing: the core says which step is next. What comes with the claim already, an id for a
ledger and what recoveries begin from, is read by the `FirstSteps` of all takeovers of a broker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import NamedTuple, assert_never

from broker.cluster.core.topology import TopicInfo
from broker.cluster.owner_node import NOTHING_READ, OwnerClaim
from broker.errors import BrokerError, NotLeader
from broker.partition.core.log_fold import LogFold
from broker.partition.core.replay import LedgerTail
from broker.partition.core.takeover import (
    RECOVER_LEDGERS,
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
    Recovered,
    Replay,
    Resign,
    Serve,
    Step,
    Takeover,
)
from broker.partition.ledger_views import replay_ledger
from broker.partition.ledgers import (
    Ledgers,
    PlannedLedger,
    Reader,
    Writer,
    plan_ledger,
    warn_if_shrunk,
)
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
    NotEnoughBookies,
    VersionConflict,
)
from client.ids import NO_LEDGER, LeaderEpoch, LedgerId, Offset
from client.ledger.joined_changes import RecoveryStart
from client.log.aborted_transactions import LedgerAborted
from client.log.segment_pages import NewPage
from client.log.segments import SegmentList
from client.metadata.store import Change, Versioned

_LOG = logging.getLogger(__name__)


class FirstSteps:
    """The first steps of all takeovers of a broker."""

    def __init__(self, ledgers: Ledgers) -> None:
        self._ledgers = ledgers

    async def starts(self, node: Versioned) -> Sequence[RecoveryStart]:
        """Read the metadata of a list's last ledgers together.

        None if that fails: the takeover then tries again, and knows what it means.
        """
        try:
            segments, _ = decoded(node)
            last = [segment.ledger_id for segment in segments.segments[-RECOVER_LEDGERS:]]
            if segments.deleted or not last:
                return ()
            return await self._ledgers.recoveries.starts(last)
        except (LogCorrupt, LedgerError, MetadataError) as error:
            _LOG.info("takeover.no_start error=%r", error)
            return ()

    async def take_id(self) -> LedgerId:
        """Take an id for a ledger. Raises MetadataError."""
        return await self._ledgers.take_id()


class Opened(NamedTuple):
    """The result of a successful takeover, for the new leader."""

    segments: SegmentList
    version: int
    writer: Writer | None
    """None: too few bookies accept entries; the partition is led for reads."""
    log_end_offset: Offset
    fold: LogFold
    """Of the log up to its end."""
    earlier: Mapping[LedgerId, LedgerAborted]
    """Aborted transactions of earlier ledgers, for our first snapshot."""
    recovered: Recovered
    """What `segments` does not say of its ledgers; empty with a writer."""
    has_snapshot: bool
    """Whether the last listed ledger has entries."""


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
        writer: Writer | None = None
        if self._planned is not None:
            writer = self._planned.created()
            warn_if_shrunk(writer, self._topic, self._index)
        fold = step.tail.fold if step.tail is not None else LogFold(self._services.limits)
        _LOG.info(
            "takeover.leading topic=%s partition=%d epoch=%d ledger=%d log_end=%d",
            self._topic.name,
            self._index,
            step.segments.leader_epoch,
            NO_LEDGER if step.ledger_id is None else step.ledger_id,
            step.log_end_offset,
        )
        return Opened(
            step.segments,
            step.version,
            writer,
            step.log_end_offset,
            fold,
            step.earlier,
            step.recovered,
            step.has_snapshot,
        )

    async def _do(self, step: Step) -> Step:
        takeover = self._takeover
        match step:
            case Claim():
                if self._is_claimed():
                    return takeover.on_claimed()
                return takeover.on_failed("this broker should no longer lead the partition")
            case ReadList():
                if self._claim.beside is not None:
                    return takeover.on_list(*self._node.decoded(self._claim.beside))
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
        try:
            self._planned = await plan_ledger(ledgers, self._topic, self._index, epoch, ledger_id)
        except NotEnoughBookies as error:
            _LOG.warning(
                "takeover.read_only topic=%s partition=%d error=%r",
                self._topic.name, self._index, error,
            )  # fmt: skip
            return self._takeover.on_no_ledger()
        now_ms = self._services.clock.now_ms()
        return self._takeover.on_planned(self._planned.ledger_id, now_ms)

    async def _commit(
        self, segments: SegmentList, expected_version: int, pages: Sequence[NewPage]
    ) -> Step:
        close = () if self._close is None else (self._close,)
        first = close if self._planned is None else (*close, *self._planned.changes)
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
