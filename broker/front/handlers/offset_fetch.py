"""OffsetFetch (9), versions 1-9: how far groups have read.

Behaviour: a partition or group without committed offsets is answered with offset -1 and no
error; consumers depend on that. Only durable commits are shown. Commits of transactions
do not exist here, so `require_stable` is always fulfilled.

Versions: 1 cannot express an error of the group but per partition, 2+ a null list means all
partitions, 5+ leader epoch, 8+ several groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.errors import BrokerError
from broker.faults import Code, code_of
from broker.front.services import Call, Services
from broker.groups.core.group_offsets import GroupOffsets
from broker.groups.core.group_types import CommittedOffset
from client.wire.kafka.apis import ApiKey

KEY: Final = ApiKey.OFFSET_FETCH
VERSIONS: Final = (1, 9)

_GROUP_ERROR_FROM: Final = 2
_SEVERAL_FROM: Final = 8

_NOTHING: Final = CommittedOffset(-1, -1, "", -1, -1)


def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Return the committed offsets."""
    if call.version >= _SEVERAL_FROM:
        groups = [_fetch(services, call, one.group_id, one.topics) for one in request.groups]
        return {"throttle_time": 0, "groups": groups}
    return {"throttle_time": 0, **_fetch(services, call, request.group_id, request.topics)}


def _fetch(services: Services, call: Call, group_id: str, asked: Any) -> dict[str, Any]:
    code = int(Code.none)
    offsets = GroupOffsets()
    try:
        offsets = services.groups.coordinator(group_id).view().committed(group_id)
    except BrokerError as error:
        code = code_of(error)
        if call.version >= _GROUP_ERROR_FROM:
            return {"group_id": group_id, "error_code": code, "topics": []}
    if asked is None:
        topics = _all(offsets)
    else:
        topics = [
            {
                "name": topic.name,
                "partitions": [
                    _partition(index, offsets.get(topic.name, index), code)
                    for index in topic.partition_indexes
                ],
            }
            for topic in asked
        ]
    return {"group_id": group_id, "error_code": code, "topics": topics}


def _all(offsets: GroupOffsets) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for key, committed in offsets:
        rows = topics.setdefault(key.topic, [])
        rows.append(_partition(key.partition, committed, Code.none))
    return [{"name": name, "partitions": rows} for name, rows in topics.items()]


def _partition(index: int, committed: CommittedOffset | None, code: int) -> dict[str, Any]:
    shown = committed or _NOTHING
    return {
        "partition_index": index,
        "committed_offset": shown.offset,
        "committed_leader_epoch": shown.leader_epoch,
        "metadata": shown.metadata,
        "error_code": code,
    }
