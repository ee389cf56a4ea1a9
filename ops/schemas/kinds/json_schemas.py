"""JSON schemas: checked against their meta schema by jsonschema, compared by what they accept."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from jsonschema import FormatChecker
from jsonschema.exceptions import SchemaError
from jsonschema.validators import Draft7Validator, validator_for

from ops.schemas.core.errors import INVALID_REQUEST, InvalidSchema, RegistryError
from ops.schemas.core.schema import Resolved
from ops.schemas.kinds.json_containment import Containment
from ops.schemas.kinds.json_documents import Documents
from ops.schemas.kinds.language import read_json, write_json

_FORMATS: Final = FormatChecker(formats=())
"""Of the meta schemas' formats only that of patterns is looked at."""
_ECMA: Final = (
    (r"\\[pP]\{\^?[\w=]+\}", r"\\w"),
    (r"\(\?<(?![=!])", "(?P<"),
    (r"\[\^\]", r"[\\s\\S]"),
)
"""What patterns of ECMA 262, which JSON Schema names, have and Python's have not, and what is as
good to find out whether the rest is one."""


@_FORMATS.checks("regex", raises=re.error)  # type: ignore[untyped-decorator]
def _is_pattern(value: object) -> bool:
    if isinstance(value, str):
        for theirs, ours in _ECMA:
            value = re.sub(theirs, ours, value)
        re.compile(value)
    return True


class JsonLanguage:
    """JSON Schema, drafts 4 to 2020-12; a schema without `$schema` is taken for draft 7."""

    def canonical(self, schema: Resolved, *, normalize: bool) -> str:
        """Return the JSON without spaces; normalized, its properties are in order, too."""
        for name, text in schema.dependencies.items():
            _check(read_json(text), f"reference {name!r}: ")
        value = read_json(schema.schema.text)
        _check(value, "")
        return write_json(value, sort=normalize)

    def check_new(self, schema: Resolved) -> None:
        """Every reference leads somewhere."""
        for name in _documents(schema).dangling():
            raise InvalidSchema(f"$ref {name[:200]!r} leads nowhere: it is not in the schema")

    def identity(self, schema: Resolved) -> object:
        """Return the JSON with its properties in order."""
        return write_json(read_json(schema.schema.text), sort=True)

    def incompatibilities(self, *, reader: Resolved, writer: Resolved) -> Sequence[str]:
        """Return where `writer` accepts something that `reader` may not."""
        return Containment(_documents(reader), _documents(writer)).differences()

    def formatted(self, schema: Resolved, name: str) -> str:
        """There is none: raises RegistryError."""
        raise RegistryError(INVALID_REQUEST, f"format {name!r}: a JSON schema has none")


def _check(value: Any, where: str) -> None:
    if not isinstance(value, Mapping | bool):
        raise InvalidSchema(f"{where}not a JSON schema: it is an object, or true or false")
    try:
        validator_for(value, default=Draft7Validator).check_schema(value, _FORMATS)
    except SchemaError as error:
        raise InvalidSchema(f"{where}not a JSON schema: {error.message}") from error
    except RecursionError:
        raise InvalidSchema(f"{where}nested too deeply") from None


def _documents(schema: Resolved) -> Documents:
    named = {name: read_json(text) for name, text in schema.dependencies.items()}
    return Documents(read_json(schema.schema.text), named)
