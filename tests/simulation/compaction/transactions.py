"""Transactions of a compacted partition: who writes them, what became of them, who reads them.

A producer is alone with its transactional id, as clients are: it sends in order, and after any
doubt it is fenced and begins anew with the next epoch, as InitProducerId has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from broker.errors import OutOfOrderSequence
from client.wire.kafka.batches.control_batch import read_marker
from client.wire.kafka.batches.records import Buffer, headers
from tests.fakes.brokers import done
from tests.fakes.keyed import Kept, keyed, opened
from tests.fakes.transactions import CLASSIC, end

if TYPE_CHECKING:
    from broker.partition.partition import Partition
    from broker.partition.tail_cache import Fetched


class Written(NamedTuple):
    """A record of the log."""

    record: Kept
    is_committed: bool | None
    """None: nothing is decided yet."""


class Batch(NamedTuple):
    """A batch, opened."""

    offset: int
    producer: int
    """-1: it belongs to no transaction."""
    is_commit: bool | None
    """Of a marker; None: it is data."""
    records: Sequence[Kept]


def batches(data: Iterable[Buffer]) -> list[Batch]:
    """Return the batches of entries, or of an answer."""
    found: list[Batch] = []
    for payload in data:
        for at, header in headers(payload):
            batch = memoryview(payload)[at : at + header.size]
            producer = int(header.producer_id) if header.is_transactional else -1
            commit = read_marker(batch).is_commit if header.is_control else None
            found.append(Batch(header.base_offset, producer, commit, opened([batch])))
    return found


def judged(log: Iterable[Batch]) -> list[Written]:
    """Return the records of a whole log, and what became of each."""
    found: list[Written] = []
    open_: dict[int, list[int]] = {}
    for batch in log:
        if batch.is_commit is not None:
            for at in open_.pop(batch.producer, ()):
                found[at] = Written(found[at].record, batch.is_commit)
            continue
        for record in batch.records:
            if batch.producer >= 0:
                open_.setdefault(batch.producer, []).append(len(found))
            found.append(Written(record, True if batch.producer < 0 else None))
    return found


def stable_offset(log: Sequence[Batch], end: int) -> int:
    """Return where the first transaction without a marker begins; `end`: there is none."""
    open_: dict[int, int] = {}
    for batch in log:
        if batch.is_commit is not None:
            open_.pop(batch.producer, None)
        elif batch.producer >= 0:
            open_.setdefault(batch.producer, batch.offset)
    return min(open_.values(), default=end)


def committed(fetched: Fetched) -> list[Kept]:
    """Return what a consumer of committed data makes of an answer, as KIP-98 has it: data of a
    producer is dropped from where its aborted transaction begins until its ABORT marker."""
    pending = sorted(
        ((one.first_offset, one.producer_id) for one in fetched.aborted or ()), reverse=True
    )
    void: set[int] = set()
    found: list[Kept] = []
    for batch in batches(fetched.buffers):
        last = max((one.offset for one in batch.records), default=batch.offset)
        while pending and pending[-1][0] <= last:
            void.add(pending.pop()[1])
        if batch.is_commit is False:
            void.discard(batch.producer)
        elif batch.is_commit is None and batch.producer not in void:
            found += batch.records
    return found


class LostState(AssertionError):
    """A leader does not know what it must know of a producer."""


@dataclass
class Producer:
    """One transactional id."""

    id: int
    epoch: int = 0
    sequence: int = 0
    is_open: bool = False
    is_in_doubt: bool = False

    async def send(
        self, leader: Partition, pairs: Sequence[tuple[str, str | None]], timestamp_ms: int
    ) -> None:
        """Write a batch of its transaction; raises what the partition raises, and is in doubt."""
        if self.is_in_doubt:
            await self.end(leader, commit=False)
        batch = keyed(
            *pairs, timestamp_ms=timestamp_ms, producer=(self.id, self.epoch, self.sequence)
        )
        self.is_in_doubt = self.is_open = True
        try:
            await done(leader.append(batch, transaction=CLASSIC))
        except OutOfOrderSequence as error:
            raise LostState(f"{self} was sent away: {error!r}") from error
        self.sequence += len(pairs)
        self.is_in_doubt = False

    async def end(self, leader: Partition, *, commit: bool) -> None:
        """Commit or abort; what is in doubt can only be aborted, and the next epoch begins."""
        if self.is_in_doubt or not commit:
            self.is_in_doubt = True
            await end(leader, self.id, self.epoch + 1, commit=False)
            self.epoch += 1
            self.sequence = 0
        else:
            # Nothing else is sent before the outcome is known.
            await end(leader, self.id, self.epoch, commit=True)
        self.is_open = self.is_in_doubt = False
