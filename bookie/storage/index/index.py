"""The index: from (ledger, entry) to a place in the log, and what is known of each ledger.

The index is a cache of the log, rebuilt from it when it is lost. Its writes are not synced: a
start replays the log from the last checkpoint, and a checkpoint is taken only after `flush`.
Covers its keys and values; what keeps them is a `KeyValues` (LevelDB in production, a simulated
one in the simulator):

    "d" ledger 8           ->  a deleted ledger: fenced 1 · cleared 1 · milliseconds 8
    "e" ledger 8 entry 8   ->  file number 4 · position 4 · size 4
    "l" ledger 8           ->  fenced 1 · key length 1 · master key · explicit LAC packet
    "t" file number 4      ->  tally of that log file, see below
    "z"                    ->  file number 4 · position 4: the index reflects the log up to here

A tally says how much of each ledger a log file holds, and so which files are worth keeping. It is
counted as records reach the index and kept in the index beside them, so that nobody has
to read a log file to learn that all of its ledgers are gone. It counts what was written, not what
lives: an entry that was written twice counts twice, so a file never seems emptier than it is. What
an older start did not count is counted as alive. Its bytes:

    end 4 · newest deletion, milliseconds 8 · bytes of deletions 4 · (ledger 8 · bytes 8) ...

`end` is the position in the file up to which records are counted: a replay that starts before
it must not count them again.

Reader threads look entries up by an `EntryPlaces`, which only reads.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple, Protocol

from bookie.errors import CorruptIndex
from bookie.storage.core.append_log import (
    FILE_HEADER_BYTES,
    RECORD_HEADER_BYTES,
    Deletion,
    Location,
    LogPosition,
)
from bookie.storage.core.ledger_guard import Ledger
from client.fast_tuple import new_tuple
from client.ids import EntryId, LedgerId


class Batch(Protocol):
    """Changes that happen together or not at all; of two for one key the later one holds."""

    def put(self, key: bytes, value: bytes) -> None:
        """Set a key."""
        ...

    def delete(self, key: bytes) -> None:
        """Remove a key, if it is there."""
        ...

    def write(self) -> None:
        """Apply the changes. Raises CorruptIndex, or DiskFull: nothing was applied."""
        ...


class KeyValues(Protocol):
    """An ordered store of keys and values that survives the process.

    After a power loss the newest writes may be missing, unless `flush` followed them. All
    methods raise CorruptIndex when the store is damaged. Batches and flushes raise DiskFull when
    there is no room; reads may, until there is some again, for they cannot say what is there.
    """

    def get(self, key: bytes) -> bytes | None:
        """Return a value, None if the key is absent."""
        ...

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values, ascending, from `start` to before `stop`."""
        ...

    def keys(self, start: bytes, stop: bytes) -> Iterator[bytes]:
        """Yield keys alone."""
        ...

    def last_key(self, start: bytes, stop: bytes) -> bytes | None:
        """Return the highest key from `start` to before `stop`, None if there is none."""
        ...

    def batch(self) -> Batch:
        """Begin a batch. Raises DiskFull."""
        ...

    def flush(self) -> None:
        """Return when everything written so far survives a power loss."""
        ...

    def memory_bytes(self) -> int:
        """Return about how much memory its buffers and caches take; any thread may ask."""
        ...

    def close(self) -> None:
        """Release the store."""
        ...


UNCOUNTED: Final = LedgerId(-1)
"""Stands for records that nobody counted: they count as alive."""

_HEAD: Final = struct.Struct(">IqI")
_SHARE: Final = struct.Struct(">qq")
_DELETE_RECORD_BYTES: Final = RECORD_HEADER_BYTES + 17


