"""/groups: members, offsets and lag of consumer groups; resetting offsets; deleting groups."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

from broker.admin.context import AdminContext, at_broker, at_coordinator, at_new_coordinator
from broker.admin.lags import PLACES_MAX, Lag, Place, totals
from broker.admin.operation import Operation, Role
from broker.admin.pages import QUERY, SILENT, merged_page, page
from broker.admin.problems import wrong_field
from broker.admin.request import JSON, AdminRequest, Answer
from broker.admin.resources.group_settings import settings_of
from broker.admin.resources.partitions import EARLIEST, LATEST, TIMESTAMP, place_of
from broker.admin.schema import (
    INT_MAX,
    LONG_MIN,
    Schema,
    list_of,
    nullable,
    number,
    record,
    ref,
    text,
    truth,
    whole,
)
from broker.cluster.core.topology import TopicInfo
from broker.errors import GroupIdNotFound, NonEmptyGroup, NotCoordinator
from broker.groups.coordinator import Coordinator
from broker.groups.core.consumer_group_description import (
    ConsumerGroupDescription,
    what_it_waits_for,
)
from broker.groups.core.consumer_protocol import PROTOCOL_TYPE, assigned_partitions
from broker.groups.core.group_table import GroupView
from broker.groups.core.group_types import (
    NO_GENERATION,
    NO_MEMBER,
    Commit,
    GroupDescription,
    GroupHeadline,
    GroupType,
    MemberDescription,
    OffsetToCommit,
)
from broker.groups.core.share_offset_messages import OffsetsQuestion, What
from client.ids import Offset

OFFSET: Final = "offset"
_LAGS: Final = {
    "lag_records": nullable(whole("Records not read yet; null: not known.")),
    "lag_seconds": nullable(number("Age of the oldest record not read yet; null: not known.")),
}
_ROW: Final = {
    "group": text("Its name."),
    "state": text("Kafka's name of its state: Empty, Stable, ..."),
    "protocol_type": text("consumer or share, for consumers; empty: it never had members."),
    "type": text(
        "Who divides the partitions: a member (classic), the broker (consumer), nobody (share).",
        enum=[one.value for one in GroupType],
    ),
    "coordinator": whole("The broker that coordinates it."),
}
_PARTITION: Final = {
    "topic": text("The topic.", minLength=1, maxLength=249),
    "partition": whole("The partition.", 0, INT_MAX),
}
SCHEMAS: Final[Mapping[str, Schema]] = {
    "GroupRow": record(
        "A consumer group in short; its lags are some seconds old.",
        {**_ROW, "members": whole("Members."), **_LAGS},
    ),
    "GroupPage": record(
        "Groups by name.",
        {
            "items": list_of(ref("GroupRow"), "What was asked for, in order."),
            "next": nullable(text("Pass it as `after` to continue; null: this was the last page.")),
            SILENT: list_of(whole("A broker."), "Brokers whose groups are missing here."),
        },
    ),
    "GroupMember": record(
        "A member.",
        {
            "member_id": text("Its id in the group."),
            "instance_id": nullable(text("Its group instance id, if it is a static member.")),
            "client_id": text("What the client calls itself."),
            "client_host": text("The address it connects from."),
            "epoch": nullable(
                whole("Of a member of type consumer: the epoch of its assignment.", -2)
            ),
            "waits_for": nullable(text("What keeps such a member from its target; null: nothing.")),
            "assignment": list_of(
                record(
                    "Partitions of a topic.",
                    {
                        "topic": text("The topic."),
                        "partitions": list_of(whole("A partition."), "Which."),
                    },
                ),
                "What it reads, if it is a consumer.",
            ),
        },
    ),
    "GroupOffset": record(
        "How far a group has read a partition.",
        {
            "topic": text("The topic."),
            "partition": whole("The partition."),
            "committed_offset": whole(
                "The next offset to read, as it was committed; of a share group the first that is"
                " not settled.",
                LONG_MIN,
            ),
            "committed_ms": whole("When it was committed.", -1),
            "metadata": text("What the client stored with it."),
            "high_watermark": nullable(whole("Offset after the last confirmed record.")),
            "member_id": nullable(text("The member that reads it.")),
            **_LAGS,
        },
    ),
    "GroupPendingOffset": record(
        "An offset committed in a transaction that has not ended.",
        {
            "topic": text("The topic."),
            "partition": whole("The partition."),
            "offset": whole("The next offset to read, if the transaction commits.", LONG_MIN),
            "committed_ms": whole("When it was committed.", -1),
            "producer_id": whole("Whose transaction it is."),
            "producer_epoch": whole("The producer's epoch."),
        },
    ),
    "Group": record(
        "A consumer group.",
        {
            **_ROW,
            "protocol": text("How its members divide the partitions."),
            "members": list_of(ref("GroupMember"), "Its members."),
            "offsets": list_of(ref("GroupOffset"), "Its committed offsets."),
            "pending": list_of(
                ref("GroupPendingOffset"),
                "Offsets of transactions that have not ended: consumers of committed data wait for"
                " their ends before they begin to read.",
            ),
            "settings": list_of(ref("GroupSetting"), "What was set for it."),
            **_LAGS,
        },
    ),
    "Reset": record(
        "Where a group should continue to read a topic.",
        {
            "topic": _PARTITION["topic"],
            "partitions": list_of(_PARTITION["partition"], "Which partitions; missing: all.", 1),
            "to": text("The place.", enum=[EARLIEST, LATEST, TIMESTAMP, OFFSET]),
            "timestamp_ms": whole("With to=timestamp: the first record from that time on."),
            "offset": whole("With to=offset: that one, or the nearest there is."),
            "dry_run": truth("Only show what would be done.", default=False),
        },
        optional=("partitions", "timestamp_ms", "offset", "dry_run"),
    ),
    "ResetOffsets": record(
        "The offsets after a reset.",
        {
            "is_done": truth("False after a dry run."),
            "offsets": list_of(
                record(
                    "One partition.",
                    {
                        **_PARTITION,
                        "before": nullable(whole("What was committed; null: nothing.", LONG_MIN)),
                        "after": whole("What is committed now, or would be."),
                    },
                ),
                "Partitions by number.",
            ),
        },
    ),
    "Places": record(
        "Places to look at.",
        {
            "places": list_of(
                record(
                    "A place.",
                    # Kafka takes a commit below 0, and so do we: it counts from the log start.
                    {**_PARTITION, "offset": whole("The next offset to read.", LONG_MIN)},
                ),
                "Which.", 0, PLACES_MAX,
            )
        },
    ),
    "PlaceLags": record(
        "How far the ends of the logs are from the places; those led elsewhere are left out.",
        {
            "places": list_of(
                record(
                    "A place.",
                    {
                        **_PARTITION,
                        "offset": whole("As asked for.", LONG_MIN),
                        "high_watermark": whole("Offset after the last confirmed record."),
                        "records": whole("Records between the two."),
                        "oldest_ms": nullable(whole("Timestamp of the first of them.")),
                    },
                ),
                "In the order of the request.",
            )
        },
    ),
}  # fmt: skip


# --- lists ----------------------------------------------------------------------------------


async def list_coordinated(context: AdminContext, request: AdminRequest) -> Answer:
    """List the groups that this broker coordinates."""
    topic, turns = request.query.get("topic"), context.broker.services.turns
    found: list[GroupHeadline] = []
    for coordinator in context.broker.groups.coordinators():
        try:
            found += await _of_topic(context, coordinator, topic)
        except NotCoordinator:
            continue  # whoever coordinates them now lists them
    lags: dict[str, list[Lag]] = {}
    for row in context.lags.latest:
        if topic in (None, row.key.topic):
            lags.setdefault(row.group, []).append(row.lag)
    now_ms = context.lags.now_ms()
    answer = await page(
        turns, sorted(found, key=lambda one: one.group_id), request.query, lambda one: one.group_id,
        lambda one: {
            **_row(context, one), "members": one.member_count,
            **totals(lags.get(one.group_id, ()), now_ms),
        },
    )  # fmt: skip
    answer.body[SILENT] = []
    return answer


async def _of_topic(
    context: AdminContext, coordinator: Coordinator, topic: str | None
) -> list[GroupHeadline]:
    """Return the groups that have read a topic, or may read it now; all, if None is given.

    Raises NotCoordinator.
    """
    view, pace = coordinator.view(), context.broker.services.turns.pace()
    groups = []
    for group_id in view.group_ids():
        await pace.item()
        headline = view.headline(group_id)
        if headline is not None and (topic is None or await _reads(context, view, group_id, topic)):
            groups.append(headline)
    return groups


async def _reads(context: AdminContext, view: GroupView, group_id: str, topic: str) -> bool:
    if view.committed(group_id).has_topic(topic):
        return True
    group = view.describe(group_id)
    if group is None:
        return False
    pace = context.broker.services.turns.pace()
    for member in group.members:
        await pace.item()
        if topic in _assigned(group, member):
            return True
    return False


async def list_groups(context: AdminContext, request: AdminRequest) -> Answer:
    """List the groups of all brokers."""
    return await merged_page(context, request, "groups", list_coordinated, "group")


def _row(context: AdminContext, group: GroupHeadline | GroupDescription) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "state": group.state.value,
        "protocol_type": group.protocol_type,
        "type": group.group_type.value,
        "coordinator": context.me,
    }


async def find_lags(context: AdminContext, request: AdminRequest) -> Answer:
    """Say how far places are behind, for the coordinators of groups elsewhere."""
    places = [Place(**place) for place in request.body["places"]]
    found = await context.lags.here(places)
    return Answer(
        {
            "places": [
                {**place._asdict(), **found[place]._asdict()} for place in places if place in found
            ]
        }
    )


# --- one group ------------------------------------------------------------------------------


async def describe_group(context: AdminContext, request: AdminRequest) -> Answer:
    """Describe a group with its lag."""
    name = request.path["group"]
    coordinator = context.broker.groups.coordinator(name)
    group = coordinator.view().describe(name)
    if group is None:
        raise GroupIdNotFound(f"there is no group {name!r}")
    committed = sorted(coordinator.view().committed(name))
    places = {key: Place(*key, one.offset) for key, one in committed}
    lags = await context.lags.everywhere(list(places.values()))
    readers = _readers(group)
    now_ms = context.lags.now_ms()
    offsets, members = [], []
    pace = context.broker.services.turns.pace()
    for key, one in committed:
        await pace.item()
        lag = lags.get(places[key])
        offsets.append(
            {
                "topic": key.topic,
                "partition": key.partition,
                "committed_offset": one.offset,
                "committed_ms": one.commit_ms,
                "metadata": one.metadata,
                "high_watermark": lag.high_watermark if lag else None,
                "member_id": readers.get((key.topic, key.partition)),
                **totals([lag] if lag else [], now_ms),
            }
        )
    if group.group_type is GroupType.SHARE:
        offsets = await _shared(context, coordinator.last_view, name)
    view = coordinator.last_view
    progress = _progress(context, view.describe_consumer(name) or view.describe_share(name))
    for member in group.members:
        await pace.item()
        epoch, waits_for = progress.get(member.member_id, (None, None))
        row = {**_member(group, member), "epoch": epoch, "waits_for": waits_for}
        members.append(row)
    return Answer(
        {
            **_row(context, group),
            "protocol": group.protocol,
            "members": members,
            "offsets": offsets,
            "pending": _pending(coordinator.last_view, name),
            "settings": [row for row in settings_of(context, name) if row["source"] == "group"],
            **totals(lags.values(), now_ms),
        }
    )


async def _shared(context: AdminContext, view: GroupView, name: str) -> list[dict[str, Any]]:
    """Return where a share group is in each partition, as their leaders say."""
    incarnation = view.incarnation(name)
    if incarnation is None:
        return []
    services = context.broker.services
    question = OffsetsQuestion(name, incarnation, What.DESCRIBE, ())
    found = []
    for row in await services.shares.offsets.all_of(question):
        topic = services.cluster.topic_by_id.get(row.topic_id)
        if topic is not None:
            found.append(
                {
                    "topic": topic.name,
                    "partition": row.partition,
                    "committed_offset": row.start,
                    "committed_ms": -1,
                    "metadata": "",
                    "high_watermark": None,
                    "member_id": None,
                    "lag_records": row.lag,
                    "lag_seconds": None,
                }
            )
    return sorted(found, key=itemgetter("topic", "partition"))


def _pending(view: GroupView, name: str) -> list[dict[str, Any]]:
    return [
        {
            "topic": key.topic,
            "partition": key.partition,
            "offset": pending.committed.offset,
            "committed_ms": pending.committed.commit_ms,
            "producer_id": producer_id,
            "producer_epoch": pending.producer_epoch,
        }
        for key, producer_id, pending in sorted(view.pending(name))
    ]


def _assigned(group: GroupDescription, member: MemberDescription) -> Mapping[str, Sequence[int]]:
    if group.protocol_type != PROTOCOL_TYPE and group.group_type is not GroupType.SHARE:
        return {}
    return assigned_partitions(member.assignment) or {}


def _member(group: GroupDescription, member: MemberDescription) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "assignment": [
            {"topic": topic, "partitions": list(partitions)}
            for topic, partitions in sorted(_assigned(group, member).items())
        ],
    }


def _progress(
    context: AdminContext, group: ConsumerGroupDescription | None
) -> dict[str, tuple[int, str | None]]:
    """Return the epoch of each member, and what keeps it from its target, by member id."""
    if group is None:
        return {}
    names = {topic_id: one.name for topic_id, one in context.broker.cluster.topic_by_id.items()}
    return {
        one.member_id: (one.current.epoch, what_it_waits_for(group, one, names))
        for one in group.members
    }


def _readers(group: GroupDescription) -> dict[tuple[str, int], str]:
    return {
        (topic, partition): member.member_id
        for member in group.members
        for topic, partitions in _assigned(group, member).items()
        for partition in partitions
    }


async def delete_group(context: AdminContext, request: AdminRequest) -> Answer:
    """Delete a group that has no members."""
    name = request.path["group"]
    (outcome,) = await context.broker.groups.coordinator(name).delete_groups([name])
    if outcome is not None:
        raise outcome
    return Answer(None, 204)


# --- resetting offsets ----------------------------------------------------------------------


async def reset_offsets(context: AdminContext, request: AdminRequest) -> Answer:
    """Commit other offsets for a group that has no members."""
    name, body = request.path["group"], request.body
    _check_place(body)
    coordinator = context.broker.groups.coordinator(name)
    group = coordinator.view().describe(name)
    if group is not None and group.members:
        raise NonEmptyGroup(f"group {name!r} has {len(group.members)} members")
    topic = await context.topic(body["topic"])
    indexes = _partitions(topic, body)
    targets = await asyncio.gather(*(_target(context, topic, index, body) for index in indexes))
    committed = coordinator.view().committed(name)
    rows: list[dict[str, Any]] = []
    for index, target in zip(indexes, targets, strict=True):
        before = committed.get(topic.name, index)
        rows.append(
            {
                "topic": topic.name,
                "partition": index,
                "before": before.offset if before else None,
                "after": target,
            }
        )
    if not body["dry_run"]:
        outcomes = await coordinator.commit(
            Commit(name, NO_MEMBER, None, NO_GENERATION),
            [
                OffsetToCommit(topic.name, row["partition"], row["after"], -1, "", topic.topic_id)
                for row in rows
            ],
        )
        for error in filter(None, outcomes):
            raise error
    return Answer({"is_done": not body["dry_run"], "offsets": rows})


def _check_place(body: Mapping[str, Any]) -> None:
    for field, to in (("timestamp_ms", TIMESTAMP), (OFFSET, OFFSET)):
        if (field in body) != (body["to"] == to):
            raise wrong_field(field, f"is allowed with to={to} only, and required there")


def _partitions(topic: TopicInfo, body: Mapping[str, Any]) -> list[int]:
    asked: list[int] = sorted(dict.fromkeys(body.get("partitions", range(topic.partition_count))))
    missing = [index for index in asked if index >= topic.partition_count]
    if missing:
        raise wrong_field(
            "partitions", f"has {missing[0]}, but {topic.name!r} has no such partition"
        )
    return asked


async def _target(
    context: AdminContext, topic: TopicInfo, index: int, body: Mapping[str, Any]
) -> Offset:
    """Return the offset to commit for one partition; its leader knows."""
    if body["to"] == OFFSET:
        low = await _find(context, topic, index, EARLIEST, None)
        high = await _find(context, topic, index, LATEST, None)
        return Offset(min(max(body[OFFSET], low), high))
    return await _find(context, topic, index, body["to"], body.get("timestamp_ms"))


async def _find(
    context: AdminContext, topic: TopicInfo, index: int, at: str, timestamp_ms: int | None
) -> Offset:
    partition = context.broker.partitions.find(topic.name, index)
    if partition is not None:
        partition.check_leading()
        return (await place_of(partition, at, timestamp_ms))[0]
    leader = context.leader_of(topic, index)
    if leader.id == context.me:
        context.broker.partitions.leader(topic.name, index)  # says why not
    query = {"at": at}
    if timestamp_ms is not None:
        query["timestamp_ms"] = str(timestamp_ms)
    path = f"/topics/{topic.name}/partitions/{index}/offset"
    return Offset((await context.peer_client.ask(leader, path, query))["offset"])


_LISTED: Final[Mapping[str, Schema]] = {
    **QUERY,
    "topic": text("Only groups that read this topic; the lags are those in it.", maxLength=249),
}
OPERATIONS: Final = (
    Operation(
        name="list_groups", role=Role.LOOK,
        method="GET", path="/groups", summary="List the consumer groups.",
        handle=list_groups, query=_LISTED, gives={JSON: ref("GroupPage")},
    ),
    Operation(
        name="describe_group", role=Role.LOOK, method="GET", path="/groups/{group}",
        summary="Describe a group: members, offsets, lag.", handle=describe_group,
        where=at_coordinator, gives={JSON: ref("Group")}, problems=(404,),
    ),
    Operation(
        name="delete_group", role=Role.ADMINISTER, method="DELETE", path="/groups/{group}",
        summary="Delete a group that has no members, with its offsets.",
        handle=delete_group, where=at_coordinator, status=(204,), gives={}, problems=(404, 409),
    ),
    Operation(
        name="reset_offsets", role=Role.OPERATE, method="PUT", path="/groups/{group}/offsets",
        summary="Let a group without members continue to read a topic from other offsets. A group"
        " that does not exist yet is created.",
        handle=reset_offsets, where=at_new_coordinator, takes={JSON: ref("Reset")},
        gives={JSON: ref("ResetOffsets")}, problems=(404, 409),
    ),
    Operation(
        name="list_coordinated_groups", role=Role.LOOK,
        method="GET", path="/brokers/{broker_id}/groups",
        summary="List the groups that a broker coordinates.", handle=list_coordinated,
        where=at_broker, query=_LISTED, gives={JSON: ref("GroupPage")}, problems=(404,),
    ),
    Operation(
        name="find_lags", role=Role.LOOK, method="POST", path="/brokers/{broker_id}/lags",
        summary="Say how far places are from the ends of the partitions that a broker leads.",
        handle=find_lags, where=at_broker, is_frequent=True, takes={JSON: ref("Places")},
        gives={JSON: ref("PlaceLags")}, problems=(404,),
    ),
)  # fmt: skip
