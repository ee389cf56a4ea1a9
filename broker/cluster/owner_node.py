"""The owner ephemeral of a partition: which broker holds it, and how it is acquired.

This election is only a hint: it keeps two brokers from competing for a partition, but proves
nothing, so it may be overridden. An ephemeral whose broker is no longer registered, or is
registered with another incarnation, belongs to a dead process; it is deleted at once instead of
when its session times out. One that cannot be read was made by a session that lives: it is left
alone until that ends (UNREADABLE-STAYS, `client/metadata/unreadable.py`).

Whoever acquires it needs the partition's segment list next. So each look reads both, in one request
(LIST-WITH-CLAIM). The list is as good as one that is read later: at that look no live broker held
the partition, and if the list changes all the same, the takeover's compare-and-set fails. Then the
takeover needs an id for a new ledger. It is taken in the request that creates the node
(ID-AFTER-LIST): after the list was read, so that it is newer than every ledger in it. And the last
ledger of the list must be marked as being recovered: that happens in the transaction that creates
the node (MARK-WITH-CLAIM), so who does not get the node has disturbed nobody.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from broker.cluster.core.topology import TopicInfo
from client.errors import ConnectionLoss, LogCorrupt, NodeExists, NoNode, VersionConflict
from client.ids import BrokerId, LedgerId
from client.ledger.joined_changes import RecoveryStart
from client.metadata import paths
from client.metadata.json_node import read_object, whole
from client.metadata.store import Change, Create, Delete, Versioned
from client.node.grouped_requests import GroupedRequests

_LOG = logging.getLogger(__name__)


class Owner(NamedTuple):
    """One run of a broker process."""

    broker: BrokerId
    incarnation: str

    def encode(self) -> bytes:
        """Return the node's bytes."""
        return json.dumps({"broker": self.broker, "incarnation": self.incarnation}).encode()


def decode_owner(data: bytes) -> Owner:
    """Read the node's bytes. Raises LogCorrupt."""
    try:
        fields = read_object(data)
        return Owner(BrokerId(whole(fields, "broker")), str(fields["incarnation"]))
    except (ValueError, KeyError) as error:
        raise LogCorrupt(f"the owner is not readable: {error!r}") from error


class OwnerClaim(NamedTuple):
    """We hold the node."""

    beside: Versioned | None
    """The other node, read when nobody alive held this one; None: it was not read, or not there."""
    ledger_id: LedgerId | None = None
    """One that was taken after that, and nobody else has; None: none was."""
    starts: tuple[RecoveryStart, ...] = ()
    """What recoveries of the list's last ledgers begin from, older one first; or none was read."""


class FirstSteps(Protocol):
    """What of a takeover comes with the claim."""

    async def starts(self, beside: Versioned) -> Sequence[RecoveryStart]:
        """Read what recoveries of the list's last ledgers begin from; none if that fails."""
        ...

    async def take_id(self) -> LedgerId:
        """Take an id for a ledger. Raises MetadataError."""
        ...


NOTHING_READ: Final = OwnerClaim(None)


class OwnerNode:
    """One partition's owner ephemeral, as used by one broker."""

    __slots__ = ("_is_unanswered", "_may_be_ours", "_me", "_requests", "path")

    def __init__(self, requests: GroupedRequests, topic: TopicInfo, index: int, me: Owner) -> None:
        self._requests = requests
        self._me = me
        self._may_be_ours = False
        self._is_unanswered = False
        """Whether the last attempt to create the node got no answer."""
        self.path = paths.partition_owner(topic.id_text, index)

    async def claim(
        self,
        on_change: Callable[[], None],
        is_alive: Callable[[Owner], bool],
        beside: str,
        steps: FirstSteps,
    ) -> OwnerClaim | None:
        """Acquire the node; None: a live broker holds it.

        Then `on_change` is called when the node changes; the caller has to notice by itself if that
        broker dies. `beside`: the segment list's node, which is read with this one. Raises
        MetadataError.
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
            if node is not None:
                holder = self._holder(node)
                if holder == self._me and node.ephemeral_owner == self._requests.store.session_id:
                    return OwnerClaim(other)
                if holder is None:
                    may_live = node.ephemeral_owner != 0  # else no session ends with it
                else:
                    may_live = holder != self._me and is_alive(holder)
                if may_live:
                    if is_watched:
                        return None
                    is_watched = True
                    continue
                _LOG.info("owner.stale path=%s holder=%s", self.path, holder)
            claim = await self._make(node, other, steps)
            if claim is not None:
                return claim

    async def is_ours(self, on_change: Callable[[], None]) -> bool:
        """Return whether we hold the node; if so, `on_change` is called when that may have changed.

        Raises MetadataError.
        """
        try:
            node = await self._requests.get(self.path, on_change)
        except NoNode:
            return False
        return self._holder(node) == self._me

    async def release(self) -> None:
        """Delete the node if it is ours. Raises MetadataError."""
        if not self._may_be_ours:
            return
        self._requests.store.unreadable.forget(self.path)  # nobody here reads it any more
        if self._is_unanswered:
            # It may still be on its way, and would stay as the node of a live owner.
            await self._requests.store.sync(self.path)
        try:
            node = await self._requests.get(self.path)
            if self._holder(node) == self._me:
                await self._requests.delete(self.path, node.version)
        except (NoNode, VersionConflict):
            return

    def _holder(self, node: Versioned) -> Owner | None:
        """Return whose node it is; None: it cannot be read, and our session did not make it."""
        store = self._requests.store
        try:
            holder = decode_owner(node.data)
        except LogCorrupt as error:
            store.unreadable.note(self.path, error, is_watched=True)
            return self._me if node.ephemeral_owner == store.session_id else None
        store.unreadable.forget(self.path)
        return holder

    async def _find(
        self, path: str, on_change: Callable[[], None] | None = None
    ) -> Versioned | None:
        """Read a node; None: it does not exist. Raises MetadataError."""
        try:
            return await self._requests.get(path, on_change)
        except NoNode:
            return None

    async def _make(
        self, stale: Versioned | None, other: Versioned | None, steps: FirstSteps
    ) -> OwnerClaim | None:
        """Create the node, and delete that of a dead process; None: look again.

        If the answer is lost it may have happened all the same.
        """
        self._requests.store.unreadable.forget(self.path)
        changes: list[Change] = [] if stale is None else [Delete(self.path, stale.version)]
        changes.append(Create(self.path, self._me.encode(), ephemeral=True))
        if other is None:
            return OwnerClaim(None) if await self._change(changes) else None
        starts = await steps.starts(other)
        # The last one only when the older one is closed (OLDER-FIRST).
        if starts and all(start.current.metadata.is_closed for start in starts[:-1]):
            if starts[-1].mark is not None:
                changes.append(starts[-1].mark)
            starts = [*starts[:-1], starts[-1].after_mark()]
        is_made, taken = await asyncio.gather(self._change(changes), _take_one(steps))
        return OwnerClaim(other, taken, tuple(starts)) if is_made else None

    async def _change(self, changes: Sequence[Change]) -> bool:
        self._is_unanswered = True
        try:
            await self._requests.multi(changes)
        except ConnectionLoss:
            return False
        except (NodeExists, NoNode, VersionConflict):
            self._is_unanswered = False
            return False
        self._is_unanswered = False
        return True


async def _take_one(steps: FirstSteps) -> LedgerId | None:
    """Take an id; without an answer None: then the takeover takes one itself."""
    try:
        return await steps.take_id()
    except ConnectionLoss:
        return None
