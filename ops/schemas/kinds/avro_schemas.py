"""Avro schemas, by Apache Avro's own library, and by what it does not look at.

Stored, and the same for schemas that mean the same, is what Avro's Java library prints: names as
short as their namespace allows, primitives as bare words, attributes in one order, nothing that
only says what holds anyway. Java's clients look schemas up by that text.

Compatibility is the resolution of reader's and writer's schemas as Avro's specification has it. The
library compares an alias as it is written, so it is given full names.

Asked of what is new, beyond what the library asks (`check_new`): names of fields that every
language can read, defaults of their fields' types, unions without a type twice. What is stored
already may be older than these rules: it is found, read and compared all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.errors import AvroException
from avro.name import Names
from avro.schema import Schema as AvroSchema
from avro.schema import make_avsc_object

from ops.schemas.core.errors import INVALID_REQUEST, InvalidSchema, RegistryError
from ops.schemas.core.schema import Resolved
from ops.schemas.kinds.language import DIFFERENCES_MAX, read_json, write_json

_PRIMITIVES: Final = frozenset(
    ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
)
_RECORDS: Final = ("record", "error")
_NAMED: Final = (*_RECORDS, "enum", "fixed")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OWN: Final = frozenset(
    (
        *("type", "name", "namespace", "doc", "aliases", "fields", "symbols", "size"),
        *("items", "values", "default", "order"),
    )
)
"""Attributes that Avro gives a meaning, of types and of fields; all others are properties."""
_INTEGERS: Final[Mapping[str, int]] = {"int": 1 << 31, "long": 1 << 63}


class AvroLanguage:
    """Avro."""

    def canonical(self, schema: Resolved, *, normalize: bool) -> str:
        """Return the schema as Java prints it; normalized, its attributes are sorted, too."""
        self._parse(schema)
        return write_json(_printed(_read(schema.schema.text), None), sort=normalize)

    def check_new(self, schema: Resolved) -> None:
        """Raises InvalidSchema for what readers in some language could not use."""
        self._parse(schema, is_new=True)
        types: dict[str, Any] = {}
        for text in (*schema.dependencies.values(), schema.schema.text):
            value = _full(_read(text), None)
            for one in _types(value):
                if isinstance(one, dict) and one["type"] in _NAMED:
                    types[one["name"]] = one
        for told in _faults(_full(_read(schema.schema.text), None), types):
            raise InvalidSchema(f"not an Avro schema: {told}")

    def identity(self, schema: Resolved) -> object:
        """Return the schema as Java prints it, with its attributes sorted."""
        return write_json(_printed(_read(schema.schema.text), None), sort=True)

    def incompatibilities(self, *, reader: Resolved, writer: Resolved) -> Sequence[str]:
        """Return what Avro's resolution has against it."""
        theirs, ours = self._parse(writer), self._parse(reader)
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
        return write_json(_printed(self._parse(schema).to_json(), None))

    def _parse(self, schema: Resolved, *, is_new: bool = False) -> AvroSchema:
        names = Names(validate_names=False)
        for name, text in schema.dependencies.items():
            _make(_read(text), names, f"reference {name!r}: ", is_new=False)
        names.validate_names = is_new
        return _make(_read(schema.schema.text), names, "", is_new=is_new)


def _make(value: Any, names: Names, where: str, *, is_new: bool) -> AvroSchema:
    try:
        if is_new:
            # With the names as they were written: what is wrong is told in the author's words.
            make_avsc_object(value, _copied(names))
        return make_avsc_object(_full(value, None), names, validate_names=is_new)
    except InvalidSchema as error:
        raise InvalidSchema(f"{where}{error}") from None
    except RecursionError:
        raise InvalidSchema(f"{where}nested too deeply") from None
    except (AvroException, TypeError, ValueError, KeyError, AttributeError) as error:
        raise InvalidSchema(f"{where}not an Avro schema: {error}") from error


def _copied(names: Names) -> Names:
    found = Names(names.default_namespace, validate_names=names.validate_names)
    found.names.update(names.names)
    return found


