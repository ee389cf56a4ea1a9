"""All subjects of a registry, folded from its log."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final, TypeVar
from uuid import UUID

from ops.schemas.core.errors import INVALID_REQUEST, InvalidSchema, RegistryError
from ops.schemas.core.log_records import (
    Change,
    IdsGiven,
    LevelSet,
    ModeSet,
    SchemaGone,
    SchemaStored,
    SubjectDeleted,
)
from ops.schemas.core.schema import Level, Mode, Reference, Resolved, Schema, Version

T = TypeVar("T")

REFERENCES_MAX: Final = 1_000
"""Schemas that one may need, directly or not."""
_VERSION_BYTES: Final = 1_500
"""What one version takes in the tables, beside its texts: measured."""
_REFERENCE_BYTES: Final = 700
"""The same of a reference."""
SETTING_BYTES: Final = 300
"""The same of a level, or a mode, beside the name of its subject."""


class Catalogue:
    """What the log says so far. `apply` in the log's order; everything else only looks."""

    def __init__(self) -> None:
        self.last_id = 0
        """The highest id that was ever given, of deleted schemas too."""
        self.levels: dict[str | None, Level] = {}
        self.modes: dict[str | None, Mode] = {}
        self._subjects: dict[str, dict[int, Version]] = {}
        """Subject -> number -> version, deleted ones too, numbers ascending."""
        self._by_id: dict[int, dict[tuple[str, int], Version]] = {}
        self._ids: dict[Schema, int] = {}
        """The same schema has the same id in all subjects."""
        self._guids: dict[UUID, int] = {}
        """The id that a schema was first known under."""
        self._referrers: dict[tuple[str, int], set[tuple[str, int]]] = {}
        self.held_bytes = 0
        """Memory of all versions, deleted ones too."""

    def apply(self, change: Change) -> None:
        """Fold the next record of the log."""
        match change:
            case SchemaStored(version):
                self._remove(version.subject, version.number)
                self._add(version)
            case SchemaGone(subject, number):
                self._remove(subject, number)
            case SubjectDeleted(subject, last):
                for version in self.versions(subject, deleted=True):
                    if version.number <= last:
                        self.apply(SchemaStored(version._replace(is_deleted=True)))
            case LevelSet(subject, level):
                self.held_bytes += _put(self.levels, subject, level)
            case ModeSet(subject, mode):
                self.held_bytes += _put(self.modes, subject, mode)
            case IdsGiven(last_id):
                self.last_id = max(self.last_id, last_id)

    def subjects(self, *, deleted: bool = False) -> list[str]:
        """Return the names in order; with `deleted` also those of which nothing is left to see."""
        return sorted(name for name in self._subjects if self.versions(name, deleted=deleted))

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        """Return the versions of a subject by number; none for a subject that is unknown."""
        every = self._subjects.get(subject, {})
        return [every[n] for n in sorted(every) if deleted or not every[n].is_deleted]

    def version(self, subject: str, number: int) -> Version | None:
        """Return a version, deleted or not."""
        return self._subjects.get(subject, {}).get(number)

    def with_id(self, schema_id: int) -> list[Version]:
        """Return all versions of all subjects with an id, deleted ones too."""
        return [one for _, one in sorted(self._by_id.get(schema_id, {}).items())]

    def with_guid(self, guid: UUID) -> Version | None:
        """Return a version of a schema, deleted or not."""
        found = self.with_id(self._guids.get(guid, 0))
        return next((one for one in found if one.schema.guid == guid), None)

    def id_of(self, schema: Schema) -> int | None:
        """Return the id under which this very schema is known."""
        return self._ids.get(schema)

    def referrers(self, version: Version, *, deleted: bool) -> list[Version]:
        """Return the versions that refer to this one; with `deleted` also those that are marked
        so, whose records are still read."""
        found = self._referrers.get((version.subject, version.number), set())
        every = (self.version(subject, number) for subject, number in sorted(found))
        return [one for one in every if one is not None and (deleted or not one.is_deleted)]

    def resolve(self, schema: Schema, *, deleted: bool = False) -> Resolved:
        """Return a schema with the texts of what it refers to, directly and through others.

        A new one may not refer to what is deleted; one that is stored (`deleted`) may.

        Raises InvalidSchema if something of that does not exist or there is too much of it.
        """
        found: dict[str, str] = {}
        self._resolve(schema.references, found, (), deleted)
        return Resolved(schema, found)

    def _resolve(
        self,
        references: Sequence[Reference],
        found: dict[str, str],
        path: tuple[Reference, ...],
        deleted: bool,
    ) -> None:
        for one in references:
            if one.name in found:
                continue
            version = self.version(one.subject, one.version)
            if version is None or (version.is_deleted and not deleted):
                raise InvalidSchema(
                    f"reference {one.name!r}: there is no version {one.version} of subject"
                    f" {one.subject!r}"
                )
            if len(path) + len(found) >= REFERENCES_MAX:
                raise InvalidSchema(f"more than {REFERENCES_MAX} schemas are referred to")
            self._resolve(version.schema.references, found, (*path, one), True)
            found[one.name] = version.schema.text

    def _add(self, version: Version) -> None:
        at = (version.subject, version.number)
        self._subjects.setdefault(version.subject, {})[version.number] = version
        self._by_id.setdefault(version.id, {})[at] = version
        self._ids.setdefault(version.schema, version.id)
        self._guids.setdefault(version.schema.guid, version.id)
        self.last_id = max(self.last_id, version.id)
        self.held_bytes += memory_bytes(version)
        for one in version.schema.references:
            self._referrers.setdefault((one.subject, one.version), set()).add(at)

    def _remove(self, subject: str, number: int) -> None:
        version = self._subjects.get(subject, {}).pop(number, None)
        if version is None:
            return
        self.held_bytes -= memory_bytes(version)
        if not self._subjects[subject]:
            del self._subjects[subject]
        same_id = self._by_id[version.id]
        del same_id[subject, number]
        if not same_id:
            del self._by_id[version.id]
        if self._ids.get(version.schema) == version.id and not _holds(same_id, version.schema):
            del self._ids[version.schema]
            del self._guids[version.schema.guid]
        for one in version.schema.references:
            self._referrers[one.subject, one.version].discard((subject, number))


def memory_bytes(version: Version) -> int:
    """Return about how much memory a version takes."""
    schema = version.schema
    named = sum(_REFERENCE_BYTES + sys.getsizeof(one.name) for one in schema.references)
    return _VERSION_BYTES + sys.getsizeof(schema.text) + sys.getsizeof(version.subject) + named


def page(items: Sequence[T], offset: int, limit: int) -> Sequence[T]:
    """Return a part of a list; a negative `limit` is none. Raises RegistryError."""
    if offset < 0:
        raise RegistryError(INVALID_REQUEST, "offset must not be negative")
    return items[offset:] if limit < 0 else items[offset : offset + limit]


def _holds(versions: dict[tuple[str, int], Version], schema: Schema) -> bool:
    return any(one.schema == schema for one in versions.values())


def _put(kept: dict[str | None, T], key: str | None, value: T | None) -> int:
    """Set or unset what a subject has; return how many bytes of memory more that takes."""
    before = len(kept)
    if value is None:
        kept.pop(key, None)
    else:
        kept[key] = value
    return (len(kept) - before) * (SETTING_BYTES + sys.getsizeof(key))
