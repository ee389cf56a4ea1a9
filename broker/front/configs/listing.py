"""Lists settings the way Kafka's admin requests do.

A list has every known key of a topic with its value, source, type and text. Tools read, modify and
write back whole lists, so nothing may be left out.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from broker.cluster.core.topic_config import TOPIC_KEYS, Kind
from broker.cluster.core.topology import TopicInfo
from broker.settings.core import client_metrics
from broker.settings.core.dynamic_settings import Given


class Source(enum.IntEnum):
    """Where a value comes from, as DescribeConfigs numbers it."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7


class Synonym(NamedTuple):
    """A value that a setting would have, were it not for what comes before."""

    name: str
    value: str
    source: Source


class Listed(NamedTuple):
    """One setting."""

    name: str
    value: str
    source: Source
    kind: Kind
    doc: str
    read_only: bool
    synonyms: Sequence[Synonym] = ()
    """Where its value comes from, and where it would come from otherwise; none: just from there."""

    def fields(self, *, synonyms: bool, docs: bool) -> dict[str, Any]:
        """Return the fields of CreateTopics and DescribeConfigs answers."""
        same = self.synonyms or (Synonym(self.name, self.value, self.source),)
        return {
            "name": self.name,
            "value": self.value,
            "read_only": self.read_only,
            "config_source": self.source,
            "is_sensitive": False,
            "synonyms": [one._asdict() for one in same] if synonyms else [],
            "config_type": self.kind,
            "documentation": self.doc if docs else None,
        }


def topic_settings(topic: TopicInfo, given: Mapping[str, Sequence[Given]]) -> Iterable[Listed]:
    """Return every setting of a topic. `given`: key -> what the cluster's default was made."""
    effective = {
        "min.insync.replicas": str(topic.ack_quorum),
        "quire.ensemble.size": str(topic.ensemble_size),
    }
    for key in TOPIC_KEYS.values():
        rows = [Synonym(key.name, effective.get(key.name, key.default), Source.DEFAULT)]
        rows[:0] = [Synonym(*one[:2], Source(one.origin)) for one in given.get(key.name, ())]
        if key.name in topic.config.overrides:
            rows.insert(0, Synonym(key.name, topic.config.overrides[key.name], Source.TOPIC))
        first = rows[0]
        yield Listed(key.name, first.value, first.source, key.kind, key.doc, False, rows)


def subscription_settings(values: Mapping[str, str]) -> Iterable[Listed]:
    """Return every setting of a subscription to metrics of clients."""
    for name, (kind, default, doc) in client_metrics.KEYS.items():
        rows = [Synonym(name, default, Source.DEFAULT)]
        if name in values:
            rows.insert(0, Synonym(name, values[name], Source.CLIENT_METRICS))
        yield Listed(name, rows[0].value, rows[0].source, kind, doc, False, rows)


def select(settings: Iterable[Listed], names: Collection[str] | None) -> list[Listed]:
    """Keep the named settings, or all if no names are given (null or none, as Kafka reads it)."""
    wanted = frozenset(names or ())
    return [setting for setting in settings if not wanted or setting.name in wanted]
