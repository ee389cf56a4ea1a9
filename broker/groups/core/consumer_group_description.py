"""What people are shown of a group of the consumer protocol, and of what its members wait for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from broker.groups.core.consumer_group_records import Current, Partitions, Subscriber
from broker.groups.core.consumer_heartbeat import LEAVING_STATIC
from broker.groups.core.group_types import GroupState


class ConsumerMemberDescription(NamedTuple):
    """A member as ConsumerGroupDescribe shows it."""

    member_id: str
    subscriber: Subscriber
    current: Current
    target: Partitions


class ConsumerGroupDescription(NamedTuple):
    """A group as ConsumerGroupDescribe shows it."""

    group_id: str
    state: GroupState
    epoch: int
    target_epoch: int
    assignor: str
    members: tuple[ConsumerMemberDescription, ...]


def what_it_waits_for(
    group: ConsumerGroupDescription, member: ConsumerMemberDescription, names: Mapping[UUID, str]
) -> str | None:
    """Say what keeps a member from its target, for people; None: nothing does.

    `names`: of topics.
    """
    current = member.current
    if current.epoch == LEAVING_STATIC:
        return f"instance {member.subscriber.instance_id} to come back"
    if current.revoking:
        return f"itself, to give up {_listed(current.revoking, names)}"
    owners = {
        (topic_id, index): one.member_id
        for one in group.members
        for held in (one.current.assigned, one.current.revoking)
        for topic_id, indexes in held.items()
        for index in indexes
    }
    found: dict[str, dict[UUID, set[int]]] = {}
    for topic_id, indexes in member.target.items():
        for index in indexes:
            owner = owners.get((topic_id, index))
            if owner is not None and owner != member.member_id:
                found.setdefault(owner, {}).setdefault(topic_id, set()).add(index)
    if found:
        waits = (f"{_listed(held, names)} of {owner}" for owner, held in sorted(found.items()))
        return "; ".join(waits)
    return "its next heartbeat" if current.epoch != group.target_epoch else None


def _listed(partitions: Mapping[UUID, Iterable[int]], names: Mapping[UUID, str]) -> str:
    return ", ".join(
        f"{names.get(topic_id, topic_id)} {' '.join(map(str, sorted(indexes)))}"
        for topic_id, indexes in partitions.items()
    )
