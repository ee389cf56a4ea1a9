"""A partition in memory, for planning: its ledgers with real entries, and what of them is known."""

from __future__ import annotations

from collections.abc import Sequence

from client.errors import NoSuchEntry, NoSuchLedger
from client.ids import BookieId, EntryId, LeaderEpoch, LedgerId, Offset
from client.ledger.core.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from client.log.entry_format import is_internal
from client.log.segments import Segment, SegmentFacts, SegmentList, decode_segments
from client.log.snapshot import IndexPoint, seal_snapshot
from client.wire.bookkeeper.entry import DigestType, Entry
from client.wire.kafka.batches.records import Record, build_batch

EPOCH = LeaderEpoch(0)
ENSEMBLE = tuple(BookieId(f"10.0.0.{number}:3181") for number in (1, 2, 3))


class FakeLedger:
    """One ledger of the partition. Add entries, then `close` it or leave it open."""

    def __init__(self, ledger_id: int, base_offset: int) -> None:
        self.ledger_id = LedgerId(ledger_id)
        self.base_offset = base_offset
        self.end_offset = base_offset
        self.entries: list[bytes] = []
        self.points: list[IndexPoint] = []
        self.confirmed = -1
        """LAC that bookies know while the ledger is open."""
        self.closed = False
        self.sealed = False
        self.gone = False

    def add_batch(self, count: int, hole: int = 0, value_bytes: int = 5) -> None:
        """Add an entry with one batch, after `hole` offsets without records."""
        base = self.end_offset + hole
        records = [
            Record(None, b"%d" % (base + index) + bytes(value_bytes)) for index in range(count)
        ]
        self.entries.append(build_batch(records, base_offset=Offset(base)))
        self.end_offset = base + count

    def add_snapshot(self) -> None:
        """Add an internal entry that lists those before it."""
        end = Offset(self.end_offset)
        self.entries.append(seal_snapshot(end, EPOCH, -1, self.points, b""))
        self.points.append(IndexPoint(end, EntryId(len(self.entries) - 1), -1))

    def close(self, *, sealed: bool = True) -> None:
        """End it; unsealed: the segment list does not know yet."""
        self.closed, self.sealed = True, sealed

    @property
    def length(self) -> int:
        return sum(map(len, self.entries))

    def metadata(self) -> LedgerMetadata:
        found = LedgerMetadata(
            ensemble_size=3,
            write_quorum=2,
            ack_quorum=2,
            fragments=(Fragment(EntryId(0), ENSEMBLE),),
            digest_type=DigestType.CRC32C,
            password=b"",
            state=LedgerState.OPEN,
        )
        return found.closed(EntryId(len(self.entries) - 1), self.length) if self.closed else found

    def segment(self) -> Segment:
        facts = SegmentFacts(Offset(self.end_offset - 1), self.length, -1) if self.sealed else None
        return Segment(self.ledger_id, Offset(self.base_offset), EPOCH, 0, facts)


class FakeLedgerSource:
    """Implements `client.spark.plan.ledger_splits.LedgerSource` for one partition."""

    def __init__(self, ledgers: Sequence[FakeLedger]) -> None:
        self.ledgers = {ledger.ledger_id: ledger for ledger in ledgers}
        self.looks = 0
        """Entries that were read."""
        self.rolling = False
        """Whether the last ledger is listed without its base offset."""

    async def segments(
        self, topic_id: str, partition: int, start: int, end: int
    ) -> Sequence[Segment]:
        segments = [ledger.segment() for ledger in self.ledgers.values()]
        if self.rolling:
            segments[-1] = segments[-1]._replace(base_offset=None)
        listed = SegmentList(EPOCH, Offset(segments[0].base_offset or 0), tuple(segments))
        return decode_segments(listed.encode()).segments

    async def describe(self, ledger_id: LedgerId) -> LedgerMetadata:
        if self.ledgers[ledger_id].gone:
            raise NoSuchLedger(str(ledger_id))
        return self.ledgers[ledger_id].metadata()

    async def last_confirmed(self, ledger_id: LedgerId, metadata: LedgerMetadata) -> EntryId:
        assert not metadata.is_closed
        return EntryId(self.ledgers[ledger_id].confirmed)

    async def entry(self, ledger_id: LedgerId, metadata: LedgerMetadata, entry_id: int) -> Entry:
        self.looks += 1
        ledger = self.ledgers[ledger_id]
        assert ledger.closed or entry_id <= ledger.confirmed, "an entry beyond the LAC was read"
        if not 0 <= entry_id < len(ledger.entries):
            raise NoSuchEntry(f"{entry_id} of {len(ledger.entries)}")
        length = sum(map(len, ledger.entries[: entry_id + 1]))
        payload = memoryview(ledger.entries[entry_id])
        return Entry(ledger_id, EntryId(entry_id), EntryId(entry_id - 1), length, payload)

    def batches(self, ledger_id: int, first_entry: int, last_entry: int) -> list[bytes]:
        """Return the record batches of some entries."""
        found = self.ledgers[LedgerId(ledger_id)].entries[first_entry : last_entry + 1]
        return [payload for payload in found if not is_internal(payload)]

    def log(self) -> list[bytes]:
        """Return every record batch."""
        return [
            payload
            for ledger in self.ledgers.values()
            for payload in ledger.entries
            if not is_internal(payload)
        ]
