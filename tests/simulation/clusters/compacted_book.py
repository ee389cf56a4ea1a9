"""The judge of a compacted partition in whole-cluster schedules.

The truth is every record that was ever confirmed in a ledger that a leader wrote itself. What is
there at present are the records of the ledgers that the list names, of which compaction wrote some.
Both are known from what was sent to ledgers, whose end the metadata says. Violations carry the
names of the invariants of compaction:

    COMPACTED Z1  a record goes only if a newer one of its key was confirmed, or if it is a
                  tombstone whose time is over
    COMPACTED Z2  what a compacted ledger holds, and what is shown, was written there, unchanged
    COMPACTED Z3  a reader misses only what may be gone, and is not shown what has been gone for
                  longer than a broker may believe in its lead, or in its list
    COMPACTED Z4  a tombstone is kept for its time, and goes after all that is older of its key
    COMPACTED Z5  readers of committed data get what is left of it, and nothing else (X1, X4 and X5
                  of `transactions/book.py`); aborted data may go at any time, and goes in the end
    COMPACTED Z6  a swap says the same: offsets, epochs, log start; nothing too young, no tail
    COMPACTED Z7  what was replaced waits for its grace, and is let go then; what nobody listed goes
    COMPACTED Z8  in the end all is clean that can be
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from client.wire.kafka.batches.control_batch import read_marker
from client.wire.kafka.batches.records import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    TRANSACTIONAL_BIT,
    records,
)
from tests.simulation.clusters.compacted_load import RETAIN_MS_WAITED_FOR
from tests.simulation.kafka.entries import batches_of
from tests.simulation.machine.hosts import SimClock

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from client.log.segments import Segment, SegmentList
    from tests.simulation.clusters.compacted_load import CompactionOptions
    from tests.simulation.clusters.oracle import ClusterOracle, PartitionBook
    from tests.simulation.kafka.entries import Batch

_TAIL = 2
_BASE_TIMESTAMP = slice(27, 35)


class Row(NamedTuple):
    """A record."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int


class Content(NamedTuple):
    """What a ledger holds."""

    rows: dict[int, Row]
    horizons: dict[int, int]
    """Offset -> when it may go, of the records of batches that have a delete horizon."""


class Expected(NamedTuple):
    """What is known of a schedule's compaction before it begins."""

    options: CompactionOptions
    late_s: float
    """How long a broker may show what is gone: because it believes that it leads, or, to readers
    nearby, by the list that it has."""
    is_timed: bool
    """Whether all clocks are right, so that it can be told when what may go."""
    is_swept: bool
    """Whether brokers look for ledgers that nobody lists."""


def _rows_of(batch: Batch) -> list[Row]:
    if batch.attributes & CONTROL_BIT:
        return []
    return [Row(r.offset, r.key, r.value, r.timestamp_ms) for r in records(batch.data)]


