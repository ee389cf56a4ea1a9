"""Access control lists in the metadata store, watched by every broker.

The entries about one resource, or one pattern of resources, are one node, named by a hash:

    {"version": 1, "resource_type": "TOPIC", "pattern": "LITERAL", "name": ...,
     "acls": [["User:anna", "*", "READ", "ALLOW"], ...]}

Whoever changes entries sees the change at once on the same broker; others follow within moments. A
node that cannot be read is reported, and as nobody knows what it denied, nothing of that name or
prefix, and if it does not even say that, nothing at all, is allowed to anybody but super users.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from broker.cluster.directory_view import Freshness
from broker.cluster.editable_directory import EditableDirectory
from broker.errors import InvalidRequest
from broker.security.core.acls import (
    Acl,
    AclFilter,
    Acls,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from client.metadata import paths
from client.metadata.json_node import carried, read_object
from client.metadata.store import MetadataStore

_FORMAT: Final = 1
_FIELDS: Final = frozenset(("version", "resource_type", "pattern", "name", "acls"))
_ENTRIES_MAX: Final = 2_000
"""About one resource or prefix: they share a node, which has a limit of its own."""

Place = tuple[ResourceType, PatternType, str]
"""What the entries of one node are about."""


class AclStore:
    """All entries."""

    def __init__(
        self,
        store: MetadataStore,
        on_change: Callable[[Acls], None],
        entries_max: int,
        freshness: Freshness,
    ) -> None:
        """`on_change` gets all entries, at first and after every change; `entries_max`: more of
        them in all are not taken here; `freshness` hears of changes."""
        self._on_change = on_change
        self._entries_max = entries_max
        self._acls = Acls()
        self._nodes: EditableDirectory[tuple[Acl, ...]] = EditableDirectory(
            store, paths.ACLS, decode, self._report, freshness, in_place=_deny_everything
        )

    async def start(self) -> None:
        """Read all of them, then follow changes, unless that was done. Raises MetadataError."""
        await self._nodes.start()

    async def close(self) -> None:
        """Stop following."""
        await self._nodes.close()

    @property
    def count(self) -> int:
        """Entries that are kept in memory."""
        return self._acls.count

    def find(self, wanted: AclFilter) -> list[Acl]:
        """Return the entries that a filter means, sorted."""
        return sorted(
            acl for acls in self._nodes.values.values() for acl in acls if wanted.matches(acl)
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
        await self._nodes.catch_up()  # a right that is not seen would not be revoked
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

        def change(data: bytes | None) -> bytes | None:
            before = () if data is None else decode(name, data)
            after = sorted(dict.fromkeys(edit(before)))
            if len(after) > _ENTRIES_MAX:
                raise InvalidRequest(f"more than {_ENTRIES_MAX} entries about {place[2]!r}")
            more = len(after) - len(before)
            if more > 0 and self._acls.count + more > self._entries_max:
                raise InvalidRequest(
                    f"there may be at most security.acls_max ({self._entries_max}) access"
                    " control entries"
                )
            kept = carried(data, _FIELDS)
            return _encode(place, after, kept) if after or kept else None

        await self._nodes.edit(name, change, subject=f"the entries about {place[2]!r}")

    def _report(self) -> None:
        for name in self._nodes.changed:
            self._acls.put(name, self._nodes.values.get(name, ()))
        self._on_change(self._acls)


def _place(acl: Acl) -> Place:
    return acl.resource_type, acl.pattern, acl.name


def _node_name(place: Place) -> str:
    kind, pattern, name = place
    text = f"{kind.name}/{pattern.name}/{name}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _encode(place: Place, acls: Sequence[Acl], kept: Mapping[str, Any]) -> bytes:
    """`kept`: fields that only another release knows."""
    kind, pattern, name = place
    rows = [[a.principal, a.host, a.operation.name, a.permission.name] for a in acls]
    fields = {
        **kept,
        "version": _FORMAT,
        "resource_type": kind.name,
        "pattern": pattern.name,
        "name": name,
        "acls": rows,
    }
    return json.dumps(fields, sort_keys=True).encode()


def decode(node_name: str, data: bytes) -> tuple[Acl, ...]:
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


def _deny_everything(_node_name: str) -> tuple[Acl, ...]:
    """Return what denies everything that a node which cannot be read may have been about."""
    return tuple(
        Acl(kind, "*", PatternType.LITERAL, "User:*", "*", Operation.ALL, Permission.DENY)
        for kind in ResourceType
        if kind is not ResourceType.ANY
    )
