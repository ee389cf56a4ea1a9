"""What a transactional client does about an error code: go on, ask again, abort, or give up.

Covers the answers to InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, Produce and
TxnOffsetCommit. The classes are those of Kafka's own clients (KIP-1050): a code means the same
wherever it comes from, but for a few that Produce may give while the transaction can still be
ended in an orderly way.

A code that nobody knows is fatal for the coordinator's requests, where it stands between us and
the truth about a transaction, and ends just the transaction where it concerns data.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Final

from client.wire.kafka.error_codes import ErrorCode as Code


class Verdict(enum.Enum):
    """What is to be done about an answer."""

    DONE = "done"
    RETRY = "ask the same broker again, after a pause"
    LOOK_UP = "ask who leads or coordinates now, then ask again"
    ABORT = "this transaction can only be aborted; the next one may succeed"
    FENCED = "another producer with this transactional id took over"
    FATAL = "this producer cannot go on"


class Refused(Exception):
    """An answer that asking again does not change."""

    def __init__(self, verdict: Verdict, code: int, why: str) -> None:
        super().__init__(why)
        self.verdict = verdict
        self.code = code


Judge = Callable[[int], Verdict]

_RETRY: Final = (
    Code.corrupt_message,
    Code.request_timed_out,
    Code.network_exception,
    Code.coordinator_load_in_progress,
    Code.not_enough_replicas,
    Code.not_enough_replicas_after_append,
    Code.concurrent_transactions,
    Code.throttling_quota_exceeded,
)
_LOOK_UP: Final = (
    Code.unknown_topic_or_partition,
    Code.leader_not_available,
    Code.not_leader_or_follower,
    Code.coordinator_not_available,
    Code.not_coordinator,
    Code.kafka_storage_error,
    Code.fenced_leader_epoch,
    Code.unknown_leader_epoch,
    Code.unknown_topic_id,
)
_COMMON: Final = {
    Code.none: Verdict.DONE,
    **dict.fromkeys(_RETRY, Verdict.RETRY),
    **dict.fromkeys(_LOOK_UP, Verdict.LOOK_UP),
    Code.transaction_abortable: Verdict.ABORT,
    Code.producer_fenced: Verdict.FENCED,
    Code.transactional_id_authorization_failed: Verdict.FATAL,
    Code.invalid_producer_id_mapping: Verdict.FATAL,
}
_COORDINATOR: Final = {
    **_COMMON,
    Code.invalid_producer_epoch: Verdict.FENCED,
    Code.topic_authorization_failed: Verdict.ABORT,
    Code.group_authorization_failed: Verdict.ABORT,
    Code.operation_not_attempted: Verdict.ABORT,
    Code.unknown_producer_id: Verdict.ABORT,
}
_PRODUCE: Final = {
    **_COMMON,
    # The partition has the batch, and has forgotten where.
    Code.duplicate_sequence_number: Verdict.DONE,
    # "Invalid epoch" of a partition may be the marker of a time-out: the coordinator knows.
    Code.invalid_producer_epoch: Verdict.ABORT,
    Code.invalid_txn_state: Verdict.ABORT,
}
_OFFSETS: Final = {
    **_COORDINATOR,
    Code.illegal_generation: Verdict.ABORT,
    Code.unknown_member_id: Verdict.ABORT,
    Code.fenced_instance_id: Verdict.ABORT,
    Code.rebalance_in_progress: Verdict.ABORT,
    Code.stale_member_epoch: Verdict.ABORT,
    Code.offset_metadata_too_large: Verdict.ABORT,
}


_GRAVITY: Final = (
    Verdict.DONE,
    Verdict.RETRY,
    Verdict.LOOK_UP,
    Verdict.ABORT,
    Verdict.FENCED,
    Verdict.FATAL,
)


def worst(codes: Iterable[int], judge: Judge) -> tuple[int, Verdict]:
    """Return the code that matters most, and what is to be done about it."""
    judged = [(code, judge(code)) for code in codes]
    return max(judged, key=lambda one: _GRAVITY.index(one[1]), default=(0, Verdict.DONE))


def of_coordinator(code: int) -> Verdict:
    """Judge InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn and EndTxn."""
    return _COORDINATOR.get(known(code), Verdict.FATAL)


def of_first_abort(code: int) -> Verdict:
    """Judge an abort of the first generation.

    "Invalid state" says that the coordinator has heard of no transaction, or ended it itself:
    either way nothing of it will be visible.
    """
    return Verdict.DONE if code == Code.invalid_txn_state else of_coordinator(code)


def of_produce(code: int) -> Verdict:
    """Judge a partition of Produce."""
    return _PRODUCE.get(known(code), Verdict.ABORT)


def of_offsets(code: int) -> Verdict:
    """Judge a partition of TxnOffsetCommit."""
    return _OFFSETS.get(known(code), Verdict.FATAL)


def known(code: int) -> Code:
    """Return a code as it is judged; UNKNOWN_SERVER_ERROR if it is none of those."""
    try:
        return Code(int(code))
    except ValueError:
        return Code.unknown_server_error


def in_words(code: int) -> str:
    """Return a code's name, or its number if it has none."""
    from kio.schema.errors import ErrorCode  # the names of all, which takes a while

    try:
        return ErrorCode(int(code)).name.upper()
    except ValueError:
        return f"error code {code}"
