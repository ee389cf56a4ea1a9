"""Changes of the segment list while leading: roll, trim, close.

This file is the only home of the leader's compare-and-sets and of the order of steps around
them. One change at a time; each begins from the version that the last one left. A change that
finds another version ends the leadership: somebody else has taken over.

    roll   create the next ledger -> list it -> hold appends until the previous ledger has
           confirmed all it was sent -> switch -> close the previous ledger -> list its facts.
           Until the switch appends go on in the previous ledger. The next roll begins after
           the last step, so that never more than the last two listed ledgers are open.
    trim   list without the oldest segments -> delete their ledgers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from broker.core.log_limits import SegmentLimits
from broker.core.retention import expired_count, trimmed_start
from broker.core.segments import SegmentFacts, SegmentList
from broker.core.topology import TopicInfo
from broker.errors import (
    BrokerError,
    LeadershipLost,
    LogCorrupt,
    NotEnoughReplicas,
    NotLeader,
    Overloaded,
)
from broker.ledgers import Writer
from broker.log_reader import LogReader
from broker.log_services import LogServices
from broker.opening import Opened, create_ledger
from broker.segment_node import SegmentNode
from broker.write_path import WritePath
from client.errors import ConnectionLoss, LedgerError, MetadataError, NoNode, NoSuchLedger
from client.ids import LedgerId, Offset
from client.metadata.store import NODE_BYTES_MAX

_LOG = logging.getLogger(__name__)

_RETRY_S: Final = 1.0
"""How long a failed roll, or the closing of a rolled ledger, waits before it is tried again."""

_LIST_BYTES_MAX: Final = NODE_BYTES_MAX - 100_000
"""A longer list is not rolled any further, so that takeovers still find room in the node."""


class SegmentChanges:
    """The segment list of a led partition, and the only way to change it."""

    def __init__(
        self,
        services: LogServices,
        topic: TopicInfo,
        index: int,
        opened: Opened,
        write: WritePath,
        resign: Callable[[str], None],
    ) -> None:
        """`resign` ends the leadership at once."""
        self.segments: SegmentList = opened.segments
        self.reader = LogReader(services, lambda: self.segments)
        self.reader.add_own(opened.writer, write.active)
        self._version = opened.version
        self._services = services
        self._topic = topic
        self._index = index
        self._write = write
        self._resign = resign
        self._node = SegmentNode(services.store, topic, index)
        self._lock = asyncio.Lock()
        self._ended = False
        self._tasks: dict[asyncio.Task[None], None] = {}
        """Changes under way. They belong to the partition, not to who asked for them: a change
        that stopped half way would leave a list whose version nobody knows."""
        self._is_rolling = False
        self._roll_not_before_s = float("-inf")

    @property
    def sealed_bytes(self) -> int:
        """Bytes in sealed segments."""
        return sum(item.facts.size_bytes for item in self.segments.segments if item.facts)

    @property
    def max_timestamp_ms(self) -> int:
        """Largest timestamp in sealed segments; -1: none."""
        facts = [item.facts for item in self.segments.segments if item.facts is not None]
        return max((item.max_timestamp_ms for item in facts), default=-1)

    def roll_soon(self) -> None:
        """Roll in the background, unless that is happening already or has just failed."""
        if self._ended or self._is_rolling:
            return
        if asyncio.get_running_loop().time() >= self._roll_not_before_s:
            self._is_rolling = True
            self._start(self._roll())

    async def roll(self) -> None:
        """Continue the log in a new ledger.

        Raises NotEnoughReplicas and Overloaded (the log goes on in the present one), NotLeader,
        LeadershipLost.
        """
        await self._finish(self._roll())

    async def trim(self, log_start: Offset) -> None:
        """Move the log start up, and drop the segments below it. Raises NotLeader."""
        await self._finish(self._trim_to(log_start))

    async def trim_expired(self, limits: SegmentLimits, now_ms: int) -> None:
        """Drop the segments that retention allows to go; not now, if a change is under way.

        Raises NotLeader.
        """
        if not self._tasks:
            await self._finish(self._trim_expired(limits, now_ms))

    async def confirm(self) -> None:
        """Ask the metadata store whether we still lead. Raises NotLeader if not, or unknown."""
        try:
            found, _ = await self._node.read_back()
        except MetadataError as error:
            raise NotLeader(f"leadership is in doubt: {error!r}") from error
        if found.leader_epoch != self.segments.leader_epoch:
            raise self._lost("another leader opened the partition")

    async def close(self) -> None:
        """End in peace: everything accepted confirmed, a last snapshot, the ledger closed.

        Raises LedgerError, MetadataError, BrokerError; then the next leader recovers.
        """
        async with self._lock:
            self._require_leading()
            self._write.finish_segment()
            await self._write.drained()
            await self._write.writer.close()

    def end(self) -> None:
        """Leadership is over: nothing changes the list from here any more."""
        self._ended = True
        self.reader.close()
        for task in list(self._tasks):
            if task is not asyncio.current_task():
                task.cancel()

    async def wait_ended(self) -> None:
        """Wait until no change is under way any more."""
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        if tasks:
            await asyncio.wait(tasks)

    def _start(self, change: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(change, name=self._name)
        self._tasks[task] = None
        task.add_done_callback(self._on_done)
        return task

    async def _finish(self, change: Coroutine[Any, Any, None]) -> None:
        """Make a change to its end, even if the caller is cancelled. Raises what it raises."""
        task = self._start(change)
        await asyncio.wait([task])
        if task.cancelled():
            raise LeadershipLost(f"{self._name}: leadership ended")
        task.result()

    def _on_done(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        error = None if task.cancelled() else task.exception()
        if isinstance(error, BrokerError):
            _LOG.warning(
                "change.failed topic=%s partition=%d error=%r",
                self._topic.name, self._index, error,
            )  # fmt: skip

    async def _roll(self) -> None:
        self._is_rolling = True
        try:
            async with self._lock:
                await self._roll_locked()
        except BrokerError:
            self._roll_not_before_s = asyncio.get_running_loop().time() + _RETRY_S
            raise
        finally:
            self._is_rolling = False

    async def _roll_locked(self) -> None:
        writer = await self._list_next_ledger()
        previous_writer = self._write.writer
        try:
            facts = await self._switch(writer)
            await self._seal(previous_writer, facts)
        except BaseException:
            previous_writer.abandon()
            writer.abandon()
            raise

    async def _trim_to(self, log_start: Offset) -> None:
        async with self._lock:
            start = max(log_start, self._write.offsets.log_start)
            ends = [item.end_offset for item in self.segments.segments[:-1]]
            count = 0
            if self._write.has_own_snapshot:
                count = sum(1 for end in ends if end is not None and end <= start)
            if count or start > self._write.offsets.log_start:
                await self._trim(count, start)

    async def _trim_expired(self, limits: SegmentLimits, now_ms: int) -> None:
        async with self._lock:
            if not self._write.has_own_snapshot:
                return
            count = expired_count(
                self.segments, limits, active_bytes=self._write.active.size_bytes, now_ms=now_ms
            )
            if count:
                await self._trim(count, trimmed_start(self.segments, count))

    async def _list_next_ledger(self) -> Writer:
        self._require_leading()
        epoch = self.segments.leader_epoch
        if len(self.segments.encode()) > _LIST_BYTES_MAX:
            raise Overloaded(f"{self._name} has too many segments; raise segment.bytes")
        try:
            writer = await create_ledger(self._services, self._topic, self._index, epoch)
        except (LedgerError, MetadataError) as error:
            raise NotEnoughReplicas(f"{self._name}: no next ledger: {error!r}") from error
        now_ms = self._services.clock.now_ms()
        try:
            await self._change(self.segments.rolled(writer.ledger_id, now_ms))
        except BaseException as error:
            writer.abandon()
            if isinstance(error, LeadershipLost):
                await self._discard(writer)
            raise
        _LOG.info(
            "roll.listed topic=%s partition=%d ledger=%d",
            self._topic.name, self._index, writer.ledger_id,
        )  # fmt: skip
        return writer

    async def _switch(self, writer: Writer) -> SegmentFacts:
        """Go on in a listed ledger once the previous one is complete; return its facts."""
        try:
            self._write.finish_segment()
            previous = self._write.hold(writer.ledger_id)
            self.reader.add_own(writer, self._write.active)
            await self._write.drained()
            self._write.switch(writer)
        except LedgerError as error:
            raise self._lost(f"add failed while rolling: {error!r}") from error
        return previous.facts()

    async def _discard(self, writer: Writer) -> None:
        """Delete a ledger of ours if it is certain that it is not listed and never will be."""
        try:
            found, version = await self._node.read_back()
            if version == self._version or found.has(writer.ledger_id):
                return
        except NoNode:
            pass  # the topic was deleted, and its lists with it
        except (MetadataError, LogCorrupt):
            return
        await self._delete(writer.ledger_id)

    async def _seal(self, previous: Writer, facts: SegmentFacts) -> None:
        """Close the previous ledger, however long it takes, and list what is known of it."""
        self.segments = self.segments.sealed(facts)
        while True:
            self._require_leading()
            try:
                await previous.close()
                break
            except ConnectionLoss as error:
                _LOG.warning(
                    "roll.close_failed topic=%s partition=%d ledger=%d error=%r",
                    self._topic.name, self._index, previous.ledger_id, error,
                )  # fmt: skip
            except (LedgerError, MetadataError) as error:
                raise self._lost(f"ledger {previous.ledger_id} not ours: {error!r}") from error
            await asyncio.sleep(_RETRY_S)
        await self._change(self.segments)
        self.reader.on_sealed(previous.ledger_id)
        self._services.metrics.segments_rolled += 1
        _LOG.info(
            "roll.sealed topic=%s partition=%d ledger=%d last_offset=%d bytes=%d",
            self._topic.name,
            self._index,
            previous.ledger_id,
            facts.last_offset,
            facts.size_bytes,
        )

    async def _trim(self, count: int, log_start: Offset) -> None:
        dropped = [item.ledger_id for item in self.segments.segments[:count]]
        await self._change(self.segments.trimmed(count, log_start))
        self._write.offsets.on_trimmed(log_start)
        self._services.metrics.segments_trimmed += count
        self.reader.forget(dropped)
        _LOG.info(
            "trim.done topic=%s partition=%d log_start=%d ledgers=%s",
            self._topic.name, self._index, log_start, ",".join(map(str, dropped)),
        )  # fmt: skip
        for ledger_id in dropped:
            await self._delete(ledger_id)

    async def _delete(self, ledger_id: LedgerId) -> None:
        try:
            await self._services.ledgers.delete(ledger_id)
        except NoSuchLedger:
            return
        except (LedgerError, MetadataError) as error:
            _LOG.warning(
                "ledger.orphan topic=%s partition=%d ledger=%d error=%r",
                self._topic.name, self._index, ledger_id, error,
            )  # fmt: skip

    async def _change(self, segments: SegmentList) -> None:
        """Make the change, or end the leadership. Raises LeadershipLost."""
        self._require_leading()
        try:
            self._version = await self._node.change(segments, self._version)
        except MetadataError as error:
            raise self._lost(f"the segment list is not ours: {error!r}") from error
        self.segments = segments

    def _require_leading(self) -> None:
        if self._ended:
            raise NotLeader(f"{self._name} is not led here any more")

    def _lost(self, reason: str) -> LeadershipLost:
        self._resign(reason)
        return LeadershipLost(f"{self._name}: {reason}")

    @property
    def _name(self) -> str:
        return f"partition={self._topic.name}-{self._index}"
