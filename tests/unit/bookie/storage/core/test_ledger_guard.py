"""Master keys and fences: first key wins, a fence stays, lost records are recorded again."""

from __future__ import annotations

from bookie.storage.core.append_log import Deletion
from bookie.storage.core.ledger_guard import (
    DURABLE,
    NOT_RECORDED,
    LedgerTable,
    forget_lost_records,
    may_add,
)
from client.ids import LedgerId
from client.wire.bookkeeper.messages import Status

ONE = LedgerId(1)


def test_first_key_wins() -> None:
    table = LedgerTable()
    ledger = table.admit(ONE, b"first")
    assert ledger is not None
    assert ledger.key_group == NOT_RECORDED
    assert table.admit(ONE, b"first") is ledger
    assert table.admit(ONE, b"other") is None
    assert table.get(ONE) is ledger
    assert table.get(LedgerId(2)) is None
    assert len(table) == 1


def test_a_fence_stops_all_but_recovery() -> None:
    ledger = LedgerTable().admit(ONE, b"key")
    assert ledger is not None
    assert may_add(ledger, recovery=False) is Status.OK
    ledger.fenced = True
    assert may_add(ledger, recovery=False) is Status.FENCED
    assert may_add(ledger, recovery=True) is Status.OK
    assert repr(ledger) == "Ledger(1, fenced=True)"


def test_what_was_found_on_disk_is_durable() -> None:
    table = LedgerTable()
    ledger = table.restore(ONE, b"key", fenced=True, explicit_lac=b"packet")
    assert (ledger.key_group, ledger.fence_group) == (DURABLE, DURABLE)
    assert not ledger.is_loaded
    open_ledger = table.restore(LedgerId(2), b"key", fenced=False, explicit_lac=None)
    assert (open_ledger.fenced, open_ledger.fence_group) == (False, NOT_RECORDED)


def test_a_key_that_damage_took_is_given_by_the_next_request() -> None:
    table = LedgerTable()
    ledger = table.restore(ONE, b"", fenced=False, explicit_lac=None)
    assert ledger.key_group == NOT_RECORDED
    assert table.admit(ONE, b"key") is ledger
    assert table.admit(ONE, b"other") is None


def test_a_tombstone_makes_the_next_life_a_fenced_one() -> None:
    table = LedgerTable()
    for ledger_id, fenced in ((ONE, True), (LedgerId(2), False)):
        table.admit(ledger_id, b"key")
        table.bury(ledger_id, Deletion(fenced, 50))
    assert table.ids() == []
    assert table.is_deleted(ONE)
    assert not table.is_deleted(LedgerId(2))
    again = table.admit(ONE, b"other key")
    assert again is not None
    assert again.fenced
    assert not table.is_deleted(ONE)
    fresh = table.admit(LedgerId(2), b"other key")
    assert fresh is not None
    assert not fresh.fenced
    assert table.ids() == [1, 2]
    assert table.tombstones_before(50) == []
    assert table.tombstones_before(51) == [ONE]
    table.forget(ONE)
    assert table.tombstones_before(51) == []


def test_a_ledger_on_its_way_out_takes_nothing() -> None:
    ledger = LedgerTable().admit(ONE, b"key")
    assert ledger is not None
    ledger.is_deleted = True
    assert may_add(ledger, recovery=False) is Status.IO_ERROR
    ledger.fenced = True
    assert may_add(ledger, recovery=False) is Status.FENCED
    assert may_add(ledger, recovery=True) is Status.IO_ERROR


def test_a_lost_group_takes_its_records_but_not_the_fence() -> None:
    ledger = LedgerTable().admit(ONE, b"key")
    assert ledger is not None
    ledger.key_group, ledger.fence_group, ledger.fenced = 3, 4, True
    forget_lost_records(ledger, 4)
    assert (ledger.key_group, ledger.fence_group, ledger.fenced) == (3, NOT_RECORDED, True)
    forget_lost_records(ledger, 3)
    assert ledger.key_group == NOT_RECORDED


def test_a_plain_add_needs_no_second_look_only_where_nothing_stands_against_it() -> None:
    table = LedgerTable()
    assert table.writable(ONE, b"key") is None, "nobody knows it"
    ledger = table.admit(ONE, b"key")
    assert ledger is not None
    assert table.writable(ONE, b"key") is None, "its key is not in the log"
    ledger.key_group = DURABLE
    assert table.writable(ONE, b"key") is ledger
    assert table.writable(ONE, b"other") is None
    for flag in ("fenced", "is_deleted"):
        setattr(ledger, flag, True)
        assert table.writable(ONE, b"key") is None
        setattr(ledger, flag, False)
    assert table.writable(ONE, b"key") is ledger
    forget_lost_records(ledger, DURABLE)
    assert table.writable(ONE, b"key") is None, "its key was lost with its group"
