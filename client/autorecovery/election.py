"""Electing the one auditor of a cluster: the oldest candidate that is alive.

Covers the election. Every node of auto recovery puts an ephemeral sequential node under
`auditorelection`; the smallest is auditor and writes its vote into the parent; everybody else
watches the next smaller. When the session ends so does the candidacy, and the auditor stops at
once.

Source: Apache BookKeeper `AuditorElector`, `ZkLedgerAuditorManager`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from client.autorecovery.tree import vote_of
from client.errors import NoNode, SessionExpired
from client.ids import BookieId
from client.metadata import paths
from client.metadata.store import MetadataStore, SessionState

log = logging.getLogger(__name__)


class Election:
    """One node's candidacy."""

    def __init__(self, store: MetadataStore, me: BookieId, root: str) -> None:
        self._store = store
        self._me = me
        self._top = paths.auditor_election(root)
        self._prefix = paths.auditor_vote_prefix(root)
        self._changed = asyncio.Event()
        store.add_session_listener(self._on_session)

    async def won(self) -> None:
        """Return once this node is auditor. Raises MetadataError: start over."""
        while True:
            self._changed.clear()
            mine = await self._candidacy()
            names = sorted(await self._store.children(self._top))
            older = [name for name in names if name < mine]
            if mine not in names:
                continue
            if not older:
                await self._store.set(self._top, vote_of(self._me))
                log.info("auditor.elected node=%s", self._me)
                return
            before = await self._store.exists(f"{self._top}/{older[-1]}", self._changed.set)
            if before is not None:
                await self._changed.wait()

    async def lost(self) -> None:
        """Return once this node may not be auditor any more."""
        while self._store.state is not SessionState.EXPIRED and not await self._is_out():
            self._changed.clear()
            await self._changed.wait()
        log.info("auditor.deposed node=%s", self._me)

    async def resign(self) -> None:
        """Withdraw the candidacy."""
        name = await self._mine()
        if name is not None:
            with contextlib.suppress(NoNode):
                await self._store.delete(f"{self._top}/{name}")

    async def _candidacy(self) -> str:
        """Return the name of this session's node, made if need be.

        One that an answer was lost for is found again by its owner.
        """
        name = await self._mine()
        if name is None:
            path = await self._store.create(
                self._prefix,
                vote_of(self._me),
                ephemeral=True,
                sequential=True,
                make_parents=True,
            )
            name = path.rpartition("/")[2]
        return name

    async def _mine(self) -> str | None:
        # One whose answer was lost may still be on its way. With a second one we would wait for
        # our own first one to go, and nobody would be auditor.
        await self._store.sync(self._top)
        try:
            names = await self._store.children(self._top)
        except NoNode:
            return None
        for name in names:
            node = await self._store.exists(f"{self._top}/{name}")
            if node is not None and node.ephemeral_owner == self._store.session_id:
                return name
        return None

    async def _is_out(self) -> bool:
        try:
            return await self._mine() is None
        except SessionExpired:
            return True

    def _on_session(self, state: SessionState) -> None:
        self._changed.set()
