"""The topics of a cluster as coordinators of groups see them, changed by hand."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from uuid import UUID

from broker.groups.core.consumer_group import Topic


class FakeTopics:
    """Starts with the topics given, by name and number of partitions."""

    def __init__(self, **partition_counts: int) -> None:
        self.version = 0
        self._topics: dict[str, Topic] = {}
        for name, count in partition_counts.items():
            self.put(name, count)

    def put(self, name: str, partition_count: int) -> UUID:
        """Create a topic, or give one more partitions; return its id."""
        known = self._topics.get(name)
        topic_id = uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}-{self.version}")
        self._topics[name] = Topic(known.topic_id if known else topic_id, partition_count)
        self.version += 1
        return self._topics[name].topic_id

    def remove(self, name: str) -> None:
        """Delete a topic."""
        del self._topics[name]
        self.version += 1

    def id(self, name: str) -> UUID:
        """Return the id of a topic that there is."""
        return self._topics[name].topic_id

    def get(self, name: str) -> Topic | None:
        """Return a topic, None if there is none of that name."""
        return self._topics.get(name)

    def name(self, topic_id: UUID) -> str | None:
        """Return the name of a topic, None if there is no such topic."""
        return next((n for n, one in self._topics.items() if one.topic_id == topic_id), None)

    def names(self) -> Iterable[str]:
        """Return the names of all topics."""
        return self._topics.keys()
