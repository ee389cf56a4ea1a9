"""The configuration that a broker runs with, which operators can change while it does.

It is that of the broker's file, with what was set for all brokers and for this one on top
(`core/dynamic_settings.py` says what can be). Changes are watched, so they reach every broker
within moments, and whoever depends on the configuration is told.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from broker.config import BrokerConfig
from broker.errors import InvalidRequest
from broker.settings.config_nodes import ConfigNodes
from broker.settings.core import dynamic_settings
from broker.settings.core.dynamic_settings import (
    DEFAULTS_OF_TOPICS,
    EVERY_BROKER,
    Given,
    Values,
)
from client.errors import ConfigError
from client.metadata import paths
from client.metadata.store import MetadataStore

log = logging.getLogger(__name__)

_BROKERS_MAX: Final = 10_000


class LiveSettings:
    """The settings of one broker as they are now."""

    def __init__(self, store: MetadataStore, config: BrokerConfig) -> None:
        """`config`: of the file."""
        self.config = config
        """With all changes."""
        self.topic_defaults: Mapping[str, str] = {}
        """A topic's key -> the default that it has instead of Kafka's."""
        self.of_file = config
        self._me = str(config.node_id)
        self._followers: list[Callable[[], None]] = []
        self._nodes = ConfigNodes(store, paths.BROKER_CONFIGS, self._apply, _BROKERS_MAX)

    async def start(self) -> None:
        """Read what was set, then follow changes. Raises MetadataError."""
        await self._nodes.start()

    async def close(self) -> None:
        """Stop following."""
        await self._nodes.close()

    def follow(self, follower: Callable[[], None]) -> None:
        """Call after every change."""
        self._followers.append(follower)

    def of(self, name: str) -> Values:
        """Return what was set for a broker, or for all of them (EVERY_BROKER)."""
        return self._nodes.of(name)

    def given(self, name: str) -> list[Given]:
        """Return the values that one of this broker's settings was given, the one that counts
        first."""
        return dynamic_settings.given(name, self.of(self._me), self.of(EVERY_BROKER))

    def given_to_topics(self) -> Mapping[str, Sequence[Given]]:
        """Return the same of the defaults of topics: a topic's key -> values."""
        return {
            key.topic_key: found
            for name, key in DEFAULTS_OF_TOPICS.items()
            if (found := self.given(name))
        }

    async def edit(
        self, name: str, change: Callable[[Values], Values], *, validate_only: bool = False
    ) -> None:
        """Change what is set for this broker, or for all of them (EVERY_BROKER).

        Raises InvalidRequest, RequestTimedOut, MetadataError (it may have
        happened).
        """

        def checked(before: Values) -> Values:
            after = change(before)
            broker = self.of(self._me) if name == EVERY_BROKER else after
            every = after if name == EVERY_BROKER else self.of(EVERY_BROKER)
            try:
                self._with(dynamic_settings.effective(broker, every))
            except ConfigError as error:
                raise InvalidRequest(str(error)) from error
            return after

        if validate_only:
            checked(self.of(name))
            return
        await self._nodes.edit(name, checked)

    def _with(self, values: Values) -> BrokerConfig:
        """Return the configuration with values on top. Raises ConfigError."""
        changed: dict[str, Any] = {**dynamic_settings.fields_of(values)}
        return dataclasses.replace(self.of_file, **changed)

    def _apply(self) -> None:
        """Make what is set the configuration; what does not fit this broker's file is reported."""
        values = dynamic_settings.effective(self.of(self._me), self.of(EVERY_BROKER))
        try:
            self.config = self._with(values)
        except (ConfigError, ValueError) as error:
            log.error("settings.refused error=%r", str(error))
            return
        self.topic_defaults = dynamic_settings.topic_defaults_of(values)
        log.info("settings.changed settings=%s", values)
        for follower in self._followers:
            follower()
