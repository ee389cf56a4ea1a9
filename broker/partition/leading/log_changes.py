"""Changes of a led partition's log: requests for them, their steps, and their logs and metrics.

`core/leader.py` decides on the steps. A change belongs to the partition: it is completed even if
its caller goes away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, assert_never

from broker.cluster.core.topology import TopicInfo
from broker.errors import (
    BrokerError,
    CompactionFailed,
    LeadershipLost,
    Overloaded,
    RequestTimedOut,
)
from broker.partition.core.leader import PartitionLeader
from broker.partition.core.leader_effects import (
    AdoptList,
    BeginSegment,
    Change,
    ChangeDone,
    ChangeEffect,
    Compact,
    Compacted,
    Effects,
    LeaderStep,
    Maintain,
    Now,
    Offload,
    Offloaded,
    Release,
    Released,
    Roll,
    RollListed,
    RollSealed,
    RollUnanswered,
    SwitchLedger,
    Trim,
    Trimmed,
)
from broker.partition.leading.leader_steps import LeaderSteps
from broker.partition.log_services import LogServices
from broker.partition.partition_reader import PartitionReader
from client.errors import QuireError
from client.ids import LedgerId, Offset
from client.log.compacted import Round, Swap
from client.log.offloaded import Drop, Step, Unbury

_LOG = logging.getLogger(__name__)

HIGH_WATERMARK: Final = Offset(-1)
"""In `delete_records`: everything confirmed so far."""

CHANGE_WAIT_S: Final = 30.0
"""How long changes of the compactor wait behind others: a roll lasts for as long as a bookie that
its topic cannot do without takes, and other partitions want to be compacted, too."""


class LogChanges:
    """The changes of one led partition."""

    def __init__(
        self,
        services: LogServices,
        leader: PartitionLeader,
        steps: LeaderSteps,
        reader: PartitionReader,
        run: Callable[[Effects], None],
        check_leading: Callable[[], None],
    ) -> None:
        """`run` carries out effects. `check_leading` raises NotLeader unless we may answer for the
        partition."""
        self._services = services
        self._leader = leader
        self._steps = steps
        self._reader = reader
        self._run = run
        self._check_leading = check_leading
        self._last_ticket = 0
        self._waiting: dict[int, asyncio.Future[QuireError | None]] = {}
        """Callers that wait for a change, by its ticket."""

    # --- requests -----------------------------------------------------------------------

    @property
    def is_rolling(self) -> bool:
        """Whether a roll is in progress, or waits for another change."""
        return self._leader.is_rolling

    async def roll(self, wait_s: float | None = None) -> None:
        """Continue in a new ledger.

        Raises NotLeader, LeadershipLost; NotEnoughReplicas and Overloaded (the log goes on in the
        active ledger). With `wait_s`, Overloaded is also raised after that time: a roll that has
        begun by then goes on, any other one is withdrawn.
        """
        if wait_s is None:
            await self._make(Roll)
            return
        late = Overloaded(f"{self._steps.name}: not rolled within {wait_s:g} s")
        await self._make_in_time(Roll, wait_s, late, is_left=True)

    async def delete_records(self, before: Offset, wait_s: float | None = None) -> Offset:
        """Move the log start up to `before`, or to the high watermark; return the log start.

        Raises OffsetOutOfRange, NotLeader; LeadershipLost, and RequestTimedOut after `wait_s`: the
        outcome is unknown.
        """
        self._check_leading()
        offsets = self._leader.log.offsets
        target = offsets.high_watermark if before == HIGH_WATERMARK else before
        if not 0 <= target <= offsets.high_watermark:
            raise await self._reader.out_of_range(target)
        change = partial(Trim, before=target)
        if wait_s is None:
            await self._make(change)
        else:
            late = RequestTimedOut(f"{self._steps.name}: not trimmed within {wait_s:g} s")
            await self._make_in_time(change, wait_s, late, is_left=True)
        return offsets.log_start

    async def maintain(self, now_ms: int) -> None:
        """Do what is due by time: roll, trim, expire producers.

        Raises NotLeader, LeadershipLost.
        """
        await self._make(Maintain, Now(now_ms, asyncio.get_running_loop().time()))

    async def compact(self, swap: Swap | None, done: Round | None = None) -> None:
        """Replace segments by compacted ones, and record that a round is complete.

        Raises SegmentsChanged and, if other changes take too long, CompactionFailed (nothing was
        applied), NotLeader; LeadershipLost: the outcome is unknown.
        """
        change = partial(Compact, swap=swap, done=done)
        await self._make_in_time(change, CHANGE_WAIT_S, self._late())

    async def release(self, before_ms: int) -> None:
        """Delete ledgers replaced up to `before_ms`.

        Raises NotLeader, LeadershipLost; CompactionFailed if other changes take too long (nothing
        was applied).
        """
        change = partial(Release, before_ms=before_ms)
        await self._make_in_time(change, CHANGE_WAIT_S, self._late())

    async def offload(self, step: Step) -> None:
        """List a step on a segment's way to the object store.

        Raises SegmentsChanged and, if other changes take too long, Overloaded (nothing was
        applied), NotLeader; LeadershipLost: the outcome is unknown.
        """
        late = Overloaded(f"{self._steps.name}: other changes take {CHANGE_WAIT_S:g} s")
        await self._make_in_time(partial(Offload, step=step), CHANGE_WAIT_S, late)

    def ask(
        self, change: Callable[[int], Change], now: Now | None = None
    ) -> asyncio.Future[QuireError | None]:
        """Request a change, made from its ticket; return a future for its error, if any."""
        self._last_ticket += 1
        ticket = self._last_ticket
        loop = asyncio.get_running_loop()
        done: asyncio.Future[QuireError | None] = loop.create_future()
        self._waiting[ticket] = done
        if now is None:
            now = Now(self._services.clock.now_ms(), loop.time())
        self._run(self._leader.ask(change(ticket), now))
        return done

    async def _make(self, change: Callable[[int], Change], now: Now | None = None) -> None:
        """Request a change, and wait for it. Raises its error."""
        error = await self.ask(change, now)
        if error is not None:
            raise error

    async def _make_in_time(
        self,
        change: Callable[[int], Change],
        wait_s: float,
        late: BrokerError,
        *,
        is_left: bool = False,
    ) -> None:
        """Like `_make`; a change that has not begun after `wait_s` is withdrawn, and `late` raised
        (IN-TIME). `is_left`: raise it, too, for one that has begun and goes on."""
        ticket = self._last_ticket + 1
        done = self.ask(change)
        await asyncio.wait([done], timeout=wait_s)
        if not done.done() and self._leader.withdraw(ticket):
            self._run((ChangeDone(ticket, late),))  # batches may wait for a roll: no longer
        elif not done.done() and is_left:
            self._settle(ticket, late)
        error = await done
        if error is not None:
            raise error

    def _late(self) -> CompactionFailed:
        return CompactionFailed(f"{self._steps.name}: other changes take {CHANGE_WAIT_S:g} s")

    # --- effects ------------------------------------------------------------------------

    def carry_out(self, effect: ChangeEffect | LeaderStep) -> None:
        """Carry out one effect of a change."""
        match effect:
            case SwitchLedger(ledger_id):
                self._steps.switch(ledger_id)
            case BeginSegment(active):
                self._reader.on_segment_begun(self._steps.writer_of(active.ledger_id), active)
            case AdoptList(segments):
                self._reader.on_listed(segments)
            case RollListed() | RollSealed() | Trimmed() | RollUnanswered():
                self._on_changed(effect)
            case Compacted():
                self._on_compacted(effect)
            case Released(ledger_ids):
                self._on_released(ledger_ids)
            case Offloaded(step):
                self._on_offloaded(step)
            case ChangeDone(ticket, error):
                self._on_done(ticket, error)
            case _:
                self._steps.start(effect)

    def configure(self, topic: TopicInfo) -> None:
        """Apply the topic's current configuration."""
        self._steps.topic = topic

    def stop(self) -> None:
        """The leadership has ended: cancel steps in progress, and abandon the ledgers."""
        self._steps.stop()
        self._steps.abandon()

    async def wait_idle(self) -> None:
        """Wait until no step is in progress."""
        await self._steps.wait_idle()

    def settle_all(self, tickets: Sequence[int]) -> None:
        """The changes of these tickets will not be made: the leadership has ended."""
        for ticket in tickets:
            self._settle(ticket, LeadershipLost(f"{self._steps.name}: the leadership ended"))

    def _on_changed(self, effect: RollListed | RollUnanswered | RollSealed | Trimmed) -> None:
        """A change of the log has made progress."""
        log, metrics = (self._steps.topic.name, self._steps.index), self._services.metrics
        match effect:
            case RollListed(ledger_id):
                _LOG.info("roll.listed topic=%s partition=%d ledger=%d", *log, ledger_id)
            case RollUnanswered(ledger_id, error):
                _LOG.warning(
                    "roll.close_failed topic=%s partition=%d ledger=%d error=%r",
                    *log, ledger_id, error,
                )  # fmt: skip
            case RollSealed(ledger_id, facts):
                self._steps.on_sealed(ledger_id)
                self._reader.on_sealed(ledger_id)
                metrics.segments_rolled += 1
                _LOG.info(
                    "roll.sealed topic=%s partition=%d ledger=%d last_offset=%d bytes=%d",
                    *log, ledger_id, facts.last_offset, facts.size_bytes,
                )  # fmt: skip
            case Trimmed(ledger_ids, log_start):
                metrics.segments_trimmed += len(ledger_ids)
                self._reader.forget(ledger_ids)
                _LOG.info(
                    "trim.done topic=%s partition=%d log_start=%d ledgers=%s",
                    *log, log_start, ",".join(map(str, ledger_ids)),
                )  # fmt: skip
            case _:
                assert_never(effect)

    def _on_compacted(self, effect: Compacted) -> None:
        log, swap, done = (self._steps.topic.name, self._steps.index), effect.swap, effect.done
        if swap is not None:
            self._reader.forget((), Offset(swap.last_offset + 1))
            _LOG.info(
                "compaction.swapped topic=%s partition=%d old=%s new=%s",
                *log, ",".join(map(str, swap.old)),
                ",".join(str(one.ledger_id) for one in swap.new),
            )  # fmt: skip
        if done is not None:
            _LOG.info("compaction.done topic=%s partition=%d until=%d", *log, done.until)

    def _on_released(self, ledger_ids: Sequence[LedgerId]) -> None:
        """These replaced ledgers are no longer listed."""
        self._reader.forget(ledger_ids)
        _LOG.info(
            "compaction.released topic=%s partition=%d ledgers=%s",
            self._steps.topic.name, self._steps.index, ",".join(map(str, ledger_ids)),
        )  # fmt: skip

    def _on_offloaded(self, step: Step) -> None:
        if isinstance(step, Drop):
            self._reader.forget((step.name.ledger_id,))
        elif isinstance(step, Unbury):
            return
        _LOG.info(
            "offload.listed topic=%s partition=%d step=%s ledger=%d attempt=%016x",
            self._steps.topic.name, self._steps.index, type(step).__name__.lower(),
            step.name.ledger_id, step.name.attempt,
        )  # fmt: skip

    def _on_done(self, ticket: int, error: QuireError | None) -> None:
        if isinstance(error, BrokerError):
            _LOG.warning(
                "change.failed topic=%s partition=%d error=%r",
                self._steps.topic.name, self._steps.index, error,
            )  # fmt: skip
        self._settle(ticket, error)

    def _settle(self, ticket: int, error: QuireError | None) -> None:
        """Complete the caller's future, if it still waits."""
        done = self._waiting.pop(ticket, None)
        if done is not None and not done.done():
            done.set_result(error)
