"""Keeps this broker registered as live.

The registration is an ephemeral. It is created at start, and again whenever it is gone while we are
alive: our session has expired, or a peer believed that we were dead and deleted it (fencing makes
that guess safe). A broker that finds its node id taken decides whose registration it is:

- same incarnation: ours, from an earlier session;
- same address: a dead predecessor's, because we listen there now;
- anything else may be a live broker configured with the same node id: we wait a little longer than
  one session timeout, in case it is the session of a dead predecessor, then give up.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from typing import Final

from broker.cluster.core.topology import BrokerInfo, Position
from client.errors import (
    ConfigError,
    ConnectionLoss,
    LogCorrupt,
    MetadataError,
    NodeExists,
    NoNode,
    VersionConflict,
)
from client.metadata import paths
from client.metadata.store import MetadataStore
from client.node import background

log = logging.getLogger(__name__)

_RETRY_S: Final = 0.2
_CLOSE_TIMEOUT_S: Final = 1.0
"""A registration that cannot be deleted by then expires with its session."""
_TRIES_IN_A_ROW: Final = 3
_PATIENCE: Final = 1.5
"""Session timeouts to wait for a node id that is taken."""


class Registration:
    """Keeps one ephemeral node in place."""

    def __init__(self, store: MetadataStore, info: BrokerInfo, session_timeout_s: float) -> None:
        self._store = store
        self._info = info
        self._path = paths.broker(info.id)
        self._patience_s = _PATIENCE * session_timeout_s
        self._look = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Register. Raises ConfigError if another live broker has the node id."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._patience_s
        while not await self._ensure():
            if loop.time() >= until_s:
                raise ConfigError(f"node id {self._info.id} is already used by another live broker")
            await asyncio.sleep(_RETRY_S)
        log.info(
            "broker.registered broker=%d incarnation=%s", self._info.id, self._info.incarnation
        )
        self._task = background.run(self._keep(), "registration")

    async def close(self) -> None:
        """Stop, and delete the registration at once."""
        if self._task is None:
            return
        await background.stop(self._task)
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                node = await self._store.get(self._path)
                if node.ephemeral_owner == self._store.session_id:
                    await self._store.delete(self._path, node.version)
        except (MetadataError, TimeoutError) as error:
            log.info("broker.deregistration_failed error=%r", error)

    @property
    def info(self) -> BrokerInfo:
        """What the registration says, or will say as soon as the store can be reached."""
        return self._info

    async def set_eligibility(self, *, unloaded: bool, leads_from: Position | None) -> None:
        """Publish for which partitions this broker is eligible; ends with this process.

        Raises MetadataError; the registration is updated later then.
        """
        self._info = dataclasses.replace(self._info, unloaded=unloaded, leads_from=leads_from)
        self._look.set()
        await self._ensure()

    async def _keep(self) -> None:
        while True:
            await self._look.wait()
            self._look.clear()
            try:
                registered = await self._ensure()
            except MetadataError as error:
                log.warning("broker.registration_failed error=%r", error)
                registered = False
            if not registered:
                await asyncio.sleep(_RETRY_S)
                self._look.set()

    async def _ensure(self) -> bool:
        """Create or check the node, and leave a watch on it. False: try again later."""
        for _ in range(_TRIES_IN_A_ROW):
            # Whatever the outcome, the read below shows whose node it is.
            with contextlib.suppress(NodeExists, ConnectionLoss):
                await self._store.create(self._path, self._info.encode(), ephemeral=True)
            try:
                node = await self._store.get(self._path, self._look.set)
            except NoNode:
                continue
            if node.ephemeral_owner == self._store.session_id:
                if node.data == self._info.encode():
                    return True
                # The next read resolves lost answers and conflicts.
                with contextlib.suppress(NoNode, VersionConflict, ConnectionLoss):
                    await self._store.set(self._path, self._info.encode(), node.version)
                continue
            if not self._is_dead(node.data):
                return False
            # If it has changed meanwhile, the next attempt reads it again.
            with contextlib.suppress(NoNode, VersionConflict):
                await self._store.delete(self._path, node.version)
        return False

    def _is_dead(self, data: bytes) -> bool:
        """Return whether the holder of our node id is certainly dead."""
        try:
            other = BrokerInfo.decode(self._info.id, data)
        except LogCorrupt as error:
            self._store.unreadable.note(self._path, error)
            return False
        same_address = (other.host, other.port) == (self._info.host, self._info.port)
        if other.incarnation == self._info.incarnation or same_address:
            log.info(
                "broker.registration_replaced broker=%d was=%s", self._info.id, other.incarnation
            )
            return True
        log.warning("broker.id_taken broker=%d by=%s:%d", self._info.id, other.host, other.port)
        return False
