"""Backup of a cluster's metadata: both trees in ZooKeeper as lines of JSON.

    {"quire_metadata_backup": 1, "roots": ["/ledgers", "/quire"], "made_ms": 1767225600000}
    {"path": "/ledgers/LAYOUT", "data": "<base64>"}
    ...

Parents come before children. Ephemeral nodes are left out: they say who lives, not what there is.
A backup of a cluster at work is not of one moment: a ledger that was made during it may be in the
list of its partition and not among the ledgers, or the other way round, and a page that a trim
deleted during it may be named by its list, so stop the brokers for a moment if you can. What was
written after the backup is not known to the restored cluster.
Restoring takes a ZooKeeper without these trees, and completes a restore that was cut short. Numbers
that may have been given out after the backup are not given out again: bookies still hold the
ledgers, and logs the batches, that bear them. So new ledger ids come from the next directory of
`idgen-long`, new producer ids from far above, and the epoch of the finalized features grows, for
clients take no lower one.
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Final

from client.errors import ConfigError, NodeExists, NoNode, QuireError
from client.metadata import paths
from client.metadata.store import MetadataStore

_FORMAT: Final = "quire_metadata_backup"
_VERSION: Final = 1
_SKIPPED: Final = {paths.PRODUCER_IDS: ("next", 1 << 32), paths.FEATURES: ("epoch", 1 << 16)}
"""Nodes with a number that may have grown since, which field it is, and by how much it grows."""


async def backup(
    store: MetadataStore, *, now_ms: int, roots: Sequence[str] = (paths.LEDGERS_ROOT, "/quire")
) -> AsyncIterator[str]:
    """Yield the lines of a backup. Raises MetadataError, and ConfigError if a root is not there."""
    yield json.dumps({_FORMAT: _VERSION, "roots": list(roots), "made_ms": now_ms})
    for root in roots:
        if await store.exists(root) is None:
            raise ConfigError(f"there is nothing at {root} in this ZooKeeper")
        async for line in _walk(store, root):
            yield line


async def _walk(store: MetadataStore, path: str) -> AsyncIterator[str]:
    try:
        node = await store.get(path)
        if node.ephemeral_owner:
            return
        names = await store.children(path)
    except NoNode:
        return  # it went meanwhile
    yield json.dumps({"path": path, "data": base64.b64encode(node.data).decode()})
    for name in names:
        async for line in _walk(store, f"{path}/{name}"):
            yield line


async def restore(store: MetadataStore, lines: Iterable[str]) -> int:
    """Create what a backup holds; return how many nodes are there now.

    Raises ConfigError for what is no backup, QuireError while brokers or bookies are registered
    and when a node is there with other data: some of the backup may be restored then.
    """
    rows = _rows(lines)
    head = next(rows, None)
    if head is None or head.get(_FORMAT) != _VERSION:
        raise ConfigError("this is not a backup of Quire's metadata")
    await _check_nobody_runs(store, head["roots"][0])
    count = 0
    high_parts = [0]
    for row in rows:
        path, data = str(row["path"]), base64.b64decode(row["data"], validate=True)
        if path in _SKIPPED:
            data = _skip(data, *_SKIPPED[path])
        if "/idgen-long/HOB-" in path:
            high_parts.append(int(path.rpartition("-")[2]))
        await _create(store, path, data)
        count += 1
    ids = f"{head['roots'][0]}/idgen-long"
    for path in (ids, f"{ids}/HOB-{max(high_parts) + 1:010d}"):
        with contextlib.suppress(NodeExists):
            await store.create(path)
    return count


async def _check_nobody_runs(store: MetadataStore, ledgers_root: str) -> None:
    for path in (paths.BROKERS, paths.available(ledgers_root)):
        try:
            live = [name for name in await store.children(path) if name != "readonly"]
        except NoNode:
            continue
        if live:
            raise QuireError(
                f"{', '.join(live[:3])} is registered at {path}: stop all brokers and bookies of"
                " this ZooKeeper, or restore into another one"
            )


def _skip(data: bytes, field: str, count: int) -> bytes:
    fields = json.loads(data)
    fields[field] += count
    return json.dumps(fields).encode()


def _rows(lines: Iterable[str]) -> Any:
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            if number > 1:
                base64.b64decode(row["data"], validate=True)
                row["path"]
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"line {number} of the backup is damaged: {error!r}") from error
        yield row


async def _create(store: MetadataStore, path: str, data: bytes) -> None:
    try:
        await store.create(path, data)
    except NodeExists:
        if (await store.get(path)).data != data:
            raise QuireError(
                f"{path} is there already, with other data: restore into a ZooKeeper, or a chroot,"
                " without a cluster"
            ) from None