def _checker() -> ReaderWriterCompatibilityChecker:
    """It remembers pairs it has seen, so each comparison has its own."""
    return ReaderWriterCompatibilityChecker()  # type: ignore[no-untyped-call]


def _read(text: str) -> Any:
    """Return the JSON value; the name of a type may stand without quotes, as Avro's tools allow."""
    bare = text.strip()
    return bare if bare.replace(".", "").replace("_", "").isalnum() else read_json(text)


# --- names ------------------------------------------------------------------------------------


def _full_name(name: str, space: str | None) -> str:
    """Return a name with its namespace; `space` is that of the type around it."""
    return name if "." in name or not space or name in _PRIMITIVES else f"{space}.{name}"


def _name_of(value: Mapping[str, Any], space: str | None) -> tuple[str, str | None]:
    """Return the full name that a type is given, and the namespace of what is inside it."""
    name = value.get("name")
    if not isinstance(name, str):
        raise InvalidSchema("not an Avro schema: a record, enum or fixed needs a name")
    if "." not in name:
        own = value.get("namespace", space)
        name = f"{own}.{name}" if isinstance(own, str) and own else name
    name = name.removeprefix(".")
    return name, name.rpartition(".")[0] or None


def _aliases(value: Mapping[str, Any], space: str | None) -> list[str]:
    found = value.get("aliases") or ()
    return [_full_name(str(one), space).removeprefix(".") for one in found]


def _full(value: Any, space: str | None) -> Any:
    """Return a schema in which every name is a full one, and every error a record."""
    if isinstance(value, str):
        return _full_name(value, space)
    if isinstance(value, list):
        return [_full(one, space) for one in value]
    if not isinstance(value, dict):
        return value
    kind = value.get("type")
    if kind in _NAMED:
        name, space = _name_of(value, space)
        found = {**value, "type": "record" if kind == "error" else kind, "name": name}
        found.pop("namespace", None)
        if value.get("aliases"):
            found["aliases"] = _aliases(value, space)
        if kind in _RECORDS and isinstance(value.get("fields"), list):
            found["fields"] = [
                {**one, "type": _full(one.get("type"), space)} if isinstance(one, dict) else one
                for one in value["fields"]
            ]
        return found
    inner = {key: _full(value[key], space) for key in ("items", "values") if key in value}
    return {**value, **inner, "type": kind if kind in ("array", "map") else _full(kind, space)}


# --- as Java prints it ------------------------------------------------------------------------


def _printed(value: Any, space: str | None) -> Any:
    """Return a schema as Avro's Java library writes it, inside of a namespace."""
    if isinstance(value, str):
        name = _full_name(value, space)
        return name.rpartition(".")[2] if space and name.rpartition(".")[0] == space else name
    if isinstance(value, list):
        return [_printed(one, space) for one in value]
    if not isinstance(value, dict):
        return value
    kind = value.get("type")
    properties = {key: one for key, one in value.items() if key not in _OWN}
    if kind in _NAMED:
        return _printed_named(value, space, properties)
    if kind == "array":
        return {"type": "array", "items": _printed(value.get("items"), space), **properties}
    if kind == "map":
        return {"type": "map", "values": _printed(value.get("values"), space), **properties}
    inner = _printed(kind, space)
    if not properties:
        return inner
    return {"type": inner, **properties}


def _printed_named(
    value: Mapping[str, Any], space: str | None, properties: Mapping[str, Any]
) -> dict[str, Any]:
    kind = value["type"]
    name, own = _name_of(value, space)
    found: dict[str, Any] = {"type": kind, "name": name.rpartition(".")[2]}
    if own != space:
        found["namespace"] = own or ""
    if value.get("doc") is not None:
        found["doc"] = value["doc"]
    if kind in _RECORDS:
        found["fields"] = [_printed_field(one, own) for one in _fields(value)]
    elif kind == "enum":
        found["symbols"] = value.get("symbols")
        if "default" in value:
            found["default"] = value["default"]
    else:
        found["size"] = value.get("size")
    found.update(properties)
    if value.get("aliases"):
        found["aliases"] = [_printed(one, own) for one in _aliases(value, own)]
    return found


