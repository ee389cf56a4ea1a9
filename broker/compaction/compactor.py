"""Compacts the partitions of compacted topics that this broker leads, one after the other.

Every so often it looks how dirty each is. The most urgent one has its round (`cleaning_round.py`);
after it, it looks anew, so that what became overdue meanwhile comes before what is only dirty. A
partition that fails waits for a while, and the others go on; why it waits is shown to whoever asks.
Here ledgers that were replaced are let go, too, once their grace is over.

No partition is left out in silence: one that cannot even be looked at is shown as
failing, and so is one whose segment list is quicker than its rounds, three times in a row. What
nobody expected of a partition, a mistake of ours, counts as its failure, and is raised after all
others have had their turn.

The internal topics are not compacted: their coordinators copy what is alive and trim
(`coordinator/coordinator_log.py`), which needs no second reading of the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from broker.cluster.core.topic_config import TopicConfig
from broker.compaction.cleaning_round import CleaningRound, Led
from broker.compaction.config import CompactionConfig
from broker.compaction.core.attempts import Attempts
from broker.compaction.core.plan import (
    CompactionLimits,
    Standing,
    Why,
    standing,
    urgency,
    why_due,
)
from broker.compaction.ledger_output import ByteRate
from broker.compaction.worker import LocalWorker, Worker
from broker.errors import BrokerError, CompactionFailed, SegmentsChanged
from broker.partition.log_services import LogServices
from broker.partition.partition import Partition
from broker.topics.core.topic_rules import INTERNAL_TOPICS
from client.errors import LedgerError, LogCorrupt, MetadataError, NoNode, RemoteProtocolError
from client.ids import Offset
from client.log.aborted_transactions import AbortedTransaction
from client.log.segments import Segment, SegmentList
from client.metadata import paths
from client.node import background
from client.segments.pages import SegmentPages

_LOG = logging.getLogger(__name__)

OUTRUN_MAX: Final = 3
"""Rounds in a row that the segment list may outrun before that counts as a failure."""


class CompactionStatus(NamedTuple):
    """How one partition stands, for people."""

    found: Standing | None
    """None: it could not be looked at so far."""
    why: Why | None
    """Why it is due; None: it is not."""
    due_ms: int
    """Since when it is due, without a round that was complete; -1: it is not."""
    is_running: bool
    reason: str
    """Why the last look or round failed, or what stands in the way of more; empty: nothing does."""
    failure_count: int


_UNSEEN: Final = CompactionStatus(None, None, -1, False, "", 0)


@dataclass(slots=True)
class _Watch:
    """What is known of one led partition."""

    attempts: Attempts = field(default_factory=Attempts)
    """Its rounds."""
    looks: Attempts = field(default_factory=Attempts)
    """Failures to find out how it stands; the next look comes as soon as ever."""
    outrun_count: int = 0
    """Rounds in a row that were broken off because the segment list had changed."""
    due_ms: int = -1
    asked: bool = False
    status: CompactionStatus | None = None
    runs: Sequence[Sequence[Segment]] = ()
    listed: SegmentList | None = None
    """The list that `runs` is of."""


class Compactor:
    """A background task of every broker, for the partitions it leads."""

    def __init__(
        self,
        services: LogServices,
        partitions: Iterable[Partition],
        config: CompactionConfig,
        worker: Worker | None = None,
    ) -> None:
        """`worker`: who does the work of rounds; None: this process, in turns."""
        self._services = services
        self._partitions = partitions
        self._config = config
        self._rate = ByteRate(config.bytes_per_s)
        self._worker = worker or LocalWorker(services.turns)
        self._watches: dict[str, _Watch] = {}
        self._running: str | None = None
        self._cleaning: CleaningRound | None = None
        """The round under way."""
        self._unexpected: Exception | None = None
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._task = background.keep(self._run, "compactor")

    async def close(self) -> None:
        """Stop, in the middle of a round if need be."""
        await background.stop(self._task)
        await self._worker.close()

    def ask(self, partition: Partition) -> None:
        """Compact a partition as soon as possible, however clean it is."""
        watch = self._watches.setdefault(partition.name, _Watch())
        watch.asked = True
        watch.attempts.on_done()
        self._wake.set()

    def covers(self, partition: Partition) -> bool:
        """Whether a partition's records are compacted by key here."""
        return is_compacted(partition)

    def is_asked(self, partition: Partition) -> bool:
        """Whether a round was asked for that has not begun yet."""
        watch = self._watches.get(partition.name)
        return watch is not None and watch.asked

    def status(self, partition: Partition) -> CompactionStatus | None:
        """Return how a partition stands; None: it is not compacted, or was not looked at yet."""
        watch = self._watches.get(partition.name)
        if watch is None or not is_compacted(partition):
            return None
        failing = watch.looks if watch.looks.failure_count else watch.attempts
        if watch.status is None and not failing.failure_count:
            return None
        reason, known = failing.reason, watch.status or _UNSEEN
        if not reason and known.found is not None and known.found.blocked_at is not None:
            reason = (
                f"a transaction is open from offset {known.found.blocked_at} on:"
                " it holds back the rest"
            )
        return known._replace(
            due_ms=watch.due_ms,
            is_running=self._running == partition.name,
            reason=reason,
            failure_count=failing.failure_count,
        )

    @property
    def held_bytes(self) -> int:
        """Memory of this process that the round under way takes: keys, entries."""
        cleaning = self._cleaning
        return self._worker.key_bytes + (0 if cleaning is None else cleaning.memory.size)

    def statuses(self) -> list[CompactionStatus]:
        """Return how all led partitions of compacted topics stand."""
        found = (self.status(partition) for partition in self._partitions)
        return [status for status in found if status is not None]

    def saved_bytes(self) -> int:
        """Return what compaction has made the logs of led partitions smaller by."""
        return sum(partition.usage.listed.compaction.saved_bytes for partition in self._partitions)

    def oldest_clean_ms(self) -> int | None:
        """Return when the last round of a partition was complete, of the one whose last round is
        longest ago; None: none had one."""
        states = [partition.usage.listed.compaction for partition in self._partitions]
        return min((one.cleaned_ms for one in states if one.cleaned_ms >= 0), default=None)

    async def visit_all(self) -> None:
        """Look at all partitions, and compact until none is due that may be tried.

        Raises what nobody expected of one of them, after the others.
        """
        done: set[str] = set()
        while True:
            await self._look()
            chosen = self._choose(done)
            if chosen is None:
                break
            done.add(chosen.name)
            await self._compact(chosen)
        await self._worker.close()
        unexpected, self._unexpected = self._unexpected, None
        if unexpected is not None:
            raise unexpected

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            await self.visit_all()
            try:
                async with asyncio.timeout(self._config.check_interval_ms / 1000):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _look(self) -> None:
        """Find out how each partition stands, and let go of what nobody reads any more."""
        partitions = [one for one in self._partitions if one.is_open]
        names = {one.name for one in partitions}
        self._watches = {name: one for name, one in self._watches.items() if name in names}
        for partition in partitions:
            try:
                await self._release(partition)
                if is_compacted(partition):
                    await self._judge(partition)
            except (BrokerError, MetadataError, LogCorrupt) as error:
                self._unseen(partition, error)
            except Exception as error:  # one partition must not be the end of all others
                self._unexpected = error
                self._unseen(partition, error)
            else:
                watch = self._watches.get(partition.name)
                if watch is not None:
                    watch.looks.on_done()

    async def _release(self, partition: Partition) -> None:
        before_ms = self._services.clock.now_ms() - self._config.grace_ms
        if partition.usage.listed.compaction.due(before_ms):
            await partition.changes.release(before_ms)

    async def _judge(self, partition: Partition) -> None:
        watch = self._watches.setdefault(partition.name, _Watch())
        listed = partition.usage.listed
        if listed is not watch.listed:
            path = paths.partition(partition.topic.id_text, partition.index)
            pages = SegmentPages(self._services.store, path, self._services.pages)
            try:
                watch.runs = [run async for run in pages.runs(listed)]
            except NoNode:
                if listed is partition.usage.listed:
                    raise
                return  # a trim let the page go: the next look is at another list
            watch.listed = listed
        limits = limits_of(partition.topic.config)
        now_ms = self._services.clock.now_ms()
        segments = [segment for run in watch.runs for segment in run]
        stable = Offset(min(partition.last_stable_offset, partition.high_watermark))
        found = standing(segments, listed.compaction, limits, stable, now_ms)
        why = why_due(found, limits, now_ms, asked=watch.asked)
        watch.asked &= why is not None
        if why is None:
            watch.due_ms = -1
            watch.attempts.on_done()  # what failed is not wanted any more
        elif watch.due_ms < 0:
            watch.due_ms = now_ms
        watch.status = CompactionStatus(found, why, watch.due_ms, False, "", 0)

    def _choose(self, done: set[str]) -> Partition | None:
        now_s = asyncio.get_running_loop().time()
        best: Partition | None = None
        best_key: tuple[int, float] | None = None
        for partition in self._partitions:
            watch = self._watches.get(partition.name)
            if watch is None or watch.status is None or watch.status.why is None:
                continue
            if watch.looks.failure_count:
                continue  # what is known of it is of an older list
            if partition.name in done or not watch.attempts.may_try(now_s):
                continue
            assert watch.status.found is not None
            key = urgency(watch.status.why, watch.status.found)
            if partition.is_open and (best_key is None or key < best_key):
                best, best_key = partition, key
        return best

    async def _compact(self, partition: Partition) -> None:
        watch = self._watches[partition.name]
        assert watch.status is not None
        assert watch.status.why is not None
        found = watch.status.found
        assert found is not None
        asked, watch.asked = watch.asked, False
        self._running = partition.name
        cleaning = self._cleaning = self._round(partition)
        _LOG.info(
            "compaction.began topic=%s partition=%d why=%s from=%d to=%d",
            partition.topic.name, partition.index, watch.status.why.value,
            found.first_dirty, found.end,
        )  # fmt: skip
        metrics, log_start = self._services.metrics, partition.log_start_offset
        try:
            done = await cleaning.run(watch.runs, found)
            await partition.changes.compact(None, done)
            watch.attempts.on_done()
            watch.outrun_count, watch.due_ms, asked = 0, -1, False
            metrics.compaction_rounds += 1
        except SegmentsChanged as error:
            self._outrun(partition, error)
        except (BrokerError, LedgerError, MetadataError, LogCorrupt, RemoteProtocolError) as error:
            if partition.log_start_offset == log_start:
                self._failed(partition, error)
            else:  # a trim has taken what was being read
                self._outrun(partition, error)
        except Exception as error:  # one partition must not be the end of all others
            self._unexpected = error
            self._failed(partition, error)
        finally:
            watch.asked |= asked  # unless it was done, it is still asked for
            self._running = self._cleaning = None
            metrics.compaction_read_bytes += cleaning.read_bytes
            metrics.compaction_written_bytes += cleaning.written_bytes
            metrics.compaction_removed_records += cleaning.removed_records

    def _round(self, partition: Partition) -> CleaningRound:
        led = Led(
            partition.topic,
            partition.index,
            partition.leader_epoch,
            partial(_aborted, partition),
            partition.changes.compact,
        )
        limits = limits_of(partition.topic.config)
        key_bytes_max = self._config.key_bytes_max
        return CleaningRound(self._services, led, limits, self._rate, key_bytes_max, self._worker)

    def _outrun(self, partition: Partition, error: Exception) -> None:
        """The list has changed under a round: no failure, unless that goes on."""
        _LOG.info(
            "compaction.outrun topic=%s partition=%d error=%s",
            partition.topic.name, partition.index, error,
        )  # fmt: skip
        watch = self._watches.setdefault(partition.name, _Watch())
        watch.outrun_count += 1
        if watch.outrun_count >= OUTRUN_MAX:
            times = f"{watch.outrun_count} rounds in a row were broken off"
            self._failed(partition, CompactionFailed(f"{times}: {error}"))

    def _unseen(self, partition: Partition, error: Exception) -> None:
        """Nobody could find out how a partition stands; the next look may."""
        if partition.is_open:
            watch = self._watches.setdefault(partition.name, _Watch())
            self._note(partition, watch.looks, error)

    def _failed(self, partition: Partition, error: Exception) -> None:
        """A round has failed: the next one is after a pause."""
        if partition.is_open:  # else whoever leads it now goes on
            watch = self._watches.setdefault(partition.name, _Watch())
            self._note(partition, watch.attempts, error)

    def _note(self, partition: Partition, failing: Attempts, error: Exception) -> None:
        failing.on_failed(str(error) or repr(error), asyncio.get_running_loop().time())
        self._services.metrics.compaction_failures += 1
        _LOG.warning(
            "compaction.failed topic=%s partition=%d failures=%d error=%r",
            partition.topic.name, partition.index, failing.failure_count, error,
        )  # fmt: skip


async def _aborted(
    partition: Partition, start: Offset, end: Offset
) -> Sequence[AbortedTransaction]:
    """Return what is aborted in a range that is decided. Raises LogReadFailed, LogCorrupt."""
    return await partition.reader.log.aborted_in(partition.usage.listed, start, end)


def is_compacted(partition: Partition) -> bool:
    """Whether a partition's records are compacted by key here."""
    topic = partition.topic
    if partition.usage.listed.offload.stored_until > partition.log_start_offset:
        return False  # what the object store has goes first (remote.log.delete.on.disable)
    return topic.config.compacts and topic.name not in INTERNAL_TOPICS


def limits_of(config: TopicConfig) -> CompactionLimits:
    """Return what a topic's configuration says of its compaction."""
    return CompactionLimits(
        dirty_ratio_min=config.dirty_ratio_min,
        lag_ms_min=config.compaction_lag_ms_min,
        lag_ms_max=config.compaction_lag_ms_max,
        retain_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
    )
