"""What is known of a compacted partition's log: all that was ever in it, and its list of segments.

The truth is what stands in the ledgers that leaders wrote themselves, which are kept here even
after they were deleted. The list is judged whenever it has changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from client.log.segment_pages import decode_page
from client.log.segments import Segment, SegmentList, decode_segments
from client.metadata import paths
from tests.simulation.compaction.transactions import Batch, Written, batches, judged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn

    from client.ids import LedgerId
    from tests.fakes.brokers import World
    from tests.fakes.ledgers import StoredLedger
    from tests.simulation.compaction.plan import CompactionPlan

_INTERNAL_MAGIC: Final = 0x51


class Violation(AssertionError):
    """An invariant does not hold."""


def fail(name: str, text: str) -> NoReturn:
    """An invariant does not hold. Raises Violation."""
    raise Violation(f"{name}: {text}")


class CompactedLog:
    """The log of one schedule's partition, from the ledgers and the metadata store."""

    def __init__(
        self,
        fakes: World,
        plan: CompactionPlan,
        path: str,
        count: Callable[[str], None],
        note: Callable[[str], None],
    ) -> None:
        """`path`: of the list's node; `count` and `note` are told of events."""
        self._fakes = fakes
        self._plan = plan
        self._path = path
        self._count = count
        self._note = note
        self._originals: dict[LedgerId, Segment] = {}
        """Segments as leaders listed them first, in order."""
        self._books: dict[LedgerId, StoredLedger] = {}
        self._known: dict[LedgerId, list[Batch]] = {}
        self.listed = SegmentList()
        """The list as it was last looked at."""
        self._flat_before: list[Segment] = []
        self._data = b""

    def written(self) -> list[Batch]:
        """Return every batch that ever was in the log, oldest first."""
        found: list[Batch] = []
        for ledger_id in self._originals:
            found += self._batches(ledger_id)
        return found

    def truth(self) -> list[Written]:
        """Return every record that ever was in the log, and what became of it."""
        return judged(self.written())

    def _batches(self, ledger_id: LedgerId) -> list[Batch]:
        known = self._known.get(ledger_id)
        if known is not None:
            return known
        ledger = self._books[ledger_id]
        end = ledger.confirmed if ledger.closed_at is None else ledger.closed_at
        entries = ledger.entries[: end + 1]
        found = batches(entry for entry in entries if entry[16] != _INTERNAL_MAGIC)
        if ledger.closed_at is not None:
            self._known[ledger_id] = found
        return found

    def look(self) -> None:
        """Judge the list if it has changed."""
        data = self._fakes.cluster.tree.get(self._path).data
        if data == self._data:
            return
        self._data = data
        listed = decode_segments(data)
        self._note(f"list {data.decode()}")
        flat = self._flat_of(listed)
        there = self._fakes.backend.service.ledgers
        now_ms = self._fakes.clock.now_ms()
        for segment in flat:
            if segment.ledger_id not in there:
                fail("Z7", f"listed ledger {segment.ledger_id} is missing")
            self._books[segment.ledger_id] = there[segment.ledger_id]
            if segment.cleaned:
                self._check_epoch(segment)
            else:
                self._originals[segment.ledger_id] = segment
        for retired in listed.compaction.retired:
            if retired.ledger_id not in there:
                fail("Z7", f"retired ledger {retired.ledger_id} is gone before its time")
            was = self.listed.compaction.retired
            if retired not in was:
                self._check_age(retired.ledger_id, now_ms)
        self._check_replaced(listed, flat, now_ms)
        if len(listed.compaction.retired) > len(self.listed.compaction.retired):
            self._count("swaps")
        if any(segment.cleaned for segment in self._flat_tail(flat)):
            fail("Z6", "what a takeover replays was cleaned")
        self.listed = listed
        self._flat_before = flat

    def _check_replaced(self, listed: SegmentList, flat: Sequence[Segment], now_ms: int) -> None:
        """What left the list was trimmed, or waits for its grace."""
        there = {one.ledger_id for one in flat}
        retired = {one.ledger_id for one in listed.compaction.retired}
        for segment in self._flat_before:
            is_trimmed = (segment.end_offset or 0) <= listed.log_start_offset
            if segment.ledger_id not in there | retired and not is_trimmed:
                fail("Z7", f"{segment} was replaced, and is not noted as retired")
        for one in self.listed.compaction.retired:
            waited_ms = now_ms - one.since_ms
            if one.ledger_id not in retired and waited_ms < self._plan.grace_ms:
                fail("Z7", f"{one} was let go after {waited_ms} ms")

    def _flat_tail(self, flat: Sequence[Segment]) -> Sequence[Segment]:
        """Return the last two segments, and the newest with entries and what follows it."""
        at = max(0, len(flat) - 2)
        while at and not any(one.facts and one.facts.size_bytes for one in flat[at:-1]):
            at -= 1
            if not any(one.facts and one.facts.size_bytes for one in flat[:at]):
                break
        return flat[at:] if any(not one.cleaned for one in flat) else ()

    def flat(self) -> list[Segment]:
        """Return the segments of the list as it was last looked at, those in pages included."""
        return self._flat_of(self.listed)

    def _flat_of(self, listed: SegmentList) -> list[Segment]:
        found = [*listed.oldest]
        left = [*reversed(listed.pages)]
        while left:
            ref = left.pop()
            node = self._fakes.cluster.tree.get(paths.segment_page(self._path, *ref.name))
            page = decode_page(node.data, ref)
            found += page.segments
            left += reversed(page.pages)
        return [*found, *listed.segments]

    def _check_epoch(self, segment: Segment) -> None:
        assert segment.base_offset is not None
        assert segment.end_offset is not None
        for original in self._originals.values():
            base, end = original.base_offset, original.end_offset
            if base is None or end is None:
                continue
            overlaps = base < segment.end_offset and segment.base_offset < end
            if overlaps and original.leader_epoch != segment.leader_epoch:
                fail("Z6", f"{segment} has another epoch than {original}")

    def _check_age(self, ledger_id: LedgerId, now_ms: int) -> None:
        """What was just replaced may be compacted."""
        original = self._originals.get(ledger_id)
        if original is None or original.facts is None or not self._plan.lag_ms_min:
            return
        if original.facts.max_timestamp_ms > now_ms - self._plan.lag_ms_min:
            fail("Z6", f"{original} is younger than min.compaction.lag.ms")
