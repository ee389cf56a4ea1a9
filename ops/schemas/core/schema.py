"""The values that a registry is about: schemas, references, versions of subjects."""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID


class Kind(enum.Enum):
    """The language of a schema, as clients name it."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


class Level(enum.Enum):
    """What a new version of a subject must be compatible with.

    BACKWARD: who reads with the new schema understands what was written with the last one.
    FORWARD: the other way round. FULL: both. TRANSITIVE: with all versions, not the last alone.
    """

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        return self.value.endswith("_TRANSITIVE")

    @property
    def reads_older(self) -> bool:
        """The new schema must read what older ones wrote."""
        return self.value.startswith(("BACKWARD", "FULL"))

    @property
    def is_read_by_older(self) -> bool:
        """Older schemas must read what the new one writes."""
        return self.value.startswith(("FORWARD", "FULL"))


class Mode(enum.Enum):
    """What may be done to a subject. IMPORT takes ids and versions as they are given."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    IMPORT = "IMPORT"


class Reference(NamedTuple):
    """Another schema that one uses: `name` is how its text calls it."""

    name: str
    subject: str
    version: int


class Schema(NamedTuple):
    """A schema as it is stored."""

    kind: Kind
    text: str
    references: tuple[Reference, ...] = ()

    @property
    def guid(self) -> UUID:
        """What tells it from all other schemas, in every registry; clients put it into headers."""
        named = [part for one in self.references for part in (one.name, one.subject, one.version)]
        said = json.dumps([self.kind.value, self.text, *named]).encode()
        return UUID(bytes=hashlib.sha256(said).digest()[:16])


class Version(NamedTuple):
    """One version of a subject; versions and ids count from 1."""

    subject: str
    number: int
    id: int
    schema: Schema
    is_deleted: bool = False
    """Not listed any more, but still found by its id: records that were written need it."""


class Resolved(NamedTuple):
    """A schema and the texts of all that it refers to, which is all that judging it needs."""

    schema: Schema
    dependencies: Mapping[str, str] = {}
    """Name of the reference -> text, in an order in which each needs only earlier ones."""
