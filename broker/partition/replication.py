"""How well a partition's active ledger is replicated, and whether a new one would be better.

Used to decide on rolls (`under_replicated_roller.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from broker.cluster.core.topology import TopicInfo
from broker.partition.ledgers import Writer
from client.ids import LedgerId
from client.ledger.core.schedule import schedule_of
from client.ledger.core.sizing import fitting


class ActiveLedger(Protocol):
    """The part of a led partition that is needed here."""

    topic: TopicInfo
    writer: Writer


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
        return bool(writer.suspended) or writer.metadata.write_quorum < wanted

    def would_shed(self, bookie_count: int) -> bool:
        """Whether the active ledger has a lost member that a new ledger would not have."""
        is_possible = self._is_open() and bookie_count >= self._active.topic.ack_quorum
        return is_possible and bool(self._active.writer.lost_members)

    def would_grow(self, bookie_count: int) -> bool:
        """Whether a new ledger would have more copies, or be striped over more bookies."""
        have = self._active.writer.metadata
        topic = self._active.topic
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
        if writer.ledger_id not in marked:
            return False
        return self._is_open() and not writer.suspended and not writer.lost_members
