"""A broker of a newer release: what it writes has settings and fields that others do not know.

Its code is the same. Between it and the metadata store, each node that brokers read gets what a
later release could have added: all a field, a topic a setting, too, a registration a listener of a
protocol that does not exist yet.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from client.metadata import paths
from client.metadata.store import Create, SetData

if TYPE_CHECKING:
    from collections.abc import Sequence

    from client.metadata.store import Change, Changed, MetadataStore, Versioned, Watcher

_DIRECTORIES: Final = (
    paths.TOPICS,
    paths.BROKERS,
    paths.ACLS,
    paths.USERS,
    paths.QUOTAS,
    paths.BROKER_CONFIGS,
)
SETTING: Final = "quire.future.placement"
FIELD: Final = "future"
FORMAT: Final = 2
"""Of nodes that nobody else can read."""
_OURS: Final = 1
_LISTENER: Final = "FUTURE"


def written(path: str, data: bytes) -> bytes:
    """Return what a newer release makes of a node's content."""
    directory = path.rpartition("/")[0]
    if directory not in _DIRECTORIES or not data:
        return data
    fields: dict[str, Any] = json.loads(data)
    fields.setdefault(FIELD, {"since": 9})
    if directory == paths.TOPICS:
        fields["configs"].setdefault(SETTING, "near")
    if directory == paths.BROKERS:
        fields["endpoints"][_LISTENER] = ["nowhere", 4_433, True, "QUIC"]
    return json.dumps(fields, sort_keys=True).encode()


def understood(path: str, data: bytes) -> bytes:
    """Return what a newer release finds in a registration: it knows its own by that."""
    if path.rpartition("/")[0] != paths.BROKERS or not data:
        return data
    fields: dict[str, Any] = json.loads(data)
    fields.pop(FIELD, None)
    fields.get("endpoints", {}).pop(_LISTENER, None)
    if fields.get("version") == FORMAT:
        fields["version"] = _OURS
    return json.dumps(fields, sort_keys=True).encode()


class NewerStore:
    """A session whose owner is of a newer release. Implements `MetadataStore`."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def get(self, path: str, watcher: Watcher | None = None) -> Versioned:
        node = await self._store.get(path, watcher)
        return node._replace(data=understood(path, node.data))

    async def create(self, path: str, data: bytes = b"", **options: Any) -> str:
        return await self._store.create(path, written(path, data), **options)

    async def set(self, path: str, data: bytes, version: int = -1) -> int:
        return await self._store.set(path, written(path, data), version)

    async def multi(self, changes: Sequence[Change]) -> list[Changed]:
        return await self._store.multi(
            [
                one._replace(data=written(one.path, one.data))
                if isinstance(one, Create | SetData)
                else one
                for one in changes
            ]
        )
