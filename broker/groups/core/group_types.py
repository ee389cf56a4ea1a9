"""The value types of group coordination: settings, states, durable values, requests, replies.

The group cores (`group`, `group_offsets`, `group_shard`) and their shell exchange these; nothing is
decided here. What members send in blobs (subscriptions, assignments, user data) stays opaque bytes
from end to end, because cooperative assignors, Connect and Schema Registry each use a format of
their own.

Sources: Kafka's JoinGroup/SyncGroup/OffsetCommit schemas, KIP-62 (rebalance timeout), KIP-345
(static members), KIP-394 (member id required), KIP-814 (skip assignment).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final, NamedTuple
from uuid import UUID

from broker.coordinator.core.coordinator_types import Append, LogRecord, Reply, Ticket
from broker.groups.core.consumer_group_records import ConsumerGroupEntry
from broker.partition.core.held_batches import ProducerTransaction
from client.errors import ConfigError
from client.ids import ProducerId

NO_MEMBER: Final = ""
"""The member id of a client that has none yet."""

ASSIGNOR_NAMES: Final = ("uniform", "range")
"""What brokers can do (`assignors`)."""

NO_GENERATION: Final = -1
"""Generation of a commit by a client outside the group protocol."""

NO_TOPIC_ID: Final = UUID(int=0)
"""Id of a topic that is known by its name only."""


class ConsumerTimes(NamedTuple):
    """How the members of a group of the consumer protocol are timed."""

    session_timeout_ms: int
    """How long a member may be silent; it cannot choose that."""
    heartbeat_interval_ms: int
    """How often it is told to send heartbeats, and so how soon it hears of a new assignment."""
    assignment_interval_ms: int
    """Shortest time between two target assignments of the group."""


_TIMES_MIN: Final = ConsumerTimes(45_000, 5_000, 0)
_TIMES_MAX: Final = ConsumerTimes(60_000, 15_000, 15_000)


@dataclass(slots=True, kw_only=True)
class GroupConfig:
    """Limits and delays of the group protocol; Kafka's defaults.

    One object for all groups of a broker: operators change them while it runs. Times that run
    already are as long as they were.
    """

    session_timeout_min_ms: int = 6_000
    """Shortest session a member may ask for. Lower: faster failure detection, more heartbeats."""
    session_timeout_max_ms: int = 1_800_000
    """Longest session a member may ask for. Higher: dead members keep partitions for longer."""
    initial_rebalance_delay_ms: int = 3_000
    """How long the first rebalance of an empty group waits for more members; 0 in tests."""
    new_member_join_timeout_ms: int = 300_000
    """A member that never got a join answer is dropped after this, or retries would pile up."""
    group_size_max: int = 10_000
    """Members per group. Higher: one leader receives all subscriptions in one response."""
    consumer_session_timeout_ms: int = 45_000
    """See `ConsumerTimes`; these three hold for groups without settings of their own."""
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_assignment_interval_ms: int = 1_000
    consumer_times_min: ConsumerTimes = _TIMES_MIN
    """What a single group may be set to, beside what holds for all of them."""
    consumer_times_max: ConsumerTimes = _TIMES_MAX
    own_times: Mapping[str, ConsumerTimes] = field(default_factory=dict)
    """By group, of those that have settings of their own (`group_settings.py`)."""
    consumer_size_max: int = 10_000
    """Members of a group of the consumer protocol."""
    share_session_timeout_ms: int = 45_000
    """How long a member of a share group may be silent before it is removed."""
    share_heartbeat_interval_ms: int = 5_000
    """How often they are told to send heartbeats."""
    share_assignment_interval_ms: int = 1_000
    """Shortest time between two target assignments of a share group."""
    share_size_max: int = 200
    """Members of a share group."""
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """Which assignors members may ask for; the first is taken if they do not."""
    offset_metadata_bytes_max: int = 4_096
    """Longest metadata string of a committed offset."""
    offsets_retention_ms: int = 7 * 86_400_000
    """How long offsets outlive their group (or, without members, their last commit)."""
    offsets_check_interval_ms: int = 600_000
    """How often expired offsets are looked for."""

    def __post_init__(self) -> None:
        """Check ranges and relations; raise ConfigError."""
        if not 0 < self.session_timeout_min_ms <= self.session_timeout_max_ms:
            raise ConfigError("0 < session_timeout_min_ms <= session_timeout_max_ms must hold")
        if self.initial_rebalance_delay_ms < 0 or self.new_member_join_timeout_ms <= 0:
            raise ConfigError("rebalance delays must not be negative")
        if self.group_size_max < 1 or not 0 <= self.offset_metadata_bytes_max <= 0x7FFF:
            raise ConfigError("group_size_max >= 1, 0 <= offset_metadata_bytes_max <= 32767")
        if not 0 < self.consumer_heartbeat_interval_ms < self.consumer_session_timeout_ms:
            raise ConfigError(
                "0 < consumer_heartbeat_interval_ms < consumer_session_timeout_ms must hold"
            )
        if self.consumer_assignment_interval_ms < 0 or self.consumer_size_max < 1:
            raise ConfigError("consumer_assignment_interval_ms >= 0, consumer_size_max >= 1")
        bounds = zip(self.consumer_times_min, self.consumer_times_max, strict=True)
        if any(least > most for least, most in bounds):
            raise ConfigError("consumer_times_min must not exceed consumer_times_max")
        if not 0 < self.share_heartbeat_interval_ms < self.share_session_timeout_ms:
            raise ConfigError(
                "0 < share_heartbeat_interval_ms < share_session_timeout_ms must hold"
            )
        if self.share_assignment_interval_ms < 0 or self.share_size_max < 1:
            raise ConfigError("share_assignment_interval_ms >= 0, share_size_max >= 1")
        unknown = set(self.consumer_assignors) - set(ASSIGNOR_NAMES)
        if unknown or not self.consumer_assignors:
            raise ConfigError(
                f"consumer_assignors: one or more of {', '.join(ASSIGNOR_NAMES)} are needed"
            )
        if self.offsets_retention_ms <= 0 or self.offsets_check_interval_ms <= 0:
            raise ConfigError("offset retention and its check interval must be positive")

    @property
    def common_times(self) -> ConsumerTimes:
        """What holds for groups without settings of their own."""
        return ConsumerTimes(
            self.consumer_session_timeout_ms,
            self.consumer_heartbeat_interval_ms,
            self.consumer_assignment_interval_ms,
        )

    def times(self, group_id: str) -> ConsumerTimes:
        """Return what holds for one group."""
        return self.own_times.get(group_id) or self.common_times

    def take(self, other: GroupConfig) -> None:
        """Become like another one."""
        for one in fields(self):
            setattr(self, one.name, getattr(other, one.name))


class GroupState(enum.Enum):
    """State of a group; the values are what tools compare literally."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    ASSIGNING = "Assigning"
    """Of the consumer protocol: a new target assignment has to be made."""
    RECONCILING = "Reconciling"
    """Of the consumer protocol: members are on their way to it."""
    STABLE = "Stable"
    DEAD = "Dead"


