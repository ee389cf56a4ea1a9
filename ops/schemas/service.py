"""A registry as its clients see it: looks things up, and has the log written before it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from ops.schemas.core.catalogue import Catalogue
from ops.schemas.core.errors import (
    SCHEMA_NOT_FOUND,
    SUBJECT_NOT_FOUND,
    InvalidSchema,
    RegistryError,
)
from ops.schemas.core.log_records import Change
from ops.schemas.core.registry import Asked, Registry, check_subject
from ops.schemas.core.schema import Kind, Level, Mode, Resolved, Schema, Version
from ops.schemas.kinds.avro_schemas import AvroLanguage
from ops.schemas.kinds.json_schemas import JsonLanguage
from ops.schemas.kinds.language import Language
from ops.schemas.kinds.protobuf_schemas import ProtobufLanguage
from ops.schemas.log import SchemaLog

LANGUAGES: Final[Mapping[Kind, Language]] = {
    Kind.AVRO: AvroLanguage(),
    Kind.JSON: JsonLanguage(),
    Kind.PROTOBUF: ProtobufLanguage(),
}


class SchemaService:
    """One registry. All methods raise RegistryError."""

    def __init__(
        self, log: SchemaLog, catalogue: Catalogue, registry: Registry, schema_bytes_max: int
    ) -> None:
        self._log = log
        self._all = catalogue
        self.registry = registry
        """For what is looked up without waiting."""
        self._schema_bytes_max = schema_bytes_max

    async def register(self, asked: Asked, *, normalize: bool) -> Version:
        """Return the version that the schema has in the subject, a new one if need be."""
        self.registry.may_register(asked)
        asked = asked._replace(schema=await self._canonical(asked.schema, normalize))
        known = await self._find(asked.subject, asked.schema)
        if known is not None and asked.id in (None, known.id):
            return known

        await self._check_new(asked.schema)

        async def decide() -> tuple[Version, list[Change]]:
            there = await self._find(asked.subject, asked.schema)
            if there is not None and asked.id in (None, there.id):
                return there, []
            reasons = await self._reasons(asked.subject, asked.schema)
            return self.registry.register(asked, reasons)

        return await self._log.write(decide)

    async def lookup(
        self, subject: str, schema: Schema, *, normalize: bool, deleted: bool
    ) -> Version:
        """Return the version of the subject that is this schema."""
        check_subject(subject)
        canonical = await self._canonical(schema, normalize, deleted=deleted)
        for attempt in range(2):
            found = await self._find(subject, canonical, deleted=deleted)
            if found is not None:
                return found
            if attempt == 0:
                await self._log.catch_up()
        if not self._all.versions(subject, deleted=deleted):
            raise RegistryError(SUBJECT_NOT_FOUND, f"there is no subject {subject!r}")
        raise RegistryError(SCHEMA_NOT_FOUND, f"subject {subject!r} has no such schema")

    async def with_id(self, schema_id: int) -> Sequence[Version]:
        """Return all versions with an id, deleted ones too."""
        found = self._all.with_id(schema_id)
        if not found:
            await self._log.catch_up()  # another registry may have given it a moment ago
            found = self._all.with_id(schema_id)
        if not found:
            raise RegistryError(SCHEMA_NOT_FOUND, f"there is no schema with id {schema_id}")
        return found

    async def with_guid(self, guid: UUID) -> Version:
        """Return a version of the schema that has a guid, a deleted one too."""
        found = self._all.with_guid(guid)
        if found is None:
            await self._log.catch_up()
            found = self._all.with_guid(guid)
        if found is None:
            raise RegistryError(SCHEMA_NOT_FOUND, f"there is no schema with guid {guid}")
        return found

    async def version(self, subject: str, number: int | None, *, deleted: bool = False) -> Version:
        """Return a version, None for the latest."""
        if number is None or self._all.version(subject, number) is None:
            await self._log.catch_up()
        return self.registry.find(subject, number, deleted=deleted)

    async def compare(
        self, subject: str, number: int | None, schema: Schema, *, normalize: bool
    ) -> Sequence[str]:
        """Return why a schema is incompatible with a version, None for the latest."""
        canonical = await self._canonical(schema, normalize)
        version = await self.version(subject, number)
        return await self._incompatibilities(subject, canonical, [version])

    async def compare_all(self, subject: str, schema: Schema, *, normalize: bool) -> Sequence[str]:
        """Return why a schema could not be registered now."""
        check_subject(subject)
        canonical = await self._canonical(schema, normalize)
        await self._check_new(canonical)
        await self._log.catch_up()
        return await self._reasons(subject, canonical)

    async def delete_subject(self, subject: str, *, for_good: bool) -> Sequence[int]:
        """Delete all versions; return their numbers."""

        async def decide() -> tuple[list[int], list[Change]]:
            return self.registry.delete_subject(subject, for_good=for_good)

        return await self._log.write(decide)

    async def delete_version(self, subject: str, number: int | None, *, for_good: bool) -> int:
        """Delete one; return its number."""

        async def decide() -> tuple[int, list[Change]]:
            return self.registry.delete_version(subject, number, for_good=for_good)

        return await self._log.write(decide)

    async def set_level(self, subject: str | None, level: Level | None) -> Level:
        """Set or unset a level; return the one that was in effect."""

        async def decide() -> tuple[Level, list[Change]]:
            return self.registry.level(subject), self.registry.set_level(subject, level)

        return await self._log.write(decide)

    async def set_mode(self, subject: str | None, mode: Mode | None, *, force: bool) -> Mode:
        """Set or unset a mode; return the one that was in effect."""

        async def decide() -> tuple[Mode, list[Change]]:
            return self.registry.mode(subject), self.registry.set_mode(subject, mode, force=force)

        return await self._log.write(decide)

    async def formatted(self, schema: Schema, name: str) -> str:
        """Return a schema's text in a format of its language."""
        resolved = self._all.resolve(schema, deleted=True)
        return await asyncio.to_thread(LANGUAGES[schema.kind].formatted, resolved, name)

    async def _canonical(self, schema: Schema, normalize: bool, *, deleted: bool = False) -> Schema:
        if len(schema.text.encode()) > self._schema_bytes_max:
            raise InvalidSchema(f"the schema is larger than {self._schema_bytes_max} bytes")
        resolved = self._all.resolve(schema, deleted=deleted)
        language = LANGUAGES[schema.kind]
        text = await asyncio.to_thread(language.canonical, resolved, normalize=normalize)
        return schema._replace(text=text)

    async def _check_new(self, schema: Schema) -> None:
        """Raises InvalidSchema for what is stored no more, though older schemas may have it."""
        resolved = self._all.resolve(schema)
        await asyncio.to_thread(LANGUAGES[schema.kind].check_new, resolved)

    async def _find(self, subject: str, schema: Schema, *, deleted: bool = False) -> Version | None:
        """Return the latest version of a subject that is the same schema, however written."""
        versions = self._all.versions(subject, deleted=deleted)[::-1]
        for one in versions:
            if one.schema == schema:
                return one
        alike = [
            one
            for one in versions
            if (one.schema.kind, one.schema.references) == (schema.kind, schema.references)
        ]
        if not alike:
            return None
        language = LANGUAGES[schema.kind]
        ours = self._all.resolve(schema, deleted=True)
        theirs = [self._all.resolve(one.schema, deleted=True) for one in alike]
        same = await asyncio.to_thread(_first_same, language, ours, theirs)
        return None if same is None else alike[same]

    async def _reasons(self, subject: str, schema: Schema) -> Sequence[str]:
        level = self.registry.level(subject)
        return await self._incompatibilities(
            subject, schema, self.registry.to_compare(subject, level)
        )

    async def _incompatibilities(
        self, subject: str, schema: Schema, versions: Sequence[Version]
    ) -> Sequence[str]:
        level = self.registry.level(subject)
        if level is Level.NONE:
            return ()
        others = [(one, self._all.resolve(one.schema, deleted=True)) for one in versions]
        ours = self._all.resolve(schema, deleted=True)
        return await asyncio.to_thread(_reasons, level, ours, others)

    def describe(self, version: Version, text: str | None = None) -> dict[str, Any]:
        """Return a version as answers show it; `text`: its schema in another format."""
        return {
            "subject": version.subject,
            "version": version.number,
            "id": version.id,
            **describe_schema(version.schema, text),
        }


