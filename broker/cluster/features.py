"""Follows the cluster's finalized features, and raises them when every broker supports more.

A watch follows the node. The broker with the lowest id raises levels, unless there is a live broker
whose registration it cannot read: who knows what that one supports? It does so by
compare-and-set, so it does no harm if several brokers believe that they have the lowest id. An
operator may ask any broker to raise or lower levels (`update`). A broker that joins later does not
lower them: one that does not support all finalized features does not start (`load`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from broker.cluster.core.features import NOTHING, FeatureUpdate, Finalized, Levels
from broker.cluster.core.topology import BrokerInfo
from broker.errors import CoordinatorNotAvailable, UnsupportedVersion
from client.errors import (
    ConfigError,
    ConnectionLoss,
    LogCorrupt,
    MetadataError,
    NodeExists,
    NoNode,
    VersionConflict,
)
from client.ids import BrokerId
from client.metadata import paths
from client.metadata.store import MetadataStore
from client.node import background

_LOG = logging.getLogger(__name__)

_RETRY_S: Final = 1.0


class ClusterBrokers(Protocol):
    """The part of the cluster's view that features depend on."""

    brokers: Mapping[BrokerId, BrokerInfo]

    @property
    def unreadable_brokers(self) -> Sequence[BrokerId]:
        """Live brokers of which nobody here knows what they support."""
        ...

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call after any change."""
        ...


class Features:
    """The finalized features, as this broker knows them."""

    def __init__(self, store: MetadataStore, cluster: ClusterBrokers, me: BrokerId) -> None:
        self.finalized = NOTHING
        self._store = store
        self._cluster = cluster
        self._me = me
        self._look = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """Read the finalized features. Raises ConfigError if this release does not support all of
        them; MetadataError, LogCorrupt."""
        await self._read()
        unknown = self.finalized.unknown()
        if unknown:
            raise ConfigError(
                f"this cluster uses {', '.join(unknown)}, which this release does not support"
            )

    def start(self) -> None:
        """Follow the node and the registrations."""
        self._cluster.add_listener(self._look.set)
        self._look.set()
        self._task = background.keep(self._follow, "features")

    async def close(self) -> None:
        """Stop following."""
        await background.stop(self._task)

    def is_coming(self, name: str, level: int) -> bool:
        """Say whether every broker supports a level that is about to be finalized."""
        if self._cluster.unreadable_brokers:
            return False
        raised = self.finalized.raised(one.features for one in self._cluster.brokers.values())
        return raised is not None and raised.levels.get(name, 0) >= level

    def require(self, name: str, level: int) -> None:
        """Let a request pass that needs a level of a feature.

        Raises CoordinatorNotAvailable (it is about to be finalized), UnsupportedVersion.
        """
        if self.finalized.levels.get(name, 0) >= level:
            return
        if self.is_coming(name, level):
            raise CoordinatorNotAvailable(f"the cluster is about to have {name} {level}")
        now = self.finalized.levels.get(name, 0)
        raise UnsupportedVersion(
            f"this cluster has {name} {now}: an operator may raise it once no broker runs an"
            f" earlier release (kafka-features upgrade --feature {name}={level})"
        )

    async def update(self, updates: Sequence[FeatureUpdate], *, validate_only: bool) -> None:
        """Change levels on an operator's request: all of them, or none; visible here on return.

        Raises InvalidUpdateVersion, LogCorrupt, MetadataError (it may have happened if the
        connection was lost).
        """
        while True:
            version = await self._read()
            brokers: dict[BrokerId, Levels] = {one: {} for one in self._cluster.unreadable_brokers}
            brokers |= {one.id: one.features for one in self._cluster.brokers.values()}
            wanted = self.finalized.updated(updates, brokers)
            if validate_only or wanted == self.finalized:
                return
            with contextlib.suppress(NodeExists, NoNode, VersionConflict):
                await self._write(wanted, version)
                self.finalized = wanted
                return

    async def _follow(self) -> None:
        while True:
            await self._look.wait()
            self._look.clear()
            try:
                version = await self._read()
                await self._raise(version)
            except (MetadataError, LogCorrupt) as error:
                _LOG.warning("features.unknown error=%r", error)
                await asyncio.sleep(_RETRY_S)
                self._look.set()

    async def _read(self) -> int | None:
        """Read the node, if there is one; return its version.

        After a sync: a server that lags may not show yet what this release does not support, nor
        that there is something to do for an operator.
        """
        await self._store.sync(paths.FEATURES)
        try:
            node = await self._store.get(paths.FEATURES, self._look.set)
        except NoNode:
            return None
        found = self._store.unreadable.decode(paths.FEATURES, node.data, Finalized.decode)
        if found.epoch >= self.finalized.epoch:
            self.finalized = found
        return node.version

    async def _raise(self, version: int | None) -> None:
        brokers = self._cluster.brokers
        if self._me != min(brokers, default=None) or self._cluster.unreadable_brokers:
            return
        wanted = self.finalized.raised(one.features for one in brokers.values())
        if wanted is None:
            return
        # Whatever the outcome, the next read shows it.
        with contextlib.suppress(NodeExists, NoNode, VersionConflict, ConnectionLoss):
            await self._write(wanted, version)
        self._look.set()

    async def _write(self, wanted: Finalized, version: int | None) -> None:
        if version is None:
            await self._store.create(paths.FEATURES, wanted.encode(), make_parents=True)
        else:
            await self._store.set(paths.FEATURES, wanted.encode(), version)
        _LOG.info("features.finalized epoch=%d levels=%s", wanted.epoch, dict(wanted.levels))
