"""The error codes that our own Kafka clients tell apart, by Kafka's names.

kio has all of them, but to import that takes longer than most commands.
"""

from __future__ import annotations

import enum


class ErrorCode(enum.IntEnum):
    """Codes of Kafka's protocol; any other one is a plain number."""

    unknown_server_error = -1
    none = 0
    corrupt_message = 2
    unknown_topic_or_partition = 3
    leader_not_available = 5
    not_leader_or_follower = 6
    request_timed_out = 7
    offset_metadata_too_large = 12
    network_exception = 13
    coordinator_load_in_progress = 14
    coordinator_not_available = 15
    not_coordinator = 16
    not_enough_replicas = 19
    not_enough_replicas_after_append = 20
    illegal_generation = 22
    unknown_member_id = 25
    rebalance_in_progress = 27
    topic_authorization_failed = 29
    group_authorization_failed = 30
    unsupported_version = 35
    invalid_request = 42
    duplicate_sequence_number = 46
    invalid_producer_epoch = 47
    invalid_txn_state = 48
    invalid_producer_id_mapping = 49
    concurrent_transactions = 51
    transactional_id_authorization_failed = 53
    operation_not_attempted = 55
    kafka_storage_error = 56
    unknown_producer_id = 59
    fenced_leader_epoch = 74
    unknown_leader_epoch = 75
    fenced_instance_id = 82
    unstable_offset_commit = 88
    throttling_quota_exceeded = 89
    producer_fenced = 90
    unknown_topic_id = 100
    stale_member_epoch = 113
    transaction_abortable = 120
