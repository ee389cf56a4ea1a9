"""Which records stay when a log is compacted, and what becomes of their batches.

A round goes over a log twice. `KeyRound` meets what is dirty and notes the newest offset of each
key, as far as the key map goes; `Cleaner` meets the whole log up to there, from its start, and says
what stays of each batch:

    NEWEST      a record stays if no later one of its key is in the map. What has no key goes.
    ROUND-END   what stands at or above the end of the round is not judged.
    ABORTED     data of an aborted transaction goes, and never counts as newer than anything.
    HORIZON     a tombstone stays until a delete horizon has passed that the first round to judge it
                has set, in which older values of its key went; no later round moves it. So does a
                marker once its data is gone. A horizon is that of a whole batch: one of which a
                round judges more than those before gets a new one.
    OFFSETS     what stays keeps its offset, its order and its batch.

A batch that loses nothing is the very same bytes. One without records left goes: the log's last
records are never cleaned (`plan.py`), so its end stays where it can be read. Sources: KIP-58,
KIP-534; Kafka's documentation, section "Log Compaction".
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from broker.compaction.core.key_map import KeyMap
from client.ids import Offset, ProducerId
from client.log.aborted_transactions import AbortedTransaction
from client.wire.kafka.batches.record_spans import Span, open_records, rebuilt, record_spans
from client.wire.kafka.batches.records import DELETE_HORIZON_BIT, BatchHeader, Buffer
from client.wire.steps import Steps

NO_HORIZON: Final = -1
STEP_RECORDS: Final = 500
"""Records of a step: each costs some ten microseconds."""


class AbortedRanges:
    """Which batches of transactions are void, by the list of aborted transactions of a range.

    The list is what a reader of committed data would be given for the same range of offsets
    (`client/log/aborted_transactions.py`), so cleaning looks at no marker to know it: nothing at or
    above the last stable offset is cleaned, and below it everything is decided.
    """

    __slots__ = ("_found",)

    def __init__(self, listed: Iterable[AbortedTransaction] = ()) -> None:
        """`listed`: by the offsets of their markers."""
        self._found: dict[ProducerId, list[AbortedTransaction]] = {}
        for one in listed:
            self._found.setdefault(one.producer_id, []).append(one)

    def covers(self, header: BatchHeader) -> bool:
        """Whether a batch of a transaction is void."""
        found = self._found.get(header.producer_id)
        if found is None:
            return False
        at = bisect_right(found, header.base_offset, key=_first_offset) - 1
        return at >= 0 and header.base_offset < found[at].last_offset

    def ended_by(self, header: BatchHeader) -> AbortedTransaction | None:
        """Return what a marker has aborted; None: nothing that has data left."""
        for one in self._found.get(header.producer_id, ()):
            if one.last_offset == header.base_offset:
                return one
        return None


def _first_offset(one: AbortedTransaction) -> Offset:
    return one.first_offset


NOTHING_ABORTED = AbortedRanges()


class KeyRound:
    """The first pass: the newest offset of each key in [start, end)."""

    def __init__(self, keys: KeyMap, start: Offset, end: Offset) -> None:
        self.keys = keys
        self.end = end
        """Where the round ends: lower than asked for once the map is full."""
        self.is_full = False
        self.start = start

    def enter(
        self, batch: Buffer, header: BatchHeader, aborted: AbortedRanges = NOTHING_ABORTED
    ) -> Steps[None]:
        """Meet the next batch. Raises RemoteProtocolError for records that cannot be read."""
        if header.is_control or not self.start < header.next_offset or self.is_full:
            return
        if header.is_transactional and aborted.covers(header):
            return
        put, base, start, end = self.keys.put, header.base_offset, self.start, self.end
        spans = record_spans(open_records(batch, header), header.record_count)
        in_step = 0
        for _begin, _after, _end, _timestamp, offset_delta, key, _has_value in spans:
            in_step += 1
            if in_step == STEP_RECORDS:
                in_step = 0
                yield
            offset = Offset(base + offset_delta)
            if key is None or not start <= offset < end:
                continue
            if not put(key, offset):
                self.end = offset
                self.is_full = True
                return


@dataclasses.dataclass(slots=True)
class CleanStats:
    """What a round has met so far, and what it left."""

    records_in: int = 0
    records_out: int = 0
    next_horizon_ms: int = NO_HORIZON
    """When the first tombstone, or marker, may go that stayed; -1: there is none."""

    def on_horizon(self, horizon_ms: int) -> None:
        """A batch with this horizon stays."""
        known = self.next_horizon_ms
        self.next_horizon_ms = horizon_ms if known == NO_HORIZON else min(known, horizon_ms)


class Cleaner:
    """The second pass, over the whole log from its start: what stays of each batch."""

    def __init__(self, found: KeyRound, now_ms: int, retain_ms: int) -> None:
        """`retain_ms`: how long tombstones stay (delete.retention.ms)."""
        self.end = found.end
        self._start = found.start
        """What is below was judged by a round before."""
        self.stats = CleanStats()
        self._keys = found.keys
        self._superseded = found.keys.superseded
        self._now_ms = now_ms
        self._retain_ms = retain_ms
        self._with_data: dict[ProducerId, Offset] = {}
        """Producers of whose present transaction data was met, and where it begins."""

    def first_open(self, end: Offset) -> Offset:
        """Return where the oldest transaction begins that has data before `end` and no marker;
        `end`: there is none."""
        return min(self._with_data.values(), default=end)

    def clean(
        self, batch: Buffer, header: BatchHeader, aborted: AbortedRanges = NOTHING_ABORTED
    ) -> Steps[Buffer | None]:
        """Return what stays of the next batch: itself, a smaller one, or nothing.

        Raises RemoteProtocolError for records that cannot be read.
        """
        stats = self.stats
        stats.records_in += header.record_count
        if header.is_transactional and not header.is_control:
            self._with_data.setdefault(header.producer_id, header.base_offset)
        kept: Buffer | None = batch
        if header.base_offset < self.end:
            if header.is_control:
                kept = self._clean_marker(batch, header)
            elif self._is_lost(header) or (header.is_transactional and aborted.covers(header)):
                kept = None
            else:
                kept = yield from self._clean_records(batch, header)
        elif header.is_control:
            self._with_data.pop(header.producer_id, None)
        if kept is batch:
            stats.records_out += header.record_count
        return kept

    def _clean_marker(self, batch: Buffer, header: BatchHeader) -> Buffer | None:
        had_data = header.producer_id in self._with_data
        self._with_data.pop(header.producer_id, None)
        horizon_ms = _horizon_of(header)
        if horizon_ms is not None:
            if horizon_ms < self._now_ms and not had_data:
                return None
            self.stats.on_horizon(horizon_ms)
            return batch
        if had_data:
            return batch
        body = open_records(batch, header)
        horizon_ms = self._now_ms + self._retain_ms
        self.stats.on_horizon(horizon_ms)
        self.stats.records_out += header.record_count
        return rebuilt(header, body, [*record_spans(body, header.record_count)], horizon_ms)

    def _is_lost(self, header: BatchHeader) -> bool:
        """Whether it is known without a look that no record of a batch stays."""
        count = self._superseded.count(header.base_offset, header.next_offset)
        return count == header.record_count

    def _is_superseded(self, key: bytes, offset: Offset) -> bool:
        known = self._superseded
        if known.start <= offset < known.end:
            return known.has(offset)
        return self._keys.newest(key) > offset

    def _clean_records(self, batch: Buffer, header: BatchHeader) -> Steps[Buffer | None]:
        body = open_records(batch, header)
        horizon_ms = _horizon_of(header)
        is_over = horizon_ms is not None and horizon_ms < self._now_ms
        kept: list[Span] = []
        has_tombstone, is_news, in_step = False, horizon_ms is None, 0
        is_superseded, base, end = self._is_superseded, header.base_offset, self.end
        for span in record_spans(body, header.record_count):
            in_step += 1
            if in_step == STEP_RECORDS:
                in_step = 0
                yield
            _begin, _after, _end, _timestamp, offset_delta, key, has_value = span
            offset = Offset(base + offset_delta)
            if offset < end:
                if key is None or is_superseded(key, offset):
                    continue
                if not has_value:
                    if is_over and offset < self._start:
                        continue
                    has_tombstone = True
                    is_news |= offset >= self._start
            kept.append(span)
        if not kept:
            return None
        set_ms = None
        if has_tombstone:
            if is_news or horizon_ms is None:
                horizon_ms = set_ms = self._now_ms + self._retain_ms
            self.stats.on_horizon(horizon_ms)
        if set_ms is None and len(kept) == header.record_count:
            return batch
        self.stats.records_out += len(kept)
        return rebuilt(header, body, kept, set_ms)


def _horizon_of(header: BatchHeader) -> int | None:
    return header.base_timestamp if header.attributes & DELETE_HORIZON_BIT else None
