"""The work of one round of compaction: entries of old segments in, entries of new ones out.

Nothing here reads or writes. Each request (`round_messages.py`) is work in steps, for the event
loop of a broker or for a process of its own: both do the same. What is read is checked to be all
there is, in order: nothing that was not read may count as removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import assert_never

from broker.compaction.core.cleaning import STEP_RECORDS, AbortedRanges, Cleaner, KeyRound
from broker.compaction.core.key_map import KeyMap
from broker.compaction.core.round_messages import (
    BeginGroup,
    BeginRound,
    Begun,
    CleanRun,
    Ended,
    EndGroup,
    EnterKeys,
    Output,
    Request,
    Run,
    Source,
    WorkDone,
    Written,
)
from broker.compaction.core.segment_output import Entry, SegmentOutput
from broker.errors import CompactionFailed
from client.errors import LogCorrupt, RemoteProtocolError
from client.ids import Offset
from client.log.entry_format import batch_headers, is_internal
from client.wire.kafka.batches.records import BatchHeader, Buffer, parse_header
from client.wire.steps import Steps


class RoundWork:
    """Of one round."""

    def __init__(self, asked: BeginRound) -> None:
        self._asked = asked
        keys = KeyMap(asked.slots, asked.secret, asked.first_dirty, asked.end)
        self._keys = KeyRound(keys, asked.first_dirty, asked.end)
        self._group: _Group | None = None
        self._expected = Offset(0)
        """Where the next batch of the segment that is read should stand."""
        self._in_step = 0

    @property
    def key_bytes(self) -> int:
        """Memory that the keys take."""
        return self._keys.keys.size_bytes

    def do(self, request: Request) -> Steps[WorkDone]:
        """Do what is asked. Raises CompactionFailed, for what was read is not what it should be."""
        outputs: list[Output] = []
        try:
            match request:
                case BeginRound():
                    pass
                case EnterKeys(run):
                    yield from self._enter(run)
                case BeginGroup():
                    outputs = self._begin_group(request)
                case CleanRun(run):
                    outputs = yield from self._clean(run)
                case EndGroup():
                    assert self._group is not None
                    outputs = self._group.end()
                case _:
                    assert_never(request)
        except (LogCorrupt, RemoteProtocolError) as error:
            raise CompactionFailed(f"below offset {self._expected}: {error}") from error
        return self._done(outputs)

    def _done(self, outputs: Sequence[Output]) -> WorkDone:
        keys, group = self._keys, self._group
        if group is None:
            return WorkDone(outputs, keys.end, keys.is_full)
        stats = group.cleaner.stats
        removed = stats.records_in - stats.records_out
        return WorkDone(
            outputs, keys.end, keys.is_full, group.is_changed, removed, stats.next_horizon_ms
        )

    def _begin_group(self, request: BeginGroup) -> list[Output]:
        if self._group is None:
            cleaner = Cleaner(self._keys, self._asked.now_ms, self._asked.retain_ms)
        else:
            cleaner = self._group.cleaner
        self._group = _Group(self._asked, request, cleaner)
        return self._group.begin(request.base_offset)

    def _enter(self, run: Run) -> Steps[None]:
        aborted = AbortedRanges(run.aborted)
        for batch, header in self._batches(run):
            if self._is_step_over(header):
                yield
            yield from self._keys.enter(batch, header, aborted)
            if self._keys.is_full:
                return

    def _clean(self, run: Run) -> Steps[list[Output]]:
        group = self._group
        assert group is not None
        aborted = AbortedRanges(run.aborted)
        outputs: list[Output] = []
        for batch, header in self._batches(run):
            if self._is_step_over(header):
                yield
            outputs += yield from group.take(batch, header, aborted)
        return outputs

    def _is_step_over(self, header: BatchHeader) -> bool:
        """Count a batch, whose large ones have steps of their own."""
        self._in_step += 1 + header.record_count % STEP_RECORDS
        if self._in_step < STEP_RECORDS:
            return False
        self._in_step = 0
        return True

    def _batches(self, run: Run) -> Iterator[tuple[memoryview, BatchHeader]]:
        """Walk the batches of a run. Raises LogCorrupt, CompactionFailed."""
        source = run.source
        if run.is_first:
            self._expected = source.base_offset
        for payload in run.payloads:
            if is_internal(payload):
                continue
            view = memoryview(payload)
            for at, header in batch_headers(payload):
                _check(source, header, self._expected)
                self._expected = header.next_offset
                yield view[at : at + header.size], header
        if run.is_last and not source.cleaned and self._expected != source.end_offset:
            raise CompactionFailed(
                f"ledger {source.ledger_id} ends at offset {self._expected},"
                f" not {source.end_offset}"
            )


class _Group:
    """The new segments of a group: one, and more where one would be too large."""

    def __init__(self, round_: BeginRound, asked: BeginGroup, cleaner: Cleaner) -> None:
        self._round = round_
        self._asked = asked
        self.cleaner = cleaner
        """The same for all groups of a round."""
        self._content = self._new(asked.base_offset)
        self.is_changed = False

    def _new(self, base_offset: Offset) -> SegmentOutput:
        return SegmentOutput(base_offset, self._asked.leader_epoch, self._round.block_entries)

    def begin(self, base_offset: Offset) -> list[Output]:
        self._content = self._new(base_offset)
        return [Begun(base_offset), Written(self._content.begin())]

    def take(
        self, batch: Buffer, header: BatchHeader, aborted: AbortedRanges
    ) -> Steps[list[Output]]:
        """Take what stays of the next batch."""
        cleaner, at = self.cleaner, header.base_offset
        is_split = (
            self._content.size_bytes >= self._round.segment_bytes and at > self._asked.base_offset
        )
        stable = cleaner.first_open(at) if is_split else at  # before the batch may end it
        kept = yield from cleaner.clean(batch, header, aborted)
        self.is_changed |= kept is not batch
        if kept is None:
            return []
        outputs: list[Output] = []
        if is_split:
            outputs += self._finish(at, stable)
            outputs += self.begin(at)
        content = self._content
        entries = content.add(kept, header if kept is batch else parse_header(kept))
        if header.is_control and at >= cleaner.end:
            # INDEX: of what was judged, no aborted data is left, and nothing is to be listed.
            ended = aborted.ended_by(header)
            if ended is not None:
                entries += content.on_aborted(ended, cleaner.first_open(header.next_offset))
        return [*outputs, *map(Written, entries)]

    def end(self) -> list[Output]:
        """Return the last entries."""
        return self._finish(self._asked.end_offset, self._asked.stable_offset)

    def _finish(self, end: Offset, stable: Offset) -> list[Output]:
        entries: list[Entry] = self._content.end(end)
        return [*map(Written, entries), Ended(self._content.facts(end, stable))]


def _check(source: Source, header: BatchHeader, expected: Offset) -> None:
    is_gap = header.base_offset != expected
    if is_gap and (not source.cleaned or header.base_offset < expected):
        raise CompactionFailed(
            f"ledger {source.ledger_id} has a batch at {header.base_offset}, not {expected}"
        )
