"""DeleteTopics (20), versions 1-6: by name, from 6 on also by topic id.

Behaviour: a topic that is named twice, or by its name and its id at once, is refused. A topic
disappears at once; its ledgers are deleted in the background. By name, whichever topic has it now
is deleted, also one that was just created again. An id means that topic only: UNKNOWN_TOPIC_ID if
it is gone, even if another topic has its name.

Deviations from Kafka: internal topics cannot be deleted. The request's timeout is ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from broker.errors import InvalidRequest, PolicyViolation, UnknownTopicId
from broker.faults import Code, code_of, message_of
from broker.front import audit
from broker.front.services import Call, Services
from broker.front.throttling import mutation_ms
from broker.security.rights import DELETE_TOPIC, DESCRIBE_TOPIC
from client.errors import QuireError
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.codec import field

KEY: Final = ApiKey.DELETE_TOPICS
VERSIONS: Final = (1, 6)
_STRICT_FROM: Final = 5
"""Clients know THROTTLING_QUOTA_EXCEEDED (KIP-599); older ones only wait."""
NEEDS: Final = (DELETE_TOPIC, DESCRIBE_TOPIC)


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Delete every topic that can be deleted."""
    asked: list[tuple[str | None, UUID | None]] = [
        (name, None) for name in field(request, "topic_names", ())
    ]
    asked += [(item.name, item.topic_id) for item in field(request, "topics", ())]
    pace = services.turns.pace()
    counts = Counter(asked)
    responses: list[dict[str, Any]] = []
    gone = 0
    topics = services.cluster.topics
    partitions = {name: topics[name].partition_count for name in _names(services, asked)}
    for (name, topic_id), count in counts.items():
        await pace.item()
        responses.append(await _delete(services, call, name, topic_id, count))
        gone += partitions.get(str(responses[-1]["name"]), 0) * (not responses[-1]["error_code"])
    return {"responses": responses, "throttle_time": mutation_ms(services, call, gone)}


def _names(services: Services, asked: Sequence[tuple[str | None, UUID | None]]) -> Iterator[str]:
    """Yield the names of those that are there."""
    cluster = services.cluster
    for name, topic_id in asked:
        topic = None if topic_id is None else cluster.topic_by_id.get(topic_id)
        known = cluster.topics.get(name or "") or topic
        if known is not None:
            yield known.name


async def _delete(
    services: Services, call: Call, name: str | None, topic_id: UUID | None, count: int
) -> dict[str, Any]:
    cluster = services.cluster
    code, message = int(Code.none), None
    try:
        if count > 1:
            raise InvalidRequest(f"the request names {name or topic_id!r} more than once")
        if name is not None and topic_id is not None:
            raise InvalidRequest(f"{name!r} is named by its id as well: name it once")
        if name is None and topic_id is None:
            raise InvalidRequest("a topic needs a name or an id")
        if name is None:
            by_id = cluster.topic_by_id.get(topic_id) if topic_id is not None else None
            if by_id is None:
                raise UnknownTopicId(f"no topic has id {topic_id}")
            services.rights.require(call.peer, DESCRIBE_TOPIC, by_id.name)
            name = by_id.name
        services.rights.require(call.peer, DELETE_TOPIC, name)
        services.quotas.require_mutations(call, is_strict=call.version >= _STRICT_FROM)
        topic = cluster.topics.get(name) or await cluster.look_for_topic(name)
        wanted = topic_id
        if topic is not None:
            topic_id = wanted or topic.topic_id
            if topic.internal:
                raise PolicyViolation(f"topic {name!r} is internal")
        topic_id = (await services.topics.delete(name, wanted)).topic_id
        audit.note(call, f"topic {name}")
    except QuireError as error:
        code, message = code_of(error), message_of(error)
    return {"name": name, "topic_id": topic_id, "error_code": code, "error_message": message}
