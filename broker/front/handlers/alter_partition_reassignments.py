"""AlterPartitionReassignments (45), versions 0-1: set the replica lists of partitions.

Behaviour: brokers hold no data, so nothing is copied. A replica list says which brokers should
lead the partition, the first one before the others while it takes part; it is stored with the
topic, shown as it was given, and in effect when the answer is sent. Partitions of a topic that are
valid are changed even if others are not, as in Kafka.

Deviations from Kafka: no reassignment is ever in progress, so cancelling one (null replicas) is
answered NO_REASSIGNMENT_IN_PROGRESS. The number of copies is the topic's replication factor on
bookies and does not follow the length of the list. The request's timeout is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.errors import (
    BrokerError,
    InvalidReplicationFactor,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
)
from broker.faults import Code, code_of, message_of
from broker.front import audit
from broker.front.partition_rows import partition_states
from broker.front.services import Call, Services
from broker.security.rights import ALTER_CLUSTER
from broker.topics.core.topic_rules import check_replicas
from client.errors import QuireError
from client.ids import BrokerId
from client.node.turns import Pace
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.codec import field

KEY: Final = ApiKey.ALTER_PARTITION_REASSIGNMENTS
VERSIONS: Final = (0, 1)
NEEDS: Final = (ALTER_CLUSTER,)


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Set what can be set; one result per partition."""
    services.rights.require(call.peer, ALTER_CLUSTER)
    may_resize = bool(field(request, "allow_replication_factor_change", True))
    responses = []
    pace = services.turns.pace()
    for item in request.topics:
        await pace.item()
        errors = await _assign(services, pace, item, may_resize=may_resize)
        rows = [
            {
                "partition_index": row.partition_index,
                "error_code": Code.none if error is None else code_of(error),
                "error_message": None if error is None else message_of(error),
            }
            for row, error in zip(item.partitions, errors, strict=True)
        ]
        responses.append({"name": item.name, "partitions": rows})
        done = sum(error is None for error in errors)
        if done:
            audit.note(call, f"topic {item.name}: replicas of {done} partitions")
    return {
        "allow_replication_factor_change": may_resize,
        "error_code": Code.none,
        "error_message": None,
        "responses": responses,
    }


async def _assign(
    services: Services, pace: Pace, item: Any, *, may_resize: bool
) -> list[QuireError | None]:
    """Return the error of each partition, None where its list is set."""
    topic = services.cluster.topics.get(item.name)
    states = (
        [] if topic is None else partition_states(services.cluster, services.leader_changes, topic)
    )
    lengths = {state.number: len(state.replicas) for state in states}
    errors: list[QuireError | None] = []
    valid: dict[int, tuple[BrokerId, ...]] = {}
    for row in item.partitions:
        await pace.item()
        try:
            length = lengths.get(row.partition_index)
            replicas = _checked(services, row, length, may_resize=may_resize)
        except BrokerError as error:
            errors.append(error)
        else:
            valid[row.partition_index] = replicas
            errors.append(None)
    if valid:
        try:
            await services.topics.assign(item.name, valid)
        except QuireError as error:
            return [one or error for one in errors]
    return errors


def _checked(
    services: Services, row: Any, length: int | None, *, may_resize: bool
) -> tuple[BrokerId, ...]:
    """Return a replica list that may be set. Raises RequestError, UnknownTopicOrPartition."""
    if length is None:
        raise UnknownTopicOrPartition(f"there is no partition {row.partition_index}")
    if row.replicas is None:
        raise NoReassignmentInProgress(
            "no reassignment is in progress: each one ends with its answer"
        )
    replicas = tuple(map(BrokerId, row.replicas))
    check_replicas(replicas, services.cluster.brokers)
    if not may_resize and len(replicas) != length:
        raise InvalidReplicationFactor(
            f"the replica list has {length} brokers, and the request forbids to make it"
            f" {len(replicas)}"
        )
    return replicas