class GroupType(enum.Enum):
    """Which protocol the members of a group use, as tools name it."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


# --- durable values: what the log holds, and nothing else survives a fail-over ---------------


class MemberMetadata(NamedTuple):
    """One member as stored with its generation."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupMetadata(NamedTuple):
    """A group as stored: its last complete generation."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_since_ms: int
    """When the group entered the state that was stored (Empty or Stable); -1 if unknown."""
    members: tuple[MemberMetadata, ...]


class CommittedOffset(NamedTuple):
    """A committed offset with all that the client gave along."""

    offset: int
    leader_epoch: int
    """-1: the client did not say."""
    metadata: str
    commit_ms: int
    expire_ms: int
    """Explicit end of life asked for by OffsetCommit v2-4; -1: the broker's retention rules."""
    topic_id: UUID = NO_TOPIC_ID
    """Of which topic; NO_TOPIC_ID in records of Kafka and of earlier releases."""
    is_named: bool = False
    """The client gave the topic's name; the id is the one that the broker's view had for it."""


# --- requests ---------------------------------------------------------------------------------


class Join(NamedTuple):
    """A JoinGroup request, versions levelled out by the handler."""

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    """(name, metadata) in the member's order of preference."""
    requires_member_id: bool
    """v4+: a new dynamic member first learns its id, then joins with it."""
    can_skip_assignment: bool
    """v9+: the client understands `skip_assignment`."""
    reason: str = ""


