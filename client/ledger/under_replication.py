"""Marks that say "this ledger lacks copies": how a writer tells auto recovery, and what it reads.

Covers such a mark's bytes and the ways to set, read and remove one. A mark is a node of the
under-replication tree that Apache BookKeeper's auto recovery shares; it names the bookies whose
copies are missing. Their state tells what is meant:

- a bookie that is gone: everything it held must be copied to somebody else;
- a bookie that is registered: it missed single entries, anywhere in the fragments it is a member
  of (rule HOLES). Whoever repairs must compare all of its entries, not only the first and last.

Setting a mark always writes, even if the mark says the same already: the version grows, so a
worker that looked before the new loss cannot remove the mark by the version it had read.

`HoleMarks` writes marks in the background: no writer and no recovery waits for it. One task writes
them, one ledger after the other, for as long as it takes: while the metadata store is away they
wait. Marks that are wanted for the same ledger meanwhile become one. `close` gives them a last
chance; what is not written then is logged, and a comparison of all replicas will find it.

Sources: Apache BookKeeper `ZkLedgerUnderreplicationManager`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Final, NamedTuple

from google.protobuf import text_format

from client.errors import (
    LedgerError,
    MetadataCorrupt,
    MetadataError,
    NodeExists,
    NoNode,
    NoSuchLedger,
    NotEmpty,
    VersionConflict,
)
from client.ids import BookieId, Clock, LedgerId
from client.ledger.ledger_nodes import LedgerNodes
from client.metadata import paths
from client.metadata.store import MetadataStore, Watcher
from client.node import background
from client.wire.bookkeeper import protobuf


class Mark(NamedTuple):
    """What the tree says of one ledger."""

    bookies: tuple[BookieId, ...]
    """Whose copies are missing."""
    ctime_ms: int | None
    """When it was marked, if whoever did it stored that."""
    version: int
    """Version of the node: the repairer removes the mark by it."""
    kept: bytes = b""
    """Text that only another release understands."""


async def mark_under_replicated(
    store: MetadataStore,
    ledger_id: LedgerId,
    bookies: Sequence[BookieId],
    *,
    now_ms: int | None = None,
    root: str = paths.LEDGERS_ROOT,
) -> None:
    """Add `bookies` to a ledger's mark; make the mark if there is none.

    `now_ms` is stored as the time of marking. May be repeated after a ConnectionLoss. Raises
    MetadataError.
    """
    path = paths.under_replicated_ledger(ledger_id, root)
    while True:
        with contextlib.suppress(NodeExists):
            await store.create(path, _encode(bookies, now_ms), make_parents=True)
            return
        # Read only now: with its refusal the server has the mark that is there. One that went long
        # ago may have had the same version, and others would lose what they have marked.
        known = await read_mark(store, ledger_id, root=root)
        if known is None:
            continue
        merged = [*known.bookies, *(b for b in bookies if b not in known.bookies)]
        with contextlib.suppress(NoNode, VersionConflict):  # somebody marked or removed it
            data = _encode(merged, now_ms or known.ctime_ms) + known.kept
            await store.set(path, data, known.version)
            return


async def read_mark(
    store: MetadataStore,
    ledger_id: LedgerId,
    watcher: Watcher | None = None,
    *,
    root: str = paths.LEDGERS_ROOT,
) -> Mark | None:
    """Return a ledger's mark; None: it has none (and no watch is left).

    Raises MetadataCorrupt, MetadataError.
    """
    path = paths.under_replicated_ledger(ledger_id, root)
    try:
        node = await store.get(path, watcher)
    except NoNode:
        return None
    return store.unreadable.decode(path, node.data, decode_mark)._replace(version=node.version)


def decode_mark(data: bytes) -> Mark:
    """Return what a mark's bytes say, as of version 0. Raises MetadataCorrupt."""
    message = protobuf.UnderreplicatedLedgerFormat()
    try:
        protobuf.parse_text(data, message)
    except ValueError as error:
        raise MetadataCorrupt(f"the mark of a ledger is malformed: {error}") from error
    ctime_ms = message.ctime if message.HasField("ctime") else None
    kept = protobuf.unknown_text(data, message)
    return Mark(tuple(map(BookieId, message.replica)), ctime_ms, 0, kept)


