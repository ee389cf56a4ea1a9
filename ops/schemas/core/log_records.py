"""The records of the registry's topic: JSON keys and values.

Layouts as in Confluent's registry, whose topic can be taken over; a compacted topic keeps the last
value of each key:

    key                                                         value
    {"keytype":"SCHEMA","subject":S,"version":N,"magic":1}      {"subject","version","id","schema",
                                                                 "deleted", "schemaType" unless
                                                                 AVRO, "references" if any}
                                                                or none: deleted for good
    {"keytype":"CONFIG","subject":S or null,"magic":0}          {"compatibilityLevel":LEVEL} or none
    {"keytype":"MODE","subject":S or null,"magic":0}            {"mode":MODE} or none
    {"keytype":"DELETE_SUBJECT","subject":S,"magic":0}          {"subject":S,"version":N}: up to N
    {"keytype":"NOOP","magic":0}                                {"lastId":N}, ours

The last one is written beside a deletion for good, so that no id is ever given a second time; to
Confluent's registry it says nothing.

Keys must be the same bytes each time, so the order of their fields is fixed.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple, cast

from ops.schemas.core.schema import Kind, Level, Mode, Reference, Schema, Version


class SchemaStored(NamedTuple):
    """A version, new or with another mark."""

    version: Version


class SchemaGone(NamedTuple):
    """A version deleted for good."""

    subject: str
    number: int


class SubjectDeleted(NamedTuple):
    """All versions up to a number are marked as deleted."""

    subject: str
    number: int


class LevelSet(NamedTuple):
    """The level of a subject, or with no subject of all that have none; None unsets it."""

    subject: str | None
    level: Level | None


class ModeSet(NamedTuple):
    """The same for the mode."""

    subject: str | None
    mode: Mode | None


class IdsGiven(NamedTuple):
    """Ids up to this one have been given."""

    last_id: int


Change = IdsGiven | SchemaStored | SchemaGone | SubjectDeleted | LevelSet | ModeSet


class LogRecord(NamedTuple):
    """A record as bytes."""

    key: bytes
    value: bytes | None


def encode(change: Change) -> LogRecord:
    """Return the record that says so."""
    match change:
        case SchemaStored(version):
            return LogRecord(_schema_key(version.subject, version.number), _dump(_stored(version)))
        case SchemaGone(subject, number):
            return LogRecord(_schema_key(subject, number), None)
        case SubjectDeleted(subject, number):
            value = _dump({"subject": subject, "version": number})
            return LogRecord(_key("DELETE_SUBJECT", subject), value)
        case LevelSet(subject, level):
            named = None if level is None else _dump({"compatibilityLevel": level.value})
            return LogRecord(_key("CONFIG", subject), named)
        case ModeSet(subject, mode):
            named = None if mode is None else _dump({"mode": mode.value})
            return LogRecord(_key("MODE", subject), named)
        case IdsGiven(last_id):
            return LogRecord(_dump({"keytype": "NOOP", "magic": 0}), _dump({"lastId": last_id}))


def decode(key: bytes | None, value: bytes | None) -> Change | None:
    """Return what a record says; None for those that say nothing to us.

    Raises ValueError for bytes that are no such record.
    """
    if key is None:
        raise ValueError("a record without a key")
    named = _object(key)
    kind, subject = named.get("keytype"), named.get("subject")
    if not isinstance(subject, str | None):
        raise ValueError(f"a {kind} record whose subject is no name")
    body = None if value is None else _object(value)
    try:
        match kind:
            case "SCHEMA":
                return _schema_change(named, body)
            case "DELETE_SUBJECT":
                return None if body is None else SubjectDeleted(str(subject), int(body["version"]))
            case "CONFIG":
                level = None if body is None else body.get("compatibilityLevel")
                return LevelSet(subject, None if level is None else Level(level))
            case "MODE":
                return ModeSet(subject, None if body is None else Mode(body["mode"]))
            case "NOOP":
                return None if body is None else IdsGiven(int(body["lastId"]))
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"a {kind} record lacks {error}") from error
    return None


def _schema_change(named: dict[str, Any], body: dict[str, Any] | None) -> Change:
    subject, number = str(named["subject"]), int(named["version"])
    if body is None:
        return SchemaGone(subject, number)
    references = tuple(
        Reference(str(one["name"]), str(one["subject"]), int(one["version"]))
        for one in body.get("references") or ()
    )
    schema = Schema(Kind(body.get("schemaType") or "AVRO"), str(body["schema"]), references)
    is_deleted = bool(body.get("deleted"))
    return SchemaStored(Version(subject, number, int(body["id"]), schema, is_deleted))


def _stored(version: Version) -> dict[str, Any]:
    schema = version.schema
    found: dict[str, Any] = {
        "subject": version.subject,
        "version": version.number,
        "id": version.id,
    }
    if schema.kind is not Kind.AVRO:
        found["schemaType"] = schema.kind.value
    if schema.references:
        found["references"] = [one._asdict() for one in schema.references]
    return found | {"schema": schema.text, "deleted": version.is_deleted}


def _schema_key(subject: str, number: int) -> bytes:
    return _dump({"keytype": "SCHEMA", "subject": subject, "version": number, "magic": 1})


def _key(kind: str, subject: str | None) -> bytes:
    return _dump({"keytype": kind, "subject": subject, "magic": 0})


def _dump(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    return cast(dict[str, Any], found)