def describe_schema(schema: Schema, text: str | None = None) -> dict[str, Any]:
    """Return a schema as answers show it: what is AVRO has no type, as in Confluent's API."""
    found = {"guid": str(schema.guid), "schema": schema.text if text is None else text}
    if schema.kind is not Kind.AVRO:
        found["schemaType"] = schema.kind.value
    if schema.references:
        return {**found, "references": [one._asdict() for one in schema.references]}
    return found


def _first_same(language: Language, ours: Resolved, theirs: Sequence[Resolved]) -> int | None:
    identity = language.identity(ours)
    for n, one in enumerate(theirs):
        if language.identity(one) == identity:
            return n
    return None


def _reasons(level: Level, ours: Resolved, others: Sequence[tuple[Version, Resolved]]) -> list[str]:
    found: list[str] = []
    for version, theirs in others:
        if theirs.schema.kind is not ours.schema.kind:
            found.append(f"version {version.number} is {theirs.schema.kind.value}")
            continue
        language = LANGUAGES[ours.schema.kind]
        told: list[str] = []
        if level.reads_older:
            told += language.incompatibilities(reader=ours, writer=theirs)
        if level.is_read_by_older:
            told += language.incompatibilities(reader=theirs, writer=ours)
        found += [f"version {version.number}: {one}" for one in told]
    return found
