"""ListOffsets (2), versions 1-11: offsets by meaning or by timestamp.

Behaviour, by the timestamp asked for: -1 the high watermark (the last stable offset for
read_committed), -2 the log start, -3 the first record with the largest timestamp, -4 the earliest
offset that bookies still have, -5 the last one that the object store has (with -1 if it has none),
-6 the first one that it does not have, which is answered for topics with remote.storage.enable
only. From 0 on: the first record
that is not older. Where no record fits: offset and timestamp -1 and no error; for read_committed
none at or above the last stable offset does. A search finds the record, not only its batch; where a
request would have more than `opened_records_max` records looked at, only its batch. A partition
that this broker is about to lead is waited for (`awaited_partitions.py`).

A partition that is named twice is refused with INVALID_REQUEST, each time.

Deviations from Kafka: none known. Other negative values are refused with UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from broker.errors import InvalidRequest, InvalidTimestampQuery
from broker.faults import Code, code_of
from broker.front.handlers.fetch import check_epoch
from broker.front.services import Call, Services
from broker.partition.partition import Partition
from broker.security.rights import DESCRIBE_TOPIC
from client.errors import QuireError
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.batches.record_scan import OpenedRecords
from client.wire.kafka.codec import field
from client.wire.kafka.fetch import ISOLATION_LEVELS, READ_COMMITTED, READ_UNCOMMITTED

KEY: Final = ApiKey.LIST_OFFSETS
VERSIONS: Final = (1, 11)
NEEDS: Final = (DESCRIBE_TOPIC,)

_LATEST: Final = -1
_EARLIEST: Final = -2
_MAX_TIMESTAMP: Final = -3
_EARLIEST_LOCAL: Final = -4
_LATEST_TIERED: Final = -5
_EARLIEST_PENDING: Final = -6
# Version from which each special value has its meaning.
_KNOWN_FROM: Final = {
    _LATEST: 0,
    _EARLIEST: 0,
    _MAX_TIMESTAMP: 7,
    _EARLIEST_LOCAL: 8,
    _LATEST_TIERED: 9,
    _EARLIEST_PENDING: 11,
}
_NONE: Final = (-1, -1)


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Answer each partition by itself."""
    asking = _Asking(
        call,
        field(request, "isolation_level", READ_UNCOMMITTED),
        OpenedRecords(services.config.opened_records_max),
    )
    pace = services.turns.pace()
    names: Counter[tuple[str, int]] = Counter()
    for topic in request.topics:
        for item in topic.partitions:
            await pace.item()
            names[topic.name, item.partition_index] += 1
    topics = []
    for topic in request.topics:
        partitions = []
        for item in topic.partitions:
            await pace.item()
            is_unique = names[topic.name, item.partition_index] == 1
            partitions.append(await _partition(services, asking, topic.name, item, is_unique))
        topics.append({"name": topic.name, "partitions": partitions})
    return {"topics": topics}


class _Asking(NamedTuple):
    """What holds for all partitions of a request."""

    call: Call
    isolation: int
    opened: OpenedRecords


async def _partition(
    services: Services, asking: _Asking, topic: str, item: Any, is_unique: bool
) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "partition_index": item.partition_index,
        "error_code": Code.none,
        "offset": -1,
        "timestamp": -1,
        "leader_epoch": -1,
    }
    try:
        if not is_unique:
            raise InvalidRequest(f"the request names partition {item.partition_index} twice")
        if asking.isolation not in ISOLATION_LEVELS:
            raise InvalidRequest(f"unknown isolation level {asking.isolation}")
        services.rights.require(asking.call.peer, DESCRIBE_TOPIC, topic)
        leader = await services.partitions.leader_soon(topic, item.partition_index)
        check_epoch(leader, field(item, "current_leader_epoch", -1))
        offset, timestamp = await _find(asking, leader, item.timestamp)
        leader.check_leading()
    except QuireError as error:
        return {**answer, "error_code": code_of(error)}
    if offset >= 0:
        answer["leader_epoch"] = leader.leader_epoch
    return {**answer, "offset": offset, "timestamp": timestamp}


async def _find(asking: _Asking, leader: Partition, asked: int) -> tuple[int, int]:
    version, opened = asking.call.version, asking.opened
    committed = asking.isolation == READ_COMMITTED
    if asked < 0 and version < _KNOWN_FROM.get(asked, version + 1):
        raise InvalidTimestampQuery(f"timestamp {asked} has no meaning in version {version}")
    if asked == _LATEST:
        return (leader.last_stable_offset if committed else leader.high_watermark), -1
    if asked == _EARLIEST:
        return leader.log_start_offset, -1
    if asked in (_EARLIEST_LOCAL, _LATEST_TIERED, _EARLIEST_PENDING):
        return _tiered(leader, asked), -1
    if asked == _MAX_TIMESTAMP:
        found = await leader.reader.offset_of_max_timestamp(opened, read_committed=committed)
    else:
        found = await leader.reader.offset_for_timestamp(asked, opened, read_committed=committed)
    return found or _NONE


def _tiered(leader: Partition, asked: int) -> int:
    """Answer what is asked of the border between bookies and object store; -1: there is none."""
    start, state = leader.log_start_offset, leader.usage.listed.offload
    if asked == _EARLIEST_LOCAL:
        return max(start, state.local_from)
    if asked == _EARLIEST_PENDING:
        return max(start, state.stored_until) if leader.topic.config.remote.is_on else -1
    return state.stored_until - 1 if state.stored_until > start else -1
