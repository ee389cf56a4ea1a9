"""One round of compaction of one partition: reads its segments twice, writes compacted ones.

The rules are in `core/`. This carries them out in slices: between two batches, and within large
ones, everything else of the process has its turn (`client/node/turns.py`), and bytes are used at a
limited rate. Group by group, from the oldest on, the new ledgers are written, closed, read back and
handed to the leader, who lists them in the place of the old ones (`partition/core/leader.py`,
COMPACT-CAS). So an old value is gone before the tombstone that came after it may go, whenever the
round is broken off.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Final, NamedTuple

from broker.cluster.core.topology import TopicInfo
from broker.compaction.byte_rate import ByteRate
from broker.compaction.core.cleaning import STEP_RECORDS, Cleaner, KeyRound
from broker.compaction.core.key_map import SECRET_BYTES, KeyMap, slots_within
from broker.compaction.core.plan import CompactionLimits, Standing, groups
from broker.compaction.core.segment_output import SegmentOutput
from broker.compaction.core.transaction_ends import TransactionEnds
from broker.compaction.ledger_output import LedgerOutput
from broker.errors import CompactionFailed, SegmentsChanged
from broker.partition.ledger_creation import create_ledger
from broker.partition.log_services import LogServices
from client.errors import LedgerError, MetadataError, RemoteProtocolError
from client.ids import EntryId, LeaderEpoch, LedgerId, Offset
from client.log.compacted import Round, Swap
from client.log.entry_format import batch_headers, is_internal
from client.log.segments import Segment
from client.wire.kafka.batches.records import BatchHeader, Buffer, parse_header

_RUN_ENTRIES: Final = 4
"""Entries that are read at once."""


class Led(NamedTuple):
    """The partition as its leader knows it."""

    topic: TopicInfo
    partition: int
    leader_epoch: LeaderEpoch


class CleaningRound:
    """Started once, with what was planned."""

    def __init__(
        self,
        services: LogServices,
        led: Led,
        limits: CompactionLimits,
        rate: ByteRate,
        key_bytes_max: int,
        swap: Callable[[Swap], Awaitable[None]],
    ) -> None:
        """`swap` lists new segments; it raises SegmentsChanged if nothing has come of it."""
        self._services = services
        self._led = led
        self._limits = limits
        self._rate = rate
        self._key_bytes_max = key_bytes_max
        self._swap = swap
        self.read_bytes = 0
        self.written_bytes = 0
        self.removed_records = 0
        self._in_turn = 0
        """Records since others had their turn."""

    async def run(self, runs: Sequence[Sequence[Segment]], found: Standing) -> Round:
        """Clean `runs` of segments, all there are, up to `found.end` or as far as the key map goes.

        Raises CompactionFailed, SegmentsChanged, LedgerError, MetadataError, NotLeader; what was
        swapped until then stays swapped.
        """
        now_ms = self._services.clock.now_ms()
        ends = TransactionEnds()
        keys = await self._enter(runs, found, ends)
        cleaner = Cleaner(keys, ends, now_ms, self._limits.retain_ms)
        for group in groups(runs, keys.end, self._limits.segment_bytes):
            await self._clean(group, cleaner)
        return Round(keys.end, cleaner.stats.next_horizon_ms)

    async def _enter(
        self, runs: Sequence[Sequence[Segment]], found: Standing, ends: TransactionEnds
    ) -> KeyRound:
        """Note the newest offset of each key in what is dirty."""
        slots = slots_within(self._key_bytes_max, found.end - found.first_dirty)
        secret = self._services.rng.getrandbits(8 * SECRET_BYTES).to_bytes(SECRET_BYTES, "big")
        entered = KeyRound(KeyMap(slots, secret), found.first_dirty, found.end, ends)
        for segment in (segment for run in runs for segment in run):
            base, end = segment.base_offset, segment.end_offset
            if base is None or end is None or base >= entered.end:
                break
            if end <= found.first_dirty or end == base:
                continue
            async with aclosing(self._batches(segment)) as batches:
                async for batch, header in batches:
                    await self._services.turns.run(entered.enter(batch, header))
                    if entered.is_full:
                        return entered
        return entered

    async def _clean(self, group: Sequence[Segment], cleaner: Cleaner) -> None:
        outputs: list[LedgerOutput] = []
        before = cleaner.stats.records_in - cleaner.stats.records_out
        try:
            new, is_changed = await self._write(group, cleaner, outputs)
            if is_changed or len(new) < len(group):
                for output in outputs:
                    await output.verify(self._services.ledgers)
                await self._swap(Swap(tuple(one.ledger_id for one in group), tuple(new)))
                outputs = []
                after = cleaner.stats.records_in - cleaner.stats.records_out
                self.removed_records += after - before
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
        self, group: Sequence[Segment], cleaner: Cleaner, outputs: list[LedgerOutput]
    ) -> tuple[list[Segment], bool]:
        """Write what stays of a group; return its new segments, and whether they differ."""
        base, end = group[0].base_offset, group[-1].end_offset
        assert base is not None
        assert end is not None
        is_changed = False
        new: list[Segment] = []
        content, ledger = await self._begin(group[0], base, outputs)
        async for batch, header in self._all_batches(group):
            kept = await self._turns(cleaner, batch, header)
            is_changed |= kept is not batch
            if kept is None:
                continue
            if content.size_bytes >= self._limits.segment_bytes and header.base_offset > base:
                new.append(await self._end(group, content, ledger, header.base_offset))
                content, ledger = await self._begin(group[0], header.base_offset, outputs)
            entry = content.add(kept, header if kept is batch else parse_header(kept))
            if entry:
                await ledger.add(entry)
        new.append(await self._end(group, content, ledger, end))
        return new, is_changed

    async def _turns(self, cleaner: Cleaner, batch: Buffer, header: BatchHeader) -> Buffer | None:
        try:
            return await self._services.turns.run(cleaner.clean(batch, header))
        except RemoteProtocolError as error:
            raise CompactionFailed(f"batch at offset {header.base_offset}: {error}") from error

    async def _begin(
        self, first: Segment, base: Offset, outputs: list[LedgerOutput]
    ) -> tuple[SegmentOutput, LedgerOutput]:
        led = self._led
        writer = await create_ledger(
            self._services.ledgers, led.topic, led.partition, led.leader_epoch
        )
        output = LedgerOutput(writer, self._rate)
        outputs.append(output)
        content = SegmentOutput(base, first.leader_epoch)
        await output.add([content.begin()])
        return content, output

    async def _end(
        self, group: Sequence[Segment], content: SegmentOutput, ledger: LedgerOutput, end: Offset
    ) -> Segment:
        for entry in content.end(end):
            await ledger.add(entry)
        await ledger.finish()
        self.written_bytes += content.size_bytes
        first = group[0]
        return Segment(
            ledger.ledger_id,
            content.base_offset,
            first.leader_epoch,
            first.created_ms,
            content.facts(end),
            cleaned=True,
        )

    async def _all_batches(
        self, group: Sequence[Segment]
    ) -> AsyncIterator[tuple[Buffer, BatchHeader]]:
        for segment in group:
            async with aclosing(self._batches(segment)) as batches:
                async for found in batches:
                    yield found

    async def _batches(
        self, segment: Segment
    ) -> AsyncGenerator[tuple[memoryview, BatchHeader], None]:
        """Walk the batches of a segment. Raises LedgerError, LogCorrupt, CompactionFailed."""
        reader = await self._services.ledgers.open(segment.ledger_id)
        expected, last = segment.base_offset, reader.last_entry
        first = 0
        while first <= last:
            until = min(last, first + _RUN_ENTRIES - 1)
            for entry in await reader.read(EntryId(first), EntryId(until)):
                payload = entry.payload
                self.read_bytes += len(payload)
                await self._rate.use(len(payload))
                if is_internal(payload):
                    continue
                for at, header in batch_headers(payload):
                    _check(segment, header, expected)
                    expected = header.next_offset
                    self._in_turn += 1 + header.record_count % STEP_RECORDS
                    if self._in_turn >= STEP_RECORDS:
                        self._in_turn = 0
                        await self._services.turns.next()
                    yield payload[at : at + header.size], header
            first = until + 1
        if not segment.cleaned and expected != segment.end_offset:
            raise CompactionFailed(
                f"ledger {segment.ledger_id} ends at offset {expected}, not {segment.end_offset}"
            )

    async def _discard(self, outputs: Sequence[LedgerOutput]) -> None:
        """Delete ledgers that nobody knows of; what fails is left to the sweep of orphans."""
        for output in outputs:
            output.abandon()
            with contextlib.suppress(LedgerError, MetadataError):
                await self._services.ledgers.delete(LedgerId(output.ledger_id))


def _check(segment: Segment, header: BatchHeader, expected: Offset | None) -> None:
    """Nothing that was not read may count as removed. Raises CompactionFailed."""
    if header.is_transactional:
        raise CompactionFailed("it has transactions, which are not compacted yet")
    gap = expected is not None and header.base_offset != expected
    if gap and (not segment.cleaned or (expected is not None and header.base_offset < expected)):
        raise CompactionFailed(
            f"ledger {segment.ledger_id} has a batch at {header.base_offset}, not {expected}"
        )
