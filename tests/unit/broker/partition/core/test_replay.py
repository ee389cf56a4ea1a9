"""Replaying the end of a ledger."""

from __future__ import annotations

import pytest

from broker.partition.core.log_limits import LogLimits
from broker.partition.core.producer_state import ProducerState
from broker.partition.core.replay import LedgerReplay, LedgerTail
from client.errors import LogCorrupt
from client.ids import EntryId, LeaderEpoch, Offset, ProducerId
from client.log.aborted_transactions import AbortedBlock, seal_block
from client.log.entry_format import seal_internal
from client.log.snapshot import IndexPoint, seal_snapshot
from client.wire.kafka.batches.control_batch import build_marker
from client.wire.kafka.batches.records import Record, build_batch, parse_header
from tests.fakes.transactions import CLASSIC, marker, transactional
from tests.unit.broker.partition.core.leader_driver import new_log

EPOCH = LeaderEpoch(1)


class Ledger:
    """Entries as a leader writes them."""

    def __init__(self, base: int) -> None:
        self.entries: list[bytes] = []
        self.producers = ProducerState()
        self.end = base
        self.newest = -1
        self.points: list[IndexPoint] = []
        self.snapshot()

    def snapshot(self) -> None:
        self.entries.append(
            seal_snapshot(
                Offset(self.end), EPOCH, self.newest, self.points, self.producers.encode()
            )
        )
        entry = EntryId(len(self.entries) - 1)
        self.points.append(IndexPoint(Offset(self.end), entry, self.newest))

    def batch(self, count: int = 1, timestamp_ms: int = 10, sequence: int = -1) -> bytes:
        made = build_batch(
            [Record(None, b"x", timestamp_ms)] * count,
            base_offset=Offset(self.end),
            producer_id=ProducerId(5 if sequence >= 0 else -1),
            producer_epoch=0 if sequence >= 0 else -1,
            base_sequence=sequence,
        )
        if sequence >= 0:
            self.producers.accept(parse_header(made), Offset(self.end), 0)
        self.end += count
        self.newest = max(self.newest, timestamp_ms)
        return made

    def append(self, **options: int) -> None:
        self.entries.append(self.batch(**options))


def replay(ledger: Ledger) -> tuple[LedgerTail, list[tuple[int, int]]]:
    found = LedgerReplay(EntryId(len(ledger.entries) - 1), 777, LogLimits(), 1000)
    runs = []
    while (run := found.wanted()) is not None:
        runs.append(run)
        found.on_entries(run[0], ledger.entries[run[0] : run[1] + 1])
    return found.finish(), runs


def test_a_ledger_with_its_first_snapshot_only() -> None:
    tail, runs = replay(Ledger(40))
    assert (tail.base_offset, tail.end_offset, tail.max_timestamp_ms) == (40, 40, -1)
    assert tail.size_bytes == 777
    assert runs == [(0, 0)]


def test_batches_after_the_snapshot_are_folded() -> None:
    ledger = Ledger(40)
    for number in range(5):
        ledger.append(sequence=number, timestamp_ms=100 - number)
    tail, _ = replay(ledger)
    assert (tail.base_offset, tail.end_offset, tail.max_timestamp_ms) == (40, 45, 100)
    assert list(tail.fold.producers.windows()) == list(ledger.producers.windows())


def test_a_ledger_closed_in_peace_takes_two_reads() -> None:
    ledger = Ledger(0)
    for number in range(500):
        ledger.append(sequence=number)
    ledger.snapshot()
    tail, runs = replay(ledger)
    assert runs == [(501, 501), (0, 0)]
    assert tail.end_offset == 500
    assert list(tail.fold.producers.windows()) == list(ledger.producers.windows())
    assert tail.points == (
        IndexPoint(Offset(0), EntryId(0), -1),
        IndexPoint(Offset(500), EntryId(501), 10),
    )


def test_only_the_tail_after_the_last_snapshot_is_read() -> None:
    ledger = Ledger(0)
    for number in range(1000):
        ledger.append(sequence=number)
        if number == 960:
            ledger.snapshot()
    tail, runs = replay(ledger)
    assert sum(last - first + 1 for first, last in runs) < 90
    assert tail.end_offset == 1000
    assert list(tail.fold.producers.windows()) == list(ledger.producers.windows())


