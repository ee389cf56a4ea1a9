"""OffsetFetch (9), versions 1-10: how far groups have read.

Behaviour: a partition or group without committed offsets is answered with offset -1 and no
error; consumers depend on that. Only durable commits are shown, and none that was made for an
earlier topic of the same name: Kafka looks at that from version 10 on, we in all. With
`require_stable` a partition whose offset an open transaction may change gets
UNSTABLE_OFFSET_COMMIT: ask again.

Versions: 1 cannot express an error of the group but per partition, 2+ a null list means all
partitions, 5+ leader epoch, 7+ `require_stable`, 8+ several groups: of one that is named twice the
last list counts, 9+ members of the consumer protocol name themselves and their epoch, 10+ topics by
id: what this broker does not know gets UNKNOWN_TOPIC_ID, and is not among all partitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from broker.errors import BrokerError, CoordinatorLoading
from broker.faults import Code, code_of
from broker.front.services import Call, Services
from broker.groups.core.group_offsets import GroupOffsets, TopicPartition
from broker.groups.core.group_types import NO_GENERATION, CommittedOffset
from broker.security.rights import DESCRIBE_GROUP, DESCRIBE_TOPIC
from client.errors import MetadataError
from client.node.turns import Pace
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.codec import field

KEY: Final = ApiKey.OFFSET_FETCH
VERSIONS: Final = (1, 10)
NEEDS: Final = (DESCRIBE_GROUP, DESCRIBE_TOPIC)

_GROUP_ERROR_FROM: Final = 2
_SEVERAL_FROM: Final = 8
_TOPIC_IDS_FROM: Final = 10

_NOTHING: Final = CommittedOffset(-1, -1, "", -1, -1)


class _Asked(NamedTuple):
    """What is asked of one group."""

    group_id: str
    topics: Any
    """None: all."""
    require_stable: bool
    member_id: str | None = None
    """Of the consumer protocol, with its epoch; None: whoever asks need not be a member."""
    member_epoch: int = NO_GENERATION


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Return the committed offsets."""
    pace = services.turns.pace()
    stable = bool(field(request, "require_stable", False))
    if call.version < _SEVERAL_FROM:
        asked = {request.group_id: _Asked(request.group_id, request.topics, stable)}
    else:
        asked = {
            one.group_id: _Asked(
                one.group_id,
                one.topics,
                stable,
                field(one, "member_id"),
                field(one, "member_epoch", NO_GENERATION),
            )
            for one in request.groups
        }
    groups = []
    for one in asked.values():
        await pace.item()
        groups.append(await _fetch(services, pace, call, one))
    return groups[0] if call.version < _SEVERAL_FROM else {"groups": groups}


async def _fetch(services: Services, pace: Pace, call: Call, request: _Asked) -> dict[str, Any]:
    group_id, asked = request.group_id, request.topics
    code = int(Code.none)
    offsets = GroupOffsets()
    strangers: frozenset[TopicPartition] = frozenset()
    unstable: frozenset[TopicPartition] = frozenset()
    try:
        services.rights.require(call.peer, DESCRIBE_GROUP, group_id)
        view = (await services.groups.coordinator_soon(group_id)).view()
        if request.member_id is not None and request.member_epoch > NO_GENERATION:
            view.check_fetch(group_id, request.member_id, request.member_epoch)
        offsets = view.committed(group_id)
        if request.require_stable:
            unstable = view.unstable(group_id)
        strangers = await _strangers(services, pace, call, offsets, request)
    except BrokerError as error:
        code = code_of(error)
        if call.version >= _GROUP_ERROR_FROM:
            return {
                "throttle_time": 0, "group_id": group_id, "error_code": code, "topics": []
            }  # fmt: skip
    by_id = call.version >= _TOPIC_IDS_FROM
    if asked is None:
        may = services.rights.may
        seen = [
            one
            for one in offsets
            if one[0] not in strangers and may(call.peer, DESCRIBE_TOPIC, one[0].topic)
        ]
        topics = await _all(services, pace, seen, unstable, by_id=by_id)
    else:
        topics = []
        for topic in asked:
            name, label = _name_and_label(services, topic, by_id=by_id)
            rows = []
            hidden = name and services.rights.code(call.peer, DESCRIBE_TOPIC, name)
            for index in topic.partition_indexes:
                await pace.item()
                if hidden:
                    rows.append(_partition(index, None, hidden))
                elif name is None:
                    rows.append(_partition(index, None, Code.unknown_topic_id))
                elif TopicPartition(name, index) in unstable:
                    rows.append(_partition(index, None, Code.unstable_offset_commit))
                elif TopicPartition(name, index) in strangers:
                    rows.append(_partition(index, None, code))
                else:
                    rows.append(_partition(index, offsets.get(name, index), code))
            topics.append({**label, "partitions": rows})
    return {"throttle_time": 0, "group_id": group_id, "error_code": code, "topics": topics}


