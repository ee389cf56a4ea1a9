"""Maps our errors to Kafka's error codes; nothing else does.

Handlers raise and catch typed errors; what a client sees of them is decided here. An error whose
outcome is unknown must map to a code that clients treat so: a lost leadership answers
NOT_LEADER_OR_FOLLOWER as Kafka's own leaders do, and producers retry it with the same sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kio.schema.errors import ErrorCode as Code

from broker import errors as e
from client import errors as base

__all__ = ["CODES", "Code", "code_of", "message_of"]

CODES: Final[Mapping[type, Code]] = {
    e.BrokerError: Code.unknown_server_error,
    # the request
    e.RequestError: Code.invalid_request,
    e.InvalidRequest: Code.invalid_request,
    e.UnsupportedVersion: Code.unsupported_version,
    e.InvalidRequiredAcks: Code.invalid_required_acks,
    e.InvalidTimestampQuery: Code.unsupported_version,
    e.InvalidRecord: Code.invalid_record,
    e.CorruptBatch: Code.corrupt_message,
    e.MessageTooLarge: Code.message_too_large,
    e.BatchTooLarge: Code.record_list_too_large,
    e.InvalidTimestamp: Code.invalid_timestamp,
    e.UnsupportedCompression: Code.unsupported_compression_type,
    e.InvalidTopicName: Code.invalid_topic_exception,
    e.TopicExists: Code.topic_already_exists,
    e.InvalidPartitions: Code.invalid_partitions,
    e.InvalidReplicationFactor: Code.invalid_replication_factor,
    e.InvalidReplicaAssignment: Code.invalid_replica_assignment,
    e.NoReassignmentInProgress: Code.no_reassignment_in_progress,
    e.InvalidUpdateVersion: Code.invalid_update_version,
    e.InvalidRegularExpression: Code.invalid_regular_expression,
    e.BrokerNotRegistered: Code.broker_id_not_registered,
    e.InvalidTopicConfig: Code.invalid_config,
    e.PolicyViolation: Code.policy_violation,
    e.UnknownTopicId: Code.unknown_topic_id,
    e.InconsistentTopicId: Code.inconsistent_topic_id,
    e.ResourceNotFound: Code.resource_not_found,
    e.DuplicateResource: Code.duplicate_resource,
    e.UnacceptableCredential: Code.unacceptable_credential,
    e.AccessUnknown: Code.request_timed_out,
    e.TooManyLogins: Code.request_timed_out,
    e.SecurityDisabled: Code.security_disabled,
    e.ThrottlingQuotaExceeded: Code.throttling_quota_exceeded,
    e.AuthorizationFailed: Code.cluster_authorization_failed,
    e.TopicAuthorizationFailed: Code.topic_authorization_failed,
    e.GroupAuthorizationFailed: Code.group_authorization_failed,
    e.ClusterAuthorizationFailed: Code.cluster_authorization_failed,
    e.TransactionalIdAuthorizationFailed: Code.transactional_id_authorization_failed,
    e.UnsupportedSaslMechanism: Code.unsupported_sasl_mechanism,
    e.IllegalSaslState: Code.illegal_sasl_state,
    e.SaslAuthenticationFailed: Code.sasl_authentication_failed,
    # producers
    e.SequenceError: Code.out_of_order_sequence_number,
    e.OutOfOrderSequence: Code.out_of_order_sequence_number,
    e.InvalidProducerEpoch: Code.invalid_producer_epoch,
    e.InvalidTransactionState: Code.invalid_txn_state,
    e.TransactionCoordinatorFenced: Code.transaction_coordinator_fenced,
    # leadership
    e.LeadershipError: Code.not_leader_or_follower,
    e.UnknownTopicOrPartition: Code.unknown_topic_or_partition,
    e.NotLeader: Code.not_leader_or_follower,
    # While a partition opens, requests for its data are refused like those to any other broker:
    # Kafka's own brokers send LEADER_NOT_AVAILABLE in metadata only.
    e.LeaderNotAvailable: Code.not_leader_or_follower,
    e.LeadershipLost: Code.not_leader_or_follower,
    e.FencedLeaderEpoch: Code.fenced_leader_epoch,
    e.UnknownLeaderEpoch: Code.unknown_leader_epoch,
    # the log
    e.LogError: Code.kafka_storage_error,
    e.OffsetOutOfRange: Code.offset_out_of_range,
    e.OffsetNotAvailable: Code.offset_not_available,
    e.RequestTimedOut: Code.request_timed_out,
    e.Overloaded: Code.not_enough_replicas,
    e.NotEnoughReplicas: Code.not_enough_replicas,
    e.CompactionFailed: Code.kafka_storage_error,
    e.SegmentsChanged: Code.kafka_storage_error,
    e.LogReadFailed: Code.kafka_storage_error,
    e.NotReadYet: Code.kafka_storage_error,
    # fetch sessions
    e.FetchSessionError: Code.fetch_session_id_not_found,
    e.FetchSessionNotFound: Code.fetch_session_id_not_found,
    e.InvalidFetchSessionEpoch: Code.invalid_fetch_session_epoch,
    e.FetchSessionTopicIdError: Code.fetch_session_topic_id_error,
    # share groups
    e.ShareError: Code.unknown_server_error,
    e.InvalidRecordState: Code.invalid_record_state,
    e.ShareSessionNotFound: Code.share_session_not_found,
    e.InvalidShareSessionEpoch: Code.invalid_share_session_epoch,
    e.ShareSessionLimitReached: Code.share_session_limit_reached,
    # other brokers
    e.PeerError: Code.coordinator_not_available,
    e.PeerUnavailable: Code.coordinator_not_available,
    e.PeerUnanswered: Code.request_timed_out,
    # groups
    e.GroupError: Code.unknown_server_error,
    e.CoordinatorLoading: Code.coordinator_load_in_progress,
    e.CoordinatorNotAvailable: Code.coordinator_not_available,
    e.NotCoordinator: Code.not_coordinator,
    e.OldConnection: Code.not_coordinator,
    e.UnknownMember: Code.unknown_member_id,
    e.IllegalGeneration: Code.illegal_generation,
    e.RebalanceInProgress: Code.rebalance_in_progress,
    e.InconsistentGroupProtocol: Code.inconsistent_group_protocol,
    e.InvalidGroupId: Code.invalid_group_id,
    e.InvalidSessionTimeout: Code.invalid_session_timeout,
    e.MemberIdRequired: Code.member_id_required,
    e.FencedInstanceId: Code.fenced_instance_id,
    e.FencedMemberEpoch: Code.fenced_member_epoch,
    e.StaleMemberEpoch: Code.stale_member_epoch,
    e.UnreleasedInstanceId: Code.unreleased_instance_id,
    e.UnsupportedAssignor: Code.unsupported_assignor,
    e.GroupIdNotFound: Code.group_id_not_found,
    e.NonEmptyGroup: Code.non_empty_group,
    e.GroupSubscribedToTopic: Code.group_subscribed_to_topic,
    e.GroupMaxSizeReached: Code.group_max_size_reached,
    e.OffsetMetadataTooLarge: Code.offset_metadata_too_large,
    # transactions
    e.TransactionError: Code.unknown_server_error,
    e.InvalidTransactionTimeout: Code.invalid_transaction_timeout,
    e.InvalidProducerIdMapping: Code.invalid_producer_id_mapping,
    e.ConcurrentTransactions: Code.concurrent_transactions,
    e.ProducerFenced: Code.producer_fenced,
    e.TransactionAbortable: Code.transaction_abortable,
    e.TransactionalIdNotFound: Code.transactional_id_not_found,
    e.NoOpenTransaction: Code.invalid_txn_state,
    # Of all codes for "no" the one that every client ends with, at each request: librdkafka asks
    # for its coordinator for ever after most others.
    e.TransactionsDisabled: Code.transactional_id_authorization_failed,
    # what reaches a client from below: the store or the bookies could not do it now
    base.LogCorrupt: Code.unknown_server_error,
    base.LedgerError: Code.kafka_storage_error,
    base.NotEnoughBookies: Code.not_enough_replicas,
    base.LedgerFenced: Code.not_leader_or_follower,
    base.MetadataError: Code.request_timed_out,
}

_MESSAGE_MAX: Final = 1000
"""Characters."""


def code_of(error: BaseException) -> int:
    """Return the Kafka error code of an error; UNKNOWN_SERVER_ERROR if it is none of ours."""
    for kind in type(error).__mro__:
        code = CODES.get(kind)
        if code is not None:
            return int(code)
    return int(Code.unknown_server_error)


def message_of(error: BaseException) -> str:
    """Return what a client may read about an error.

    Cut, because it may repeat the client's own words: those and ours together can be longer than
    the 32,767 bytes that an old version's string holds.
    """
    if isinstance(error, base.QuireError):
        text = str(error)
        return text if len(text) <= _MESSAGE_MAX else f"{text[:_MESSAGE_MAX]}..."
    return "the broker failed unexpectedly; see its log"
