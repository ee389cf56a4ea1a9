"""The common part of AlterConfigs and IncrementalAlterConfigs.

Topics can be configured, and the levels of this broker's loggers, those one by one. Broker settings
are fixed while a broker runs, so a change to them is refused rather than silently dropped. None of
them was ever set this way, so resetting them changes nothing and succeeds, as tools expect that
tidy up after themselves. A resource that is named twice is refused each time, as in Kafka: which of
the changes would count?
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from broker.access.rights import ALTER_CONFIGS_CLUSTER, ALTER_CONFIGS_TOPIC
from broker.cluster.core.topic_config import TopicConfig
from broker.errors import InvalidRequest, PolicyViolation
from broker.faults import Code, code_of, message_of
from broker.front.configs.broker_loggers import change_levels
from broker.front.services import Call, Services
from broker.topics.core.config_resource import Change, ConfigResource, Operation
from client.errors import QuireError
from client.wire.kafka.codec import field

Edit = Callable[[TopicConfig], TopicConfig]


async def configure_all(
    services: Services,
    call: Call,
    resources: Sequence[Any],
    edit_of: Callable[[Any], Edit],
    *,
    validate_only: bool,
) -> list[dict[str, Any]]:
    """Apply `edit_of(resource)` to each resource; return their answers."""
    pace = services.turns.pace()
    counts = Counter((item.resource_type, item.resource_name) for item in resources)
    answers = []
    for item in resources:
        await pace.item()
        code, message = int(Code.none), None
        try:
            if counts[item.resource_type, item.resource_name] > 1:
                raise InvalidRequest(f"the request names {item.resource_name!r} more than once")
            _require(services, call, item)
            await _configure(services, item, edit_of(item), validate_only)
        except QuireError as error:
            code, message = code_of(error), message_of(error)
        answers.append(
            {
                "error_code": code,
                "error_message": message,
                "resource_type": item.resource_type,
                "resource_name": item.resource_name,
            }
        )
    return answers


def _is_reset(row: Any) -> bool:
    """Tell whether a row resets its setting; those of AlterConfigs never do."""
    return bool(field(row, "config_operation", int(Operation.SET)) == Operation.DELETE)


def _require(services: Services, call: Call, item: Any) -> None:
    if item.resource_type == ConfigResource.TOPIC:
        services.rights.require(call.peer, ALTER_CONFIGS_TOPIC, item.resource_name)
    else:
        services.rights.require(call.peer, ALTER_CONFIGS_CLUSTER)


async def _configure(services: Services, item: Any, edit: Edit, validate_only: bool) -> None:
    if item.resource_type == ConfigResource.BROKER:
        if all(_is_reset(row) for row in item.configs):
            return
        raise PolicyViolation("broker settings cannot be changed while the broker runs")
    if item.resource_type == ConfigResource.BROKER_LOGGER:
        _configure_loggers(services, item, validate_only)
        return
    if item.resource_type != ConfigResource.TOPIC:
        raise InvalidRequest(f"resources of type {item.resource_type} have no settings")
    await services.topics.configure(item.resource_name, edit, validate_only=validate_only)


def _configure_loggers(services: Services, item: Any, validate_only: bool) -> None:
    if item.resource_name != str(services.config.node_id):
        raise InvalidRequest(f"ask broker {item.resource_name} itself to change its loggers")
    if not all(hasattr(row, "config_operation") for row in item.configs):
        raise InvalidRequest("loggers are changed one by one: use IncrementalAlterConfigs")
    change_levels(
        [Change(row.name, row.config_operation, row.value) for row in item.configs],
        validate_only=validate_only,
    )