class Sync(NamedTuple):
    """A SyncGroup request; only the leader's `assignments` count."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: tuple[tuple[str, bytes], ...]


class Heartbeat(NamedTuple):
    """A Heartbeat request."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int


class Leaving(NamedTuple):
    """One member of a LeaveGroup request; an empty member id removes by instance id."""

    member_id: str
    instance_id: str | None


class Commit(NamedTuple):
    """One OffsetCommit request: who commits."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    """Or the member's epoch, in a group of the consumer protocol."""
    has_member_epoch: bool = True
    """Whether the request is of a version that knows of member epochs."""


class ProducerEpoch(NamedTuple):
    """The transaction that a TxnOffsetCommit belongs to."""

    producer_id: ProducerId
    epoch: int
    transaction: ProducerTransaction


class OffsetToCommit(NamedTuple):
    """One partition of an OffsetCommit request."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    topic_id: UUID = NO_TOPIC_ID
    is_named: bool = False
    """See `CommittedOffset`."""


# --- replies ----------------------------------------------------------------------------------


class JoinedMember(NamedTuple):
    """A member as the leader sees it in its join answer."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinReply(NamedTuple):
    """A successful JoinGroup answer."""

    member_id: str
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str
    members: tuple[JoinedMember, ...]
    """Only for the leader; empty for everybody else."""
    skip_assignment: bool = False


class SyncReply(NamedTuple):
    """A successful SyncGroup answer."""

    protocol_type: str | None
    protocol_name: str | None
    assignment: bytes


class MemberDescription(NamedTuple):
    """A member as DescribeGroups shows it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupHeadline(NamedTuple):
    """A group as a list of groups shows it."""

    group_id: str
    state: GroupState
    protocol_type: str
    member_count: int
    group_type: GroupType = GroupType.CLASSIC


class GroupDescription(NamedTuple):
    """A group as DescribeGroups and ListGroups show it."""

    group_id: str
    state: GroupState
    protocol_type: str
    protocol: str
    members: tuple[MemberDescription, ...]
    group_type: GroupType = GroupType.CLASSIC


# --- effects ----------------------------------------------------------------------------------


class Store(NamedTuple):
    """Append the group's metadata; then `replay` it and call `on_stored(ticket)`."""

    ticket: Ticket
    metadata: GroupMetadata


class StoreEntries(NamedTuple):
    """Append what changed in a group of the consumer protocol; then `replay` each entry and call
    `on_stored(ticket)`."""

    ticket: Ticket
    entries: tuple[ConsumerGroupEntry, ...]


class AppendPending(NamedTuple):
    """Append these records as batches of a producer's transaction, replay them once durable, then
    `on_stored(ticket)`."""

    ticket: Ticket
    records: tuple[LogRecord, ...]
    producer: ProducerEpoch


REBALANCING: Final = "group.rebalancing"
"""The event that members have to join again."""


class Event(NamedTuple):
    """Something an operator wants to read in the log; carries no protocol meaning."""

    name: str
    group_id: str
    generation: int
    member_count: int
    reason: str


GroupEffect = Reply | Store | StoreEntries | Event
GroupEffects = Sequence[GroupEffect]

ShardEffect = Reply | Append | AppendPending | Event
ShardEffects = Sequence[ShardEffect]
