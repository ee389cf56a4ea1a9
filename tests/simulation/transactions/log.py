"""What became of each batch of one partition, read off what its ledgers have confirmed.

A second, dumb implementation of transactions on the partition's side: it walks the log in order,
keeps what is open, and lets markers decide. It is never ahead of what a broker may know: a marker
counts when its entry is confirmed, or when its ledger was closed behind it.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

from client.wire.kafka.batches.control_batch import read_marker
from client.wire.kafka.batches.records import CONTROL_BIT, TRANSACTIONAL_BIT
from tests.simulation.kafka.entries import batches_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from client.wire.kafka.batches.control_batch import Marker
    from tests.simulation.clusters.oracle import ClusterOracle, PartitionBook
    from tests.simulation.kafka.entries import Batch
    from tests.simulation.transactions.book import TransactionBook


class Fate(enum.Enum):
    """What a batch has come to."""

    PLAIN = "plain"
    CONTROL = "control"
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


class _Producer(NamedTuple):
    """What a producer's last batch or marker says."""

    epoch: int
    coordinator_epoch: int


class PartitionState(NamedTuple):
    """What a log says of its producers, by producer id."""

    open: dict[int, int]
    """First offsets of transactions without a marker."""
    epochs: dict[int, int]
    coordinators: dict[int, int]
    """Epochs of the coordinators that wrote their last markers."""


class TransactionLog:
    """One partition's transactions, as far as its log is confirmed."""

    def __init__(self, oracle: ClusterOracle, book: PartitionBook, told: TransactionBook) -> None:
        """`told`: is told which transactions have data here and how markers decide them."""
        self._oracle = oracle
        self._book = book
        self._told = told
        self._at = (0, 0)
        """Index of a ledger in the chain, and the first entry there that was not looked at."""
        self._open: dict[int, list[Batch]] = {}
        """Producer id -> its undecided batches."""
        self._producers: dict[int, _Producer] = {}
        self.fates: dict[int, Fate] = {}
        """By base offset."""
        self.committed: list[tuple[int, bytes]] = []
        """(offset, value) of what a reader of committed data is to see, in the order in which it
        was decided; sorted by offset it is what there is to see."""
        self.end_offset = 0
        self.aborted: list[tuple[int, int, int]] = []
        """(producer id, first offset, offset of the marker) of what was aborted."""
        self.markers: list[tuple[int, int]] = []
        """(offset, producer id) of all markers."""

    @property
    def trim_to(self) -> int:
        """Highest offset below which somebody asked to delete."""
        return self._book.trim_to

    @property
    def first_open(self) -> int | None:
        """Lowest offset of an undecided transaction; None: there is none."""
        self.advance()
        return min((batches[0].base_offset for batches in self._open.values()), default=None)

    def open_batches(self) -> Iterator[Batch]:
        """Walk what is undecided."""
        for batches in self._open.values():
            yield from batches

    def state(self) -> PartitionState:
        """Return what whoever leads the partition must know of it."""
        self.advance()
        return PartitionState(
            {pid: batches[0].base_offset for pid, batches in self._open.items()},
            {pid: known.epoch for pid, known in self._producers.items()},
            {
                pid: known.coordinator_epoch
                for pid, known in self._producers.items()
                if known.coordinator_epoch >= 0
            },
        )

    def open_transactions(self) -> str:
        """Return in words what is undecided."""
        rows = [f"{pid} since {batches[0].base_offset}" for pid, batches in self._open.items()]
        return ", ".join(rows)

    def advance(self) -> None:
        """Look at what was confirmed meanwhile."""
        for batch in self._confirmed():
            self.end_offset = batch.next_offset
            self._take(batch)

    def _confirmed(self) -> Iterator[Batch]:
        chain = self._book.chain
        number, entry = self._at
        while number < len(chain):
            ledger = self._oracle.ledger(chain[number])
            end = ledger.acked if ledger.closed_at is None else ledger.closed_at
            while entry <= end:
                payload = ledger.sent[entry]
                entry += 1
                self._at = (number, entry)
                yield from batches_of(payload)
            is_final = ledger.closed_at is not None or ledger.deleted
            if not is_final and not self._book.confirmed.intersection(chain[number + 1 :]):
                return
            number, entry = number + 1, 0
            self._at = (number, entry)

    def _take(self, batch: Batch) -> None:
        if batch.attributes & CONTROL_BIT:
            self.fates[batch.base_offset] = Fate.CONTROL
            self._decide(batch, read_marker(batch.data))
        elif batch.attributes & TRANSACTIONAL_BIT:
            self.fates[batch.base_offset] = Fate.OPEN
            self._add(batch)
        else:
            self.fates[batch.base_offset] = Fate.PLAIN
            self.committed += batch.values()
            self._told.plain(self._book, batch)

    def _add(self, batch: Batch) -> None:
        producer_id, epoch = batch.producer
        known = self._producers.get(producer_id)
        if known is not None and epoch < known.epoch:
            self._fail("X7", f"{batch.base_offset} has {batch.producer} after epoch {known.epoch}")
        seen = -1 if known is None else known.coordinator_epoch
        self._producers[producer_id] = _Producer(epoch, seen)
        batches = self._open.setdefault(producer_id, [])
        batches.append(batch)
        if batches[0].producer != batch.producer:
            self._fail("X8", f"{batch.base_offset} continues {batches[0].producer}, which hangs")
        self._told.opened(self._book, batch)

    def _decide(self, batch: Batch, marker: Marker) -> None:
        known = self._producers.get(marker.producer_id)
        batches = self._open.pop(marker.producer_id, [])
        self._oracle.count("markers")
        if known is not None:
            is_new = (marker.producer_epoch, marker.coordinator_epoch) > (
                known.epoch,
                known.coordinator_epoch,
            )
            if not batches and not is_new:
                self._say_nothing_new(batch, marker)
                return
            if marker.producer_epoch < known.epoch:
                self._fail("X7", f"{marker} at {batch.base_offset} after epoch {known.epoch}")
            if marker.coordinator_epoch < known.coordinator_epoch:
                self._fail("X7", f"{marker} at {batch.base_offset} after {known}")
        self._producers[marker.producer_id] = _Producer(
            marker.producer_epoch, marker.coordinator_epoch
        )
        self.markers.append((batch.base_offset, marker.producer_id))
        if batches and not marker.is_commit:
            first = batches[0].base_offset
            self.aborted.append((marker.producer_id, first, batch.base_offset))
        fate = Fate.COMMITTED if marker.is_commit else Fate.ABORTED
        for one in batches:
            self.fates[one.base_offset] = fate
            if marker.is_commit:
                self.committed += one.values()
        self._told.decided(self._book, batches, is_commit=marker.is_commit)

    def _say_nothing_new(self, batch: Batch, marker: Marker) -> None:
        """X10: of a producer that its partition may have forgotten, anything is new."""
        if not self._oracle.forgets_producers:
            self._fail("X10", f"{marker} at {batch.base_offset} says nothing new")

    def _fail(self, rule: str, text: str) -> None:
        self._oracle.fail(rule, f"{self._book.name}: {text}")
