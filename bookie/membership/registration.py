"""A bookie's place in the metadata store: an ephemeral node that says where it serves.

    available/<id>             takes entries
    available/readonly/<id>    serves reads, fences and recovery writes only

From one to the other the new node is made before the old one goes: a bookie in both counts as
writable, one in neither as dead. A node of an older session of ours (after a crash) is waited out,
not deleted: until the server expires it, it points to us anyway. When the session expires the
bookie registers again. A change whose answer is lost may have happened or not: before anything
relies on it, it is made again, or the store is asked. Covers BookieServiceInfo.

Source: Apache BookKeeper `ZKRegistrationManager`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final

from client.errors import (
    ConfigError,
    ConnectionLoss,
    MetadataError,
    NodeExists,
    NoNode,
    SessionExpired,
)
from client.ids import BookieId
from client.metadata import paths
from client.metadata.store import MetadataStore, SessionState
from client.node import background
from client.wire.bookkeeper import protobuf

logger = logging.getLogger(__name__)

_RETRY_S: Final = 0.5
_CLOSE_TIMEOUT_S: Final = 2.0


def service_info(
    host: str,
    port: int,
    admin_port: int | None,
    rack: str | None = None,
    admin_protocol: str = "http",
) -> bytes:
    """Return the data of the node: where the bookie serves what, and what fails with it.

    `admin_protocol`: http or https.
    """
    info = protobuf.BookieServiceInfoFormat()
    if rack is not None:
        info.properties.add(key="rack", value=rack)
    info.endpoints.add(id="bookie", port=port, host=host, protocol="bookie-rpc")
    if admin_port is not None:
        info.endpoints.add(id="httpserver", port=admin_port, host=host, protocol=admin_protocol)
    data: bytes = info.SerializeToString()
    return data


class Registration:
    """Keeps one bookie registered."""

    def __init__(
        self,
        store: MetadataStore,
        bookie_id: BookieId,
        info: bytes,
        *,
        root: str,
        takeover_timeout_s: float,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`takeover_timeout_s`: how long to wait for the node of an older session to go."""
        self._store = store
        self._bookie_id = bookie_id
        self._info = info
        self._root = root
        self._takeover_timeout_s = takeover_timeout_s
        self._loop = loop
        self._task: asyncio.Task[None] | None = None
        self._is_wanted = False
        self._paths = {
            False: paths.available_bookie(bookie_id, root),
            True: paths.readonly_bookie(bookie_id, root),
        }
        """Where a writable and where a read-only bookie registers."""
        self._nodes: dict[bool, bool | None] = {False: False, True: False}
        """Which of them are there; None: a change of it is under way, or its answer was lost."""
        self._session = 0
        """Counts sessions: what was made in an earlier one is gone."""
        self.is_read_only = False
        """What the registration says, or is going to say."""
        store.add_session_listener(self._on_session)

    @property
    def is_registered(self) -> bool:
        """Whether clients can find the bookie, in whatever mode."""
        return True in self._nodes.values()

    async def register(self, *, read_only: bool) -> None:
        """Create the node, however long the metadata store is away.

        Raises ConfigError if the id stays taken by another session.
        """
        self.is_read_only = read_only
        self._is_wanted = True
        while not self._is_settled:
            try:
                await self._settle()
            except (ConnectionLoss, SessionExpired) as error:
                logger.warning("bookie.register_retry bookie=%s error=%r", self._bookie_id, error)
                await asyncio.sleep(_RETRY_S)

    def set_read_only(self, read_only: bool) -> None:
        """Move to the other directory, or back, as soon as the metadata store can be reached."""
        self.is_read_only = read_only
        self._settle_soon()

    async def close(self) -> None:
        """Take the node away, if the metadata store can be reached; else it expires."""
        self._is_wanted = False
        if self._task is not None:
            self._task.cancel()
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                for read_only in (True, False):
                    await self._remove(read_only)
        except (MetadataError, TimeoutError) as error:
            logger.warning("bookie.not_deregistered bookie=%s error=%r", self._bookie_id, error)
            self._nodes = {False: False, True: False}

    @property
    def _is_settled(self) -> bool:
        wanted, other = self._nodes[self.is_read_only], self._nodes[not self.is_read_only]
        return wanted is True and other is False

    async def _settle(self) -> None:
        """Bring the nodes to where they should be. Raises MetadataError, ConfigError."""
        while not self._is_settled:
            read_only = self.is_read_only
            if not self._nodes[read_only]:
                await self._store_directories()
                session = self._session
                self._nodes[read_only] = None
                await self._claim(self._paths[read_only])
                self._nodes[read_only] = True if session == self._session else None
            else:
                await self._remove(not read_only)
        logger.info("bookie.registered bookie=%s read_only=%s", self._bookie_id, self.is_read_only)

    async def _remove(self, read_only: bool) -> None:
        known, path = self._nodes[read_only], self._paths[read_only]
        if known is None:
            # Not knowing, we may only take away what is ours; it may still be on its way.
            await self._store.sync(path)
            found = await self._store.exists(path)
            known = found is not None and found.ephemeral_owner == self._store.session_id
        if known:
            self._nodes[read_only] = None
            with contextlib.suppress(NoNode):
                await self._store.delete(path)
        self._nodes[read_only] = False

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED and self._is_wanted:
            logger.warning("bookie.session_expired bookie=%s", self._bookie_id)
            self._session += 1
            self._nodes = {False: False, True: False}
            self._settle_soon()

    def _settle_soon(self) -> None:
        if self._is_wanted and (self._task is None or self._task.done()):
            self._task = background.keep(self._keep_settling, "registration", self._loop)

    async def _keep_settling(self) -> None:
        """Try until it works: the id may be taken only by an older session of ours."""
        while not self._is_settled:
            try:
                await self._settle()
            except (MetadataError, ConfigError) as error:
                logger.warning("bookie.register_failed bookie=%s error=%r", self._bookie_id, error)
                await asyncio.sleep(_RETRY_S)

    async def _store_directories(self) -> None:
        try:
            await self._store.create(paths.readonly(self._root), make_parents=True)
        except NodeExists:
            return

    async def _claim(self, path: str) -> None:
        """Create `path` as our ephemeral, after an older session's node is gone."""
        deadline_s = self._loop.time() + self._takeover_timeout_s
        while True:
            try:
                await self._store.create(path, self._info, ephemeral=True, make_parents=True)
                return
            except NodeExists:
                if await self._is_ours_or_gone(path, deadline_s):
                    return

    async def _is_ours_or_gone(self, path: str, deadline_s: float) -> bool:
        """Look at the node in our way. True if our own session made it; else wait for its end."""
        gone = asyncio.Event()
        found = await self._store.exists(path, gone.set)
        if found is None:
            return False
        if found.ephemeral_owner == self._store.session_id:
            # An earlier create whose answer was lost.
            return True
        logger.info("bookie.waits_for_old_session path=%s", path)
        try:
            async with asyncio.timeout_at(deadline_s):
                await gone.wait()
        except TimeoutError:
            raise ConfigError(
                f"bookie id {self._bookie_id} is in use: {path} belongs to a living session"
            ) from None
        return False
