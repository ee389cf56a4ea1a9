"""Reads what clients of the REST API send: JSON bodies, and options in the address."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from aiohttp import web

from client.node.http_bodies import parse_json, read_body
from ops.schemas.core import errors
from ops.schemas.core.errors import RegistryError
from ops.schemas.core.registry import Asked
from ops.schemas.core.schema import Kind, Level, Mode, Reference, Schema


def flag(request: web.Request, name: str) -> bool:
    """Return an option that is true or false, false without it."""
    value = request.query.get(name, "false").lower()
    if value not in ("true", "false"):
        raise _invalid(f"{name}={value[:40]}: use true or false")
    return value == "true"


def number(request: web.Request, name: str, default: int) -> int:
    """Return an option that is a whole number."""
    value = request.query.get(name, str(default))
    try:
        return int(value[:20])
    except ValueError:
        raise _invalid(f"{name}={value[:40]}: use a number") from None


def schema_id(request: web.Request) -> int:
    """Return the id in the path."""
    text = request.match_info["id"]
    if not text.isascii() or not text.isdigit() or len(text) > 10:
        raise RegistryError(errors.SCHEMA_NOT_FOUND, f"{text[:40]!r} is not the id of a schema")
    return int(text)


def schema_guid(request: web.Request) -> UUID:
    """Return the guid in the path."""
    text = request.match_info["guid"]
    try:
        return UUID(text)
    except ValueError:
        message = f"{text[:40]!r} is not the guid of a schema"
        raise RegistryError(errors.SCHEMA_NOT_FOUND, message) from None


async def body(request: web.Request) -> dict[str, Any]:
    """Return the JSON object that was sent."""
    try:
        found = parse_json(await read_body(request))
    except ValueError as error:
        raise _invalid(f"the body is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise _invalid("the body is not a JSON object")
    return found


def asked_schema(fields: dict[str, Any]) -> Schema:
    """Return the schema that a body has."""
    text = fields.get("schema")
    if not isinstance(text, str) or not text.strip():
        raise RegistryError(errors.INVALID_SCHEMA, "the body has no text `schema`")
    named = fields.get("schemaType") or Kind.AVRO.value
    try:
        kind = Kind(named)
    except ValueError:
        known = ", ".join(one.value for one in Kind)
        raise _invalid(f"schemaType {str(named)[:40]!r}: use one of {known}") from None
    for rule in ("metadata", "ruleSet", "rulesetToMerge", "schemaTags"):
        if fields.get(rule):
            raise _invalid(f"{rule}: data contracts are not supported")
    return Schema(kind, text, _references(fields.get("references") or ()))


def asked_registration(subject: str, fields: dict[str, Any]) -> Asked:
    """Return what is to be registered."""
    return Asked(subject, asked_schema(fields), _whole(fields, "id"), _whole(fields, "version"))


def asked_level(fields: dict[str, Any]) -> Level:
    """Return the level that a body sets."""
    unknown = {
        name
        for name, value in fields.items()
        if name != "compatibility" and value not in (None, "")
    }
    if unknown:
        raise _invalid(f"{', '.join(sorted(unknown))[:200]}: only `compatibility` can be set")
    try:
        return Level(str(fields.get("compatibility")).upper())
    except ValueError:
        known = ", ".join(one.value for one in Level)
        raise RegistryError(errors.INVALID_LEVEL, f"compatibility is one of {known}") from None


def asked_mode(fields: dict[str, Any]) -> Mode:
    """Return the mode that a body sets."""
    try:
        return Mode(str(fields.get("mode")).upper())
    except ValueError:
        known = ", ".join(one.value for one in Mode)
        raise RegistryError(errors.INVALID_MODE, f"mode is one of {known}") from None


def _references(given: Any) -> tuple[Reference, ...]:
    if not isinstance(given, list | tuple):
        raise _invalid("references is a list of name, subject and version")
    found = []
    for one in given:
        try:
            found.append(Reference(str(one["name"]), str(one["subject"]), int(one["version"])))
        except (KeyError, TypeError, ValueError, OverflowError):
            raise _invalid("references is a list of name, subject and version") from None
    return tuple(found)


def _whole(fields: dict[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is None or value in (-1, 0):  # clients send these for "none"
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise _invalid(f"{name} is a number")
    return value


def _invalid(message: str) -> RegistryError:
    return RegistryError(errors.INVALID_REQUEST, message)