def _names(services: Services, call: Call, request: _Asked) -> list[str] | None:
    """Return the names of the topics that are asked for; None: all."""
    if request.topics is None:
        return None
    by_id = call.version >= _TOPIC_IDS_FROM
    names = (_name_and_label(services, one, by_id=by_id)[0] for one in request.topics)
    return [name for name in names if name is not None]


async def _strangers(
    services: Services, pace: Pace, call: Call, offsets: GroupOffsets, request: _Asked
) -> frozenset[TopicPartition]:
    """Return the partitions whose offset was committed for an earlier topic of the same name; for
    those who ask by id, for any other topic.

    Raises CoordinatorLoading: that cannot be known just now.
    """
    found: dict[TopicPartition, None] = {}
    by_id = call.version >= _TOPIC_IDS_FROM
    names = _names(services, call, request)
    for name in offsets.topics() if names is None else names:
        await pace.item()
        topic = services.cluster.topics.get(name)
        if topic is None:
            continue  # our view may lag: that a topic is gone is found out elsewhere
        for topic_id in sorted(offsets.topic_ids(name) - {topic.topic_id}):
            try:
                is_deleted = await services.cluster.is_deleted(name, topic_id)
            except MetadataError as error:
                raise CoordinatorLoading(f"whose offsets of {name} are: {error}") from error
            if not is_deleted and not by_id:
                continue  # our view lags, and this one is the newer
            for key in offsets.of_topic(name, topic_id):
                if offsets.is_in_flight(key):
                    raise CoordinatorLoading(f"offsets of {name} are being handed on")
                found[key] = None
    return frozenset(found)


def _name_and_label(
    services: Services, topic: Any, *, by_id: bool
) -> tuple[str | None, dict[str, Any]]:
    """Return a topic's name, None if its id is unknown, and how the answer calls it."""
    if not by_id:
        return topic.name, {"name": topic.name}
    known = services.cluster.topic_by_id.get(topic.topic_id)
    return None if known is None else known.name, {"topic_id": topic.topic_id}


async def _all(
    services: Services,
    pace: Pace,
    offsets: Sequence[tuple[TopicPartition, CommittedOffset]],
    unstable: frozenset[TopicPartition],
    *,
    by_id: bool,
) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for key, committed in offsets:
        await pace.item()
        rows = topics.setdefault(key.topic, [])
        if key in unstable:
            rows.append(_partition(key.partition, None, Code.unstable_offset_commit))
        else:
            rows.append(_partition(key.partition, committed, Code.none))
    if not by_id:
        return [{"name": name, "partitions": rows} for name, rows in topics.items()]
    known = services.cluster.topics
    return [
        {"topic_id": known[name].topic_id, "partitions": rows}
        for name, rows in topics.items()
        if name in known
    ]


def _partition(index: int, committed: CommittedOffset | None, code: int) -> dict[str, Any]:
    shown = committed or _NOTHING
    return {
        "partition_index": index,
        "committed_offset": shown.offset,
        "committed_leader_epoch": shown.leader_epoch,
        "metadata": shown.metadata,
        "error_code": code,
    }