class CompactedBook:
    """All that is known about one compacted partition, beside its `PartitionBook`."""

    def __init__(self, oracle: ClusterOracle, book: PartitionBook, expected: Expected) -> None:
        self._oracle = oracle
        self._book = book
        self._expected = expected
        self._truth: dict[int, Row] = {}
        self._offsets: list[int] = []
        """Keys of `_truth`; they ascend."""
        self._newest: dict[bytes, int] = {}
        """Offset of the last committed record of each key."""
        self._open: dict[int, list[Row]] = {}
        """Producer id -> records of its transaction that nothing has decided yet."""
        self._void: set[int] = set()
        """Offsets of aborted records."""
        self._contents: dict[int, Content] = {}
        """Of closed ledgers."""
        self._known_until: dict[int, int] = {}
        """Ledger -> how many of its entries are in the truth."""
        self._sealed_ms: dict[int, int] = {}
        """Offset -> when its segment was sealed first."""
        self._horizons: dict[int, int] = {}
        """Of tombstones, as the newest list has them."""
        self._gone_s: dict[int, float] = {}
        """When a record left the list."""

    # ---------------------------------------------------------------- what is known

    @property
    def _now_ms(self) -> int:
        return SimClock.EPOCH_MS + int(self._oracle.loop.time() * 1000)

    def _fail(self, name: str, text: str) -> None:
        self._oracle.fail(f"COMPACTED {name}", f"{self._book.name}: {text}")

    def truth(self) -> dict[int, Row]:
        """Return every record that was ever confirmed, by offset."""
        for ledger_id in self._book.chain:
            ledger = self._oracle.ledger(ledger_id)
            end = ledger.acked if ledger.closed_at is None else ledger.closed_at
            known = self._known_until.get(ledger_id, 0)
            for payload in ledger.sent[known : end + 1]:
                for batch in batches_of(payload):
                    self._learn(batch)
            self._known_until[ledger_id] = max(known, end + 1)
        return self._truth

    def _learn(self, batch: Batch) -> None:
        producer_id = batch.producer[0]
        if batch.attributes & CONTROL_BIT:
            rows = self._open.pop(producer_id, [])
            if read_marker(batch.data).is_commit:
                self._count(rows)
            else:
                self._void.update(row.offset for row in rows)
            return
        rows = _rows_of(batch)
        for row in rows:
            if self._offsets and row.offset <= self._offsets[-1]:
                text = f"{row} comes after {self._offsets[-1]}"
                self._oracle.fail("C6", f"{self._book.name}: {text}")
            self._offsets.append(row.offset)
            self._truth[row.offset] = row
        if batch.attributes & TRANSACTIONAL_BIT:
            self._open.setdefault(producer_id, []).extend(rows)
        else:
            self._count(rows)

    def _count(self, rows: Iterable[Row]) -> None:
        """These are committed, and replace what is older."""
        for row in rows:
            if row.key is not None:
                self._newest[row.key] = max(row.offset, self._newest.get(row.key, -1))

    def _is_replaced(self, row: Row) -> bool:
        """Whether a record was aborted, or has no key, or a newer one of its key was committed."""
        if row.offset in self._void or row.key is None:
            return True
        return self._newest.get(row.key, -1) > row.offset

    def may_go(self, offset: int) -> bool:
        """Whether a committed record may be gone some day."""
        row = self.truth()[offset]
        return row.value is None or self._is_replaced(row)

    def _content(self, ledger_id: int) -> Content:
        found = self._contents.get(ledger_id)
        if found is None:
            ledger = self._oracle.ledger(ledger_id)
            assert ledger.closed_at is not None
            found = self._contents[ledger_id] = Content({}, {})
            for payload in ledger.sent[: ledger.closed_at + 1]:
                for batch in batches_of(payload):
                    self._put(found, batch)
        return found

    def _put(self, content: Content, batch: Batch) -> None:
        for row in _rows_of(batch):
            content.rows[row.offset] = row
            if batch.attributes & DELETE_HORIZON_BIT:
                horizon_ms = int.from_bytes(batch.data[_BASE_TIMESTAMP], "big")
                content.horizons[row.offset] = horizon_ms

    # ---------------------------------------------------------------- what compaction writes

    def written(self, ledger_id: int, payload: bytes) -> None:
        """An entry is sent to a ledger that no list names: what it holds was in the log before."""
        truth = self.truth()
        for batch in batches_of(payload):
            for row in _rows_of(batch):
                if row.offset not in truth:
                    self._oracle.fail(
                        "C4", f"{self._book.name}: {ledger_id} is not listed, and is sent {row}"
                    )
                elif truth[row.offset] != row:
                    self._fail("Z2", f"{ledger_id} holds {row}, written was {truth[row.offset]}")

    def listed(self, old: SegmentList, new: SegmentList) -> None:
        """The list was set, without a swap."""
        for segment in new.segments:
            base, end = segment.base_offset, segment.end_offset
            if base is not None and end is not None and not segment.cleaned:
                for offset in range(base, end):
                    self._sealed_ms.setdefault(offset, self._now_ms)
        waiting = {one.ledger_id for one in new.compaction.retired}
        for one in old.compaction.retired:
            waited_ms = self._now_ms - one.since_ms
            is_early = self._expected.is_timed and waited_ms < self._expected.options.grace_ms
            if one.ledger_id not in waiting and is_early:
                self._fail("Z7", f"{one} was let go after {waited_ms} ms")

    def swapped(self, old: SegmentList, new: SegmentList) -> None:
        """The list was set, with compacted ledgers in the place of others."""
        self._oracle.count("swaps")
        before = {one.ledger_id for one in old.segments}
        after = {one.ledger_id for one in new.segments}
        went = [one for one in old.segments if one.ledger_id not in after]
        came = [one for one in new.segments if one.ledger_id not in before]
        if not self._is_same(old, new, went, came):
            self._fail("Z6", f"{went} became {came}, and {old} became {new}")
            return
        retired = {one.ledger_id for one in new.compaction.retired}
        if retired != {one.ledger_id for one in (*old.compaction.retired, *went)}:
            self._fail("Z7", f"{went} were replaced, retired are {new.compaction.retired}")
        self._check_tail(new.segments)
        if self._expected.is_timed:
            self._check_age(went)
        self._check_content(new, went, came)

    def _is_same(
        self,
        old: SegmentList,
        new: SegmentList,
        went: Sequence[Segment],
        came: Sequence[Segment],
    ) -> bool:
        at = old.segments.index(went[0]) if went else 0
        expected = (*old.segments[:at], *came, *old.segments[at + len(went) :])
        places = [*(one.base_offset for one in came), came[-1].end_offset]
        return (
            bool(went)
            and tuple(new.segments) == expected
            and (old.leader_epoch, old.log_start_offset) == (new.leader_epoch, new.log_start_offset)
            and old.compaction.cleaned_until == new.compaction.cleaned_until
            and (went[0].base_offset, went[-1].end_offset) == (places[0], places[-1])
            and [one.end_offset for one in came] == places[1:]
            and len({one.leader_epoch for one in (*went, *came)}) == 1
            and all(one.cleaned for one in came)
        )

    def _check_tail(self, segments: Sequence[Segment]) -> None:
        """What a takeover replays, and the last records, stay what they are."""
        if any(one.cleaned for one in segments[-_TAIL:]):
            self._fail("Z6", f"one of the last two was compacted: {segments}")
        if all(one.cleaned or one.end_offset in (None, one.base_offset) for one in segments):
            self._fail("Z6", f"the segment with the last records was compacted: {segments}")

    def _check_age(self, went: Iterable[Segment]) -> None:
        lag_ms = self._expected.options.lag_ms_min
        for segment in went:
            assert segment.facts is not None
            too_young = segment.facts.max_timestamp_ms > self._now_ms - lag_ms
            if lag_ms and not segment.cleaned and too_young:
                self._fail("Z6", f"{segment} is younger than min.compaction.lag.ms")

    def _check_content(
        self, new: SegmentList, went: Sequence[Segment], came: Sequence[Segment]
    ) -> None:
        truth = self.truth()
        before, after = self._all(went), self._all(came)
        base, end = went[0].base_offset, went[-1].end_offset
        assert base is not None
        assert end is not None
        for offset, row in after.rows.items():
            if before.rows.get(offset) != row or not base <= offset < end:
                self._fail("Z2", f"{row} was not there before the swap of {base} to {end}")
        for offset in before.rows.keys() - after.rows.keys():
            self._gone_s.setdefault(offset, self._oracle.loop.time())
            if offset >= new.log_start_offset:
                self._check_gone(new, truth[offset], before.horizons.get(offset))
        for offset, horizon_ms in after.horizons.items():
            if after.rows[offset].value is None:
                self._horizons[offset] = horizon_ms
            if offset not in before.horizons:
                self._check_horizon(offset, horizon_ms)

    def _check_gone(self, new: SegmentList, row: Row, horizon_ms: int | None) -> None:
        if self._is_replaced(row):
            return
        if row.value is not None:
            self._fail("Z1", f"{row} is gone, and no newer one was confirmed")
        elif horizon_ms is None:
            self._fail("Z4", f"{row} is gone with the first round that met it")
        elif self._expected.is_timed and horizon_ms > self._now_ms:
            self._fail("Z4", f"{row} is gone {horizon_ms - self._now_ms} ms too early")
        older = [segment for segment in new.segments if (segment.base_offset or 0) <= row.offset]
        for left in self._all(older).rows.values():
            if left.offset in self._void:
                continue
            if left.key == row.key and new.log_start_offset <= left.offset < row.offset:
                self._fail("Z4", f"{row} is gone, and {left} is there")

    def _check_horizon(self, offset: int, horizon_ms: int) -> None:
        kept_ms = horizon_ms - self._sealed_ms[offset]
        if self._expected.is_timed and kept_ms < self._expected.options.retain_ms:
            self._fail("Z4", f"{self._truth[offset]} may go {kept_ms} ms after it was sealed")

    def _all(self, segments: Iterable[Segment]) -> Content:
        rows: dict[int, Row] = {}
        horizons: dict[int, int] = {}
        for segment in segments:
            if segment.facts is not None:
                content = self._content(segment.ledger_id)
                rows.update(content.rows)
                horizons.update(content.horizons)
        return Content(rows, horizons)

    # ---------------------------------------------------------------- what readers are shown

    def read(self, by: str, data: bytes, position: int, asked_s: float) -> int:
        """A consumer was given batches for a question of `asked_s`; return its next position."""
        truth = self.truth()
        before, first = -1, position
        shown: set[int] = set()
        for batch in batches_of(data):
            if batch.next_offset <= position:
                continue
            for row in _rows_of(batch):
                self._check_shown(by, row, asked_s)
                if row.offset <= before:
                    self._fail("Z3", f"{by} is shown {row.offset} after {before}")
                before = row.offset
                shown.add(row.offset)
                self._oracle.count("records consumed")
            position = batch.next_offset
        for offset in range(first, position):
            if offset in truth and offset not in shown:
                self._check_missing(by, truth[offset], asked_s)
        return position

    def _check_shown(self, by: str, row: Row, asked_s: float) -> None:
        known = self._truth.get(row.offset)
        if known is None:
            self._oracle.fail("T9", f"{self._book.name}: {by} was shown {row}, not confirmed")
        elif known != row:
            self._fail("Z2", f"{by} is shown {row}, written was {known}")
        gone_s = self._gone_s.get(row.offset)
        if gone_s is not None and asked_s > gone_s + self._expected.late_s:
            self._fail("Z3", f"{by} is shown {row}, which has been gone for {asked_s - gone_s} s")

    def _check_missing(self, by: str, row: Row, asked_s: float) -> None:
        self._oracle.count("records missed by readers")
        if self._is_replaced(row):
            return
        if row.value is not None:
            self._fail("Z3", f"{by} is not shown {row}, the last of its key")
        horizon_ms = self._horizons.get(row.offset)
        asked_ms = SimClock.EPOCH_MS + int(asked_s * 1000)
        if horizon_ms is None or (self._expected.is_timed and asked_ms < horizon_ms):
            self._fail("Z4", f"{by} is not shown {row}, which may go at {horizon_ms}")

    # ---------------------------------------------------------------- at the end

    def unclean(self) -> str:
        """Return, in words, what is left to compact although it may be; empty: nothing."""
        listed, state = self._book.segments, self._book.segments.compaction
        end = self._cleanable_end(listed.segments)
        if state.cleaned_until < end:
            return f"clean up to {state.cleaned_until} of {end}"
        # A clock that ran ahead noted times to come: what waits for them stays until then.
        is_timed, now_ms = self._expected.is_timed, self._now_ms
        if waiting := [one for one in state.retired if is_timed or one.since_ms <= now_ms]:
            return f"{waiting} wait"
        waits = self._expected.options.retain_ms <= RETAIN_MS_WAITED_FOR
        if waits and state.next_horizon_ms >= 0 and end > listed.log_start_offset:
            return f"tombstones until {state.next_horizon_ms}"
        if self._expected.is_swept and (left := self._left_behind()):
            return f"{left} are left behind"
        return ""

    def _left_behind(self) -> list[int]:
        """Return ledgers of the partition that nobody lists, nor can."""
        listed = self._book.segments
        place = tuple(self._book.name.split("/"))
        known = {*(one.ledger_id for one in (*listed.segments, *listed.compaction.retired))}
        found: list[int] = []
        for ledger in self._oracle.ledgers.values():
            if ledger.metadata is None or ledger.deleted or ledger.ledger_id in known:
                continue
            labels = {name: text.decode() for name, text in ledger.metadata.custom_metadata.items()}
            of = (labels.get("quire.topic_id"), labels.get("quire.partition"))
            if of == place and int(labels["quire.leader_epoch"]) < listed.leader_epoch:
                found.append(ledger.ledger_id)
        return found

    def _cleanable_end(self, segments: Sequence[Segment]) -> int:
        """Return where compaction has to come to: all but the tail."""
        count = len(segments) - _TAIL
        last = [at for at, one in enumerate(segments) if one.facts and one.facts.size_bytes]
        filled = [
            at
            for at, one in enumerate(segments)
            if not one.cleaned and (one.end_offset or 0) > (one.base_offset or 0)
        ]
        count = min(count, *last[-1:], *filled[-1:]) if last and filled else 0
        return max((one.end_offset or 0 for one in segments[: max(0, count)]), default=0)

    def judge(self) -> None:
        """All that can be clean is: see what is left."""
        listed = self._book.segments
        clean = [one for one in listed.segments if (one.end_offset or 1 << 62) <= self._clean_end]
        left = self._all(clean).rows
        last = {row.key: row.offset for _, row in sorted(left.items())}
        for offset, row in left.items():
            if offset in self._void:
                self._fail("Z8", f"{row} was aborted, and is left")
            if last[row.key] != offset:
                self._fail("Z8", f"{row} is left, although {last[row.key]} is newer")
            if row.value is None and self._expected.options.retain_ms <= RETAIN_MS_WAITED_FOR:
                self._fail("Z8", f"{row} is kept for ever")
        for offset, row in self.truth().items():
            is_clean = listed.log_start_offset <= offset < self._clean_end
            is_last = row.value is not None and self._newest.get(row.key or b"") == offset
            if is_clean and is_last and offset not in left:
                self._fail("Z1", f"{row} is gone")

    @property
    def _clean_end(self) -> int:
        return self._book.segments.compaction.cleaned_until
