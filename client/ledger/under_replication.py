"""Marks that say "this ledger lacks copies": how a writer tells auto recovery, and what it reads.

Covers such a mark's bytes and the ways to set, read and remove one. A mark is a node of the
under-replication tree that Apache BookKeeper's auto recovery shares; it names the bookies whose
copies are missing. Their state tells what is meant:

- a bookie that is gone: everything it held must be copied to somebody else;
- a bookie that is registered: it missed single entries, anywhere in the fragments it is a member
  of (rule HOLES). Whoever repairs must compare all of its entries, not only the first and last.

Setting a mark always writes, even if the mark says the same already: the version grows, so a
worker that looked before the new loss cannot remove the mark by the version it had read.

Sources: Apache BookKeeper `ZkLedgerUnderreplicationManager`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from google.protobuf import text_format

from client.errors import MetadataCorrupt, NodeExists, NoNode, NotEmpty, VersionConflict
from client.ids import BookieId, LedgerId
from client.metadata import paths
from client.metadata.store import MetadataStore, Watcher
from client.wire.bookkeeper import protobuf


class Mark(NamedTuple):
    """What the tree says of one ledger."""

    bookies: tuple[BookieId, ...]
    """Whose copies are missing."""
    ctime_ms: int | None
    """When it was marked, if whoever did it stored that."""
    version: int
    """Version of the node: the repairer removes the mark by it."""


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
        known = await read_mark(store, ledger_id, root=root)
        try:
            if known is None:
                data = _encode(bookies, now_ms)
                await store.create(path, data, make_parents=True)
            else:
                merged = [*known.bookies, *(b for b in bookies if b not in known.bookies)]
                await store.set(path, _encode(merged, now_ms or known.ctime_ms), known.version)
        except (NodeExists, NoNode, VersionConflict):
            continue  # somebody marked, or removed the mark, at the same time
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
    try:
        node = await store.get(paths.under_replicated_ledger(ledger_id, root), watcher)
    except NoNode:
        return None
    message = protobuf.UnderreplicatedLedgerFormat()
    try:
        protobuf.parse_text(node.data, message)
    except ValueError as error:
        raise MetadataCorrupt(f"the mark of ledger {ledger_id} is malformed: {error}") from error
    ctime_ms = message.ctime if message.HasField("ctime") else None
    return Mark(tuple(map(BookieId, message.replica)), ctime_ms, node.version)


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
