"""Carries out the steps of a led partition that take I/O: on its segment list and its ledgers.

`core/leader.py` decides on the steps; here each one becomes calls of the metadata store and the
ledger client, and one outcome.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import assert_never

from broker.cluster.core.topology import TopicInfo
from broker.partition.core.leader_effects import (
    ChangeList,
    CloseLedger,
    CreateLedger,
    DeleteLedgers,
    DiscardLedger,
    LeaderStep,
    LedgerClosed,
    LedgerCreated,
    LedgerNotClosed,
    LedgerRefused,
    LedgersDeleted,
    ListChanged,
    ListLost,
    ListUnfolded,
    ReadTrail,
    StepOutcome,
    TrailRead,
    UnfoldList,
)
from broker.partition.ledgers import Writer, create_ledger
from broker.partition.log_services import LogServices
from broker.partition.segment_node import SegmentNode
from client.errors import (
    ConnectionLoss,
    LedgerError,
    LogCorrupt,
    MetadataError,
    NoNode,
    NoSuchLedger,
)
from client.ids import LeaderEpoch, LedgerId, Offset
from client.log.segment_pages import PageRef
from client.log.segments import SegmentList

_LOG = logging.getLogger(__name__)


class LeaderSteps:
    """The segment list of a led partition, and the ledgers that it writes."""

    __slots__ = (
        "_on_failed",
        "_on_outcome",
        "_services",
        "_tasks",
        "_writers",
        "index",
        "node",
        "topic",
        "writer",
    )

    def __init__(
        self,
        services: LogServices,
        topic: TopicInfo,
        index: int,
        writer: Writer | None,
        on_outcome: Callable[[StepOutcome], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """`on_failed` is told what a step raised that it never should."""
        self.topic = topic
        self.writer = writer
        """Writer of the current ledger; None: the partition is read-only."""
        self.node = SegmentNode(services.requests, topic, index, services.pages)
        self.index = index
        self._services = services
        self._on_outcome = on_outcome
        self._on_failed = on_failed
        self._writers = {} if writer is None else {writer.ledger_id: writer}
        """Writers of the open ledgers: the active one, its successor, its predecessor."""
        self._tasks: dict[asyncio.Task[None], None] = {}
        """Steps in progress. They belong to the partition, not to the caller of a change: if a
        cancelled caller stopped one, the version of the list would be unknown."""

    @property
    def name(self) -> str:
        """Topic and index."""
        return f"{self.topic.name}-{self.index}"

    def start(self, step: LeaderStep) -> None:
        """Carry out a step in the background, and report its outcome."""
        task = asyncio.get_running_loop().create_task(self._run(step), name=self.name)
        self._tasks[task] = None
        task.add_done_callback(self._on_done)

    def writer_of(self, ledger_id: LedgerId) -> Writer:
        """Return the writer of a ledger that this leader has not closed yet."""
        return self._writers[ledger_id]

    def switch(self, ledger_id: LedgerId) -> None:
        """Send entries to this ledger from now on."""
        self.writer = self._writers[ledger_id]

    def on_sealed(self, ledger_id: LedgerId) -> None:
        """The ledger is closed, and its writer is no longer needed."""
        del self._writers[ledger_id]

    def stop(self) -> None:
        """The leadership has ended: cancel the steps in progress, except the current one."""
        for task in list(self._tasks):
            if task is not asyncio.current_task():
                task.cancel()

    def abandon(self) -> None:
        """Stop writing; the next leader recovers the ledgers."""
        for writer in self._writers.values():
            writer.abandon()

    async def wait_idle(self) -> None:
        """Wait until no step is in progress."""
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        if tasks:
            await asyncio.wait(tasks)

    async def _run(self, step: LeaderStep) -> None:
        self._on_outcome(await self._carry_out(step))

    def _on_done(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_failed(error)  # or its change would never be done
            raise error  # a bug: the loop reports it

    async def _carry_out(self, step: LeaderStep) -> StepOutcome:
        match step:
            case CreateLedger(epoch):
                return await self._create(epoch)
            case ChangeList():
                return await self._change_list(step)
            case UnfoldList(segments):
                return await self._unfold(segments)
            case ReadTrail(segments, offset):
                return await self._read_trail(segments, offset)
            case CloseLedger():
                return await self._close(step)
            case DeleteLedgers(ledger_ids, pages):
                for ledger_id in ledger_ids:
                    await self._delete(ledger_id)
                await self._delete_pages(pages)
                return LedgersDeleted()
            case DiscardLedger():
                return await self._discard(step)
        assert_never(step)

    async def _create(self, epoch: LeaderEpoch) -> StepOutcome:
        try:
            writer = await create_ledger(self._services.ledgers, self.topic, self.index, epoch)
        except (LedgerError, MetadataError) as error:
            return LedgerRefused(error)
        self._writers[writer.ledger_id] = writer
        return LedgerCreated(writer.ledger_id)

    async def _change_list(self, step: ChangeList) -> StepOutcome:
        try:
            await self.node.write_pages(step.pages)
            return ListChanged(await self.node.change(step.segments, step.expected_version))
        except (MetadataError, LogCorrupt) as error:
            return ListLost(error)

    async def _unfold(self, segments: SegmentList) -> StepOutcome:
        try:
            return ListUnfolded(*await self.node.pages.unfolded(segments))
        except (MetadataError, LogCorrupt) as error:
            _LOG.warning(
                "trim.page_unread topic=%s partition=%d error=%r",
                self.topic.name, self.index, error,
            )  # fmt: skip
            return ListUnfolded(segments)

    async def _read_trail(self, segments: SegmentList, offset: Offset) -> StepOutcome:
        try:
            return TrailRead(await self.node.pages.trail(segments, offset))
        except (MetadataError, LogCorrupt) as error:
            _LOG.warning(
                "compaction.page_unread topic=%s partition=%d error=%r",
                self.topic.name, self.index, error,
            )  # fmt: skip
            return TrailRead(None)

    async def _close(self, step: CloseLedger) -> StepOutcome:
        if step.delay_s:
            await asyncio.sleep(step.delay_s)
        try:
            await self._writers[step.ledger_id].close()
        except (LedgerError, MetadataError) as error:
            return LedgerNotClosed(error, is_unanswered=isinstance(error, ConnectionLoss))
        return LedgerClosed()

    async def _discard(self, step: DiscardLedger) -> StepOutcome:
        try:
            found, version = await self.node.read_back()
            is_certain = version != step.version and not found.may_have(step.ledger_id)
        except NoNode:
            is_certain = True  # the topic was deleted, and its lists with it
        except (MetadataError, LogCorrupt):
            is_certain = False
        if is_certain:
            await self._delete(step.ledger_id)
        return LedgersDeleted()

    async def _delete(self, ledger_id: LedgerId) -> None:
        try:
            await self._services.ledgers.delete(ledger_id)
        except NoSuchLedger:
            return
        except (LedgerError, MetadataError) as error:
            _LOG.warning(
                "ledger.orphan topic=%s partition=%d ledger=%d error=%r",
                self.topic.name, self.index, ledger_id, error,
            )  # fmt: skip

    async def _delete_pages(self, pages: Sequence[PageRef]) -> None:
        try:
            await self.node.delete_pages(pages)
        except MetadataError as error:
            _LOG.warning(
                "page.orphan topic=%s partition=%d pages=%s error=%r",
                self.topic.name, self.index, ",".join(str(ref.name.number) for ref in pages),
                error,
            )  # fmt: skip
