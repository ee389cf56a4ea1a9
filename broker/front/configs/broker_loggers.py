"""Shows and sets the levels of a broker's loggers, the resources of type BROKER_LOGGER.

Loggers are named as the modules that log; a package stands for all below it, and `root` for
everything. Levels are Kafka's words: FATAL, ERROR, WARN, INFO, DEBUG, TRACE. A change lasts until
the broker ends. Source: KIP-412.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from broker.cluster.core.topic_config import Kind
from broker.errors import InvalidRequest, InvalidTopicConfig
from broker.front.configs.listing import Listed, Source
from broker.topics.core.config_resource import Change, Operation

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
