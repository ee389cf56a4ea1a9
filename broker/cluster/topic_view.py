"""The view of all topics, with the cluster-wide defaults of their settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from broker.cluster.core.topic_config import NO_DEFAULTS
from broker.cluster.core.topology import TopicInfo
from broker.cluster.directory_view import DirectoryView
from client.metadata import paths
from client.metadata.store import MetadataStore


class TopicView(DirectoryView[TopicInfo]):
    """Name -> topic, kept current by watches."""

    def __init__(self, store: MetadataStore, on_change: Callable[[], None]) -> None:
        super().__init__(store, paths.TOPICS, self._decode_topic, on_change)
        self._defaults: Mapping[str, str] = NO_DEFAULTS

    def set_defaults(self, defaults: Mapping[str, str]) -> bool:
        """Apply other defaults to all topics: key -> value. Return whether that changes any."""
        if defaults == self._defaults:
            return False
        self._defaults = defaults
        self.values = {name: one.with_defaults(defaults) for name, one in self.values.items()}
        return True

    def _decode_topic(self, name: str, data: bytes) -> TopicInfo:
        topic = TopicInfo.decode(name, data)
        return topic.with_defaults(self._defaults) if self._defaults else topic
