"""The errors of brokers, as a family below `QuireError`.

    BrokerError
    ├── RequestError            the request is wrong in itself; retrying it is pointless
    │   ├── InvalidRequest, UnsupportedVersion, InvalidRequiredAcks, InvalidTimestampQuery
    │   ├── InvalidRecord ── CorruptBatch, MessageTooLarge, BatchTooLarge, InvalidTimestamp,
    │   │                    UnsupportedCompression
    │   ├── InvalidUpdateVersion, InvalidRegularExpression
    │   ├── InvalidTopicName, TopicExists, InvalidPartitions, InvalidReplicationFactor,
    │   │   InvalidReplicaAssignment, NoReassignmentInProgress, BrokerNotRegistered,
    │   │   InvalidTopicConfig, PolicyViolation
    │   ├── UnknownTopicId, InconsistentTopicId
    │   ├── ResourceNotFound, DuplicateResource, UnacceptableCredential, SecurityDisabled
    │   ├── UnsupportedSaslMechanism, IllegalSaslState, SaslAuthenticationFailed
    │   ├── ThrottlingQuotaExceeded
    │   └── AuthorizationFailed ── TopicAuthorizationFailed, GroupAuthorizationFailed,
    │                              ClusterAuthorizationFailed, TransactionalIdAuthorizationFailed
    ├── SequenceError           an idempotent producer's sequence or epoch does not fit
    │   ├── OutOfOrderSequence, InvalidProducerEpoch, InvalidTransactionState
    │   └── TransactionCoordinatorFenced
    ├── LeadershipError         this broker cannot serve the partition (at the moment)
    │   ├── UnknownTopicOrPartition, NotLeader, LeaderNotAvailable
    │   ├── LeadershipLost      the leader stopped while the append was in flight: UNKNOWN
    │   └── FencedLeaderEpoch, UnknownLeaderEpoch
    ├── LogError                this broker leads the partition, but the operation failed
    │   ├── OffsetOutOfRange, OffsetNotAvailable, RequestTimedOut, Overloaded
    │   ├── NotEnoughReplicas, LogReadFailed
    ├── FetchSessionError       ── FetchSessionNotFound, InvalidFetchSessionEpoch,
    │                              FetchSessionTopicIdError
    ├── ShareError              a member of a share group asks for what it cannot have
    │   ├── InvalidRecordState, ShareSessionNotFound, InvalidShareSessionEpoch
    │   └── ShareSessionLimitReached
    ├── AccessUnknown, TooManyLogins    who asks cannot be let in, or may not, at the moment
    ├── PeerError               another broker was to be asked
    │   └── PeerUnavailable, PeerUnanswered
    ├── GroupError              what group coordinators answer
    └── TransactionError        what transaction coordinators answer
        ├── InvalidTransactionTimeout, InvalidProducerIdMapping, ProducerFenced
        └── ConcurrentTransactions, TransactionAbortable, TransactionalIdNotFound

As in `client.errors`, each class says whether it is `retriable` and what is known of the
`outcome`. What is stored and makes no sense is `client.errors.LogCorrupt`, for readers of
ledgers meet it too. Numbers of the Kafka protocol are not here: `broker/faults.py` is the only
mapping.
"""

from __future__ import annotations

from typing import Final

from client.errors import Outcome, QuireError
from client.ids import BrokerId, LeaderEpoch, Offset, ProducerId

NO_EPOCH: Final = LeaderEpoch(-1)


class BrokerError(QuireError):
    """Root of all errors that brokers raise."""


# --- the request is wrong -----------------------------------------------------------------


class RequestError(BrokerError):
    """The request itself is wrong."""


class InvalidRequest(RequestError):
    """A field's value, or a combination of fields, makes no sense."""


class UnsupportedVersion(RequestError):
    """This broker does not support that version of the API, or that special value of a field."""


class InvalidRequiredAcks(RequestError):
    """`acks` is not -1, 0 or 1."""


class InvalidTimestampQuery(UnsupportedVersion):
    """A ListOffsets timestamp below zero that we do not know."""


