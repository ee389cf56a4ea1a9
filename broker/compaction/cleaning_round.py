"""One round of compaction of one partition: reads its segments twice, writes compacted ones.

The rules are in `core/`, and who applies them is a worker's business (`worker.py`). This reads what
the worker needs and writes what it gives back, at a limited rate. Group by group, from the oldest
on, the new ledgers are written, closed, read back and handed to the leader, who lists them in the
place of the old ones (`partition/core/leader.py`, COMPACT-CAS). So an old value is gone before the
tombstone that came after it may go, whenever the round is broken off.

What is aborted is looked up as for a reader of committed data, a run of entries at a time; below
the last stable offset, where all of this happens, that is known.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import NamedTuple

from broker.cluster.core.topology import TopicInfo
from broker.compaction.core.key_map import SECRET_BYTES, slots_within
from broker.compaction.core.plan import CompactionLimits, Standing, groups, is_listed_elsewhere
from broker.compaction.core.round_messages import (
    BeginGroup,
    BeginRound,
    Begun,
    CleanRun,
    Ended,
    EndGroup,
    EnterKeys,
    Output,
    Run,
    Source,
    WorkDone,
    Written,
)
from broker.compaction.ledger_output import ByteRate, LedgerOutput
from broker.compaction.worker import Worker
from broker.errors import CompactionFailed, SegmentsChanged
from broker.partition.ledgers import create_ledger
from broker.partition.log_services import LogServices
from client.errors import LedgerError, MetadataError
from client.held_memory import HeldMemory
from client.ids import EntryId, LeaderEpoch, LedgerId, Offset
from client.log.aborted_transactions import AbortedTransaction
from client.log.compacted import Round, Swap
from client.log.entry_format import first_offset, next_offset
from client.log.segments import Segment
from client.wire.kafka.batches.records import Buffer


class Led(NamedTuple):
    """The partition as its leader knows it."""

    topic: TopicInfo
    partition: int
    leader_epoch: LeaderEpoch
    aborted: Callable[[Offset, Offset], Awaitable[Sequence[AbortedTransaction]]]
    """Says what is aborted in a range that is decided. Raises LogReadFailed, LogCorrupt."""
    swap: Callable[[Swap], Awaitable[None]]
    """Lists new segments; raises SegmentsChanged if nothing has come of it."""


class CleaningRound:
    """Started once, with what was planned."""

    def __init__(
        self,
        services: LogServices,
        led: Led,
        limits: CompactionLimits,
        rate: ByteRate,
        key_bytes_max: int,
        worker: Worker,
    ) -> None:
        self._services = services
        self._led = led
        self._limits = limits
        self._rate = rate
        self._key_bytes_max = key_bytes_max
        self._worker = worker
        self.memory = HeldMemory()
        """What was read and is worked on, and what was made of it and is not handed to a ledger."""
        self.read_bytes = 0
        self.written_bytes = 0
        self.removed_records = 0

    async def run(self, runs: Sequence[Sequence[Segment]], found: Standing) -> Round:
        """Clean `runs` of segments, all there are, up to `found.end` or as far as the key map goes.

        Raises CompactionFailed, SegmentsChanged, LedgerError, LogReadFailed, LogCorrupt,
        MetadataError, NotLeader; what was swapped until then stays swapped.
        """
        secret = self._services.rng.getrandbits(8 * SECRET_BYTES).to_bytes(SECRET_BYTES, "big")
        done = await self._worker.do(
            BeginRound(
                slots_within(self._key_bytes_max, found.end - found.first_dirty),
                secret,
                found.first_dirty,
                found.end,
                self._services.clock.now_ms(),
                self._limits.retain_ms,
                self._limits.segment_bytes,
                self._services.limits.aborted_block_entries,
            )
        )
        done = await self._enter(runs, found, done)
        for group in groups(runs, done.end, self._limits.segment_bytes):
            done = await self._clean(group)
        return Round(done.end, done.horizon_ms)

    async def _enter(
        self, runs: Sequence[Sequence[Segment]], found: Standing, done: WorkDone
    ) -> WorkDone:
        """Have the newest offset of each key in what is dirty noted."""
        for segment in (segment for run in runs for segment in run):
            base, end = segment.base_offset, segment.end_offset
            if base is None or end is None or base >= done.end:
                break
            if end <= found.first_dirty or end == base:
                continue
            async with aclosing(self._runs(segment)) as entries:
                async for run in entries:
                    done = await self._worker.do(EnterKeys(run))
                    if done.is_full:
                        return done
        return done

    async def _clean(self, group: Sequence[Segment]) -> WorkDone:
        outputs: list[LedgerOutput] = []
        try:
            new, done = await self._write(group, outputs)
            if done.is_changed or len(new) < len(group) or any(map(is_listed_elsewhere, group)):
                for output in outputs:
                    await output.verify(self._services.ledgers, self.memory)
                    self.read_bytes += output.read_bytes
                await self._led.swap(Swap(tuple(one.ledger_id for one in group), tuple(new)))
                outputs = []
                self.removed_records = done.removed_records
            return done
        except (LedgerError, MetadataError, SegmentsChanged, CompactionFailed):
            raise
        except BaseException:
            # The list may name them by now: whether it does is for the sweep of orphans to find.
            for output in outputs:
                output.abandon()
            outputs = []
            raise
        finally:
            await self._discard(outputs)

    async def _write(
        self, group: Sequence[Segment], outputs: list[LedgerOutput]
    ) -> tuple[list[Segment], WorkDone]:
        """Write what stays of a group; return its new segments, and what was done."""
        first, last = group[0], group[-1]
        assert first.base_offset is not None
        assert last.facts is not None
        new: list[Segment] = []
        done = await self._worker.do(
            BeginGroup(
                first.base_offset,
                Offset(last.facts.last_offset + 1),
                first.leader_epoch,
                last.facts.stable_offset,
            )
        )
        await self._put(done.outputs, first, outputs, new)
        for segment in group:
            async with aclosing(self._runs(segment)) as entries:
                async for run in entries:
                    done = await self._worker.do(CleanRun(run))
                    await self._put(done.outputs, first, outputs, new)
        done = await self._worker.do(EndGroup())
        await self._put(done.outputs, first, outputs, new)
        return new, done

    async def _put(
        self,
        made: Sequence[Output],
        first: Segment,
        outputs: list[LedgerOutput],
        new: list[Segment],
    ) -> None:
        """Write what a worker has made; `first`: of the group that it was made of."""
        size = sum(len(part) for one in made if isinstance(one, Written) for part in one.payload)
        with self.memory.held(size):
            for one in made:
                await self._put_one(one, first, outputs, new)

    async def _put_one(
        self, one: Output, first: Segment, outputs: list[LedgerOutput], new: list[Segment]
    ) -> None:
        match one:
            case Begun(base):
                outputs.append(await self._begin(base))
            case Written(payload):
                await outputs[-1].add(payload)
            case Ended(facts):
                ledger = outputs[-1]
                await ledger.finish()
                self.written_bytes += facts.size_bytes
                new.append(
                    Segment(
                        ledger.ledger_id,
                        ledger.base_offset,
                        first.leader_epoch,
                        first.created_ms,
                        facts.of_ledger(ledger.ledger_id),
                        cleaned=True,
                    )
                )

    async def _begin(self, base: Offset) -> LedgerOutput:
        led = self._led
        writer = await create_ledger(
            self._services.ledgers, led.topic, led.partition, led.leader_epoch
        )
        return LedgerOutput(writer, base, self._rate)

    async def _runs(self, segment: Segment) -> AsyncGenerator[Run, None]:
        """Read a segment. Raises LedgerError, LogReadFailed, LogCorrupt."""
        assert segment.base_offset is not None
        assert segment.end_offset is not None
        source = Source(segment.ledger_id, segment.base_offset, segment.end_offset, segment.cleaned)
        reader = await self._services.ledgers.open(segment.ledger_id)
        first, last = EntryId(0), reader.last_entry
        while first <= last:
            entries = await reader.read_some(first, last)
            until = entries[-1].entry_id
            payloads = [entry.payload for entry in entries]
            size = sum(map(len, payloads))
            self.read_bytes += size
            with self.memory.held(size):
                await self._rate.use(size)
                aborted = await self._aborted(segment, payloads)
                yield Run(source, first == 0, until == last, payloads, aborted)
            first = EntryId(until + 1)

    async def _aborted(
        self, segment: Segment, payloads: Sequence[Buffer]
    ) -> Sequence[AbortedTransaction]:
        known = segment.facts.transactions if segment.facts is not None else None
        if known is None or not known.is_transactional:
            return ()
        return await self._led.aborted(first_offset(payloads[0]), next_offset(payloads[-1]))

    async def _discard(self, outputs: Sequence[LedgerOutput]) -> None:
        """Delete ledgers that nobody knows of; what fails is left to the sweep of orphans."""
        for output in outputs:
            output.abandon()
            with contextlib.suppress(LedgerError, MetadataError):
                await self._services.ledgers.delete(LedgerId(output.ledger_id))