async def remove_mark(
    store: MetadataStore, ledger_id: LedgerId, version: int, *, root: str = paths.LEDGERS_ROOT
) -> bool:
    """Remove a mark unless it was set again since `version` was read; tidy up empty directories.

    Returns whether there is no mark now. Raises MetadataError.
    """
    path = paths.under_replicated_ledger(ledger_id, root)
    try:
        await store.delete(path, version)
    except VersionConflict:
        return False
    except NoNode:
        return True
    top = paths.under_replicated_ledgers(root)
    while (path := path.rpartition("/")[0]) != top:
        try:
            await store.delete(path)
        except (NotEmpty, NoNode):
            break  # others use it, or tidied up before us
    return True


def _encode(bookies: Sequence[BookieId], ctime_ms: int | None) -> bytes:
    message = protobuf.UnderreplicatedLedgerFormat(replica=list(dict.fromkeys(bookies)))
    if ctime_ms is not None:
        message.ctime = ctime_ms
    return text_format.MessageToString(message).encode()


log = logging.getLogger(__name__)

_RETRY_S: Final = 5.0


class HoleMarks:
    """The marks that one client has still to write."""

    def __init__(
        self, store: MetadataStore, nodes: LedgerNodes, clock: Clock, *, root: str
    ) -> None:
        self._store = store
        self._nodes = nodes
        self._clock = clock
        self._root = root
        self._wanted: dict[LedgerId, dict[BookieId, None]] = {}
        self._writing: tuple[LedgerId, dict[BookieId, None]] | None = None
        self._task: asyncio.Task[None] | None = None

    def want(self, ledger_id: LedgerId, bookies: Sequence[BookieId]) -> None:
        """Mark a ledger soon: these bookies lack entries of it."""
        self._wanted.setdefault(ledger_id, {}).update(dict.fromkeys(bookies))
        if self._task is None or self._task.done():
            self._task = background.keep(self._write_all, "hole-marks")

    async def close(self, timeout_s: float) -> None:
        """Write what is wanted, unless that takes too long, and stop."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=timeout_s)
            self._task.cancel()
        unwritten = list(self._wanted.items())
        if self._writing is not None:
            unwritten.append(self._writing)
        for ledger_id, bookies in unwritten:
            log.warning("ledger.not_marked ledger=%d lacking=%s", ledger_id, ",".join(bookies))

    async def _write_all(self) -> None:
        while self._wanted:
            ledger_id = next(iter(self._wanted))
            # What is wanted from now on needs a mark after this one, even for the same bookies.
            self._writing = ledger_id, self._wanted.pop(ledger_id)
            try:
                await self._write(ledger_id, list(self._writing[1]))
            except MetadataError as error:
                log.warning("ledger.mark_delayed ledger=%d error=%r", ledger_id, error)
                self._wanted.setdefault(ledger_id, {}).update(self._writing[1])
                await asyncio.sleep(_RETRY_S)
            except LedgerError as error:
                log.error("ledger.not_marked ledger=%d error=%r", ledger_id, error)
            self._writing = None

    async def _write(self, ledger_id: LedgerId, bookies: Sequence[BookieId]) -> None:
        try:
            await self._nodes.read(ledger_id)
        except NoSuchLedger:
            return  # deleted: nobody misses a copy
        now_ms = self._clock.now_ms()
        await self._nodes.retry(
            lambda: mark_under_replicated(
                self._store, ledger_id, bookies, now_ms=now_ms, root=self._root
            )
        )
        log.info("ledger.under_replicated ledger=%d lacking=%s", ledger_id, ",".join(bookies))
