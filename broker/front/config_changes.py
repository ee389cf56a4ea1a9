"""The common part of AlterConfigs and IncrementalAlterConfigs.

Topics can be configured, groups, this broker, all brokers together (the resource without a name),
the subscriptions to metrics of clients, and the levels of this broker's loggers, those one by one.
A broker's setting that is fixed while it runs is refused with what to do instead, rather than
silently dropped. Resetting it changes nothing and succeeds, as tools expect that tidy up after
themselves. A resource that is named twice is refused each time, as in Kafka: which of the changes
would count?

Loggers (resources of type BROKER_LOGGER, KIP-412) are named as the modules that log; a package
stands for all below it, and `root` for everything. Levels are Kafka's words: FATAL, ERROR, WARN,
INFO, DEBUG, TRACE. A change lasts until the broker ends.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from broker.cluster.core.topic_config import Kind, TopicConfig
from broker.errors import InvalidRequest, InvalidTopicConfig
from broker.faults import Code, code_of, message_of
from broker.front import audit
from broker.front.config_listing import Listed, Source, refusal_of
from broker.front.services import Call, Services
from broker.security.rights import (
    ALTER_CONFIGS_CLUSTER,
    ALTER_CONFIGS_GROUP,
    ALTER_CONFIGS_TOPIC,
)
from broker.settings.core import dynamic_settings
from broker.settings.core.dynamic_settings import EVERY_BROKER
from broker.topics.core.config_resource import Change, ConfigResource, Operation
from broker.topics.core.topic_rules import check_name
from client.errors import QuireError
from client.wire.kafka.codec import field

Edit = Callable[[TopicConfig], TopicConfig]

ROOT: Final = "root"
_PACKAGES: Final = ("broker", "client")
"""What a broker runs; the loggers of foreign libraries are not ours to show."""
_LEVELS: Final[Mapping[str, int]] = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 1,
}


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


def logger_settings() -> Iterable[Listed]:
    """Return every logger with the level that is in force for it."""
    yield _listed(ROOT, logging.getLogger())
    for name in sorted(logging.root.manager.loggerDict):
        if name.partition(".")[0] in _PACKAGES:
            yield _listed(name, logging.getLogger(name))


def change_levels(changes: Sequence[Change], *, validate_only: bool) -> None:
    """Set levels, or let loggers follow their package again; all of them or none.

    Raises InvalidRequest (a logger named twice, an operation other than SET and DELETE, `root`
    without a level), InvalidTopicConfig (no such logger, no such level).
    """
    names = [change.name for change in changes]
    if len(dict.fromkeys(names)) != len(names):
        raise InvalidRequest("the request changes a logger twice")
    known = {row.name for row in logger_settings()}
    levels = [(change.name, _new_level(change, known)) for change in changes]
    if validate_only:
        return
    for name, level in levels:
        logging.getLogger(None if name == ROOT else name).setLevel(level)


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
    elif item.resource_type == ConfigResource.GROUP:
        services.rights.require(call.peer, ALTER_CONFIGS_GROUP, item.resource_name)
    else:
        services.rights.require(call.peer, ALTER_CONFIGS_CLUSTER)


async def _configure(
    services: Services, item: Any, edit: Edit, replaces: bool, validate_only: bool
) -> None:
    if item.resource_type == ConfigResource.BROKER:
        await _configure_broker(services, item, replaces, validate_only)
        return
    changes = [Change(row.name, _operation(row), row.value) for row in item.configs]
    if item.resource_type == ConfigResource.CLIENT_METRICS:
        await services.subscriptions.edit(
            item.resource_name, changes, replaces=replaces, validate_only=validate_only
        )
        return
    if item.resource_type == ConfigResource.GROUP:
        await services.group_settings.edit(
            item.resource_name, changes, services.groups.limits,
            replaces=replaces, validate_only=validate_only,
        )  # fmt: skip
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
        lambda before: dynamic_settings.changed(
            dynamic_settings.foreign(before) if replaces else before, changes
        ),
        validate_only=validate_only,
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


def _listed(name: str, logger: logging.Logger) -> Listed:
    level = logger.getEffectiveLevel()
    word = next(word for word, least in _LEVELS.items() if level >= least or word == "TRACE")
    source = Source.BROKER_LOGGER
    return Listed(name, word, source, Kind.UNKNOWN, "", read_only=False)


def _new_level(change: Change, known: Collection[str]) -> int:
    if change.name not in known:
        raise InvalidTopicConfig(f"there is no logger {change.name!r}")
    if change.operation == Operation.DELETE:
        if change.name == ROOT:
            raise InvalidRequest(f"{ROOT} must have a level")
        return logging.NOTSET
    if change.operation != Operation.SET:
        raise InvalidRequest(f"levels can be set and reset, nothing else: {change.name}")
    level = _LEVELS.get(change.value or "")
    if level is None:
        raise InvalidTopicConfig(
            f"the level of {change.name} must be one of {', '.join(_LEVELS)}, not {change.value!r}"
        )
    return level
