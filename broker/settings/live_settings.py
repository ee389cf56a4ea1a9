"""What operators set while brokers run: kept in the metadata store, watched by every broker.

Named resources of one kind have a directory (`ConfigNodes`), with one node for each resource that
has any settings, `@` and the name, percent-encoded:

    {"version": 1, "configs": {"log.retention.ms": "60000"}}

Whoever changes settings sees the change at once on the same broker; others follow within moments,
and whoever depends on them is told.

`LiveSettings` is the configuration that a broker runs with: that of its file, with what was set for
all brokers and for this one on top (`core/dynamic_settings.py` says what can be).
`ClientSubscriptions` says which metrics are wanted of which clients (`core/client_metrics.py`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, unquote

from broker.cluster.editable_directory import EditableDirectory
from broker.config import BrokerConfig
from broker.errors import InvalidRequest, InvalidTopicConfig
from broker.settings.core import client_metrics, dynamic_settings
from broker.settings.core.client_metrics import Client, Subscription, Wanted
from broker.settings.core.dynamic_settings import (
    DEFAULTS_OF_TOPICS,
    EVERY_BROKER,
    Given,
    Values,
)
from broker.topics.core.config_resource import Change
from client.errors import ConfigError, LogCorrupt
from client.metadata import paths
from client.metadata.json_node import carried, read_object
from client.metadata.store import MetadataStore

_FORMAT: Final = 1
_FIELDS: Final = frozenset(("version", "configs"))
_PREFIX: Final = "@"
_VALUES_MAX: Final = 1_000
"""Of one resource."""

Configs = Mapping[str, str]

log = logging.getLogger(__name__)

_BROKERS_MAX: Final = 10_000
_TEXT_MAX: Final = 300
"""Characters of an error that the log repeats."""

_SUBSCRIPTIONS_MAX: Final = 100
"""Each is held against every client."""
_NAME_CHARS_MAX: Final = 249


class ConfigNodes:
    """Resource -> its settings."""

    def __init__(
        self,
        store: MetadataStore,
        path: str,
        on_change: Callable[[], None],
        resources_max: int,
    ) -> None:
        """`path`: the directory. `resources_max`: how many may have settings."""
        self._resources_max = resources_max
        self._nodes: EditableDirectory[Configs] = EditableDirectory(store, path, decode, on_change)

    async def start(self) -> None:
        """Read all of them, then follow changes. Raises MetadataError."""
        await self._nodes.start()

    async def close(self) -> None:
        """Stop following."""
        await self._nodes.close()

    def names(self) -> list[str]:
        """Return the resources that have settings, sorted."""
        return sorted(map(_resource, self._nodes.values))

    def of(self, name: str) -> Configs:
        """Return what was set for a resource."""
        return self._nodes.values.get(_node(name), {})

    async def edit(self, name: str, change: Callable[[Configs], Configs]) -> None:
        """Replace a resource's settings by what `change` makes of them; it may be called again.

        Raises what `change` does, InvalidRequest (too many), RequestTimedOut, MetadataError (it may
        have happened), LogCorrupt (what is there is not readable).
        """
        node_name = _node(name)

        def changed(data: bytes | None) -> bytes | None:
            before = {} if data is None else decode(node_name, data)
            after = dict(change(before))
            self._check_size(name, after, is_new=data is None)
            if after == before:
                return data
            kept = carried(data, _FIELDS)
            foreign = {} if data is None else _foreign(data, before)
            return _encode(after, foreign, kept) if after or foreign or kept else None

        subject = f"the settings of {name!r}"
        await self._nodes.edit(node_name, changed, subject=subject)

    def _check_size(self, name: str, after: Configs, *, is_new: bool) -> None:
        if len(after) > _VALUES_MAX:
            raise InvalidRequest(f"more than {_VALUES_MAX} settings of {name!r}")
        if is_new and after and len(self._nodes.values) >= self._resources_max:
            raise InvalidRequest(
                f"at most {self._resources_max} resources of this type can have settings"
            )


def _node(name: str) -> str:
    return _PREFIX + quote(name, safe="")


def _resource(node_name: str) -> str:
    return unquote(node_name[len(_PREFIX) :])


def _encode(configs: Configs, foreign: Mapping[str, Any], kept: Mapping[str, Any]) -> bytes:
    """`foreign`: settings, and `kept`: fields, that only another release understands."""
    settings = {**foreign, **configs}
    return json.dumps({**kept, "version": _FORMAT, "configs": settings}, sort_keys=True).encode()


def _foreign(data: bytes, understood: Configs) -> dict[str, Any]:
    stored = read_object(data)["configs"]
    return {key: one for key, one in stored.items() if key not in understood}


def decode(node_name: str, data: bytes) -> Configs:
    """Read a node. Raises LogCorrupt."""
    try:
        fields = read_object(data)
        if fields["version"] == _FORMAT:
            stored = fields["configs"].items()
            return {key: value for key, value in stored if isinstance(value, str)}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LogCorrupt(f"settings {node_name} are not readable: {error!r}") from error
    raise LogCorrupt(f"settings {node_name} have format {fields['version']}")


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

    def _taken(self, values: Values) -> dict[str, str]:
        """Return the values that this release takes, on top of this broker's file: one that it does
        not take, because another release or an editor wrote it, spoils none of the others."""
        # All at once first: one may only fit together with another.
        with contextlib.suppress(ConfigError, InvalidRequest, ValueError):
            every = {name: dynamic_settings.checked(name, one) for name, one in values.items()}
            self._with(every)
            return every
        taken: dict[str, str] = {}
        for name, value in values.items():
            try:
                checked = dynamic_settings.checked(name, value)
                self._with({**taken, name: checked})
            except (ConfigError, InvalidRequest, ValueError) as error:
                log.error("settings.refused setting=%s error=%r", name, str(error)[:_TEXT_MAX])
            else:
                taken[name] = checked
        return taken

    def _apply(self) -> None:
        """Make what is set the configuration; what does not fit this broker's file is reported."""
        values = self._taken(dynamic_settings.effective(self.of(self._me), self.of(EVERY_BROKER)))
        self.config = self._with(values)
        self.topic_defaults = dynamic_settings.topic_defaults_of(values)
        log.info("settings.changed settings=%s", values)
        for follower in self._followers:
            follower()


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
            kept = client_metrics.foreign(before) if replaces else before
            return client_metrics.changed(kept, changes)

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
