"""Lists settings the way Kafka's admin requests do.

A list has every known key of a topic with its value, source, type and text. Tools read, modify and
write back whole lists, so nothing may be left out.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from broker.cluster.core.topic_config import TOPIC_KEYS, Kind
from broker.cluster.core.topology import TopicInfo


class Source(enum.IntEnum):
    """Where a value comes from, as DescribeConfigs numbers it."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6


class Listed(NamedTuple):
    """One setting."""

    name: str
    value: str
    source: Source
    kind: Kind
    doc: str
    read_only: bool

    def fields(self, *, synonyms: bool, docs: bool) -> dict[str, Any]:
        """Return the fields of CreateTopics and DescribeConfigs answers."""
        same = {"name": self.name, "value": self.value, "source": self.source}
        return {
            "name": self.name,
            "value": self.value,
            "read_only": self.read_only,
            "config_source": self.source,
            "is_sensitive": False,
            "synonyms": [same] if synonyms else [],
            "config_type": self.kind,
            "documentation": self.doc if docs else None,
        }


def topic_settings(topic: TopicInfo) -> Iterable[Listed]:
    """Return every setting of a topic."""
    effective = {
        "min.insync.replicas": str(topic.ack_quorum),
        "quire.ensemble.size": str(topic.ensemble_size),
    }
    for key in TOPIC_KEYS.values():
        overridden = key.name in topic.config.overrides
        value = topic.config.value(key.name) if overridden else effective.get(key.name, key.default)
        source = Source.TOPIC if overridden else Source.DEFAULT
        yield Listed(key.name, value, source, key.kind, key.doc, read_only=False)


def select(settings: Iterable[Listed], names: Collection[str] | None) -> list[Listed]:
    """Keep the named settings, or all if no names are given (null or none, as Kafka reads it)."""
    wanted = frozenset(names or ())
    return [setting for setting in settings if not wanted or setting.name in wanted]