def _printed_field(field: Any, space: str | None) -> Any:
    if not isinstance(field, dict):
        return field
    found: dict[str, Any] = {"name": field.get("name"), "type": _printed(field.get("type"), space)}
    if field.get("doc") is not None:
        found["doc"] = field["doc"]
    if "default" in field:
        found["default"] = field["default"]
    if field.get("order", "ascending") != "ascending":
        found["order"] = field["order"]
    if field.get("aliases"):
        found["aliases"] = field["aliases"]
    found.update({key: one for key, one in field.items() if key not in _OWN})
    return found


# --- what is asked of new schemas -------------------------------------------------------------


def _types(value: Any) -> Iterator[Any]:
    """Walk a schema and all that is written inside it."""
    yield value
    if isinstance(value, list):
        for one in value:
            yield from _types(one)
    elif isinstance(value, dict):
        if value["type"] in _RECORDS:
            for field in _fields(value):
                yield from _types(field["type"])
        for key in ("items", "values"):
            if key in value:
                yield from _types(value[key])
        if isinstance(value["type"], dict | list):
            yield from _types(value["type"])


def _fields(value: Mapping[str, Any]) -> Sequence[Any]:
    return value.get("fields") or ()


def _faults(schema: Any, types: Mapping[str, Any]) -> Iterator[str]:
    for value in _types(schema):
        if isinstance(value, list):
            names = [_kind(one) for one in value]
            for name in names:
                if names.count(name) > 1:
                    yield f"{name} is twice in a union"
        elif isinstance(value, dict) and value["type"] in _NAMED:
            for alias in value.get("aliases") or ():
                if not all(_NAME.fullmatch(part) for part in alias.split(".")):
                    yield f"alias {alias!r} of {value['name']} is no name"
            for field in _fields(value):
                yield from _field_faults(value["name"], field, types)


def _field_faults(record: str, field: Mapping[str, Any], types: Mapping[str, Any]) -> Iterator[str]:
    for name in (field["name"], *(field.get("aliases") or ())):
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            yield f"{name!r} is no name for a field of {record}: letters, digits, underscores"
    if "default" in field and not _fits(field["default"], field["type"], types):
        yield (
            f"default {write_json(field['default'])} of field {field['name']} of {record} is no"
            f" {_kind(field['type'])}"
        )


def _kind(value: Any) -> str:
    """Return what Avro tells the types of a union apart by."""
    if isinstance(value, list):
        return "union"
    if isinstance(value, dict):
        return str(value["name"]) if value["type"] in _NAMED else _kind(value["type"])
    return str(value)


def _fits(default: Any, schema: Any, types: Mapping[str, Any]) -> bool:
    """Say whether a default is of a type, by Java's rules: of any branch of a union."""
    if isinstance(schema, list):
        return any(_fits(default, one, types) for one in schema)
    if isinstance(schema, str):
        if schema in types:
            schema = types[schema]
        elif schema not in _PRIMITIVES:
            return True  # the parser has found it; where it was written is not for us to know
        else:
            schema = {"type": schema}
    kind = schema["type"]
    if isinstance(kind, dict | list) or (isinstance(kind, str) and kind in types):
        return _fits(default, kind, types)
    match kind:
        case "array":
            return isinstance(default, list) and all(
                _fits(one, schema["items"], types) for one in default
            )
        case "map":
            return isinstance(default, dict) and all(
                _fits(one, schema["values"], types) for one in default.values()
            )
        case "record":
            return isinstance(default, dict) and all(
                (field["name"] in default or "default" in field)
                and _fits(default.get(field["name"], field.get("default")), field["type"], types)
                for field in _fields(schema)
            )
    return _fits_plain(default, kind)


def _fits_plain(default: Any, kind: str) -> bool:
    is_number = isinstance(default, int | float) and not isinstance(default, bool)
    match kind:
        case "null":
            return default is None
        case "boolean":
            return isinstance(default, bool)
        case "int" | "long":
            most = _INTEGERS[kind]
            return is_number and isinstance(default, int) and -most <= default < most
        case "float" | "double":
            return is_number
    return isinstance(default, str)
