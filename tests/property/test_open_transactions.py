"""Open transactions and the aborted index against the log itself, kept as a list.

The list knows nothing but its entries: what is open, decided, aborted or to be told about a range
is looked up in all of it, every time.
"""

from __future__ import annotations

import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import TransactionCoordinatorFenced
from broker.partition.core.open_transactions import (
    UNKNOWN_EPOCH,
    MarkerVerdict,
    OpenTransactions,
)
from client.ids import EntryId, Offset, ProducerId
from client.log.aborted_transactions import (
    AbortedBlock,
    AbortedTransaction,
    LedgerAborted,
    aborted_within,
    decode_index,
)
from client.wire.kafka.batches.control_batch import Marker
from client.wire.kafka.batches.records import BatchHeader, Record, build_batch, parse_header

TEMPLATE = parse_header(build_batch([Record(None, b"x", 1)], transactional=True))


@dataclasses.dataclass(frozen=True)
class Entry:
    pid: int
    epoch: int
    marker: Marker | None = None


class Log:
    """One record per offset, and how much of it is confirmed."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.high_watermark = 0

    def epoch(self, pid: int) -> int:
        return max((e.epoch for e in self.entries if e.pid == pid), default=UNKNOWN_EPOCH)

    def coordinator(self, pid: int) -> int:
        """Epoch of the newest coordinator that wrote something about a producer."""
        told = [e.marker.coordinator_epoch for e in self.entries if e.marker and e.pid == pid]
        return max(told, default=UNKNOWN_EPOCH)

    def transactions(self) -> list[tuple[int, int, int | None]]:
        """Return (producer, first offset, offset of the marker or None) of all there ever were."""
        found: list[tuple[int, int, int | None]] = []
        for offset, entry in enumerate(self.entries):
            mine = [
                at for at, (pid, _, end) in enumerate(found) if pid == entry.pid and end is None
            ]
            if entry.marker is None:
                if not mine:
                    found.append((entry.pid, offset, None))
            elif mine:
                found[mine[0]] = (entry.pid, found[mine[0]][1], offset)
        return found

    def stable(self) -> int:
        undecided = [
            first
            for _, first, end in self.transactions()
            if end is None or end >= self.high_watermark
        ]
        return min([self.high_watermark, *undecided])

    def aborted(self) -> list[AbortedTransaction]:
        return sorted(
            (
                AbortedTransaction(ProducerId(pid), Offset(first), Offset(end))
                for pid, first, end in self.transactions()
                if end is not None and (marker := self.entries[end].marker) and not marker.is_commit
            ),
            key=lambda entry: entry.last_offset,
        )

    def verdict(self, marker: Marker, *, is_tv2: bool) -> str:
        """Judge a marker by the whole log: MARKER-ONCE and COORDINATOR-EPOCH, in other words."""
        pid = marker.producer_id
        if marker.coordinator_epoch < self.coordinator(pid):
            return "refuse"
        stored = self.epoch(pid)
        if any(mine == pid and end is None for mine, _, end in self.transactions()):
            least = stored + 1 if is_tv2 else stored
            return "close" if marker.producer_epoch >= least else "done"
        if marker.producer_epoch > stored:
            return "write"
        is_told = marker.coordinator_epoch == self.coordinator(pid)
        return "done" if marker.producer_epoch < stored or is_told else "write"


def header(pid: int, epoch: int) -> BatchHeader:
    return TEMPLATE._replace(producer_id=ProducerId(pid), producer_epoch=epoch)


DATA = st.tuples(st.just("data"), st.integers(0, 3))
MARKER = st.tuples(
    st.just("marker"),
    st.integers(0, 3),
    st.sampled_from([0, 0, 0, 1, 2, -1]),  # epoch, from the producer's
    st.sampled_from([0, 0, 0, 1, -1]),  # coordinator epoch, from the producer's
    st.sampled_from([False, False, True]),  # commit
    st.sampled_from([False, False, True]),  # TV2
)
STEPS = st.lists(
    st.one_of(
        DATA,
        DATA,
        MARKER,
        st.tuples(st.just("confirm"), st.integers(0, 9)),
        st.tuples(st.just("restart")),
        st.tuples(st.just("ledger")),
    ),
    min_size=20,
    max_size=60,
)


class Partition:
    """What a leader would do with the cores."""

    def __init__(self, block_entries: int) -> None:
        self.log = Log()
        self.state = OpenTransactions()
        self.index = LedgerAborted()
        self.block_entries = block_entries
        self.ledgers: list[list[AbortedBlock]] = [[]]
        """Blocks that were written, per ledger."""

    def data(self, pid: int) -> None:
        epoch = max(0, self.log.epoch(pid))
        offset = Offset(len(self.log.entries))
        is_new = all(mine != pid or end is not None for mine, _, end in self.log.transactions())
        assert self.state.needs_verification(header(pid, epoch)) is is_new
        self.state.on_batch(header(pid, epoch), offset, 5)
        self.log.entries.append(Entry(pid, epoch))

    def marker(self, marker: Marker, *, is_tv2: bool) -> None:
        pid = marker.producer_id
        expected = self.log.verdict(marker, is_tv2=is_tv2)
        try:
            found = self.state.judge(marker, self.log.epoch(pid), is_tv2=is_tv2)
        except TransactionCoordinatorFenced:
            assert expected == "refuse"
            return
        assert found.value == expected
        if found is MarkerVerdict.DONE:
            return
        offset = Offset(len(self.log.entries))
        aborted = self.state.on_marker(marker, offset)
        self.log.entries.append(Entry(pid, marker.producer_epoch, marker))
        if aborted is not None:
            self.index.add(aborted, self.state.first_open(Offset(offset + 1)))
            if len(self.index.rest) >= self.block_entries:
                self.write_block()

    def write_block(self) -> None:
        entry_id = EntryId(len(self.ledgers[-1]))
        self.ledgers[-1].append(self.index.on_block_written(entry_id))

    def restart(self) -> None:
        """A takeover: everything in the log is confirmed, the rest is out of the snapshot."""
        self.log.high_watermark = len(self.log.entries)
        data = memoryview(self.state.encode() + self.index.encode())
        self.state = OpenTransactions()
        self.index, rest = decode_index(self.state.restore(data))
        assert not rest

    def next_ledger(self) -> None:
        if len(self.index.rest):
            self.write_block()
        self.ledgers.append([])
        self.index = LedgerAborted()

    def check(self) -> None:
        log = self.log
        high_watermark = Offset(log.high_watermark)
        self.state.on_confirmed(high_watermark)
        assert self.state.last_stable(Offset(0), high_watermark) == log.stable()
        still_open = [(pid, first) for pid, first, end in log.transactions() if end is None]
        assert [(pid, known.first_offset) for pid, known in self.state] == still_open
        for pid in range(4):
            assert self.state.coordinator_epoch(ProducerId(pid)) == log.coordinator(pid)

    def check_ranges(self) -> None:
        """Each range that a reader may be given is told what touches it, and nothing else."""
        aborted, stable = self.log.aborted(), self.log.stable()
        written = [block for ledger in self.ledgers for block in ledger]
        for start in range(stable + 1):
            for end in range(start, stable + 1):
                wanted = [e for e in aborted if e.last_offset >= start and e.first_offset < end]
                blocks = [*written, self.index.rest]
                assert aborted_within(blocks, Offset(start), Offset(end)) == wanted
                if len(self.ledgers) == 1:
                    by_entry = {EntryId(at): block for at, block in enumerate(self.ledgers[0])}
                    assert self.index.within(Offset(start), Offset(end), by_entry) == wanted


@settings(max_examples=150, deadline=None)
@given(STEPS, st.integers(1, 4))
def test_it_is_as_the_log_says(steps: list[tuple], block_entries: int) -> None:
    partition = Partition(block_entries)
    log = partition.log
    for step in steps:
        match step:
            case ("data", pid):
                partition.data(pid)
            case ("marker", pid, epoch_step, coordinator_step, is_commit, is_tv2):
                epoch = max(0, log.epoch(pid) + epoch_step)
                coordinator = max(0, log.coordinator(pid) + coordinator_step)
                marker = Marker(ProducerId(pid), epoch, is_commit, coordinator)
                partition.marker(marker, is_tv2=is_tv2)
            case ("confirm", count):
                log.high_watermark = min(len(log.entries), log.high_watermark + count)
            case ("restart",):
                partition.restart()
            case ("ledger",):
                partition.next_ledger()
        partition.check()
    log.high_watermark = len(log.entries)
    partition.check()
    partition.check_ranges()


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_the_stable_offset_never_falls(steps: list[tuple]) -> None:
    """Nor does a takeover that loses what is not confirmed move it, in either direction."""
    partition = Partition(4)
    log = partition.log
    before = 0
    for step in steps:
        match step:
            case ("data", pid):
                partition.data(pid)
            case ("marker", pid, _, coordinator_step, is_commit, is_tv2):
                coordinator = max(0, log.coordinator(pid) + max(0, coordinator_step))
                epoch = max(0, log.epoch(pid)) + int(is_tv2)
                marker = Marker(ProducerId(pid), epoch, is_commit, coordinator)
                partition.marker(marker, is_tv2=is_tv2)
            case ("confirm", count):
                log.high_watermark = min(len(log.entries), log.high_watermark + count)
        high_watermark = Offset(log.high_watermark)
        partition.state.on_confirmed(high_watermark)
        stable = partition.state.last_stable(Offset(0), high_watermark)
        assert stable >= before
        before = stable
        kept = Log()
        kept.entries, kept.high_watermark = log.entries[: log.high_watermark], log.high_watermark
        assert kept.stable() == stable
