"""What a group that found no space recorded is undone, ledger by ledger."""

from bookie.storage.core.append_log import Deletion, Location, LogPosition
from bookie.storage.core.entry_cache import EntryCache
from bookie.storage.core.group_commit import Group, forget_lost
from bookie.storage.core.ledger_guard import NOT_RECORDED, Ledger, LedgerTable
from client.ids import NO_ENTRY, EntryId, LedgerId

LOST = 7


def known(table: LedgerTable, number: int) -> Ledger:
    ledger = table.admit(LedgerId(number), b"key")
    assert ledger is not None
    return ledger


def cache() -> EntryCache:
    return EntryCache(1 << 20, LogPosition(0, 0))


def test_keys_and_fences_are_recorded_again_but_a_fence_stays() -> None:
    table, group = LedgerTable(), Group(LOST)
    ledger, elsewhere = known(table, 1), known(table, 2)
    ledger.key_group = ledger.fence_group = LOST
    ledger.fenced = True
    elsewhere.key_group = LOST - 1
    group.ledgers = [ledger, elsewhere]
    forget_lost(group, table, cache())
    assert (ledger.key_group, ledger.fence_group, ledger.fenced) == (
        NOT_RECORDED,
        NOT_RECORDED,
        True,
    )
    assert elsewhere.key_group == LOST - 1


def test_adds_that_were_answered_before_are_remembered_as_lost() -> None:
    table, group = LedgerTable(), Group(LOST)
    ledger = known(table, 1)
    group.deferred = [ledger]
    forget_lost(group, table, cache())
    assert ledger.lost_deferred


def test_a_deletion_that_is_not_durable_has_not_happened() -> None:
    table, group = LedgerTable(), Group(LOST)
    ledger = known(table, 1)
    ledger.is_deleted = True
    group.deletions = [(ledger.ledger_id, Deletion(fenced=False, time_ms=0))]
    forget_lost(group, table, cache())
    assert not ledger.is_deleted


def test_the_last_entry_is_what_is_left_and_looked_up_again() -> None:
    table, group, left = LedgerTable(), Group(LOST), cache()
    some, none = known(table, 1), known(table, 2)
    for ledger in (some, none):
        ledger.last_entry, ledger.is_loaded = EntryId(9), True
    place = Location(0, 0, 4)
    left.put(some.ledger_id, EntryId(8), place, b"kept")
    group.entries = [(ledger.ledger_id, EntryId(9), place) for ledger in (some, none)]
    forget_lost(group, table, left)
    assert (some.last_entry, some.is_loaded) == (8, False)
    assert (none.last_entry, none.is_loaded) == (NO_ENTRY, False)
