"""The entry cache: nothing leaves before it is indexed, then the oldest goes first."""

from __future__ import annotations

import gc
import sys

from bookie.storage.core.append_log import Location, LogPosition
from bookie.storage.core.entry_cache import EntryCache
from client.ids import EntryId, LedgerId

L = LedgerId(1)


def at(position: int, number: int = 1) -> Location:
    return Location(number, position, 10)


def filled(bytes_max: int, count: int = 4) -> EntryCache:
    cache = EntryCache(bytes_max, LogPosition(1, 0), overhead_bytes=0)
    for n in range(count):
        cache.put(L, EntryId(n), at(n * 100), b"0123456789")
    return cache


def test_unindexed_entries_stay_whatever_the_limit() -> None:
    cache = filled(0)
    assert len(cache) == 4
    assert cache.entry_bytes == 40
    cache.indexed_to(LogPosition(1, 200))
    assert cache.entry_ids(L) == [2, 3]
    cache.indexed_to(LogPosition(2, 0))
    assert len(cache) == cache.entry_bytes == 0


def test_indexed_entries_stay_while_there_is_room() -> None:
    cache = filled(25)
    cache.indexed_to(LogPosition(1, 400))
    assert cache.entry_ids(L) == [2, 3]
    cache.put(L, EntryId(9), at(500), b"01234")
    assert cache.entry_ids(L) == [2, 3, 9]
    cache.put(L, EntryId(10), at(600), b"0")
    assert cache.entry_ids(L) == [3, 9, 10]
    assert cache.get(L, EntryId(9)) == b"01234"
    assert cache.get(L, EntryId(2)) is None
    assert cache.entry_ids(LedgerId(2)) == []


def test_a_newer_copy_replaces_and_renews() -> None:
    cache = filled(0, count=2)
    cache.indexed_to(LogPosition(1, 0))
    cache.put(L, EntryId(0), at(300), b"new")
    assert cache.get(L, EntryId(0)) == b"new"
    cache.indexed_to(LogPosition(1, 300))
    assert cache.get(L, EntryId(0)) == b"new"
    assert cache.get(L, EntryId(1)) is None
    cache.indexed_to(LogPosition(1, 400))
    assert len(cache) == cache.entry_bytes == 0


def test_an_indexed_copy_is_not_kept_below_a_newer_one() -> None:
    cache = filled(1 << 20, count=2)
    cache.indexed_to(LogPosition(1, 100))
    cache.put(L, EntryId(0), at(300), b"new")
    cache.put(L, EntryId(1), at(400), b"new")
    assert cache.entry_bytes == 3 + 3 + 10
    cache.forget_ledgers({L})
    assert cache.entry_bytes == 0


def test_the_entries_of_ledgers_that_are_gone_are_forgotten() -> None:
    cache = EntryCache(1 << 20, LogPosition(1, 64), overhead_bytes=0)
    for ledger in (1, 2, 3):
        cache.put(LedgerId(ledger), EntryId(0), Location(1, ledger, 5), b"entry")
    cache.forget_ledgers({LedgerId(1), LedgerId(3), LedgerId(9)})
    assert len(cache) == 1
    assert cache.entry_bytes == 5
    assert cache.get(LedgerId(2), EntryId(0)) == b"entry"


def test_lost_entries_are_dropped() -> None:
    cache = EntryCache(0, LogPosition(1, 0), overhead_bytes=0)
    kept, lost = at(100), at(200)
    cache.put(L, EntryId(0), kept, b"kept")
    cache.put(L, EntryId(1), lost, b"lost")
    cache.drop_lost([(L, EntryId(0), lost), (L, EntryId(1), lost), (L, EntryId(2), lost)])
    assert cache.entry_ids(L) == [0]
    assert cache.entry_bytes == 4


def test_what_lost_copies_stood_for_is_there_again() -> None:
    cache = EntryCache(0, LogPosition(1, 0), overhead_bytes=0)
    places = [at(n * 100) for n in range(4)]
    for n, place in enumerate(places):
        cache.put(L, EntryId(0), place, b"%d" % n)
    assert cache.get(L, EntryId(0)) == b"3"
    cache.drop_lost([(L, EntryId(0), places[2]), (L, EntryId(0), places[3])])
    assert cache.get(L, EntryId(0)) == b"1"
    cache.drop_lost([(L, EntryId(0), places[1])])
    assert cache.get(L, EntryId(0)) == b"0"
    assert cache.entry_bytes == 1
    cache.indexed_to(LogPosition(1, 100))
    assert len(cache) == cache.entry_bytes == 0


def test_small_entries_count_for_what_they_take() -> None:
    cache = EntryCache(1000, LogPosition(1, 1000), overhead_bytes=240)
    for n in range(10):
        cache.put(L, EntryId(n), at(n * 10), b"0123456789")
    assert cache.entry_ids(L) == [6, 7, 8, 9]
    assert cache.entry_bytes == 40


def test_small_entries_are_nothing_for_the_collector_of_cycles() -> None:
    cache = EntryCache(1 << 20, LogPosition(1, 0), overhead_bytes=0)
    frame = memoryview(bytearray(100_000))
    for n in range(1_000):
        cache.put(L, EntryId(n), at(n * 100), frame[n : n + 60])
    gc.collect(0)
    kept = [each for pair in cache._entries.items() for each in pair]
    assert len(kept) == 2_000
    assert not any(gc.is_tracked(each) for each in kept)
    assert sys.getrefcount(frame) == 2, "no entry keeps the whole frame"


def test_large_entries_are_not_copied() -> None:
    cache = EntryCache(1 << 20, LogPosition(1, 0), overhead_bytes=0)
    entry = memoryview(bytearray(5_000))
    cache.put(L, EntryId(0), at(0), entry)
    assert cache.get(L, EntryId(0)) is entry


def test_who_looks_elsewhere_hears_of_what_has_left_since() -> None:
    cache = EntryCache(0, LogPosition(1, 0))
    ids = LedgerId(7), EntryId(1)
    early = cache.look_for(*ids)
    cache.put(*ids, Location(1, 0, 5), b"entry")
    late = cache.look_for(*ids)
    cache.indexed_to(LogPosition(1, 5))
    last = cache.look_for(*ids)
    assert cache.get(*ids) is None
    assert [cache.stop_looking(*ids, since) for since in (early, late, last)] == [True, True, False]
    assert not cache.stop_looking(*ids, cache.look_for(*ids)), "it left before that"
