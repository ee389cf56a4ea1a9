"""What others ask of a led partition: its sizes, its open transactions, its replication.

For metrics, administrators, and decisions on rolls (`under_replicated_roller.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from broker.cluster.core.topology import TopicInfo
from broker.partition.core.leader import PartitionLeader
from broker.partition.ledgers import Writer
from client.ids import LedgerId
from client.ledger.core.ledger_metadata import fitting, schedule_of
from client.log.segments import SegmentList


class LogUsage:
    """Bytes and transactions of one led partition."""

    __slots__ = ("_leader",)

    def __init__(self, leader: PartitionLeader) -> None:
        self._leader = leader

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole log, each counted once."""
        return self._leader.size_bytes

    @property
    def listed(self) -> SegmentList:
        """The segment list as this leader has last changed it."""
        return self._leader.segments

    @property
    def in_flight_bytes(self) -> int:
        """Bytes accepted and not confirmed."""
        return self._leader.log.in_flight_bytes

    @property
    def open_transactions(self) -> int:
        """Transactions that have data and no marker."""
        return len(self._leader.log.fold.transactions)

    @property
    def oldest_open_ms(self) -> int | None:
        """When the first batch of the oldest of them was accepted."""
        for _, known in self._leader.log.fold.transactions:
            return known.started_ms
        return None

    @property
    def undecided_records(self) -> int:
        """Records from the last stable offset on, which readers of committed data wait for."""
        offsets = self._leader.log.offsets
        return offsets.high_watermark - offsets.last_stable

    @property
    def held_bytes(self) -> int:
        """Bytes of batches that are held until coordinators have verified their transactions."""
        return self._leader.log.held.size_bytes


class ActiveLedger(Protocol):
    """The part of a led partition that is needed here."""

    topic: TopicInfo
    writer: Writer | None
    """None: there is no ledger to append to."""


class Replication:
    """Compares the active ledger's bookies with those that are available."""

    __slots__ = ("_active", "_is_open")

    def __init__(self, active: ActiveLedger, is_open: Callable[[], bool]) -> None:
        """`is_open`: whether the partition accepts appends."""
        self._active = active
        self._is_open = is_open

    @property
    def is_under_replicated(self) -> bool:
        """Whether new records get fewer copies than the topic's replication factor."""
        writer = self._active.writer
        wanted = self._active.topic.write_quorum
        return writer is None or bool(writer.suspended) or writer.metadata.write_quorum < wanted

    def would_shed(self, bookie_count: int) -> bool:
        """Whether the active ledger has a lost member that a new ledger would not have."""
        writer = self._active.writer
        is_possible = self._is_open() and bookie_count >= self._active.topic.ack_quorum
        return writer is not None and is_possible and bool(writer.lost_members)

    def may_gain(self, bookie_count: int) -> bool:
        """Whether there is no active ledger, and may be enough bookies for one."""
        is_possible = self._is_open() and bookie_count >= self._active.topic.ack_quorum
        return self._active.writer is None and is_possible

    def would_grow(self, bookie_count: int) -> bool:
        """Whether a new ledger would have more copies, or be striped over more bookies."""
        writer, topic = self._active.writer, self._active.topic
        if writer is None:
            return False
        have = writer.metadata
        if have.write_quorum >= topic.write_quorum and have.ensemble_size >= topic.ensemble_size:
            return False  # at once, as nearly always: every partition is asked again and again
        wanted = schedule_of(topic.ensemble_size, topic.write_quorum, topic.ack_quorum)
        next_one = fitting(wanted, bookie_count, striping=False, write_quorum_min=topic.ack_quorum)
        return self._is_open() and (
            next_one.write_quorum > have.write_quorum or next_one.ensemble_size > have.ensemble_size
        )

    def would_repair(self, marked: Collection[LedgerId]) -> bool:
        """Whether the active ledger is among the marked ones, and all its members are available."""
        writer = self._active.writer
        if writer is None or writer.ledger_id not in marked:
            return False
        return self._is_open() and not writer.suspended and not writer.lost_members
