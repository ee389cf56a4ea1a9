"""One contract for LevelDB and for the fakes; then what only LevelDB can do wrong."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bookie.errors import CorruptIndex
from bookie.storage.core.append_log import Deletion, Location, LogPosition
from bookie.storage.core.ledger_guard import LedgerTable
from bookie.storage.index import level_db
from bookie.storage.index.index import Index, LedgerRecord, Tally, record_of
from bookie.storage.index.level_db import LevelDb
from client.ids import EntryId, LedgerId
from tests.fakes.key_values import Contents, MemoryKeyValues
from tests.simulation.machine.index import LevelStore, SimIndex
from tests.simulation.machine.volume import Volume

BIG = LedgerId(2**62)
END = LogPosition(3, 4000)


def level(path: Path, wipe: bool = False) -> Index:
    return Index(LevelDb(path, wipe=wipe, write_buffer_bytes=1 << 16, block_cache_bytes=1 << 16))


Reopen = Callable[[bool], Index]


@pytest.fixture(params=["level", "simulated", "memory"])
def reopen(request, tmp_path: Path) -> Iterator[Reopen]:
    """Close the open index, if any, and open it again."""
    opened: list[Index] = []
    contents = Contents(random.Random(1))
    store = LevelStore(random.Random(1), Volume(random.Random(1)), write_buffer_bytes=300)

    def open_again(wipe: bool = False) -> Index:
        while opened:
            opened.pop().close()
        if request.param == "level":
            opened.append(level(tmp_path / "index", wipe))
        elif request.param == "simulated":
            opened.append(SimIndex(store, wipe=wipe))
        else:
            opened.append(Index(MemoryKeyValues(contents, wipe=wipe)))
        return opened[0]

    yield open_again
    while opened:
        opened.pop().close()


def entry(ledger: int, entry_id: int, position: int) -> tuple[LedgerId, EntryId, Location]:
    return LedgerId(ledger), EntryId(entry_id), Location(1, position, 10)


def test_empty(reopen: Reopen) -> None:
    index = reopen(False)
    assert index.places.location(LedgerId(1), EntryId(0)) is None
    assert index.places.last_entry(LedgerId(1)) is None
    assert index.places.entry_ids(LedgerId(1)) == []
    assert list(index.ledgers()) == []
    assert index.end() is None


def test_entries_by_ledger_and_in_order(reopen: Reopen) -> None:
    index = reopen(False)
    index.write([entry(1, 300, 1), entry(1, 2, 2), entry(2, 0, 3), entry(BIG, 2**62, 4)], [], END)
    for again in (False, True):
        assert index.places.location(LedgerId(1), EntryId(300)) == (1, 1, 10)
        assert index.places.location(LedgerId(1), EntryId(1)) is None
        assert index.places.entry_ids(LedgerId(1)) == [2, 300]
        assert index.places.last_entry(LedgerId(1)) == 300
        assert index.places.last_entry(LedgerId(2)) == 0
        assert index.places.last_entry(LedgerId(3)) is None
        assert index.places.last_entry(BIG) == 2**62
        assert index.end() == END
        index.flush()
        if not again:
            index = reopen(False)


@pytest.mark.parametrize("ids", [[0], [5], [2**63 - 1], [0, 2**63 - 1]])
def test_last_entry_in_every_neighbourhood(reopen: Reopen, ids: list[int]) -> None:
    for neighbours in ([], [1], [3], [1, 3]):
        index = reopen(True)
        index.write([entry(2, n, 1) for n in ids], [], END)
        index.write([entry(ledger, 9, 1) for ledger in neighbours], [], END)
        assert index.places.last_entry(LedgerId(2)) == ids[-1]
        assert index.places.entry_ids(LedgerId(2)) == ids
        assert index.places.last_entry(LedgerId(4)) is None
        assert index.places.last_entry(LedgerId(0)) is None


def test_a_run_ends_where_an_entry_or_room_is_missing(reopen: Reopen) -> None:
    index = reopen(False)
    index.write([entry(1, n, 100 * n) for n in (2, 3, 4, 6)], [], END)
    index.write([entry(2, 5, 900)], [], END)

    def run(first: int, count_max: int = 100, bytes_max: int = 1000) -> list[int]:
        found = index.places.run(LedgerId(1), EntryId(first), count_max, bytes_max)
        return [location.position for location in found]

    assert run(2) == [200, 300, 400]
    assert run(6) == [600], "the next ledger's entry does not follow it"
    assert run(1) == run(5) == run(7) == []
    assert run(2, count_max=2) == [200, 300]
    assert run(2, bytes_max=29) == [200, 300]
    assert run(2, bytes_max=30) == [200, 300, 400]
    assert run(2, bytes_max=-5) == [200], "the first one comes whatever its size"


def test_the_last_write_wins(reopen: Reopen) -> None:
    index = reopen(False)
    first, second = LedgerRecord(b"k", False, None), LedgerRecord(b"k", True, b"packet")
    index.write([entry(1, 0, 1), entry(1, 0, 2)], [(LedgerId(1), first)], END)
    assert index.places.location(LedgerId(1), EntryId(0)) == (1, 2, 10)
    index.write([entry(1, 0, 3)], [(LedgerId(1), first), (LedgerId(1), second)], END)
    assert index.places.location(LedgerId(1), EntryId(0)) == (1, 3, 10)
    assert list(index.ledgers()) == [(1, second)]


def test_ledgers(reopen: Reopen) -> None:
    records = [
        (LedgerId(1), LedgerRecord(b"key", False, None)),
        (LedgerId(2), LedgerRecord(b"", True, None)),
        (LedgerId(300), LedgerRecord(bytes(255), True, b"lac packet")),
    ]
    reopen(False).write([], list(reversed(records)), END)
    assert list(reopen(False).ledgers()) == records


def test_one_ledger(reopen: Reopen) -> None:
    index = reopen(False)
    assert index.ledger(LedgerId(1)) is None
    record = LedgerRecord(b"key", True, b"packet")
    index.write([], [(LedgerId(1), record)], END)
    assert index.ledger(LedgerId(1)) == record
    assert index.ledger(LedgerId(2)) is None


def test_places_are_all_entries(reopen: Reopen) -> None:
    index = reopen(False)
    entries = [entry(1, 2, 5), entry(1, 300, 6), entry(BIG, 0, 7)]
    index.write(list(reversed(entries)), [(LedgerId(9), LedgerRecord(b"k", False, None))], END)
    assert list(index.places.all()) == entries


def test_a_deletion_takes_the_ledger_at_once_and_its_entries_by_and_by(reopen: Reopen) -> None:
    index = reopen(False)
    one, two = LedgerId(1), LedgerId(2)
    record, gone = LedgerRecord(b"k", True, None), Deletion(True, 1_700_000_000_000)
    index.write([entry(1, n, n) for n in range(5)], [(one, record), (two, record)], END)
    index.write([entry(2, 0, 9)], [(one, record)], END, deletions=[(one, gone)])
    assert [ledger_id for ledger_id, _ in index.ledgers()] == [two]
    assert list(index.deletions()) == [(one, gone, False)]
    assert index.clear_entries(one, 2)
    assert index.places.entry_ids(one) == [2, 3, 4]
    index = reopen(False)
    assert index.clear_entries(one, 2)
    assert not index.clear_entries(one, 2)
    assert not index.clear_entries(one, 2)
    assert index.places.entry_ids(one) == []
    assert index.places.entry_ids(two) == [0]
    index.settle_deletion(one, gone)
    assert list(index.deletions()) == [(one, gone, True)]
    index.settle_deletion(one, None)
    assert list(index.deletions()) == []


def test_only_what_is_still_in_the_old_files_moves(reopen: Reopen) -> None:
    index = reopen(False)
    ledger = LedgerId(1)
    old = [(ledger, EntryId(n), Location(3 + n, 50, 10)) for n in range(3)]
    index.write(old, [], END)
    new = [(ledger, EntryId(n), Location(2**31, 64, 10)) for n in range(4)]
    assert index.move(new, {3, 4}) == 2
    assert [index.places.location(ledger, EntryId(n)) for n in range(4)] == [
        (2**31, 64, 10), (2**31, 64, 10), (5, 50, 10), None
    ]  # fmt: skip
    assert index.end() == END


def test_tallies(reopen: Reopen) -> None:
    index = reopen(False)
    assert index.tally(1) is None
    tally = Tally()
    tally.add(LedgerId(7), 100)
    index.set_tallies([(1, tally), (2**31, tally)])
    for number in (1, 2**31):
        found = index.tally(number)
        assert found is not None
        assert found.ledgers == {7: 100}
    index.set_tallies([(1, None)])
    assert index.tally(1) is None
    assert index.tally(2**31) is not None


def test_wipe_begins_with_nothing(reopen: Reopen) -> None:
    reopen(False).write([entry(1, 0, 1)], [], END)
    index = reopen(True)
    assert index.end() is None
    assert index.places.location(LedgerId(1), EntryId(0)) is None


def test_record_of_a_ledger() -> None:
    ledger = LedgerTable().restore(LedgerId(1), b"key", fenced=True, explicit_lac=b"p")
    assert record_of(ledger) == LedgerRecord(b"key", True, b"p")


def test_a_flush_is_all_that_a_power_loss_leaves(tmp_path: Path) -> None:
    """A copy of the files as they were synced has everything from before the flush."""
    index = level(tmp_path / "index")
    for n in range(100):
        index.write([entry(1, n, n)], [], END)
    index.flush()
    (log,) = (tmp_path / "index").glob("*.log")
    synced = log.stat().st_size
    index.write([entry(1, 100, 100)], [], END)
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in (tmp_path / "index").iterdir():
        if file.name != "LOCK":
            data = file.read_bytes()
            (copy / file.name).write_bytes(data[:synced] if file == log else data)
    index.close()
    crashed = level(copy)
    assert crashed.places.entry_ids(LedgerId(1)) == list(range(100))
    crashed.close()


def test_a_flush_syncs_every_log_and_writes_no_table(tmp_path: Path, monkeypatch) -> None:
    """Nobody synced the older of two logs: LevelDB may need it still."""
    store = LevelDb(tmp_path, wipe=False, write_buffer_bytes=1 << 16, block_cache_bytes=1 << 16)
    (tmp_path / "000001.log").touch()
    (newest,) = set(tmp_path.glob("*.log")) - {tmp_path / "000001.log"}
    synced: list[str] = []
    monkeypatch.setattr(store._files, "sync", synced.append)
    store.flush()
    assert synced == ["000001.log", newest.name]
    assert not list(tmp_path.glob("*.ldb"))
    store.close()


def test_a_log_without_its_end_is_noticed_when_it_is_opened(tmp_path: Path) -> None:
    """LevelDB itself takes a record that seems longer than its file for one being written."""
    index = level(tmp_path)
    index.write([entry(1, 0, 0)], [], END)
    index.flush()
    (log,) = tmp_path.glob("*.log")
    first = log.stat().st_size
    index.clear_entries(LedgerId(1), 10)
    index.flush()
    index.close()
    data = bytearray(log.read_bytes())
    data[first + 5] ^= 0x40  # the high byte of the length of the first record behind
    log.write_bytes(data)
    with pytest.raises(CorruptIndex, match="has 1 flushes of 2"):
        level(tmp_path)
    (tmp_path / level_db.FLUSHES).unlink()
    index = level(tmp_path)
    assert index.places.entry_ids(LedgerId(1)) == [0], "and it would have been back"
    index.close()


def test_a_count_of_flushes_that_cannot_be_read_is_damage(tmp_path: Path) -> None:
    index = level(tmp_path)
    index.flush()
    index.close()
    (tmp_path / level_db.FLUSHES).write_bytes(b"?")
    for _ in range(2):  # the second one finds it closed
        with pytest.raises(CorruptIndex, match="cannot read"):
            level(tmp_path)
    level(tmp_path, wipe=True).close()
    level(tmp_path).close()


def test_a_second_opener_and_a_foreign_path_are_corrupt(tmp_path: Path) -> None:
    index = level(tmp_path / "index")
    with pytest.raises(CorruptIndex):
        level(tmp_path / "index")
    index.close()
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(CorruptIndex):
        level(tmp_path / "file")


def test_damage_in_its_own_files_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "index"
    index = level(path)
    for n in range(2000):
        index.write([entry(1, n, n)], [(LedgerId(n), LedgerRecord(b"key", False, None))], END)
    index.close()
    level(path).close()  # what was in the log becomes tables
    for table in path.glob("*.ldb"):
        data = bytearray(table.read_bytes())
        for position in range(0, len(data) // 2, 50):
            data[position] ^= 0xFF
        table.write_bytes(data)
    index = level(path)
    with pytest.raises(CorruptIndex):
        index.places.location(LedgerId(1), EntryId(1000))
    with pytest.raises(CorruptIndex):
        list(index.ledgers())
    with pytest.raises(CorruptIndex):
        index.places.entry_ids(LedgerId(1))
    with pytest.raises(CorruptIndex):
        index.places.last_entry(LedgerId(1))
    index.close()


def test_an_index_that_was_found_damaged_does_not_open_again(tmp_path: Path) -> None:
    path = tmp_path / "index"
    index = level(path)
    for n in range(2000):
        index.write([entry(1, n, n)], [], END)
    index.close()
    level(path).close()  # what was in the log becomes tables
    for table in path.glob("*.ldb"):
        data = bytearray(table.read_bytes())
        data[10] ^= 0xFF
        table.write_bytes(data)
    index = level(path)
    with pytest.raises(CorruptIndex):
        index.places.entry_ids(LedgerId(1))
    index.close()
    with pytest.raises(CorruptIndex, match="found damaged"):
        level(path)
    level(path, wipe=True).close()
    level(path).close()


def test_damage_in_its_log_is_noticed_when_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "index"
    index = level(path)
    for n in range(100):
        index.write([entry(1, n, n)], [], END)
    index.close()
    [log] = path.glob("*.log")
    data = bytearray(log.read_bytes())
    data[1000] ^= 0xFF
    log.write_bytes(data)
    with pytest.raises(CorruptIndex):
        level(path)
    level(path, wipe=True).close()


def test_values_of_the_wrong_size_are_corrupt(tmp_path: Path, monkeypatch) -> None:
    index = level(tmp_path / "index")
    monkeypatch.setattr(index._store, "get", lambda key: b"?")
    with pytest.raises(CorruptIndex, match="1 bytes"):
        index.ledger(LedgerId(0))
    with pytest.raises(CorruptIndex, match="tally"):
        index.tally(1)
    index.close()


def test_a_location_of_the_wrong_size_is_corrupt(tmp_path: Path, monkeypatch) -> None:
    index = level(tmp_path / "index")
    monkeypatch.setattr(index._store, "get", lambda key: b"short")
    with pytest.raises(CorruptIndex, match="5 bytes"):
        index.places.location(LedgerId(1), EntryId(0))
    index.close()