class InvalidRecord(RequestError):
    """A batch breaks the format or a rule of its topic.

    `record_indexes` names the offending records inside the batch, where single ones are to blame.
    """

    def __init__(self, text: str, *, record_indexes: tuple[int, ...] = ()) -> None:
        super().__init__(text)
        self.record_indexes = record_indexes


class CorruptBatch(InvalidRecord):
    """The batch's CRC does not match its bytes: damaged in transit, so resending may help."""

    retriable = True


class MessageTooLarge(InvalidRecord):
    """The batch is larger than the topic's `max.message.bytes`, or holds more records than the
    broker looks at: smaller ones may pass."""


class BatchTooLarge(InvalidRecord):
    """The batch is larger than a whole segment may be."""


class InvalidTimestamp(InvalidRecord):
    """The batch's timestamps are too far from now, or it claims a broker-set timestamp."""


class UnsupportedCompression(InvalidRecord):
    """The codec is unknown, or too new for the version of the API."""


class InvalidTopicName(RequestError):
    """The name breaks the rules, or clients may not write to that topic."""


class TopicExists(RequestError):
    """A topic with that name already exists."""


class InvalidPartitions(RequestError):
    """The partition count is out of range."""


class InvalidReplicationFactor(RequestError):
    """The replication factor is out of range, or there are too few bookies for it."""


class NoReassignmentInProgress(RequestError):
    """There is nothing to cancel: reassignments are done when they are answered."""


class InvalidUpdateVersion(RequestError):
    """A feature cannot have the level that was asked for."""


class InvalidRegularExpression(RequestError):
    """A client's pattern is none, or too large."""


class BrokerNotRegistered(RequestError):
    """There is no broker of that id."""


class InvalidReplicaAssignment(RequestError):
    """The manual assignment of replicas is inconsistent."""


class InvalidTopicConfig(RequestError):
    """A topic setting is unknown, malformed, out of range or contradicts another one."""


class PolicyViolation(RequestError):
    """The topic's configuration forbids the operation."""


class UnknownTopicId(RequestError):
    """No topic has that id, or no longer; clients refresh their metadata."""

    retriable = True


class InconsistentTopicId(RequestError):
    """The topic's id changed: it was deleted and created again."""

    retriable = True


# --- idempotent producers -----------------------------------------------------------------


class SequenceError(BrokerError):
    """A batch of an idempotent producer does not follow the one before it."""

    def __init__(self, producer_id: ProducerId, text: str) -> None:
        super().__init__(f"producer {producer_id}: {text}")
        self.producer_id = producer_id


class OutOfOrderSequence(SequenceError):
    """The first sequence is not the one after the last accepted batch."""

    def __init__(self, producer_id: ProducerId, text: str, *, first: int, expected: int) -> None:
        super().__init__(producer_id, text)
        self.first = first
        """First sequence of the batch."""
        self.expected = expected
        """The sequence it should have had."""


class InvalidProducerEpoch(SequenceError):
    """A newer instance of this producer has already written."""


class InvalidTransactionState(SequenceError):
    """The batch belongs to a transaction that is not open here."""


class TransactionCoordinatorFenced(SequenceError):
    """The log has the word of a newer coordinator of this producer than the one that asks."""


# --- leadership ---------------------------------------------------------------------------


class LeadershipError(BrokerError):
    """This broker does not lead the partition, or not yet; clients ask who does."""

    retriable = True


class UnknownTopicOrPartition(LeadershipError):
    """No such topic or partition, as far as this broker knows."""


class NotLeader(LeadershipError):
    """Another broker leads the partition. Nothing of the request was applied."""

    def __init__(
        self, text: str, *, leader: BrokerId | None = None, epoch: LeaderEpoch = NO_EPOCH
    ) -> None:
        super().__init__(text)
        self.leader = leader
        """Who leads it, as far as we know."""
        self.epoch = epoch


class LeaderNotAvailable(NotLeader):
    """This broker is opening the partition: ask again soon.

    Kafka's consumer treats LEADER_NOT_AVAILABLE in a fetch as a broker's bug, so fetches
    answer the not-leader code for it.
    """


