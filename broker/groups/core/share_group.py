"""What heartbeats do to a share group (KIP-932): its members share partitions instead of dividing
them.

It is a group of the consumer protocol without what keeps partitions apart: nobody has to give
anything up before another one gets it, so a member is at the target as soon as it asks. Which
records a member holds is between it and the leader of the partition
(`broker/partition/core/shares/`). There are no static members, patterns or offsets to commit.

Each group has an incarnation, made with its first epoch. A leader asks for it before it lends
records to a member, so that what it keeps for a group is not taken for that of a later one of the
same name.

    epoch 0    join, or join again
    epoch > 0  still there; the epoch it was told last, or the one before if the answer was lost
    epoch -1   leave

`simple`, the only assignor: every partition goes to at least one member, and every member gets at
least one partition of each topic that it wants. Source: Kafka's ShareGroup, SimpleAssignor and
GroupMetadataManager (shareGroup*).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final
from uuid import UUID

from broker.coordinator.core.coordinator_types import Now, Ticket
from broker.errors import FencedMemberEpoch, GroupIdNotFound, InvalidRequest, UnknownMember
from broker.groups.core.assignors import Targets
from broker.groups.core.consumer_group import ConsumerGroup, Topics
from broker.groups.core.consumer_group_records import (
    NO_INCARNATION,
    Current,
    MemberState,
    Part,
    TargetEpoch,
)
from broker.groups.core.consumer_group_state import NOTHING, ConsumerGroupState
from broker.groups.core.consumer_heartbeat import JOINING, LEAVING, ConsumerHeartbeat
from broker.groups.core.group_types import (
    REBALANCING,
    Commit,
    GroupConfig,
    GroupState,
    GroupType,
    OffsetToCommit,
)

NAME_CHARS_MAX: Final = 255
"""Of a share group and a member: every leader of its partitions keeps them."""
ASSIGNOR: Final = "simple"
PROTOCOL_TYPE: Final = "share"


def check_share_heartbeat(request: ConsumerHeartbeat) -> None:
    """Check what needs no group to be checked; Kafka's texts. Raises InvalidRequest."""
    if not request.member_id:
        raise InvalidRequest("MemberId can't be empty.")
    if max(len(request.group_id), len(request.member_id)) > NAME_CHARS_MAX:
        raise InvalidRequest(f"GroupId and MemberId have at most {NAME_CHARS_MAX} characters.")
    if request.rack_id == "":
        raise InvalidRequest("RackId can't be empty.")
    if request.epoch == JOINING and not request.topics:
        raise InvalidRequest("SubscribedTopicNames must be set in first request.")
    if request.epoch < LEAVING:
        raise InvalidRequest(f"MemberEpoch is invalid: {request.epoch}.")


def simple(wishes: Mapping[str, frozenset[UUID]], partition_counts: Mapping[UUID, int]) -> Targets:
    """Return the partitions of each member. `wishes`: the topics, which exist, of each."""
    members = sorted(wishes)
    found: Targets = {member_id: {} for member_id in members}
    for topic_id, count in sorted(partition_counts.items()):
        takers = [member_id for member_id in members if topic_id in wishes[member_id]]
        shared: dict[str, set[int]] = {member_id: set() for member_id in takers}
        for turn in range(max(count, len(takers)) if takers and count else 0):
            shared[takers[turn % len(takers)]].add(turn % count)
        for member_id, indexes in shared.items():
            if indexes:
                found[member_id][topic_id] = frozenset(indexes)
    return found


class ShareGroupState(ConsumerGroupState):
    """The durable state of a share group: a partition may have many owners, so none is kept."""

    __slots__ = ()

    def check(self) -> None:
        """Assert that epochs stay below the group's."""
        assert self.target_epoch.epoch <= self.group.epoch
        for current in self.current.values():
            assert current.epoch <= self.target_epoch.epoch
        assert bool(self.group.epoch) == (self.group.incarnation != NO_INCARNATION)

    def _own(self, name: str) -> None:
        pass

    def _disown(self, name: str) -> None:
        pass


