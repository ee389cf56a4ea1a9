"""What is said between a partition and the coordinator of a transaction.

A partition asks before it takes the first batch of a transaction (rule VERIFY, `held_batches.py`);
the coordinator answers with its epoch, or an error. Nothing is decided here.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from client.ids import Offset, ProducerId


class ProducerTransaction(NamedTuple):
    """What a client says of the transaction that a batch belongs to."""

    transactional_id: str
    is_tv2: bool
    """An epoch for each transaction: the batch itself adds the partition to it (Produce from
    version 12 on, TxnOffsetCommit from 5). Otherwise the client has added it before."""
    is_verified: bool = False
    """The coordinator has vouched for it: said by the partition itself, of a batch that it held."""


class VerificationRequest(NamedTuple):
    """Is this partition part of an ongoing transaction of that producer and epoch?"""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int
    topic: str
    topic_id: UUID
    partition: int
    is_tv2: bool
    """Add the partition if it is not part of the transaction, and begin that if there is none."""


class ProducerView(NamedTuple):
    """A producer of a partition as descriptions show it; -1 where there is nothing to be said."""

    producer_id: ProducerId
    epoch: int
    last_sequence: int
    last_seen_ms: int
    coordinator_epoch: int
    """Of its last marker."""
    open_since: Offset
    """First offset of its transaction that has no marker."""


class OpenTransactionView(NamedTuple):
    """A transaction without a marker, as descriptions and metrics show it."""

    producer_id: ProducerId
    producer_epoch: int
    coordinator_epoch: int
    """Of the producer's last marker in this log; -1: it has none."""
    first_offset: Offset
    started_ms: int
    """When its first batch was accepted."""
