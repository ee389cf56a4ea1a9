"""Requests to ZooKeeper about several nodes: transactions, reads, watches.

kazoo knows transactions; their outcomes are made ours here. It does not know `multiRead`, which
ZooKeeper has since 3.6 and which answers each read alone: that is written out here, with kazoo's
own pieces of the wire. It leaves no watches; those follow in a second request, `setWatches`.

Source: Apache ZooKeeper, `MultiOperationRecord`, `MultiResponse`, `FinalRequestProcessor`, and
`DataTree.setWatches`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import kazoo.exceptions as zk
from kazoo.client import KazooClient
from kazoo.protocol.serialization import (
    GetData,
    MultiHeader,
    int_struct,
    long_struct,
    read_buffer,
    stat_struct,
    write_string,
)
from kazoo.protocol.states import WatchedEvent, ZnodeStat

from client.metadata.store import (
    Change,
    Changed,
    Create,
    Delete,
    SetData,
    Versioned,
    check_path,
    check_size,
)
from client.metadata.zookeeper_errors import translate

Hook = Callable[[WatchedEvent], None]

_FAILED: Final = -1
"""Type of an operation's outcome that is an error."""


def begin_multi(client: KazooClient, changes: Sequence[Change]) -> Any:
    """Send a transaction; return kazoo's asynchronous result."""
    transaction = client.transaction()
    for change in changes:
        match change:
            case Create(path, data, ephemeral, sequential):
                transaction.create(path, data, ephemeral=ephemeral, sequence=sequential)
            case SetData(path, data, version):
                transaction.set_data(path, data, version)
            case Delete(path, version):
                transaction.delete(path, version)
    return transaction.commit_async()


def check_changes(changes: Sequence[Change]) -> None:
    """Raise ValueError for a path that is none, MetadataError for a node that is too large."""
    for change in changes:
        check_path(change.path)
        if not isinstance(change, Delete):
            check_size(change.path, change.data)


def changed(changes: Sequence[Change], results: Sequence[Any]) -> list[Changed]:
    """Return what each change of a transaction came to. Raises what the guilty one met."""
    for change, result in zip(changes, results, strict=True):
        # All but the guilty one report that they were rolled back.
        if isinstance(result, Exception) and not isinstance(
            result, zk.RolledBackError | zk.RuntimeInconsistency
        ):
            raise translate(result, change.path)
    return [_changed(change, result) for change, result in zip(changes, results, strict=True)]


def _changed(change: Change, result: Any) -> Changed:
    match change:
        case Create():
            made: str = result
            return made
        case SetData():
            version: int = result.version
            return version
        case Delete():
            return None


def begin_reads(client: KazooClient, paths: Sequence[str]) -> Any:
    """Send a request that reads several nodes; return kazoo's asynchronous result.

    That has what each came to, and a transaction that the nodes were read after.
    """
    result = client.handler.async_result()
    client._call(_MultiRead(client, paths), result)
    return result


def read(paths: Sequence[str], results: Sequence[Any]) -> list[Versioned | None]:
    """Return the nodes that were read, None for those that are not there. Raises MetadataError."""
    found: list[Versioned | None] = []
    for path, result in zip(paths, results, strict=True):
        if isinstance(result, zk.NoNodeError):
            found.append(None)
        elif isinstance(result, Exception):
            raise translate(result, path)
        else:
            data, stat = result
            found.append(Versioned(data, stat.version, stat.ctime, stat.ephemeralOwner))
    return found


def begin_watches(client: KazooClient, hooks: Sequence[tuple[str, Hook]], zxid: int) -> Any:
    """Wait for the next change of nodes after a transaction; return kazoo's result.

    What changed since is told before the answer comes.
    """
    result = client.handler.async_result()
    client._call(_SetWatches(client, hooks, zxid), result)
    return result


class _MultiRead:
    """Reads nodes, as kazoo's connection sends a request and reads its answer."""

    type: Final = 22

    def __init__(self, client: KazooClient, paths: Sequence[str]) -> None:
        self._client = client
        self._paths = paths
        self._zxid = 0

    def serialize(self) -> bytes:
        # The transaction in the answer's header may be a later one than some node was read after:
        # the server reads while it writes. The last one that we heard of is certainly an earlier.
        self._zxid = self._client.last_zxid
        head = MultiHeader(GetData.type, False, -1).serialize()
        root = self._client.chroot
        parts = [head + GetData(f"{root}{path}", None).serialize() for path in self._paths]
        return b"".join([*parts, MultiHeader(-1, True, -1).serialize()])

    def deserialize(self, answer: bytes, offset: int) -> tuple[list[Any], int]:
        """Return (bytes, stat) of each node, or kazoo's exception; and the transaction."""
        results: list[Any] = []
        header, offset = MultiHeader.deserialize(answer, offset)
        while not header.done:
            if header.type == _FAILED:
                (code,) = int_struct.unpack_from(answer, offset)
                offset += int_struct.size
                results.append(zk.EXCEPTIONS[code]())
            else:
                data, offset = read_buffer(answer, offset)
                results.append((data, ZnodeStat._make(stat_struct.unpack_from(answer, offset))))
                offset += stat_struct.size
            header, offset = MultiHeader.deserialize(answer, offset)
        return results, self._zxid


class _SetWatches:
    """Leaves watches, which ZooKeeper has for clients that come back after an interruption."""

    type: Final = 101

    def __init__(self, client: KazooClient, hooks: Sequence[tuple[str, Hook]], zxid: int) -> None:
        self._client = client
        self._hooks = hooks
        self._zxid = zxid

    def serialize(self) -> bytes:
        """Also makes them known to kazoo, in whose thread this runs: events may come before the
        answer, and are looked for in the same thread."""
        root, known = self._client.chroot, self._client._data_watchers
        parts = [long_struct.pack(self._zxid), int_struct.pack(len(self._hooks))]
        for path, hook in self._hooks:
            known[f"{root}{path}"].add(hook)
            parts.append(write_string(f"{root}{path}"))
        parts.append(int_struct.pack(0) * 2)  # none for creations, none for children
        return b"".join(parts)

    def deserialize(self, _answer: bytes, _offset: int) -> None:
        """There is nothing in it."""
