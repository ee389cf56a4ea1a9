"""`python -m ops.bench.micro.transaction_memory [ABORTED]`: what transactions keep in a broker.

Open ones of two partitions; one that stays open while others begin and end behind it; and aborted
ones of the ledger that is written, with the index that a snapshot holds, and how long it takes to
say what is aborted in a read of 1,000 offsets, at the ledger's beginning, its middle and its end.
Bytes are those that Python's allocator was asked for.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from typing import Final

import click

from broker.partition.core.open_transactions import (
    OpenTransactions,
    SegmentTransactions,
)
from client.ids import EntryId, Offset, ProducerId
from client.log.aborted_transactions import AbortedTransaction
from client.wire.kafka.batches.control_batch import Marker
from client.wire.kafka.batches.records import BatchHeader, Record, build_batch, parse_header

_OPEN: Final = 10_000
_PARTITIONS: Final = 2
_BEHIND: Final = 100_000
_ABORTED: Final = 1_000_000
_BLOCK: Final = 1_000
_READ: Final = 1_000
"""Offsets of one read."""
_LOOKUPS: Final = 200
_FIRST: Final = 1_000_000_000
"""Offsets and ids that are objects of their own, as they are in a log of some age."""
_NOW_MS: Final = 1_800_000_000_000


def main() -> None:
    """Measure, and print."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else _ABORTED
    headers = [_header(_FIRST + number) for number in range(_OPEN)]
    tracemalloc.start()
    began = _traced()
    partitions = [OpenTransactions() for _ in range(_PARTITIONS)]
    for number, header in enumerate(headers):
        open_ones = partitions[number % _PARTITIONS]
        open_ones.on_batch(header, Offset(_FIRST + number), _NOW_MS + number)
    each = (_traced() - began) / _OPEN
    click.echo(f"{_OPEN:,} open in {_PARTITIONS} partitions: {each:.0f} B each")
    click.echo(f"  in a snapshot  {len(partitions[0].encode()) * _PARTITIONS / _OPEN:.0f} B each")
    click.echo(f"one open while {_BEHIND:,} end behind it: {_behind(headers[0], headers[1])} B")
    began = _traced()
    ledger = _aborted(count)
    click.echo(f"{count:,} aborted in one ledger: {(_traced() - began) / count:.1f} B each")
    click.echo(f"  index in a snapshot  {len(ledger.aborted.encode()):,} B")
    tracemalloc.stop()
    for what, at in (("begins", 0), ("is half over", count // 2), ("ends", count - _READ // 3)):
        click.echo(f"  looked up where it {what}  {_lookup_us(ledger, _FIRST + 3 * at):.0f} us")


def _traced() -> int:
    return tracemalloc.get_traced_memory()[0]


def _header(producer_id: int) -> BatchHeader:
    batch = build_batch(
        [Record(None, b"x", 0)],
        producer_id=ProducerId(producer_id),
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    return parse_header(batch)


def _behind(first: BatchHeader, next_one: BatchHeader) -> int:
    """Return what is kept more when this many have begun and ended behind an open one."""
    state = OpenTransactions()
    state.on_batch(first, Offset(_FIRST), _NOW_MS)
    marker = Marker(next_one.producer_id, 0, True, 0)
    began = _traced()
    for at in range(_FIRST + 1, _FIRST + 1 + 2 * _BEHIND, 2):
        state.on_batch(next_one, Offset(at), _NOW_MS)
        state.on_marker(marker, Offset(at + 1))
        state.on_confirmed(Offset(at + 2))
    return _traced() - began


def _aborted(count: int) -> SegmentTransactions:
    ledger = SegmentTransactions(_BLOCK)
    for at in range(_FIRST, _FIRST + 3 * count, 3):
        entry = AbortedTransaction(ProducerId(at % _OPEN), Offset(at), Offset(at + 2))
        ledger.on_aborted(entry, Offset(at + 3))
        if ledger.is_block_due:
            ledger.on_block_written(EntryId(at))
    return ledger


def _lookup_us(ledger: SegmentTransactions, start: int) -> float:
    """Return how long one lookup takes, the fastest of some."""
    fastest = float("inf")
    for _ in range(_LOOKUPS):
        began = time.perf_counter()
        ledger.within(Offset(start), Offset(start + _READ))
        fastest = min(fastest, time.perf_counter() - began)
    return fastest * 1e6


if __name__ == "__main__":
    main()
