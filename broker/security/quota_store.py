"""Quotas in the metadata store, watched by every broker.

The limits of one entity are one node, named by a hash of it:

    {"version": 1, "entity": {"user": "anna", "client-id": null},
     "quotas": {"producer_byte_rate": "1048576.0", ...}}

A node that cannot be read is reported, and what it said when it was readable stays in force. A
limit that this release does not know, or does not take, stays as it is and limits nobody here.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from broker.cluster.editable_directory import EditableDirectory
from broker.errors import InvalidRequest
from broker.security.core.quota_limits import Entity, QuotaLimits, check_types, check_value
from client.errors import LogCorrupt
from client.metadata import paths
from client.metadata.json_node import carried, read_object
from client.metadata.store import MetadataStore

log = logging.getLogger(__name__)

_FORMAT: Final = 1
_FIELDS: Final = frozenset(("version", "entity", "quotas"))

Quotas = Mapping[str, float]
Changes = Mapping[str, float | None]
"""None: it goes."""


class QuotaStore:
    """All entities that have limits."""

    def __init__(
        self,
        store: MetadataStore,
        on_change: Callable[[QuotaLimits], None],
        entities_max: int,
    ) -> None:
        """`on_change` gets all limits, at first and after every change; `entities_max`: more
        entities are not taken here."""
        self._on_change = on_change
        self._entities_max = entities_max
        self._nodes: EditableDirectory[tuple[Entity, Quotas]] = EditableDirectory(
            store, paths.QUOTAS, decode, self._report
        )

    async def start(self) -> None:
        """Read all of them, then follow changes, unless that was done. Raises MetadataError."""
        await self._nodes.start()

    async def close(self) -> None:
        """Stop following."""
        await self._nodes.close()

    @property
    def count(self) -> int:
        """Entities that are kept in memory."""
        return len(self._nodes.values)

    def all(self) -> list[tuple[Entity, Quotas]]:
        """Return every entity with its limits, sorted."""
        return sorted(self._nodes.values.values(), key=lambda row: json.dumps(row[0]))

    async def change(self, entity: Entity, changes: Changes) -> None:
        """Set and remove limits of one entity; one of which nothing is left is gone.

        Raises InvalidRequest, MetadataError (it may have happened), RequestTimedOut.
        """
        name = _node_name(entity)

        def change(data: bytes | None) -> bytes | None:
            merged = {**({} if data is None else decode(name, data)[1]), **changes}
            after = {key: value for key, value in merged.items() if value is not None}
            if data is None and after and self.count >= self._entities_max:
                raise InvalidRequest(
                    f"more than security.quota_entities_max ({self._entities_max}) entities with"
                    " quotas: remove some that nobody needs, or raise it on every broker"
                )
            kept = carried(data, _FIELDS)
            foreign = {} if data is None else _foreign(name, data, changes)
            return _encode(entity, after, foreign, kept) if after or foreign or kept else None

        await self._nodes.edit(name, change, subject=f"the quotas of {dict(entity)}")

    def _report(self) -> None:
        self._on_change(QuotaLimits(dict(self._nodes.values.values())))


def _node_name(entity: Entity) -> str:
    text = json.dumps(entity).encode()
    return hashlib.sha256(text).hexdigest()


def _encode(
    entity: Entity, quotas: Quotas, foreign: Mapping[str, Any], kept: Mapping[str, Any]
) -> bytes:
    """`foreign`: limits, and `kept`: fields, that only another release understands."""
    values = {key: repr(float(value)) for key, value in quotas.items()}  # nodes have whole numbers
    limits = {**foreign, **values}
    fields = {**kept, "version": _FORMAT, "entity": dict(entity), "quotas": limits}
    return json.dumps(fields, sort_keys=True).encode()


def _foreign(node_name: str, data: bytes, changes: Changes) -> dict[str, Any]:
    """Return the limits that are not understood, but for those that are set anew, or taken away."""
    understood = decode(node_name, data)[1]
    stored = read_object(data)["quotas"]
    return {key: one for key, one in stored.items() if key not in {*understood, *changes}}


def decode(node_name: str, data: bytes) -> tuple[Entity, Quotas]:
    """Read a node. Raises LogCorrupt."""
    try:
        fields = read_object(data)
        if fields["version"] != _FORMAT:
            raise ValueError(f"format {fields['version']}")
        entity: Entity = tuple(sorted((str(kind), name) for kind, name in fields["entity"].items()))
        if _node_name(entity) != node_name:
            raise ValueError("another entity's name")
        check_types(kind for kind, _ in entity)
        quotas: dict[str, float] = {}
        for key, raw in fields["quotas"].items():
            with contextlib.suppress(TypeError, ValueError, InvalidRequest):
                value = float(raw)
                check_value(entity, key, value)
                quotas[key] = value
    except (KeyError, TypeError, ValueError, AttributeError, InvalidRequest) as error:
        raise LogCorrupt(f"quotas {node_name}: {error!r}") from error
    return entity, quotas
