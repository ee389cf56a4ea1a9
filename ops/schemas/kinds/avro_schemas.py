"""Avro schemas, by Apache Avro's own library.

Compatibility is the resolution of reader's and writer's schemas as Avro's specification has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.errors import AvroException
from avro.name import Names
from avro.schema import Schema as AvroSchema
from avro.schema import make_avsc_object

from ops.schemas.core.errors import INVALID_REQUEST, InvalidSchema, RegistryError
from ops.schemas.core.schema import Resolved
from ops.schemas.kinds.language import DIFFERENCES_MAX, read_json, write_json


class AvroLanguage:
    """Avro."""

    def canonical(self, schema: Resolved, *, normalize: bool) -> str:
        """Return the JSON without spaces; normalized, its attributes are in order, too."""
        value = self._parse(schema)[0]
        return write_json(value, sort=normalize)

    def identity(self, schema: Resolved) -> object:
        """Return the JSON with its attributes in order."""
        return write_json(_read(schema.schema.text), sort=True)

    def incompatibilities(self, *, reader: Resolved, writer: Resolved) -> Sequence[str]:
        """Return what Avro's resolution has against it."""
        theirs, ours = self._parse(writer)[1], self._parse(reader)[1]
        try:
            found = _checker().get_compatibility(ours, theirs)
        except RecursionError:
            raise InvalidSchema("nested too deeply") from None
        if found.compatibility is not SchemaCompatibilityType.incompatible:
            return ()
        kinds = ", ".join(sorted({str(one.value) for one in found.incompatibilities}))
        places = ", ".join(sorted(found.locations)[:3])
        told = sorted(found.messages)[:DIFFERENCES_MAX]
        return [f"{message} ({kinds} at {places})" for message in told] or [kinds]

    def formatted(self, schema: Resolved, name: str) -> str:
        """Return it in format `resolved`: what it refers to is written out."""
        if name != "resolved":
            raise RegistryError(INVALID_REQUEST, f"format {name!r}: an Avro schema has resolved")
        return write_json(self._parse(schema)[1].to_json())

    def _parse(self, schema: Resolved) -> tuple[Any, AvroSchema]:
        names = Names()
        for name, text in schema.dependencies.items():
            self._make(_read(text), names, f"reference {name!r}: ")
        value = _read(schema.schema.text)
        return value, self._make(value, names, "")

    @staticmethod
    def _make(value: Any, names: Names, where: str) -> AvroSchema:
        try:
            return make_avsc_object(value, names)
        except RecursionError:
            raise InvalidSchema(f"{where}nested too deeply") from None
        except (AvroException, TypeError, ValueError, KeyError, AttributeError) as error:
            raise InvalidSchema(f"{where}not an Avro schema: {error}") from error


def _checker() -> ReaderWriterCompatibilityChecker:
    """It remembers pairs it has seen, so each comparison has its own."""
    return ReaderWriterCompatibilityChecker()  # type: ignore[no-untyped-call]


def _read(text: str) -> Any:
    """Return the JSON value; the name of a type may stand without quotes, as Avro's tools allow."""
    bare = text.strip()
    return bare if bare.replace(".", "").replace("_", "").isalnum() else read_json(text)
