"""The index of aborted transactions: blocks, ranges, snapshots."""

from __future__ import annotations

import pytest

from broker.partition.core.transactions.aborted_index import AbortedIndex
from client.errors import LogCorrupt
from client.ids import EntryId, Offset, ProducerId
from client.log.aborted_transactions import AbortedBlock, AbortedTransaction


def entry(first: int, last: int, pid: int = 1) -> AbortedTransaction:
    return AbortedTransaction(ProducerId(pid), Offset(first), Offset(last))


def index(count: int, block_entries: int = 2) -> AbortedIndex:
    """Return one with `count` transactions, [0, 1], [2, 3] and so on, blocks written when due."""
    made = AbortedIndex(block_entries=block_entries)
    for number in range(count):
        made.add(entry(2 * number, 2 * number + 1), Offset(2 * number + 2))
        if made.is_block_due:
            made.on_block_written(EntryId(10 * len(made.entry_ids)))
    return made


def blocks_of(made: AbortedIndex, count: int) -> list[AbortedBlock]:
    """Return the blocks that a reader of the ledger would find, by building them once more."""
    found = []
    for start in range(0, count - count % 2, 2):
        block = AbortedBlock()
        for number in (start, start + 1):
            block.append(entry(2 * number, 2 * number + 1), Offset(2 * number + 2))
        found.append(block)
    assert len(found) == len(made.entry_ids)
    return found


def test_a_block_is_due_when_enough_has_gathered() -> None:
    made = index(5)
    assert made.entry_ids == [0, 10]
    assert len(made.rest) == 1
    assert len(made) == 5


@pytest.mark.parametrize("count", range(7))
def test_a_range_finds_what_it_touches(count: int) -> None:
    made = index(count)
    every = [entry(2 * number, 2 * number + 1) for number in range(count)]
    for start in range(2 * count + 1):
        for end in range(start, 2 * count + 2):
            wanted = [e for e in every if e.last_offset >= start and e.first_offset < end]
            assert made.within(Offset(start), Offset(end)) == wanted


def test_the_rest_is_a_block_when_the_ledger_ends() -> None:
    made = index(5)
    assert made.complete(Offset(70))
    assert made.rest.stable_offset == 70
    made.on_block_written(EntryId(99))
    assert made.entry_ids == [0, 10, 99]
    assert len(made.rest) == 0
    assert made.within(Offset(9), Offset(10)) == [entry(8, 9)]


def test_a_ledger_without_news_needs_no_last_block() -> None:
    assert not index(4).complete(Offset(70))
    assert not index(0).complete(Offset(70))


def test_what_is_stable_does_not_go_back_with_a_new_block() -> None:
    made = index(2)
    assert made.rest.stable_offset == 4
    with pytest.raises(AssertionError):
        made.add(entry(6, 7), Offset(3))


@pytest.mark.parametrize("count", range(6))
def test_a_snapshot_keeps_it(count: int) -> None:
    made = index(count)
    other = index(3)
    assert bytes(other.restore(memoryview(made.encode() + b"rest"))) == b"rest"
    assert other.entry_ids == made.entry_ids
    other.on_blocks_read(blocks_of(made, count))
    assert other.within(Offset(0), Offset(99)) == made.within(Offset(0), Offset(99))
    assert other.encode() == made.encode()


def test_unread_blocks_give_no_answer() -> None:
    other = AbortedIndex()
    other.restore(memoryview(index(5).encode()))
    with pytest.raises(AssertionError, match="unread"):
        other.within(Offset(0), Offset(99))


def test_a_snapshot_stays_small() -> None:
    made = index(20_000, block_entries=1_000)
    assert len(made.encode()) < 1_000 * 24
    assert len(made) == 20_000


def test_damage_is_refused() -> None:
    data = index(5).encode()
    for size in range(len(data)):
        with pytest.raises(LogCorrupt):
            AbortedIndex().restore(memoryview(data[:size]))
    made = AbortedIndex()
    made.restore(memoryview(data))
    with pytest.raises(LogCorrupt, match="goes back"):
        made.on_blocks_read(blocks_of(made, 5)[::-1])
