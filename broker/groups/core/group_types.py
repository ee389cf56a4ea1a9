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
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final, NamedTuple

from broker.coordinator.core.coordinator_types import Append, LogRecord, Reply, Ticket
from broker.partition.core.transactions.verification import ProducerTransaction
from client.errors import ConfigError
from client.ids import ProducerId

NO_MEMBER: Final = ""
"""The member id of a client that has none yet."""

NO_GENERATION: Final = -1
"""Generation of a commit by a client outside the group protocol."""


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
        if self.offsets_retention_ms <= 0 or self.offsets_check_interval_ms <= 0:
            raise ConfigError("offset retention and its check interval must be positive")

    def take(self, other: GroupConfig) -> None:
        """Become like another one."""
        for one in fields(self):
            setattr(self, one.name, getattr(other, one.name))


class GroupState(enum.Enum):
    """State of a classic group; the values are what tools compare literally."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


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


class GroupDescription(NamedTuple):
    """A group as DescribeGroups and ListGroups show it."""

    group_id: str
    state: GroupState
    protocol_type: str
    protocol: str
    members: tuple[MemberDescription, ...]


# --- effects ----------------------------------------------------------------------------------


class Store(NamedTuple):
    """Append the group's metadata; then `replay` it and call `on_stored(ticket)`."""

    ticket: Ticket
    metadata: GroupMetadata


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


GroupEffect = Reply | Store | Event
GroupEffects = Sequence[GroupEffect]

ShardEffect = Reply | Append | AppendPending | Event
ShardEffects = Sequence[ShardEffect]