class Tally:
    """Bytes of records per ledger in one log file."""

    __slots__ = ("deletion_bytes", "end", "ledgers", "newest_deletion_ms")

    def __init__(self) -> None:
        self.end = 0
        """Records that begin before this position are counted."""
        self.newest_deletion_ms = 0
        """When the youngest deletion recorded in the file happened; 0 for none."""
        self.deletion_bytes = 0
        """Records of deletions."""
        self.ledgers: dict[LedgerId, int] = {}
        """Records of everything else."""

    def add(self, ledger_id: LedgerId, size: int) -> None:
        """Count `size` bytes of a ledger's records."""
        self.ledgers[ledger_id] = self.ledgers.get(ledger_id, 0) + size

    def add_deletion(self, time_ms: int) -> None:
        """Count the record of a deletion."""
        self.deletion_bytes += _DELETE_RECORD_BYTES
        self.newest_deletion_ms = max(self.newest_deletion_ms, time_ms)

    def assume_counted(self, position: int) -> None:
        """Records up to `position` are not going to be counted any more."""
        if self.end < position and position > FILE_HEADER_BYTES:
            self.add(UNCOUNTED, position - self.end)
            self.end = position

    def live_bytes(self, exists: Callable[[LedgerId], bool], remember_ms: int) -> int:
        """Return an upper bound of what lives.

        That is what belongs to ledgers that exist, and deletions after `remember_ms`.
        """
        living = sum(
            size
            for ledger_id, size in self.ledgers.items()
            if ledger_id == UNCOUNTED or exists(ledger_id)
        )
        return living + (self.deletion_bytes if self.newest_deletion_ms > remember_ms else 0)

    def encode(self) -> bytes:
        """Return the bytes of this tally."""
        shares = (_SHARE.pack(*share) for share in self.ledgers.items())
        head = _HEAD.pack(self.end, self.newest_deletion_ms, self.deletion_bytes)
        return head + b"".join(shares)


def decode_tally(data: bytes) -> Tally:
    """Parse what `encode` made."""
    tally = Tally()
    tally.end, tally.newest_deletion_ms, tally.deletion_bytes = _HEAD.unpack_from(data)
    for ledger_id, size in _SHARE.iter_unpack(data[_HEAD.size :]):
        tally.ledgers[LedgerId(ledger_id)] = size
    return tally


EntryPlace = tuple[LedgerId, EntryId, Location]
"""An entry and where in the log it is."""

ENTRY_TAG: Final = b"e"
ENTRY_KEY: Final = struct.Struct(">cqq")
LOCATION: Final = struct.Struct(">III")
LEDGER_KEY: Final = struct.Struct(">cq")
"""A tag and a ledger: with `ENTRY_TAG` the prefix of the ledger's entries."""
BEHIND_ENTRIES: Final = b"\xff"
"""Behind a ledger's prefix: greater than every entry id, whose first bit is zero."""


class EntryPlaces:
    """Entries by ledger and entry id. Any thread may ask.

    All methods raise CorruptIndex when the index itself is damaged.
    """

    def __init__(self, store: KeyValues) -> None:
        self._store = store

    def location(self, ledger_id: LedgerId, entry_id: EntryId) -> Location | None:
        """Return where an entry is, None if the index has none."""
        value = self._store.get(ENTRY_KEY.pack(ENTRY_TAG, ledger_id, entry_id))
        return None if value is None else _unpack_location(value)

    def locations(
        self, ledger_id: LedgerId, first: EntryId, last: EntryId
    ) -> dict[EntryId, Location]:
        """Return where the entries `first`..`last` are, as far as the index has them.

        For neighbours that costs a fraction of looking them up one by one.
        """
        start = ENTRY_KEY.pack(ENTRY_TAG, ledger_id, first)
        stop = ENTRY_KEY.pack(ENTRY_TAG, ledger_id, last) + BEHIND_ENTRIES
        try:
            return {
                EntryId(ENTRY_KEY.unpack(key)[2]): _unpack_location(value)
                for key, value in self._store.scan(start, stop)
            }
        except struct.error as error:
            raise CorruptIndex(str(error)) from error

    def run(
        self, ledger_id: LedgerId, first: EntryId, count_max: int, bytes_max: int
    ) -> list[Location]:
        """Return where the entries are that follow each other from `first` on.

        At most `count_max` of them, and no more than fit into `bytes_max`, but the first one
        whatever its size. None: the index does not have `first`.
        """
        start = ENTRY_KEY.pack(ENTRY_TAG, ledger_id, first)
        stop = LEDGER_KEY.pack(ENTRY_TAG, ledger_id) + BEHIND_ENTRIES
        found: list[Location] = []
        try:
            for following, (key, value) in enumerate(self._store.scan(start, stop), first):
                location = _unpack_location(value)
                bytes_max -= location.size
                if ENTRY_KEY.unpack(key)[2] != following or (found and bytes_max < 0):
                    break
                found.append(location)
                if len(found) == count_max:
                    break
        except struct.error as error:
            raise CorruptIndex(str(error)) from error
        return found

    def last_entry(self, ledger_id: LedgerId) -> EntryId | None:
        """Return the highest entry id of a ledger, None if there is no entry."""
        start = LEDGER_KEY.pack(ENTRY_TAG, ledger_id)
        key = self._store.last_key(start, start + BEHIND_ENTRIES)
        return None if key is None else EntryId(ENTRY_KEY.unpack(key)[2])

    def entry_ids(self, ledger_id: LedgerId) -> list[EntryId]:
        """Return all entry ids of a ledger, ascending."""
        start = LEDGER_KEY.pack(ENTRY_TAG, ledger_id)
        keys = self._store.keys(start, start + BEHIND_ENTRIES)
        try:
            return [EntryId(ENTRY_KEY.unpack(key)[2]) for key in keys]
        except struct.error as error:
            raise CorruptIndex(str(error)) from error

    def all(self) -> Iterator[EntryPlace]:
        """Yield every entry and its place, ascending."""
        for key, value in self._store.scan(ENTRY_TAG, after(ENTRY_TAG)):
            _, ledger_id, entry_id = ENTRY_KEY.unpack(key)
            yield LedgerId(ledger_id), EntryId(entry_id), _unpack_location(value)


