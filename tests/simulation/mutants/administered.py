"""Planted defects of what operators change; see `table.py`.

Most of them are rules that were missing once: of a node that was deleted and made again, of a lost
answer, of a node that cannot be read, of what a newer release has written, of a view that is old.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from broker.cluster import bound_changes
from broker.cluster.cluster import Cluster
from broker.cluster.core import topology
from broker.cluster.core.topic_config import TopicConfig
from broker.cluster.core.topology import TopicInfo
from broker.cluster.directory_view import DirectoryView
from broker.errors import UnknownTopicOrPartition
from broker.partition.partition import EffectRunner
from broker.security import acl_store, quota_store, users
from broker.topics import topic_changes
from broker.topics.topic_changes import TopicChanges
from broker.topics.topics import Topics
from client.errors import LogCorrupt, NoNode
from client.metadata import paths
from client.metadata.store import SetData
from client.node import grouped_requests

if TYPE_CHECKING:
    from collections.abc import Callable


def topics_are_changed_by_version(patch: Any) -> None:
    """A change of a topic is bound to the version of its node, and to nothing else (BOUND)."""

    def set_data(path: str, data: bytes, version: int) -> SetData:
        if path.startswith(paths.PARTITIONS):
            return SetData(paths.PARTITIONS, b"", -1)
        return SetData(path, data, version)

    patch(bound_changes, "SetData", set_data)


def topics_are_changed_by_name(patch: Any) -> None:
    """Whoever changes or deletes a topic does not ask whether it still has the name (BOUND)."""

    def same(topic: TopicInfo, node: Any) -> tuple[TopicInfo, int]:
        if node is None:
            return original(topic, node)  # type: ignore[no-any-return]
        return TopicInfo.decode(topic.name, node.data), node.version

    original = patch(topic_changes, "_same", same)


def definitions_are_removed_by_name(patch: Any) -> None:
    """The rest of a deleted topic is removed with the definition of whoever has its name."""

    async def remove_definition(self: TopicChanges, name: str, topic_id: Any) -> None:
        with contextlib.suppress(UnknownTopicOrPartition):
            topic_id = (await self.find(name)).topic_id
        await original(self, name, topic_id)

    original = patch(TopicChanges, "remove_definition", remove_definition)


def bugs_end_no_leadership(patch: Any) -> None:
    """A partition goes on after a bug in what it carried out (FAILS-LOUDLY)."""

    def fail(self: EffectRunner, error: BaseException, rest: Any) -> None:
        del error, rest
        self._queue.clear()

    patch(EffectRunner, "_fail", fail)


def own_success_is_forgotten(patch: Any) -> None:
    """After a lost answer nobody looks for the token of the change (ONCE)."""
    patch(bound_changes, "_tokens", lambda data: [])


def topics_are_deleted_from_the_view(patch: Any) -> None:
    """Whoever deletes a topic by its name means the one that this broker's view shows."""

    async def delete(self: Topics, name: str, topic_id: Any = None) -> Any:
        topic = self._cluster.topics.get(name) or await self._cluster.look_for_topic(name)
        if topic is None or topic_id not in (None, topic.topic_id):
            return await original(self, name, topic_id)
        with contextlib.suppress(UnknownTopicOrPartition):  # somebody was faster
            await self._changes.delete(topic)
        await self._cluster.look_for_topic(name)
        return topic

    original = patch(Topics, "delete", delete)


def _forgotten_if_unreadable(patch: Any, path: str) -> None:
    async def read(self: Any, name: str) -> None:
        await original(self, name)
        if self._path == path and name in self.unreadable:
            self._forget(name)

    original = patch(DirectoryView, "_read", read)


def unreadable_topic_is_deleted(patch: Any) -> None:
    """A topic whose node cannot be read is not there, and its offsets go (UNREADABLE-STAYS)."""

    async def is_deleted(self: Cluster, name: str, topic_id: Any) -> bool:
        try:
            node = await self._store.get(paths.topic(name))
            TopicInfo.decode(name, node.data)
        except LogCorrupt:
            return True
        except NoNode:
            pass
        return await original(self, name, topic_id)

    original = patch(Cluster, "is_deleted", is_deleted)
    _forgotten_if_unreadable(patch, paths.TOPICS)


def unreadable_registration_is_a_dead_broker(patch: Any) -> None:
    """A broker whose registration cannot be read is dead (UNREADABLE-STAYS)."""
    _forgotten_if_unreadable(patch, paths.BROKERS)


def unknown_settings_are_dropped(patch: Any) -> None:
    """Whoever changes a topic drops the settings of which he knows nothing (UNREADABLE-STAYS)."""

    def stored(self: TopicConfig) -> dict[str, Any]:
        return dict(self.overrides)

    patch(TopicConfig, "stored", stored)


def unknown_fields_of_topics_are_dropped(patch: Any) -> None:
    """Whoever changes a topic drops the fields of which he knows nothing (UNREADABLE-STAYS)."""
    patch(topology, "unknown_fields", lambda fields, known: {})


def unknown_fields_of_entries_are_dropped(patch: Any) -> None:
    """Whoever changes rights, users or quotas drops the fields of which he knows nothing."""
    for module in (acl_store, users, quota_store):
        patch(module, "carried", lambda before, known: {})


def changed_topics_are_not_followed(patch: Any) -> None:
    """Brokers look at a topic once."""

    def on_child(self: Any, name: str) -> None:
        if self._path != paths.TOPICS:
            original(self, name)

    original = patch(DirectoryView, "_on_child", on_child)


def grouped_callers_are_forgotten(patch: Any) -> None:
    """Whoever waits for a request that ran into a bug waits for ever (NOBODY-WAITS)."""

    def settle(one: Any, result: object) -> None:
        if result is not nothing:
            original(one, result)

    nothing = object()
    original = patch(grouped_requests, "_settle", settle)
    patch(grouped_requests, "_no_answer", lambda error: nothing)


KIND = "contended"
WORLD = "cluster"
PLANTS: dict[str, Callable[[Any], None]] = {
    name.replace("_", "-"): value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__module__", "") == __name__ and not name.startswith("_")
}