class LeadershipLost(LeadershipError):
    """The leader was fenced, or stopped, while the append was in flight.

    The append may survive: a fenced add is like a timeout, and the next leader's recovery
    decides. If an idempotent producer resends the batch, it is stored exactly once.
    """

    outcome = Outcome.UNKNOWN


class FencedLeaderEpoch(LeadershipError):
    """The client's leader epoch is older than ours."""


class UnknownLeaderEpoch(LeadershipError):
    """The client's leader epoch is newer than ours: it knows a leader that we do not."""


# --- the log ------------------------------------------------------------------------------


class LogError(BrokerError):
    """The leader could not carry out the operation."""


class OffsetOutOfRange(LogError):
    """The offset is below the log start or above the log end, confirmed as the leader."""

    def __init__(self, offset: Offset, log_start_offset: Offset, log_end_offset: Offset) -> None:
        super().__init__(f"offset {offset} is outside [{log_start_offset}, {log_end_offset}]")
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class OffsetNotAvailable(LogError):
    """The end of the log is not known yet."""

    retriable = True


class RequestTimedOut(LogError):
    """The request timed out; it may still take effect."""

    retriable = True
    outcome = Outcome.UNKNOWN


class Overloaded(LogError):
    """Too many bytes are already waiting for the bookies; nothing was applied."""

    retriable = True


class NotEnoughReplicas(LogError):
    """Too few bookies can accept the write."""

    retriable = True


class SegmentsChanged(LogError):
    """Segments that were compacted are not listed as they were any more; nothing was applied."""


class CompactionFailed(LogError):
    """A partition cannot be compacted as it is; nothing of it was changed."""


class LogReadFailed(LogError):
    """No bookie could serve the read now."""

    retriable = True


class NotReadYet(LogReadFailed):
    """The object store has not answered yet. Whoever fetches gets nothing for now, and asks
    again."""


# --- fetch sessions -----------------------------------------------------------------------


class FetchSessionError(BrokerError):
    """The client falls back to a full fetch."""

    retriable = True


class FetchSessionNotFound(FetchSessionError):
    """There is no such session."""


class InvalidFetchSessionEpoch(FetchSessionError):
    """The session's epoch does not follow the previous one."""


class FetchSessionTopicIdError(FetchSessionError):
    """The session names topics by name and the request by id, or the other way round."""


# --- share groups -------------------------------------------------------------------------


class ShareError(BrokerError):
    """A member of a share group asked for what it cannot have."""


class InvalidRecordState(ShareError):
    """The member does not hold the records, or holds them no longer."""


class ShareSessionNotFound(ShareError):
    """There is no such session: the member begins a new one."""

    retriable = True


class InvalidShareSessionEpoch(ShareError):
    """The session's epoch does not follow the previous one."""

    retriable = True


class ShareSessionLimitReached(ShareError):
    """This broker has as many share sessions as it may."""

    retriable = True


# --- other brokers ------------------------------------------------------------------------


class PeerError(BrokerError):
    """Another broker has not answered."""

    retriable = True


class PeerUnavailable(PeerError):
    """It cannot be reached at the moment: nothing was sent."""


class PeerUnanswered(PeerError):
    """It was asked, and no answer came."""

    outcome = Outcome.UNKNOWN


# --- groups -------------------------------------------------------------------------------


class GroupError(BrokerError):
    """A group coordinator refused the request."""


class CoordinatorLoading(GroupError):
    """This broker is the coordinator and is still reading the group's log."""

    retriable = True


class CoordinatorNotAvailable(GroupError):
    """No broker can coordinate the group at the moment."""

    retriable = True


class NotCoordinator(GroupError):
    """Another broker coordinates the group, or the transactional id."""

    retriable = True


class OldConnection(NotCoordinator):
    """The request came late, over a connection that its client has replaced: close it.

    Nothing was applied. Whoever still listens there connects again and asks again.
    """


class UnknownMember(GroupError):
    """The member id is not in the group."""


class IllegalGeneration(GroupError):
    """The generation is not the group's current one."""


