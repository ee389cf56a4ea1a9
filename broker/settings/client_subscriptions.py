"""The subscriptions to metrics of clients, in the metadata store, watched by every broker."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from broker.errors import InvalidRequest, InvalidTopicConfig
from broker.settings.config_nodes import ConfigNodes, Configs
from broker.settings.core import client_metrics
from broker.settings.core.client_metrics import Client, Subscription, Wanted
from broker.topics.core.config_resource import Change
from client.metadata import paths
from client.metadata.store import MetadataStore

log = logging.getLogger(__name__)

_SUBSCRIPTIONS_MAX: Final = 100
"""Each is held against every client."""
_NAME_CHARS_MAX: Final = 249


class ClientSubscriptions:
    """Which metrics are wanted of which clients."""

    def __init__(self, store: MetadataStore) -> None:
        self._nodes = ConfigNodes(
            store, paths.CLIENT_METRICS_CONFIGS, self._read, _SUBSCRIPTIONS_MAX
        )
        self._subscriptions: list[Subscription] = []

    async def start(self) -> None:
        """Read them, then follow changes. Raises MetadataError."""
        await self._nodes.start()

    async def close(self) -> None:
        """Stop following."""
        await self._nodes.close()

    def names(self) -> list[str]:
        """Return the subscriptions, sorted."""
        return self._nodes.names()

    def of(self, name: str) -> Configs:
        """Return what was set for a subscription; nothing: there is none."""
        return self._nodes.of(name)

    def wanted(self, client: Client) -> Wanted:
        """Return what is wanted of a client."""
        return client_metrics.wanted(self._subscriptions, client)

    async def edit(
        self, name: str, changes: Sequence[Change], *, replaces: bool, validate_only: bool
    ) -> None:
        """Change a subscription; one without settings is gone. `replaces`: first reset it all.

        Raises InvalidRequest, InvalidTopicConfig, RequestTimedOut, MetadataError (it may have
        happened).
        """
        if not 0 < len(name) <= _NAME_CHARS_MAX:
            raise InvalidRequest(f"its name must have 1 to {_NAME_CHARS_MAX} characters")

        def change(before: Configs) -> Configs:
            return client_metrics.changed({} if replaces else before, changes)

        if validate_only:
            change(self.of(name))
        else:
            await self._nodes.edit(name, change)

    def _read(self) -> None:
        found = []
        for name in self._nodes.names():
            try:
                found.append(client_metrics.parse(self._nodes.of(name)))
            except (InvalidRequest, InvalidTopicConfig) as error:  # of a later release
                log.error("telemetry.unreadable subscription=%r error=%r", name, str(error))
        self._subscriptions = found
