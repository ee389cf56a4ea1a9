"""Access control lists in the metadata store, watched by every broker.

The entries about one resource, or one pattern of resources, are one node, named by a hash:

    {"version": 1, "resource_type": "TOPIC", "pattern": "LITERAL", "name": ...,
     "acls": [["User:anna", "*", "READ", "ALLOW"], ...]}

Whoever changes entries sees the change at once on the same broker; others follow within moments. A
node that cannot be read is reported, and as nobody knows what it denied, nothing of that name or
prefix, and if it does not even say that, nothing at all, is allowed to anybody but super users.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from broker.cluster.directory_view import DirectoryView
from broker.errors import InvalidRequest, RequestTimedOut
from broker.security.core.acls import (
    Acl,
    AclFilter,
    Acls,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from client.errors import NodeExists, NoNode, VersionConflict
from client.metadata import paths
from client.metadata.json_node import read_object
from client.metadata.store import MetadataStore

log = logging.getLogger(__name__)

_FORMAT: Final = 1
_TRY_COUNT_MAX: Final = 10
_ENTRIES_MAX: Final = 2_000
"""About one resource or prefix: they share a node, which has a limit of its own."""

Place = tuple[ResourceType, PatternType, str]
"""What the entries of one node are about."""


class AclStore:
    """All entries."""

    def __init__(self, store: MetadataStore, on_change: Callable[[Acls], None]) -> None:
        """`on_change` gets all entries, at first and after every change."""
        self._store = store
        self._on_change = on_change
        self._view: DirectoryView[tuple[Acl, ...]] = DirectoryView(
            store, paths.ACLS, _decode_or_deny, self._report
        )
        self._lock = asyncio.Lock()
        self._is_started = False

    async def start(self) -> None:
        """Read all of them, then follow changes, unless that was done. Raises MetadataError."""
        async with self._lock:
            if self._is_started:
                return
            with contextlib.suppress(NodeExists):
                await self._store.create(paths.ACLS, make_parents=True)
            await self._view.start()
            self._is_started = True

    async def close(self) -> None:
        """Stop following."""
        await self._view.close()

    def find(self, wanted: AclFilter) -> list[Acl]:
        """Return the entries that a filter means, sorted."""
        return sorted(
            acl for acls in self._view.values.values() for acl in acls if wanted.matches(acl)
        )

    async def add(self, acls: Sequence[Acl]) -> None:
        """Add entries about one resource or prefix; those that are there already stay.

        Raises InvalidRequest, MetadataError (it may have happened), RequestTimedOut.
        """
        await self._edit(_place(acls[0]), lambda before: (*before, *acls))

    async def remove(self, wanted: AclFilter) -> list[Acl]:
        """Remove the entries that a filter means; return them.

        Raises MetadataError (some may be gone), RequestTimedOut.
        """
        removed: list[Acl] = []
        for place in dict.fromkeys(map(_place, self.find(wanted))):
            gone: list[Acl] = []

            def edit(before: Sequence[Acl], gone: list[Acl] = gone) -> list[Acl]:
                gone[:] = [acl for acl in before if wanted.matches(acl)]
                return [acl for acl in before if not wanted.matches(acl)]

            await self._edit(place, edit)
            removed += gone
        return removed

    async def _edit(self, place: Place, edit: Callable[[Sequence[Acl]], Iterable[Acl]]) -> None:
        name = _node_name(place)
        path = f"{paths.ACLS}/{name}"
        for _ in range(_TRY_COUNT_MAX):
            try:
                node = await self._store.get(path)
                before, version = _decode(name, node.data), node.version
            except NoNode:
                before, version = (), -1
            after = sorted(dict.fromkeys(edit(before)))
            if len(after) > _ENTRIES_MAX:
                raise InvalidRequest(f"more than {_ENTRIES_MAX} entries about {place[2]!r}")
            try:
                if version < 0 and after:
                    await self._store.create(path, _encode(place, after), make_parents=True)
                elif not after and version >= 0:
                    await self._store.delete(path, version)
                elif version >= 0:
                    await self._store.set(path, _encode(place, after), version)
            except (NodeExists, NoNode, VersionConflict):
                continue  # somebody else was faster
            await self._view.look(name)
            return
        raise RequestTimedOut(f"the entries about {place[2]!r} could not be changed")

    def _report(self) -> None:
        self._on_change(Acls(acl for acls in self._view.values.values() for acl in acls))


def _place(acl: Acl) -> Place:
    return acl.resource_type, acl.pattern, acl.name


def _node_name(place: Place) -> str:
    kind, pattern, name = place
    text = f"{kind.name}/{pattern.name}/{name}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _encode(place: Place, acls: Sequence[Acl]) -> bytes:
    kind, pattern, name = place
    rows = [[a.principal, a.host, a.operation.name, a.permission.name] for a in acls]
    fields = {
        "version": _FORMAT,
        "resource_type": kind.name,
        "pattern": pattern.name,
        "name": name,
        "acls": rows,
    }
    return json.dumps(fields, sort_keys=True).encode()


def _decode(node_name: str, data: bytes) -> tuple[Acl, ...]:
    """Read a node. Raises ValueError."""
    try:
        fields = read_object(data)
        if fields["version"] != _FORMAT:
            raise ValueError(f"format {fields['version']}")
        place = (
            ResourceType[fields["resource_type"]],
            PatternType[fields["pattern"]],
            str(fields["name"]),
        )
        if _node_name(place) != node_name:
            raise ValueError("another resource's name")
        kind, pattern, name = place
        return tuple(
            Acl(kind, name, pattern, str(who), str(host), Operation[what], Permission[how])
            for who, host, what, how in fields["acls"]
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"entries {node_name}: {error!r}") from error


def _decode_or_deny(node_name: str, data: bytes) -> tuple[Acl, ...]:
    """Read a node; of one that is damaged, return what denies everything it may have been about."""
    try:
        return _decode(node_name, data)
    except ValueError as error:
        log.error("acls.unreadable node=%s error=%r", node_name, str(error))
    return tuple(
        Acl(kind, "*", PatternType.LITERAL, "User:*", "*", Operation.ALL, Permission.DENY)
        for kind in ResourceType
        if kind is not ResourceType.ANY
    )
