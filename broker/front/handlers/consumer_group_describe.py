"""ConsumerGroupDescribe (69), versions 0-1: members, epochs and assignments of groups whose
partitions the broker divides (KIP-848).

Behaviour: a group that does not exist, or has members of the classic protocol, is
GROUP_ID_NOT_FOUND. A client that may not describe every topic in a group's assignments sees none of
its members, and TOPIC_AUTHORIZATION_FAILED. Share groups are described in the same way
(`share_group_describe.py`), with fewer fields.

Versions: 1+ the protocol of each member.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from broker.errors import BrokerError, GroupIdNotFound, InvalidGroupId
from broker.faults import Code, code_of, message_of
from broker.front.services import Call, Services
from broker.groups.core.consumer_group_description import (
    ConsumerGroupDescription,
    ConsumerMemberDescription,
)
from broker.groups.core.consumer_group_records import Held, Partitions
from broker.groups.core.group_table import GroupView
from broker.groups.core.group_types import GroupState
from broker.security.core.acls import ResourceType
from broker.security.rights import DESCRIBE_GROUP, DESCRIBE_TOPIC, OPERATIONS_NOT_ASKED
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.codec import field

KEY: Final = ApiKey.CONSUMER_GROUP_DESCRIBE
VERSIONS: Final = (0, 1)
NEEDS: Final = (DESCRIBE_GROUP, DESCRIBE_TOPIC)

_CONSUMER_MEMBER: Final = 1
"""Of a member: it uses the consumer protocol."""


class Kind(NamedTuple):
    """A kind of group whose partitions the broker divides."""

    name: str
    find: Callable[[GroupView, str], ConsumerGroupDescription | None]
    assignments: tuple[str, ...]
    """Which assignments of a member are told."""


_CONSUMERS: Final = Kind(
    "consumer", GroupView.describe_consumer, ("assignment", "target_assignment")
)


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Describe each group, one that is named twice once."""
    return await describe(services, call, request, _CONSUMERS)


async def describe(services: Services, call: Call, request: Any, kind: Kind) -> Mapping[str, Any]:
    """Describe each group of a kind, one that is named twice once. Fields that the answer of the
    kind does not have are left out when it is encoded."""
    pace = services.turns.pace()
    groups = []
    for group_id in dict.fromkeys(request.group_ids):
        await pace.item()
        row = _describe(services, call, group_id, kind)
        for _ in row["members"]:
            await pace.item()
        if field(request, "include_authorized_operations") and row["error_code"] == Code.none:
            may = services.rights.operations(call.peer, ResourceType.GROUP, group_id)
            row["authorized_operations"] = may
        groups.append(row)
    return {"groups": groups}


def _describe(services: Services, call: Call, group_id: str, kind: Kind) -> dict[str, Any]:
    try:
        if not group_id:
            raise InvalidGroupId("the group id is empty")
        services.rights.require(call.peer, DESCRIBE_GROUP, group_id)
        view = services.groups.coordinator(group_id).view()
        description = kind.find(view, group_id)
        if description is None:
            known = view.headline(group_id)
            what = f"is not a {kind.name} group" if known else "not found"
            raise GroupIdNotFound(f"Group {group_id[:249]} {what}.")
        row = _row(services, description)
        for name in _named(row, kind):
            services.rights.require(call.peer, DESCRIBE_TOPIC, name)
    except BrokerError as error:
        nothing = ConsumerGroupDescription(group_id, GroupState.DEAD, 0, 0, "", ())
        row = {**_row(services, nothing), "group_state": ""}
        return {**row, "error_code": code_of(error), "error_message": message_of(error)}
    return row


def _named(row: Mapping[str, Any], kind: Kind) -> set[str]:
    return {
        topic["topic_name"]
        for member in row["members"]
        for assignment in kind.assignments
        for topic in member[assignment]["topic_partitions"]
    }


def _row(services: Services, group: ConsumerGroupDescription) -> dict[str, Any]:
    return {
        "error_code": Code.none,
        "error_message": None,
        "group_id": group.group_id,
        "group_state": group.state.value,
        "group_epoch": group.epoch,
        "assignment_epoch": group.target_epoch,
        "assignor_name": group.assignor,
        "members": [_member(services, one) for one in group.members],
        "authorized_operations": OPERATIONS_NOT_ASKED,
    }


def _member(services: Services, member: ConsumerMemberDescription) -> dict[str, Any]:
    subscriber = member.subscriber
    return {
        "member_id": member.member_id,
        "instance_id": subscriber.instance_id,
        "rack_id": subscriber.rack_id,
        "member_epoch": member.current.epoch,
        "client_id": subscriber.client_id,
        "client_host": subscriber.client_host,
        "subscribed_topic_names": list(subscriber.topics),
        "subscribed_topic_regex": subscriber.pattern,
        "assignment": _assignment(services, member.current.assigned),
        "target_assignment": _assignment(services, member.target),
        "member_type": _CONSUMER_MEMBER,
    }


def _assignment(services: Services, held: Held | Partitions) -> Mapping[str, Any]:
    topics = []
    for topic_id, indexes in held.items():
        topic = services.cluster.topic_by_id.get(topic_id)
        if topic is not None:
            topics.append(
                {"topic_id": topic_id, "topic_name": topic.name, "partitions": sorted(indexes)}
            )
    return {"topic_partitions": topics}