class RebalanceInProgress(GroupError):
    """The group is rebalancing: join again."""


class InconsistentGroupProtocol(GroupError):
    """The member's protocols have nothing in common with the group's."""


class InvalidGroupId(GroupError):
    """The group id is empty."""


class InvalidSessionTimeout(GroupError):
    """The session timeout is outside the allowed range."""


class MemberIdRequired(GroupError):
    """Join again with the member id in `member_id`."""

    def __init__(self, member_id: str) -> None:
        super().__init__(f"join again as {member_id}")
        self.member_id = member_id


class FencedInstanceId(GroupError):
    """Another member took over this group instance id."""


class FencedMemberEpoch(GroupError):
    """The member is not at the epoch it says: it has to give everything up and join again."""


class StaleMemberEpoch(GroupError):
    """The member is not at the epoch it says; its next heartbeat tells it the right one."""


class UnreleasedInstanceId(GroupError):
    """Another member that has not left has this group instance id."""


class UnsupportedAssignor(GroupError):
    """No assignor of that name is offered to members of the consumer protocol."""


class GroupIdNotFound(GroupError):
    """No such group."""


class NonEmptyGroup(GroupError):
    """The group has members, so it cannot be deleted."""


class GroupSubscribedToTopic(GroupError):
    """The group still consumes the topic, so its offsets cannot be deleted."""


class GroupMaxSizeReached(GroupError):
    """The group has as many members as it may."""


class OffsetMetadataTooLarge(GroupError):
    """The text committed with an offset is too long."""


# --- transactions -------------------------------------------------------------------------


class TransactionError(BrokerError):
    """A transaction coordinator refused the request."""


class InvalidTransactionTimeout(TransactionError):
    """The transaction's timeout is not positive, or longer than the broker allows."""


class InvalidProducerIdMapping(TransactionError):
    """The transactional id is unknown, or belongs to another producer id."""


class ConcurrentTransactions(TransactionError):
    """The transactional id is busy with a change or with its last transaction: ask again."""

    retriable = True


class ProducerFenced(TransactionError):
    """A newer instance of this producer has taken over its transactional id."""


class TransactionAbortable(TransactionError):
    """The partition is not part of the transaction: abort it, then go on."""


class TransactionalIdNotFound(TransactionError):
    """No such transactional id."""


class NoOpenTransaction(TransactionError):
    """The transactional id has no open transaction that could be aborted."""


class TransactionsDisabled(TransactionError):
    """This broker is set not to serve transactions; clients end with it."""


# --- who may do what -------------------------------------------------------------------------


class ResourceNotFound(RequestError):
    """What should be changed or described does not exist."""


class DuplicateResource(RequestError):
    """A request names the same thing twice."""


class UnacceptableCredential(RequestError):
    """A credential is weaker, or larger, than this broker takes."""


class AccessUnknown(BrokerError):
    """This broker is cut off from the metadata store for too long to know who may come in, or do
    what: another one does."""

    retriable = True


class TooManyLogins(BrokerError):
    """Of this address others are being checked, or were refused just now: later."""

    retriable = True


class SecurityDisabled(RequestError):
    """There are no access control lists on this broker."""


class ThrottlingQuotaExceeded(RequestError):
    """The client has done too much of that; it may come again later."""


class AuthorizationFailed(RequestError):
    """The client may not do that; whether what it names exists is not said."""


class TopicAuthorizationFailed(AuthorizationFailed):
    """Not to that topic."""


class GroupAuthorizationFailed(AuthorizationFailed):
    """Not to that group."""


class ClusterAuthorizationFailed(AuthorizationFailed):
    """Not to the cluster as a whole."""


class TransactionalIdAuthorizationFailed(AuthorizationFailed):
    """Not with that transactional id."""


class UnsupportedSaslMechanism(RequestError):
    """This broker does not have that SASL mechanism."""


class IllegalSaslState(RequestError):
    """It is not the time for that SASL request, or there is no SASL on this listener."""


class SaslAuthenticationFailed(RequestError):
    """The client is not who it says."""
