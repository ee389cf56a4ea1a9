"""The owner ephemeral of a partition: which broker holds it, and how it is acquired.

This election is only a hint: it keeps two brokers from competing for a partition, but proves
nothing, so it may be overridden. An ephemeral whose broker is no longer registered, or is
registered with another incarnation, belongs to a dead process; it is deleted at once instead of
when its session times out.

Whoever acquires it needs the partition's segment list next. So each look reads both, in one request
(LIST-WITH-CLAIM). The list is as good as one that is read later: at that look no live broker held
the partition, and if the list changes all the same, the takeover's compare-and-set fails. Then the
takeover needs an id for a new ledger. It is taken in the request that creates the node
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
    """Read the node's bytes; None: they are not readable."""
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
    """One partition's owner ephemeral, as used by one broker."""

    __slots__ = ("_may_be_ours", "_me", "_requests", "path")

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
        """Acquire the node; None: a live broker holds it.

        Then `on_change` is called when the node changes; the caller has to notice by itself if that
        broker dies. `beside`: another node, which is read with this one. Raises MetadataError.
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
            # Sent one after the other, without waiting for the first answer.
            _, is_made, taken = await asyncio.gather(
                self._delete(node.version), self._make(), _take_one(take_id, other)
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
        """Delete the node if it is ours. Raises MetadataError."""
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
        """Read a node; None: it does not exist. Raises MetadataError."""
        try:
            return await self._requests.get(path, on_change)
        except NoNode:
            return None

    async def _delete(self, version: int) -> None:
        """Delete the node of a dead process; the next read shows the outcome."""
        with contextlib.suppress(NoNode, VersionConflict, ConnectionLoss):
            await self._requests.delete(self.path, version)

    async def _make(self) -> bool:
        """Return whether the node was created; if the answer is lost it may exist all the same."""
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
