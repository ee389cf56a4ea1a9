"""The owner ephemeral of a partition: who holds it, and how it is acquired.

This election is only a hint: it keeps two brokers from duelling over a partition, but proves
nothing, so it may be overridden. An ephemeral whose broker is no longer registered, or is
registered with another incarnation, belongs to a process that is gone; it is deleted at once rather
than when its session times out.

Whoever gets hold of it reads the partition's segment list next. So each look reads both, in one
request (LIST-WITH-CLAIM). The list is as good as one that is read later: at that look nobody alive
held the partition, and if somebody changes the list all the same, the takeover's compare-and-set
fails. What comes after that is a new ledger, whose id is taken in the request that makes the node
(ID-AFTER-LIST): after the list was read, so that it is newer than every ledger in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from broker.cluster.core.topology import TopicInfo
from client.errors import ConnectionLoss, NodeExists, NoNode, VersionConflict
from client.ids import BrokerId, LedgerId
from client.metadata import paths
from client.metadata.json_node import read_object, whole
from client.metadata.store import Versioned
from client.node.grouped_requests import GroupedRequests

_LOG = logging.getLogger(__name__)


class Owner(NamedTuple):
    """One run of a broker process."""

    broker: BrokerId
    incarnation: str

    def encode(self) -> bytes:
        """Return the node's bytes."""
        return json.dumps({"broker": self.broker, "incarnation": self.incarnation}).encode()


def decode_owner(data: bytes) -> Owner | None:
    """Read the node's bytes; None: nobody we can make sense of."""
    try:
        fields = read_object(data)
        return Owner(BrokerId(whole(fields, "broker")), str(fields["incarnation"]))
    except (ValueError, KeyError):
        return None


class OwnerClaim(NamedTuple):
    """We hold the node."""

    beside: Versioned | None
    """The other node, read when nobody alive held this one; None: it was not read, or not there."""
    ledger_id: LedgerId | None = None
    """One that was taken after that, and nobody else has; None: none was."""


NOTHING_READ: Final = OwnerClaim(None)


class OwnerNode:
    """One partition's owner ephemeral, seen by one broker."""

    def __init__(self, requests: GroupedRequests, topic: TopicInfo, index: int, me: Owner) -> None:
        self._requests = requests
        self._me = me
        self._may_be_ours = False
        self.path = paths.partition_owner(topic.id_text, index)

    async def claim(
        self,
        on_change: Callable[[], None],
        is_alive: Callable[[Owner], bool],
        beside: str,
        take_id: Callable[[], Awaitable[LedgerId]],
    ) -> OwnerClaim | None:
        """Get hold of the node; None: a live broker has it, `on_change` tells when it changes.

        `beside`: another node, which is read with this one. Who holds this one may also cease to
        live: that is the caller's to notice. Raises MetadataError.
        """
        self._may_be_ours = True
        is_watched = False
        while True:
            other: Versioned | None = None
            try:
                if is_watched:
                    node = await self._find(self.path, on_change)
                else:
                    node, other = await asyncio.gather(self._find(self.path), self._find(beside))
            except ConnectionLoss:
                continue
            if node is None:
                is_made, taken = await asyncio.gather(self._make(), _take_one(take_id, other))
                if is_made:
                    return OwnerClaim(other, taken)
                continue
            holder = decode_owner(node.data)
            if holder == self._me and node.ephemeral_owner == self._requests.store.session_id:
                return OwnerClaim(other)
            if holder is not None and holder != self._me and is_alive(holder):
                if is_watched:
                    return None
                is_watched = True
                continue
            _LOG.info("owner.stale path=%s holder=%s", self.path, holder)
            # One after the other, without waiting in between.
            _, is_made, taken = await asyncio.gather(
                self._break(node.version), self._make(), _take_one(take_id, other)
            )
            if is_made:
                return OwnerClaim(other, taken)

    async def is_ours(self, on_change: Callable[[], None]) -> bool:
        """Return whether we hold the node; if so, `on_change` is called when that may have changed.

        Raises MetadataError.
        """
        try:
            node = await self._requests.get(self.path, on_change)
        except NoNode:
            return False
        return decode_owner(node.data) == self._me

    async def release(self) -> None:
        """Let go of the node, if it is ours. Raises MetadataError."""
        if not self._may_be_ours:
            return
        try:
            node = await self._requests.get(self.path)
            if decode_owner(node.data) == self._me:
                await self._requests.delete(self.path, node.version)
        except (NoNode, VersionConflict):
            return

    async def _find(
        self, path: str, on_change: Callable[[], None] | None = None
    ) -> Versioned | None:
        """Read a node; None: it is not there. Raises MetadataError."""
        try:
            return await self._requests.get(path, on_change)
        except NoNode:
            return None

    async def _break(self, version: int) -> None:
        """Delete the node of a process that is gone; what became of it, the next look tells."""
        with contextlib.suppress(NoNode, VersionConflict, ConnectionLoss):
            await self._requests.delete(self.path, version)

    async def _make(self) -> bool:
        """Return whether the node was made; without an answer it may be there all the same."""
        data = self._me.encode()
        try:
            await self._requests.create(self.path, data, ephemeral=True, make_parents=True)
        except (NodeExists, ConnectionLoss):
            return False
        return True


async def _take_one(
    take_id: Callable[[], Awaitable[LedgerId]], other: Versioned | None
) -> LedgerId | None:
    """Take an id if the list was read: one that is read later may name newer ledgers.

    None, too, without an answer: then the takeover takes one itself.
    """
    if other is None:
        return None
    try:
        return await take_id()
    except ConnectionLoss:
        return None
