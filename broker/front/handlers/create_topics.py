"""CreateTopics (19), versions 2-7.

Behaviour: topics are created one by one; when the answer is sent, this broker shows them. -1 for
partitions or replication factor lets the broker decide. If a request names a topic twice, both are
refused.

Deviations from Kafka: brokers hold no data, so a manual assignment of replicas determines the
numbers of partitions and copies, and which brokers should lead, the first of each list before the
others. The replication factor is limited by the bookies, not by the brokers. The request's timeout
is ignored: creation is synchronous.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from broker.cluster.core.topology import TopicInfo
from broker.errors import InvalidReplicaAssignment, InvalidRequest, InvalidTopicConfig
from broker.faults import Code, code_of, message_of
from broker.front import audit
from broker.front.config_listing import topic_settings
from broker.front.services import Call, Services
from broker.front.throttling import mutation_ms
from broker.security.rights import CREATE_CLUSTER, CREATE_TOPIC, DESCRIBE_CONFIGS_TOPIC
from broker.topics.core.topic_rules import BROKER_DECIDES
from client.errors import QuireError
from client.ids import BrokerId
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.codec import field

KEY: Final = ApiKey.CREATE_TOPICS
VERSIONS: Final = (2, 7)
_STRICT_FROM: Final = 6
"""Clients know THROTTLING_QUOTA_EXCEEDED (KIP-599); older ones only wait."""
NEEDS: Final = (CREATE_CLUSTER, CREATE_TOPIC, DESCRIBE_CONFIGS_TOPIC)


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Create every topic that can be created."""
    counts = Counter(item.name for item in request.topics)
    items = {item.name: item for item in request.topics}
    validate_only = bool(field(request, "validate_only", False))
    pace = services.turns.pace()
    answers: list[dict[str, Any]] = []
    created = 0
    for name, item in items.items():
        await pace.item()
        try:
            if counts[name] > 1:
                raise InvalidRequest(f"the request names topic {name!r} {counts[name]} times")
            if not services.rights.may(call.peer, CREATE_CLUSTER):
                services.rights.require(call.peer, CREATE_TOPIC, name)
            if not validate_only:
                services.quotas.require_mutations(call, is_strict=call.version >= _STRICT_FROM)
            topic = await _create(services, item, validate_only)
            if not validate_only:
                created += topic.partition_count
                audit.note(call, f"topic {name}")
        except QuireError as error:
            answers.append(_refusal(name, error))
        else:
            answers.append(_created(services, call, topic))
    return {"topics": answers, "throttle_time": mutation_ms(services, call, created)}


async def _create(services: Services, item: Any, validate_only: bool) -> TopicInfo:
    partitions, factor = item.num_partitions, item.replication_factor
    assignments = {
        row.partition_index: tuple(map(BrokerId, row.broker_ids)) for row in item.assignments
    }
    if item.assignments:
        partitions, factor = _assigned(partitions, factor, item.assignments)
    configs: dict[str, str] = {}
    for config in item.configs:
        if config.value is None:
            raise InvalidTopicConfig(f"{config.name} has no value")
        configs[config.name] = config.value
    return await services.topics.create(
        item.name,
        partitions,
        factor,
        configs,
        assignments=assignments,
        validate_only=validate_only,
    )


def _assigned(partitions: int, factor: int, assignments: Sequence[Any]) -> tuple[int, int]:
    """Return (partitions, copies) of a manual assignment. Raises InvalidReplicaAssignment."""
    if (partitions, factor) != (BROKER_DECIDES, BROKER_DECIDES):
        raise InvalidRequest(
            "a manual assignment cannot be combined with partition count or replication factor"
        )
    if sorted(row.partition_index for row in assignments) != list(range(len(assignments))):
        raise InvalidReplicaAssignment("the partitions of an assignment must be numbered from 0")
    sizes = {len(row.broker_ids): None for row in assignments}
    if len(sizes) != 1 or 0 in sizes:
        raise InvalidReplicaAssignment("every partition needs the same number of replicas")
    return len(assignments), next(iter(sizes))


def _created(services: Services, call: Call, topic: TopicInfo) -> dict[str, Any]:
    if not services.rights.may(call.peer, DESCRIBE_CONFIGS_TOPIC, topic.name):
        code = int(Code.topic_authorization_failed)
        hidden = {"topic_id": topic.topic_id, "topic_config_error_code": code, "configs": None}
        return {**_answer(topic.name), **hidden}
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "error_code": Code.none,
        "error_message": None,
        "num_partitions": topic.partition_count,
        "replication_factor": topic.replication_factor,
        "configs": [
            row.fields(synonyms=False, docs=False)
            for row in topic_settings(topic, services.settings.given_to_topics())
        ],
    }


def _refusal(name: str, error: QuireError) -> dict[str, Any]:
    return {**_answer(name), "error_code": code_of(error), "error_message": message_of(error)}


def _answer(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "topic_id": None,
        "error_code": Code.none,
        "error_message": None,
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": [],
    }