def after(tag: bytes) -> bytes:
    """Return the first key behind all that begin with `tag`."""
    return bytes([tag[0] + 1])


def _unpack_location(value: bytes) -> Location:
    if len(value) != LOCATION.size:
        raise CorruptIndex(f"a location has {len(value)} bytes")
    return new_tuple(Location, LOCATION.unpack(value))


class LedgerRecord(NamedTuple):
    """What the index keeps about a ledger."""

    master_key: bytes
    fenced: bool
    explicit_lac: bytes | None


def record_of(ledger: Ledger) -> LedgerRecord:
    """Return what the index keeps about `ledger`."""
    return LedgerRecord(ledger.master_key, ledger.fenced, ledger.explicit_lac)


_TALLY_KEY: Final = struct.Struct(">cI")
_POSITION: Final = struct.Struct(">II")
_LEDGER: Final = struct.Struct(">?B")
_DELETED: Final = struct.Struct(">??q")
_DELETED_TAG: Final = b"d"
_LEDGER_TAG: Final = b"l"
_TALLY_TAG: Final = b"t"
_END: Final = b"z"


class Index:
    """Synchronous: called at start, or inside jobs that `disk.py` runs off the event loop.

    All methods raise CorruptIndex when the index itself is damaged. Those that change it raise
    DiskFull when they changed nothing for want of room; the others raise it when they cannot say.
    """

    def __init__(self, store: KeyValues) -> None:
        self._store = store
        self.places = EntryPlaces(store)
        """Where the entries are."""
        self.flush = store.flush
        """Return when everything written so far survives a power loss."""
        self.memory_bytes = store.memory_bytes
        """Return about how much memory the index takes; any thread may ask."""
        self.close = store.close
        """Release the index."""

    def write(
        self,
        entries: Sequence[EntryPlace],
        ledgers: Sequence[tuple[LedgerId, LedgerRecord]],
        end: LogPosition,
        *,
        deletions: Sequence[tuple[LedgerId, Deletion]] = (),
    ) -> None:
        """Apply changes in one atomic step; later items of a list win. `end`: see `end()`.

        Deletions come last: the ledgers are gone, though their entries stay until
        `clear_entries` took them.
        """
        batch = self._store.batch()
        put, entry_key, location_value = batch.put, ENTRY_KEY.pack, LOCATION.pack
        for ledger_id, entry_id, location in entries:
            put(entry_key(ENTRY_TAG, ledger_id, entry_id), location_value(*location))
        for ledger_id, record in ledgers:
            put(LEDGER_KEY.pack(_LEDGER_TAG, ledger_id), _pack_ledger(record))
        for ledger_id, deletion in deletions:
            batch.delete(LEDGER_KEY.pack(_LEDGER_TAG, ledger_id))
            put(LEDGER_KEY.pack(_DELETED_TAG, ledger_id), _pack_deleted(deletion, cleared=False))
        put(_END, _POSITION.pack(*end))
        batch.write()

    def ledger(self, ledger_id: LedgerId) -> LedgerRecord | None:
        """Return what is known of a ledger, None if there is none."""
        value = self._store.get(LEDGER_KEY.pack(_LEDGER_TAG, ledger_id))
        return None if value is None else _unpack_ledger(value)

    def ledgers(self) -> Iterator[tuple[LedgerId, LedgerRecord]]:
        """Yield every ledger, ascending."""
        for key, value in self._store.scan(_LEDGER_TAG, after(_LEDGER_TAG)):
            yield LedgerId(LEDGER_KEY.unpack(key)[1]), _unpack_ledger(value)

    def move(self, places: Sequence[EntryPlace], sources: Collection[int]) -> int:
        """Let entries be found in copies of log files; return how many were.

        An entry moves only if it is in one of the `sources` still: meanwhile it may have been
        written again, or deleted.
        """
        batch = self._store.batch()
        moved = 0
        for ledger_id, entry_id, place in places:
            known = self.places.location(ledger_id, entry_id)
            if known is not None and known.number in sources:
                batch.put(ENTRY_KEY.pack(ENTRY_TAG, ledger_id, entry_id), LOCATION.pack(*place))
                moved += 1
        batch.write()
        return moved

    def deletions(self) -> Iterator[tuple[LedgerId, Deletion, bool]]:
        """Yield the ledgers deleted and not forgotten, and whether their entries are gone."""
        for key, value in self._store.scan(_DELETED_TAG, after(_DELETED_TAG)):
            fenced, cleared, time_ms = _DELETED.unpack(value)
            yield LedgerId(LEDGER_KEY.unpack(key)[1]), Deletion(fenced, time_ms), cleared

    def clear_entries(self, ledger_id: LedgerId, count_max: int) -> bool:
        """Remove some entries of a deleted ledger; return whether there may be more."""
        start = LEDGER_KEY.pack(ENTRY_TAG, ledger_id)
        keys = list(islice(self._store.keys(start, start + BEHIND_ENTRIES), count_max))
        batch = self._store.batch()
        for key in keys:
            batch.delete(key)
        batch.write()
        return len(keys) == count_max

    def settle_deletion(self, ledger_id: LedgerId, deletion: Deletion | None) -> None:
        """The entries of a deleted ledger are gone; `deletion` is what is to be remembered."""
        batch = self._store.batch()
        key = LEDGER_KEY.pack(_DELETED_TAG, ledger_id)
        if deletion is None:
            batch.delete(key)
        else:
            batch.put(key, _pack_deleted(deletion, cleared=True))
        batch.write()

    def tally(self, number: int) -> Tally | None:
        """Return the tally of a log file, None if there is none."""
        value = self._store.get(_TALLY_KEY.pack(_TALLY_TAG, number))
        try:
            return None if value is None else decode_tally(value)
        except struct.error as error:
            raise CorruptIndex(f"tally of file {number}: {error}") from error

    def set_tallies(self, tallies: Sequence[tuple[int, Tally | None]]) -> None:
        """Replace, or remove, the tallies of log files."""
        batch = self._store.batch()
        for number, tally in tallies:
            key = _TALLY_KEY.pack(_TALLY_TAG, number)
            if tally is None:
                batch.delete(key)
            else:
                batch.put(key, tally.encode())
        batch.write()

    def end(self) -> LogPosition | None:
        """Return the end of the log that the newest write brought, None before the first.

        Writes follow syncs, so the log was durable up to here. Writes before it may be missing
        after a power loss.
        """
        value = self._store.get(_END)
        return None if value is None else LogPosition(*_POSITION.unpack(value))


IndexFactory = Callable[[bool], Index]
"""Opens the index; with True it begins empty. Raises CorruptIndex when it cannot be opened,
DiskFull when there is no room for that."""


def _pack_ledger(record: LedgerRecord) -> bytes:
    head = _LEDGER.pack(record.fenced, len(record.master_key))
    return head + record.master_key + (record.explicit_lac or b"")


def _unpack_ledger(value: bytes) -> LedgerRecord:
    if len(value) < _LEDGER.size:
        raise CorruptIndex(f"a ledger has {len(value)} bytes")
    fenced, key_size = _LEDGER.unpack_from(value)
    rest = value[_LEDGER.size :]
    return LedgerRecord(rest[:key_size], fenced, rest[key_size:] or None)


def _pack_deleted(deletion: Deletion, *, cleared: bool) -> bytes:
    return _DELETED.pack(deletion.fenced, cleared, deletion.time_ms)
