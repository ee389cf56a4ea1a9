"""Reading entries back from the log, on a reader thread.

A wrong byte is never an absent entry: if the index has a location and the log
has anything but that very entry there, the answer is CorruptRecord.

Entries that are asked for together and lie close together come with one read of the disk: whoever
reads a ledger of small entries would pay for opening a file and a trip to the device with each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final, NamedTuple

from bookie.errors import CorruptRecord, StorageError
from bookie.storage.core.append_log import (
    RECORD_HEADER_BYTES,
    Kind,
    Location,
    entry_body,
    file_name,
    ids_of,
    unpack_record,
)
from bookie.storage.disk import DataDirectory
from bookie.storage.index.index import EntryPlaces
from client.ids import NO_ENTRY, EntryId, LedgerId
from client.wire.bookkeeper.entry import peek_lac
from client.wire.bookkeeper.messages import Buffer

Span = list[tuple[Location, int]]
"""Places that lie close together, ascending, each with its index in what was asked for."""

Found = memoryview | StorageError | None
"""An entry, or why it cannot be read, or None: the index has no such entry."""


_GAP_BYTES_MAX: Final = 16 * 1024
"""Reading so much that nobody asked for is cheaper than another read."""

_SPAN_BYTES_MAX: Final = 256 * 1024
"""Most that one read brings of more than one entry; it stays in memory until all are sent."""


_NEIGHBOURS_MIN: Final = 4
"""Fewer entries are looked up one by one."""


class Tail(NamedTuple):
    """The end of a ledger as the log has it."""

    last_entry: EntryId
    lac: EntryId


class EntryReader:
    """Looks entries up in index and log. Every method blocks."""

    def __init__(self, files: DataDirectory, places: EntryPlaces, seed: int) -> None:
        """`seed`: of the log's checksums."""
        self._files = files
        self._places = places
        self._seed = seed

    def read_many(self, wanted: list[tuple[LedgerId, EntryId]], bytes_max: int) -> list[Found]:
        """Return what was found for each of `wanted`, in order. Raises nothing.

        Fewer than were wanted if more than one entry would have more than `bytes_max`: the caller
        asks for the rest again.
        """
        found: list[Found] = []
        located: list[tuple[Location, int]] = []
        neighbours = self._neighbours(wanted)
        for at, ids in enumerate(wanted):
            try:
                location = neighbours.get(ids[1]) or self._places.location(*ids)
            except StorageError as error:
                found.append(error)
                continue
            if location is not None:
                bytes_max -= location.size
                if located and bytes_max < 0:
                    break
                located.append((location, at))
            found.append(None)
        self._read_located(located, wanted, found)
        return found

    def read_run(
        self, ledger_id: LedgerId, first: EntryId, count_max: int, bytes_max: int
    ) -> list[memoryview]:
        """Return entries that follow each other from `first` on; none: the index lacks that one.

        See `EntryPlaces.run` for the limits. A later entry that cannot be read ends the run. Raises
        CorruptRecord, CorruptIndex if the first one cannot.
        """
        try:
            places = self._places.run(ledger_id, first, count_max, bytes_max)
        except StorageError:
            places = []  # perhaps it is a later entry that the damage is about
        if not places:
            entry = self.read(ledger_id, first)
            return [] if entry is None else [entry]
        wanted = [(ledger_id, EntryId(first + at)) for at in range(len(places))]
        found: list[Found] = [None] * len(places)
        located = list(zip(places, range(len(places)), strict=True))
        self._read_located(located, wanted, found)
        if isinstance(found[0], StorageError):
            raise found[0]
        return list(_until_another(found))

    def _read_located(
        self,
        located: list[tuple[Location, int]],
        wanted: list[tuple[LedgerId, EntryId]],
        found: list[Found],
    ) -> None:
        """Put what is at each place into `found`; a place is with its index in `wanted`."""
        for number, spans in groupby(_spans(sorted(located)), _file_of):
            self._read_spans(number, list(spans), wanted, found)

    def _neighbours(self, wanted: list[tuple[LedgerId, EntryId]]) -> dict[EntryId, Location]:
        """Return places of entries that follow each other in one ledger, as readers ask for
        them; nothing for others, or if the index is damaged: one by one tells where."""
        if len(wanted) < _NEIGHBOURS_MIN:
            return {}
        ledger_id, first = wanted[0]
        if any(ids != (ledger_id, first + at) for at, ids in enumerate(wanted)):
            return {}
        try:
            return self._places.locations(ledger_id, first, wanted[-1][1])
        except StorageError:
            return {}

    def _read_spans(
        self,
        number: int,
        spans: list[Span],
        wanted: list[tuple[LedgerId, EntryId]],
        found: list[Found],
    ) -> None:
        """Read what is in one file: each span at once, and one by one where something is wrong."""
        pieces = [(span[0][0].position, span[-1][0].end - span[0][0].position) for span in spans]
        try:
            read = self._files.read_pieces(file_name(number), pieces)
        except OSError:  # one by one tells which of them
            read = [b""] * len(spans)
        for span, piece in zip(spans, read, strict=True):
            data, begin = memoryview(piece), span[0][0].position
            for (_, position, size), at in span:
                first = position - begin
                record = data[first : first + RECORD_HEADER_BYTES + size]
                body = entry_body(record, self._seed, position, size)
                if body is not None and ids_of(body) == wanted[at]:
                    found[at] = body
                else:
                    found[at] = self._try_read(*wanted[at])

    def _try_read(self, ledger_id: LedgerId, entry_id: EntryId) -> Found:
        try:
            return self.read(ledger_id, entry_id)
        except StorageError as error:
            return error

    def read(self, ledger_id: LedgerId, entry_id: EntryId) -> memoryview | None:
        """Return an entry, None if the index has none. Raises CorruptRecord, CorruptIndex."""
        location = self._places.location(ledger_id, entry_id)
        while location is not None:
            try:
                return self._read_at(location, (ledger_id, entry_id))
            except CorruptRecord:
                # Reclaim may have moved the entry after the index was asked.
                newer = self._places.location(ledger_id, entry_id)
                if newer == location:
                    raise
                location = newer
        return None

    def _read_at(self, location: Location, ids: tuple[LedgerId, EntryId]) -> memoryview:
        number, position, size = location
        try:
            data = self._files.read(file_name(number), position, RECORD_HEADER_BYTES + size)
        except OSError as error:
            raise CorruptRecord(number, position, f"cannot read: {error}") from error
        return self._verify(data, location, ids)

    def _verify(
        self, data: Buffer, location: Location, ids: tuple[LedgerId, EntryId]
    ) -> memoryview:
        number, position, size = location
        record = unpack_record(memoryview(data), self._seed)
        if record is None:
            raise CorruptRecord(number, position, f"no valid record where entry {ids} should be")
        if (record.kind, record.position, len(record.body)) != (Kind.ENTRY, position, size):
            raise CorruptRecord(number, position, f"another record where entry {ids} should be")
        if ids_of(record.body) != ids:
            raise CorruptRecord(number, position, f"another entry where {ids} should be")
        return record.body

    def entry_ids(self, ledger_id: LedgerId) -> list[EntryId]:
        """Return the ids of all entries of a ledger, ascending. Raises CorruptIndex."""
        return self._places.entry_ids(ledger_id)

    def tail(self, ledger_id: LedgerId) -> Tail:
        """Return the last entry of a ledger and the last add confirmed it carries.

        Raises CorruptRecord, CorruptIndex.
        """
        last_entry = self._places.last_entry(ledger_id)
        if last_entry is None:
            return Tail(NO_ENTRY, NO_ENTRY)
        entry = self.read(ledger_id, last_entry)
        assert entry is not None, "the index just had it"
        return Tail(last_entry, peek_lac(entry))


def _until_another(found: Iterable[Found]) -> Iterator[memoryview]:
    """Yield entries up to the first one that was not found."""
    for entry in found:
        if not isinstance(entry, memoryview):
            return
        yield entry


def _spans(located: list[tuple[Location, int]]) -> Iterator[Span]:
    """Divide places, sorted, into runs that one read each can bring."""
    span: Span = []
    number, near, full = -1, 0, 0
    for place in located:
        file, begin, size = place[0]
        end = begin + RECORD_HEADER_BYTES + size
        if file != number or begin > near or end > full:
            if span:
                yield span
            span, number, full = [], file, begin + _SPAN_BYTES_MAX
        span.append(place)
        near = end + _GAP_BYTES_MAX
    if span:
        yield span


def _file_of(span: Span) -> int:
    return span[0][0].number
