"""DescribeConfigs (32), versions 1-4: every known setting of a topic, a broker or its loggers.

Behaviour: keys that were not set are listed with their defaults, because tools read, modify and
write back the whole list. An unknown topic is an error. A resource that is named twice is described
once, as the last of the names asks: an answer is a hundred times as long as its question.

Every group has settings, whether it exists or not.

Deviations from Kafka: settings and loggers of a broker are this broker's only; asking it about
another one is refused. More of a broker's settings can be changed while it runs than in Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.errors import InvalidRequest, UnknownTopicOrPartition
from broker.faults import Code, code_of, message_of
from broker.front.config_changes import logger_settings
from broker.front.config_listing import (
    Listed,
    broker_settings,
    group_listing,
    select,
    shared_settings,
    subscription_settings,
    topic_settings,
)
from broker.front.services import Call, Services
from broker.security.rights import (
    DESCRIBE_CONFIGS_CLUSTER,
    DESCRIBE_CONFIGS_GROUP,
    DESCRIBE_CONFIGS_TOPIC,
)
from broker.settings.core.dynamic_settings import EVERY_BROKER
from broker.topics.core.config_resource import ConfigResource
from broker.topics.core.topic_rules import check_name
from client.errors import QuireError
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.codec import field

KEY: Final = ApiKey.DESCRIBE_CONFIGS
VERSIONS: Final = (1, 4)
NEEDS: Final = (DESCRIBE_CONFIGS_CLUSTER, DESCRIBE_CONFIGS_GROUP, DESCRIBE_CONFIGS_TOPIC)


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Describe each resource by itself."""
    synonyms = bool(field(request, "include_synonyms", False))
    docs = bool(field(request, "include_documentation", False))
    pace = services.turns.pace()
    asked: dict[tuple[int, str], Any] = {}
    for item in request.resources:
        await pace.item()
        asked[item.resource_type, item.resource_name] = item
    results = []
    for item in asked.values():
        await pace.item()
        answer: dict[str, Any] = {
            "error_code": Code.none,
            "error_message": None,
            "resource_type": item.resource_type,
            "resource_name": item.resource_name,
            "configs": [],
        }
        try:
            listed = await _list(services, call, item)
        except QuireError as error:
            answer |= {"error_code": code_of(error), "error_message": message_of(error)}
        else:
            answer["configs"] = [row.fields(synonyms=synonyms, docs=docs) for row in listed]
        results.append(answer)
    return {"results": results}


async def _list(services: Services, call: Call, item: Any) -> list[Listed]:
    name, names = item.resource_name, item.configuration_keys
    _require(services, call, item.resource_type, name)
    if item.resource_type == ConfigResource.TOPIC:
        check_name(name)
        cluster = services.cluster
        topic = cluster.topics.get(name) or await cluster.look_for_topic(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"no topic {name!r}")
        return select(topic_settings(topic, services.settings.given_to_topics()), names)
    if item.resource_type == ConfigResource.BROKER:
        if name == EVERY_BROKER:
            return select(shared_settings(services.settings), names)
        if name != str(services.config.node_id):
            raise InvalidRequest(f"ask broker {name} itself for its settings")
        brokers = services.cluster.brokers
        listed = services.cluster.listed_brokers()
        me = next(one for one in listed if one.id == services.config.node_id)
        urls = [brokers[one].admin_url for one in sorted(brokers) if brokers[one].admin_url]
        return select(broker_settings(services.settings, me.endpoints, urls), names)
    if item.resource_type == ConfigResource.BROKER_LOGGER:
        if name != str(services.config.node_id):
            raise InvalidRequest(f"ask broker {name} itself for its loggers")
        return select(logger_settings(), names)
    if item.resource_type == ConfigResource.CLIENT_METRICS:
        return select(subscription_settings(services.subscriptions.of(name)), names)
    if item.resource_type == ConfigResource.GROUP:
        if not name:
            raise InvalidRequest("groups have no settings in common: name one of them")
        values, limits = services.group_settings.of(name), services.groups.limits
        return select(group_listing(values, services.settings, limits), names)
    raise InvalidRequest(f"resources of type {item.resource_type} have no settings")


def _require(services: Services, call: Call, kind: int, name: str) -> None:
    if kind == ConfigResource.TOPIC:
        services.rights.require(call.peer, DESCRIBE_CONFIGS_TOPIC, name)
    elif kind == ConfigResource.GROUP:
        services.rights.require(call.peer, DESCRIBE_CONFIGS_GROUP, name)
    else:
        services.rights.require(call.peer, DESCRIBE_CONFIGS_CLUSTER)
