"""Counting what a log file holds: never less than what lives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bookie.storage.core.append_log import FILE_HEADER_BYTES
from bookie.storage.index.index import Tally, decode_tally
from client.ids import LedgerId

ONE, TWO = LedgerId(1), LedgerId(2**62)


def full() -> Tally:
    tally = Tally()
    tally.add(ONE, 100)
    tally.add(TWO, 10)
    tally.add(ONE, 1)
    tally.end = 500
    return tally


def test_only_ledgers_that_exist_count() -> None:
    tally = full()
    assert tally.live_bytes(lambda ledger: True, 0) == 111
    assert tally.live_bytes(lambda ledger: ledger == TWO, 0) == 10
    assert tally.live_bytes(lambda ledger: False, 0) == 0


def test_a_young_deletion_is_needed_and_an_old_one_is_not() -> None:
    tally = Tally()
    tally.add_deletion(1000)
    tally.add_deletion(500)
    assert tally.live_bytes(lambda ledger: True, 999) > 0
    assert tally.live_bytes(lambda ledger: True, 1000) == 0


def test_what_was_not_counted_lives() -> None:
    tally = Tally()
    tally.assume_counted(FILE_HEADER_BYTES)
    assert tally.live_bytes(lambda ledger: False, 0) == 0
    tally.assume_counted(300)
    assert tally.live_bytes(lambda ledger: False, 0) == 300
    full_tally = full()
    full_tally.assume_counted(500)
    assert full_tally.live_bytes(lambda ledger: False, 0) == 0
    assert decode_tally(tally.encode()).live_bytes(lambda ledger: False, 0) == 300


@given(
    st.dictionaries(st.integers(0, 2**63 - 1), st.integers(1, 2**40)),
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(1, 2**50)),
)
def test_round_trip(shares: dict[int, int], end: int, deletions: list[int]) -> None:
    tally = Tally()
    for ledger, size in shares.items():
        tally.add(LedgerId(ledger), size)
    for time_ms in deletions:
        tally.add_deletion(time_ms)
    tally.end = end
    again = decode_tally(tally.encode())
    assert again.encode() == tally.encode()
    assert again.ledgers == tally.ledgers
    assert again.live_bytes(lambda ledger: True, 0) == tally.live_bytes(lambda ledger: True, 0)
