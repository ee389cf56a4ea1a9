"""Settings of transactions, a part of a broker's settings: `transactions.*`."""

from __future__ import annotations

from dataclasses import dataclass

from broker.transactions.core.marker_queue import MarkerQueueConfig
from broker.transactions.core.transaction import TransactionConfig
from client.config import check_ranges, setting

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """How a broker coordinates transactions."""

    enabled: bool = setting(
        True,
        "Serve transactional producers. Without it they get an error; open transactions are still"
        " decided.",
    )
    topic_partitions: int = setting(
        16, "Partitions of __transaction_state; fixed once it exists.", at_least=1
    )
    timeout_max_ms: int = setting(
        900_000,
        "Longest timeout that a transactional producer may ask for, Kafka's"
        " transaction.max.timeout.ms. Higher: one that hangs keeps readers waiting for longer.",
        at_least=1,
    )
    timeout_interval_ms: int = setting(
        10_000, "How often transactions that ran out of time are looked for.", at_least=10
    )
    id_expiration_ms: int = setting(
        7 * 86_400_000,
        "How long a transactional id is remembered after its last use, Kafka's"
        " transactional.id.expiration.ms.",
        at_least=1,
    )
    ids_max: int = setting(
        1_000_000,
        "Transactional ids in one partition of __transaction_state; beyond that, new ones are"
        " refused until some have expired. About 1 KB of memory each.",
        at_least=1,
    )
    partitions_max: int = setting(
        10_000, "Most partitions of one transaction, whose state is one record.", at_least=1
    )
    parked_requests_max: int = setting(
        1_000,
        "Requests that may wait, in one partition of __transaction_state, for an earlier"
        " transaction to end; further ones are told to try again.",
        at_least=0,
    )
    open_max: int = setting(
        5_000,
        "Open transactions in one partition; the first batches of further ones are refused, and"
        " their producers send them again. About 0.3 KB of memory each.",
        at_least=1, at_most=15_000,
    )  # fmt: skip
    held_bytes_max: int = setting(
        16 * _MIB,
        "Batches that one partition holds until the coordinators of their transactions have"
        " answered; further ones are refused, and their producers send them again.",
        at_least=_MIB,
    )
    request_markers_max: int = setting(
        200,
        "Markers in one request to another broker. Higher: fewer requests, and a longer wait for"
        " those of other coordinators.",
        at_least=1,
        at_most=10_000,
    )
    log_copy_bytes: int = setting(
        4 * _MIB,
        "Growth of a __transaction_state partition after which its live state is copied and what"
        " lies before is trimmed. Lower: a new coordinator loads sooner, more is written.",
        at_least=1_000,
    )

    def __post_init__(self) -> None:
        """Check ranges; raise ConfigError."""
        check_ranges(self)

    def limits(self) -> TransactionConfig:
        """Return the limits of coordinators."""
        return TransactionConfig(
            transaction_timeout_max_ms=self.timeout_max_ms,
            transactional_id_expiration_ms=self.id_expiration_ms,
            timeout_interval_ms=self.timeout_interval_ms,
            transactional_ids_max=self.ids_max,
            transaction_partitions_max=self.partitions_max,
            parked_requests_max=self.parked_requests_max,
        )

    def markers(self) -> MarkerQueueConfig:
        """Return how coordinators send markers."""
        return MarkerQueueConfig(request_markers_max=self.request_markers_max)