def test_several_batches_in_one_entry() -> None:
    ledger = Ledger(0)
    ledger.entries.append(ledger.batch(2, sequence=0) + ledger.batch(3, sequence=2))
    tail, _ = replay(ledger)
    assert tail.end_offset == 5
    assert list(tail.fold.producers.windows()) == list(ledger.producers.windows())


def test_a_gap_is_an_error() -> None:
    ledger = Ledger(0)
    ledger.append()
    ledger.end += 1
    ledger.append()
    with pytest.raises(LogCorrupt, match="offset 2 follows offset 1"):
        replay(ledger)


def test_a_ledger_without_snapshot_is_an_error() -> None:
    ledger = Ledger(0)
    ledger.append()
    del ledger.entries[0]
    with pytest.raises(LogCorrupt, match="does not begin with a snapshot"):
        replay(ledger)


def test_unknown_internal_entries_are_an_error() -> None:
    ledger = Ledger(0)
    ledger.entries.append(seal_internal(Offset(0), EPOCH, 9, b""))
    with pytest.raises(LogCorrupt, match="type 9"):
        replay(ledger)


# --- transactions -------------------------------------------------------------------------------


class Transactional:
    """Entries as a leader writes them, of one producer's transactions."""

    def __init__(self) -> None:
        self.log = new_log(aborted_block_entries=2)
        self.sent: list[bytes] = []
        self.log.write_snapshot()
        self.sequence = 0

    def data(self, pid: int = 1) -> None:
        batch = transactional(pid=pid, sequence=self.sequence if pid == 1 else 0)
        self.sequence += pid == 1
        verified = CLASSIC._replace(is_verified=True)
        self.log.append(batch, 5, 10.0, from_client=True, transaction=verified)
        self.log.on_turn_over()
        self.entries()

    def end(self, pid: int = 1, *, commit: bool = False) -> None:
        batch = build_marker(marker(pid, commit=commit), 5)
        self.log.append(batch, 5, 10.0, from_client=False)
        self.log.on_turn_over()
        self.entries()

    def entries(self) -> list[bytes]:
        while self.log.queue.waiting:
            entry = self.log.queue.take()
            self.sent.append(b"".join(bytes(part) for part in entry.buffers))
            self.log.on_confirmed()
        return self.sent


def fold(entries: list[bytes]) -> LedgerTail:
    limits = LogLimits(aborted_block_entries=2)
    found = LedgerReplay(EntryId(len(entries) - 1), 777, limits, 1000)
    while (run := found.wanted()) is not None:
        found.on_entries(run[0], entries[run[0] : run[1] + 1])
    return found.finish()


@pytest.mark.parametrize("count", range(7))
@pytest.mark.parametrize("ends_in_peace", [False, True])
def test_what_a_leader_knew_of_transactions_is_read_back(count: int, ends_in_peace: bool) -> None:
    written = Transactional()
    written.data(2)
    for _ in range(count):
        written.data()
        written.end()
    if ends_in_peace:
        written.log.finish_segment()
    log = written.log
    found = fold(written.entries())
    segment, known = found.transactions, log.active.transactions
    assert segment.is_transactional
    assert segment.aborted.encode() == known.aborted.encode()
    assert segment.stable_at == 0
    assert found.fold.transactions.coordinator_epoch(ProducerId(1)) == (1 if count else -1)
    assert [(pid, one.first_offset) for pid, one in found.fold.transactions] == [(2, 0)]
    assert list(found.fold.producers.windows()) == list(log.producers.windows())
    assert found.fold.transactions.last_stable(Offset(0), found.end_offset) == 0
    last = log.active.entry_count - 1 if ends_in_peace else -1
    assert found.last_snapshot == last


def test_damaged_markers_and_blocks_are_refused() -> None:
    written = Transactional()
    written.data()
    written.end()
    entries = written.entries()
    header = parse_header(entries[2])
    for bad in (
        build_batch(
            [Record(b"key", b"value")], base_offset=header.base_offset, producer_id=ProducerId(1),
            producer_epoch=0, transactional=True, control=True,
        ),
        build_batch([Record(b"", None)], base_offset=header.base_offset, control=True),
    ):  # fmt: skip
        with pytest.raises(LogCorrupt, match="marker at offset 1"):
            fold([*entries[:2], bad])
    block = seal_block(AbortedBlock(), Offset(1), EPOCH)
    with pytest.raises(LogCorrupt, match="none precede it"):
        fold([*entries[:2], block])
    with pytest.raises(LogCorrupt, match="unknown type 9"):
        fold([*entries[:2], seal_internal(Offset(1), EPOCH, 9, b"")])
