"""The settings of single groups, in the metadata store, watched by every broker.

A group need not exist to have settings, and keeps them when it is deleted, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from broker.errors import InvalidRequest
from broker.groups.core import group_settings
from broker.groups.core.group_types import ConsumerTimes, GroupConfig
from broker.settings.live_settings import ConfigNodes, Configs
from broker.topics.core.config_resource import Change
from client.metadata import paths
from client.metadata.store import MetadataStore

GROUPS_MAX: Final = 10_000
"""Groups that may have settings of their own: every broker keeps all of them."""


class GroupSettings:
    """What was set for which group."""

    def __init__(self, store: MetadataStore) -> None:
        self._nodes = ConfigNodes(store, paths.GROUP_CONFIGS, self._tell, GROUPS_MAX)
        self._followers: list[Callable[[], None]] = []

    async def start(self) -> None:
        """Read them, then follow changes. Raises MetadataError."""
        await self._nodes.start()

    async def close(self) -> None:
        """Stop following."""
        await self._nodes.close()

    def follow(self, follower: Callable[[], None]) -> None:
        """Call after every change."""
        self._followers.append(follower)

    def names(self) -> list[str]:
        """Return the groups that have settings, sorted."""
        return self._nodes.names()

    def of(self, group_id: str) -> Configs:
        """Return what was set for a group."""
        return self._nodes.of(group_id)

    def own_times(self, limits: GroupConfig) -> Mapping[str, ConsumerTimes]:
        """Return how members are timed of the groups that have settings; `limits`: of all."""
        return {
            name: group_settings.times_of(self._nodes.of(name), limits)
            for name in self._nodes.names()
        }

    async def edit(
        self,
        group_id: str,
        changes: Sequence[Change],
        limits: GroupConfig,
        *,
        replaces: bool,
        validate_only: bool,
    ) -> None:
        """Change a group's settings. `replaces`: first reset them all. `limits`: of all groups.

        Raises InvalidRequest, InvalidTopicConfig, RequestTimedOut, MetadataError (it may have
        happened).
        """
        if not group_id:
            raise InvalidRequest("groups have no settings in common: name one of them")

        def change(before: Configs) -> Configs:
            kept = group_settings.foreign(before) if replaces else before
            return group_settings.changed(kept, changes, limits)

        if validate_only:
            change(self.of(group_id))
        else:
            await self._nodes.edit(group_id, change)

    def _tell(self) -> None:
        for follower in self._followers:
            follower()