class ShareGroup(ConsumerGroup):
    """One share group. Public methods return effects, in order."""

    protocol_type = PROTOCOL_TYPE
    group_type = GroupType.SHARE

    def __init__(
        self,
        group_id: str,
        config: GroupConfig,
        topics: Topics,
        *,
        new_ticket: Callable[[], Ticket],
        new_incarnation: Callable[[], UUID],
    ) -> None:
        """Start empty."""
        super().__init__(group_id, config, topics, new_ticket=new_ticket)
        self.durable = ShareGroupState()
        self._new_incarnation = new_incarnation

    def incarnation_for(self, member_id: str) -> UUID:
        """Return what tells this group from others of its name, for one of its members.

        Raises UnknownMember.
        """
        self._check_alive()
        if member_id not in self.durable.members:
            raise UnknownMember(member_id)
        return self.durable.group.incarnation

    # --- where it differs ---------------------------------------------------------------------

    @property
    def _session_timeout_ms(self) -> int:
        return self._config.share_session_timeout_ms

    @property
    def _size_max(self) -> int:
        return self._config.share_size_max

    @property
    def _assignment_interval_ms(self) -> int:
        return self._config.share_assignment_interval_ms

    @property
    def assignor(self) -> str:
        """There is one."""
        return ASSIGNOR

    @property
    def state(self) -> GroupState:
        """Where the group stands, as tools name it."""
        if self._is_dead:
            return GroupState.DEAD
        return GroupState.STABLE if self.durable.members else GroupState.EMPTY

    def check_commit(
        self,
        commit: Commit,
        now: Now,
        *,
        offsets: Sequence[OffsetToCommit] = (),
        is_transactional: bool = False,
    ) -> None:
        """Refuse: what a share group has read is told by acknowledgements. Raises
        GroupIdNotFound."""
        raise GroupIdNotFound(f"group {self.group_id} is a share group, which commits no offsets")

    def check_fetch(self, member_id: str, epoch: int) -> None:
        """Refuse. Raises GroupIdNotFound."""
        raise GroupIdNotFound(f"group {self.group_id} is a share group, which commits no offsets")

    def _check_epoch(self, request: ConsumerHeartbeat, current: Current) -> None:
        if request.epoch not in (JOINING, current.epoch, current.previous_epoch):
            raise FencedMemberEpoch(
                f"member {request.member_id} is at epoch {current.epoch}, not {request.epoch}: it"
                " has to join again"
            )

    def _raise_epoch(self) -> None:
        group = self._state.group
        if group.incarnation == NO_INCARNATION:
            group = group._replace(incarnation=self._new_incarnation())
        self._change(Part.GROUP, "", group._replace(epoch=self._next_epoch()))

    def _assign(self, now: Now) -> None:
        """Give every partition to somebody, and everybody something."""
        state = self._state
        shapes: dict[UUID, int] = {}
        wishes: dict[str, frozenset[UUID]] = {}
        for member_id, one in state.members.items():
            topics = self._topics_of(one)
            shapes.update((topic.topic_id, topic.partition_count) for topic in topics)
            wishes[member_id] = frozenset(topic.topic_id for topic in topics)
        for member_id, target in simple(wishes, shapes).items():
            if member_id not in state.targets or state.targets[member_id] != target:
                self._change(Part.TARGET, member_id, target)
        self._change(Part.TARGET_EPOCH, "", TargetEpoch(state.group.epoch, now.ms))
        self._event(REBALANCING, f"epoch {state.group.epoch}")

    def _reconcile(self, request: ConsumerHeartbeat) -> Current:
        """The member is at the target: nobody else has to give anything up for that."""
        state = self._state
        current = state.current.get(request.member_id, NOTHING)
        subscribed = {topic.topic_id for topic in self._topics_of(state.members[request.member_id])}
        target = state.targets.get(request.member_id, {})
        epoch = state.target_epoch.epoch
        previous = current.epoch if current.epoch != epoch else current.previous_epoch
        assigned = {
            topic_id: dict.fromkeys(sorted(indexes), 0)
            for topic_id, indexes in target.items()
            if topic_id in subscribed
        }
        new = Current(epoch, previous, MemberState.STABLE, assigned, {})
        self._change(Part.CURRENT, request.member_id, new)
        return new
