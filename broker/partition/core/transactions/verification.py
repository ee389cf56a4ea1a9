"""The messages between a partition and the coordinator of a transaction.

A partition asks before it accepts the first batch of a transaction (rule VERIFY,
`held_batches.py`); the coordinator answers with its epoch, or an error. Nothing is decided here.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from client.ids import Offset, ProducerId


class ProducerTransaction(NamedTuple):
    """The transaction of a batch, according to the client."""

    transactional_id: str
    is_tv2: bool
    """Each transaction has its own epoch, and the batch itself adds the partition to it (Produce
    from version 12, TxnOffsetCommit from 5). Otherwise the client has added it before."""
    is_verified: bool = False
    """Whether the coordinator has verified it: set by the partition itself for a held batch."""


class VerificationRequest(NamedTuple):
    """Is this partition part of an ongoing transaction of that producer and epoch?"""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int
    topic: str
    topic_id: UUID
    partition: int
    is_tv2: bool
    """Add the partition to the transaction if needed, and begin the transaction if there is
    none."""


class ProducerView(NamedTuple):
    """A producer of a partition as DescribeProducers returns it; -1: there is no value."""

    producer_id: ProducerId
    epoch: int
    last_sequence: int
    last_seen_ms: int
    coordinator_epoch: int
    """Coordinator epoch of its last marker."""
    open_since: Offset
    """First offset of its transaction that has no marker."""


class OpenTransactionView(NamedTuple):
    """A transaction without a marker, for DescribeProducers and metrics."""

    producer_id: ProducerId
    producer_epoch: int
    coordinator_epoch: int
    """Coordinator epoch of the producer's last marker in this log; -1: it has none."""
    first_offset: Offset
    started_ms: int
    """When its first batch was accepted."""
