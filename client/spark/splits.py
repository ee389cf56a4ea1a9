"""The values that travel from the driver to the tasks: which offsets a task reads, and from where.

Spark pickles them once per task, and the reader that plans is another object than the one that
reads: whatever a task must know is in its splits. All ranges of offsets are half open: `start` is
read, `end` is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition


class TopicPartition(NamedTuple):
    """A partition by its topic's name; sorts by name, then by number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class AbortedTransaction(NamedTuple):
    """A transaction whose records nobody may see: batches of that producer in this range."""

    producer_id: int
    first_offset: int
    last_offset: int
    """Offset of its abort marker, or at least of its last record; inclusive."""


class Position(NamedTuple):
    """Where the last record below an offset is: a hint that saves a search, never a proof."""

    ledger_id: int
    entry_id: int


@dataclass(frozen=True)
class OffsetRange:
    """Offsets of one partition that a plan has to cover, before anything says how."""

    topic_id: str
    """UUID as text; empty where the broker tells no ids."""
    topic: str
    partition: int
    start: int
    end: int
    hint: Position | None = None
    """Position of `start`: the entry with the last record below it."""

    @property
    def at(self) -> TopicPartition:
        """The partition it belongs to."""
        return TopicPartition(self.topic, self.partition)

    def __len__(self) -> int:
        return max(0, self.end - self.start)


@dataclass(frozen=True)
class BrokerSplit(InputPartition):
    """A range of offsets to be fetched from the partition's leader."""

    topic_id: str
    topic: str
    partition: int
    leader_epoch: int
    """The epoch the driver saw, -1 if unknown: tells a task that the leader moved since."""
    start: int
    end: int
    aborted: Sequence[AbortedTransaction] = ()
    """Beyond those that each Fetch answer names by itself; usually none."""


@dataclass(frozen=True)
class LedgerSplit(InputPartition):
    """Entries of one ledger, and which of their offsets are wanted."""

    topic_id: str
    topic: str
    partition: int
    ledger_id: int
    first_entry: int
    last_entry: int
    """Inclusive."""
    offset_start: int
    offset_end: int
    metadata: bytes
    """The ledger's metadata as the metadata store has it (`ledger/core/metadata_codec`)."""
    aborted: Sequence[AbortedTransaction] | None = None
    """All of its range; None: only the broker knows."""


Split = BrokerSplit | LedgerSplit


@dataclass(frozen=True)
class TaskSplits(InputPartition):
    """What one Spark task reads: usually one split, or many tiny ones."""

    parts: tuple[Split, ...]
