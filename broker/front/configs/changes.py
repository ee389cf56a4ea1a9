"""The common part of AlterConfigs and IncrementalAlterConfigs.

Topics can be configured, this broker, all brokers together (the resource without a name), the
subscriptions to metrics of clients, and the levels of this broker's loggers, those one by one. A
broker's setting that is fixed while it runs is refused with what to do instead, rather than
silently dropped. Resetting it changes nothing and succeeds, as tools expect that tidy up after
themselves. A resource that is named twice is refused each time, as in Kafka: which of the changes
would count?
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from broker.access.rights import ALTER_CONFIGS_CLUSTER, ALTER_CONFIGS_TOPIC
from broker.cluster.core.topic_config import TopicConfig
from broker.errors import InvalidRequest, InvalidTopicConfig
from broker.faults import Code, code_of, message_of
from broker.front import audit
from broker.front.configs.broker_loggers import change_levels
from broker.front.configs.broker_settings import refusal_of
from broker.front.services import Call, Services
from broker.settings.core import dynamic_settings
from broker.settings.core.dynamic_settings import EVERY_BROKER
from broker.topics.core.config_resource import Change, ConfigResource, Operation
from broker.topics.core.topic_rules import check_name
from client.errors import QuireError
from client.wire.kafka.codec import field

Edit = Callable[[TopicConfig], TopicConfig]


async def configure_all(
    services: Services,
    call: Call,
    resources: Sequence[Any],
    edit_of: Callable[[Any], Edit],
    *,
    replaces: bool,
    validate_only: bool,
) -> list[dict[str, Any]]:
    """Apply `edit_of(resource)` to each resource; return their answers.

    `replaces`: whether what is not named is reset.
    """
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
            _check_rows(item)
            await _configure(services, item, edit_of(item), replaces, validate_only)
            if not validate_only:
                names = ", ".join(row.name for row in item.configs)
                audit.note(call, f"settings of {item.resource_name!r}: {names}")
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


def _operation(row: Any) -> int:
    """Return what a row does; those of AlterConfigs set."""
    return int(field(row, "config_operation", Operation.SET))


def _check_rows(item: Any) -> None:
    """Refuse what makes no sense for any resource, in Kafka's order. Raises InvalidRequest."""
    names = Counter(row.name for row in item.configs)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise InvalidRequest(f"the request changes {', '.join(twice)} more than once")
    set_rows = [row for row in item.configs if _operation(row) != Operation.DELETE]
    missing = [row.name for row in set_rows if row.value is None]
    if missing:
        raise InvalidRequest(
            f"no value of {', '.join(missing)}: IncrementalAlterConfigs resets a setting by DELETE,"
            " AlterConfigs by not naming it"
        )


def _require(services: Services, call: Call, item: Any) -> None:
    if item.resource_type == ConfigResource.TOPIC:
        services.rights.require(call.peer, ALTER_CONFIGS_TOPIC, item.resource_name)
    else:
        services.rights.require(call.peer, ALTER_CONFIGS_CLUSTER)


async def _configure(
    services: Services, item: Any, edit: Edit, replaces: bool, validate_only: bool
) -> None:
    if item.resource_type == ConfigResource.BROKER:
        await _configure_broker(services, item, replaces, validate_only)
        return
    if item.resource_type == ConfigResource.CLIENT_METRICS:
        changes = [Change(row.name, _operation(row), row.value) for row in item.configs]
        await services.subscriptions.edit(
            item.resource_name, changes, replaces=replaces, validate_only=validate_only
        )
        return
    if item.resource_type == ConfigResource.GROUP:
        _configure_group(item)
        return
    if item.resource_type == ConfigResource.BROKER_LOGGER:
        _configure_loggers(services, item, validate_only)
        return
    if item.resource_type != ConfigResource.TOPIC:
        raise InvalidRequest(f"resources of type {item.resource_type} have no settings")
    if not item.resource_name:
        raise InvalidRequest("topics have no settings in common: name one of them")
    check_name(item.resource_name)
    await services.topics.configure(item.resource_name, edit, validate_only=validate_only)


async def _configure_broker(
    services: Services, item: Any, replaces: bool, validate_only: bool
) -> None:
    name = item.resource_name
    if name not in (EVERY_BROKER, str(services.config.node_id)):
        raise InvalidRequest(f"ask broker {name} itself to change its settings")
    changes = [Change(row.name, _operation(row), row.value) for row in item.configs]
    for change in changes:
        refusal = refusal_of(change.name)
        if refusal is not None and change.operation != Operation.DELETE:
            raise refusal
    await services.settings.edit(
        name,
        lambda before: dynamic_settings.changed({} if replaces else before, changes),
        validate_only=validate_only,
    )


def _configure_group(item: Any) -> None:
    """Refuse: the settings of groups in Kafka are for protocols that are not served."""
    for row in item.configs:
        if _operation(row) != Operation.DELETE:
            raise InvalidTopicConfig(
                f"{row.name}: groups of the classic protocol have no settings of their own; set"
                " group.* of the brokers, or what the group's clients ask for"
            )


def _configure_loggers(services: Services, item: Any, validate_only: bool) -> None:
    if item.resource_name != str(services.config.node_id):
        raise InvalidRequest(f"ask broker {item.resource_name} itself to change its loggers")
    if not all(hasattr(row, "config_operation") for row in item.configs):
        raise InvalidRequest("loggers are changed one by one: use IncrementalAlterConfigs")
    change_levels(
        [Change(row.name, row.config_operation, row.value) for row in item.configs],
        validate_only=validate_only,
    )
