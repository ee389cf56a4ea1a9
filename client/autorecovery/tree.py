"""The under-replication tree in the metadata store, but for the marks themselves.

Covers the bytes that auto recovery shares with Apache BookKeeper's own: locks and votes
(`bookieId: "..."` as protobuf text), the time of the last check (binary protobuf) and the layout.
Marks are in `under_replication.py`, what operators set is in `switches.py`.

Sources: Apache BookKeeper `ZkLedgerUnderreplicationManager`, `ZkLedgerAuditorManager`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Final

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from client.autorecovery.switches import Switches
from client.errors import MetadataCorrupt, NodeExists, NoNode
from client.ids import BookieId, LedgerId
from client.metadata import paths
from client.metadata.store import MetadataStore, Versioned, Watcher
from client.wire.bookkeeper import protobuf

_LAYOUT_TYPE: Final = "BASIC"
_LAYOUT_VERSION: Final = 1
_LEAF: Final = "urL"
_LEVELS: Final = 4
UNREADABLE: Final = BookieId("(unreadable)")
"""Stands for whoever a lock or a vote names that cannot be decoded (UNREADABLE-STAYS)."""


class ReplicationTree:
    """One node's access to the tree."""

    def __init__(self, store: MetadataStore, me: BookieId, root: str) -> None:
        """`me` is the name that locks and votes carry."""
        self._store = store
        self._root = root
        self.me = me
        self.switches = Switches(store, root)

    async def prepare(self) -> None:
        """Make what must be there. Raises MetadataCorrupt for a tree of another kind."""
        text = _text(
            protobuf.LedgerRereplicationLayoutFormat(type=_LAYOUT_TYPE, version=_LAYOUT_VERSION)
        )
        for path, data in (
            (paths.under_replicated_ledgers(self._root), b""),
            (paths.replication_locks(self._root), b""),
            (paths.under_replication_layout(self._root), text),
        ):
            with contextlib.suppress(NodeExists):
                await self._store.create(path, data, make_parents=True)
        path = paths.under_replication_layout(self._root)
        layout = await self._store.get(path)
        found = self._read(path, layout, protobuf.LedgerRereplicationLayoutFormat())
        if (found.type, found.version) != (_LAYOUT_TYPE, _LAYOUT_VERSION):
            raise MetadataCorrupt(f"the under-replication tree is of kind {found.type!r}")

    async def marked_ledgers(self) -> list[LedgerId]:
        """Return all ledgers that have a mark."""
        top = paths.under_replicated_ledgers(self._root)
        return [ledger_id async for ledger_id in self._walk(top, _LEVELS)]

    async def _walk(self, path: str, levels: int) -> AsyncIterator[LedgerId]:
        for name in await self._children(path):
            if levels:
                async for ledger_id in self._walk(f"{path}/{name}", levels - 1):
                    yield ledger_id
            elif name.startswith(_LEAF) and name[len(_LEAF) :].isdigit():
                yield LedgerId(int(name[len(_LEAF) :]))

    async def lock(self, ledger_id: LedgerId) -> bool:
        """Lock a ledger; return whether the lock is this session's, now or already."""
        path = paths.replication_lock(ledger_id, self._root)
        data = _text(protobuf.LockDataFormat(bookieId=self.me))
        try:
            await self._store.create(path, data, ephemeral=True, make_parents=True)
        except NodeExists:
            return await self._is_ours(path)
        return True

    async def unlock(self, ledger_id: LedgerId) -> None:
        """Release a lock of this session; somebody else's stays."""
        path = paths.replication_lock(ledger_id, self._root)
        if await self._is_ours(path):
            with contextlib.suppress(NoNode):
                await self._store.delete(path)

    async def locked_ledgers(self) -> dict[LedgerId, BookieId]:
        """Return who works on which ledger; `UNREADABLE`: its lock does not say."""
        found: dict[LedgerId, BookieId] = {}
        for name in await self._children(paths.replication_locks(self._root)):
            ledger_id = LedgerId(int(name.removeprefix(_LEAF)))
            with contextlib.suppress(NoNode):
                path = paths.replication_lock(ledger_id, self._root)
                node = await self._store.get(path)
                found[ledger_id] = UNREADABLE
                with contextlib.suppress(MetadataCorrupt):
                    lock = self._read(path, node, protobuf.LockDataFormat())
                    found[ledger_id] = BookieId(lock.bookieId)
        return found

    async def checked_ms(self) -> int | None:
        """Return when all ledgers were checked last; None: never. Raises MetadataCorrupt."""
        path = paths.all_ledgers_checked(self._root)
        try:
            node = await self._store.get(path)
        except NoNode:
            return None
        return self._store.unreadable.decode(path, node.data, decode_checked_ms)

    async def set_checked_ms(self, now_ms: int) -> None:
        """Store when all ledgers were checked, unless what is stored cannot be read."""
        path = paths.all_ledgers_checked(self._root)
        data = protobuf.CheckAllLedgersFormat(checkAllLedgersCTime=now_ms).SerializeToString()
        try:
            await self.checked_ms()
            await self._store.set(path, data)
        except MetadataCorrupt:
            return
        except NoNode:
            with contextlib.suppress(NodeExists):
                await self._store.create(path, data, make_parents=True)

    async def bookies_ever(self) -> list[BookieId]:
        """Return every bookie that has a cookie."""
        return [BookieId(name) for name in await self._children(paths.cookies(self._root))]

    async def bookies_now(self, watcher: Watcher | None = None) -> list[BookieId]:
        """Return every bookie that is registered, writable or not, as the store says now."""
        readonly = paths.readonly(self._root)
        names = await self._children(paths.available(self._root), watcher)
        names += await self._children(readonly, watcher)
        return [BookieId(name) for name in names if name != readonly.rpartition("/")[2]]

    async def auditor(self) -> BookieId | None:
        """Return who was elected auditor; None: nobody yet; `UNREADABLE`: its node does not say. It
        may have died since."""
        path = paths.auditor_election(self._root)
        try:
            node = await self._store.get(path)
            vote = self._read(path, node, protobuf.AuditorVoteFormat())
        except NoNode:
            return None
        except MetadataCorrupt:
            return UNREADABLE
        return BookieId(vote.bookieId) if vote.bookieId else None

    def _read(self, path: str, node: Versioned, message: Any) -> Any:
        """Parse a node's text into a message. Raises MetadataCorrupt; the node is named then."""
        try:
            return self._store.unreadable.decode(path, node.data, partial(_parse, message))
        except MetadataCorrupt as error:
            raise MetadataCorrupt(f"{path}: {error}") from error

    async def _children(self, path: str, watcher: Watcher | None = None) -> list[str]:
        try:
            return await self._store.children(path, watcher)
        except NoNode:
            return []

    async def _is_ours(self, path: str) -> bool:
        # One whose answer was lost may still be on its way.
        await self._store.sync(path)
        node = await self._store.exists(path)
        return node is not None and node.ephemeral_owner == self._store.session_id


def vote_of(me: BookieId) -> bytes:
    """Return the text of a vote."""
    return _text(protobuf.AuditorVoteFormat(bookieId=me))


def _text(message: object) -> bytes:
    return text_format.MessageToString(message).encode()  # type: ignore[arg-type]


def _parse(message: Any, data: bytes) -> Any:
    """Raises MetadataCorrupt."""
    try:
        protobuf.parse_text(data, message)
    except ValueError as error:
        raise MetadataCorrupt(f"auto recovery cannot read {data[:80]!r}: {error}") from error
    return message


def decode_checked_ms(data: bytes) -> int:
    """Return when all ledgers were checked. Raises MetadataCorrupt."""
    message = protobuf.CheckAllLedgersFormat()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise MetadataCorrupt(f"no time of a check: {data[:80]!r}") from error
    return int(message.checkAllLedgersCTime)
