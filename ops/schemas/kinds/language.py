"""What a registry asks of a schema's language, and JSON, which two of them are written in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, Protocol

from ops.schemas.core.errors import InvalidSchema
from ops.schemas.core.schema import Resolved

DIFFERENCES_MAX: Final = 20
"""Incompatibilities that are told; a schema that differs in more is not read to the end."""


class Language(Protocol):
    """One of the languages. Called in threads: no state."""

    def canonical(self, schema: Resolved, *, normalize: bool) -> str:
        """Return the text to store; with `normalize` the same for texts that mean the same.

        Raises InvalidSchema if it is none, also because of what it refers to.
        """

    def check_new(self, schema: Resolved) -> None:
        """Check what is asked of new schemas beyond that. Raises InvalidSchema."""

    def identity(self, schema: Resolved) -> object:
        """Return what is equal for equal schemas, however written. Raises InvalidSchema."""

    def incompatibilities(self, *, reader: Resolved, writer: Resolved) -> Sequence[str]:
        """Return why who knows `reader` may not understand what was written with `writer`."""

    def formatted(self, schema: Resolved, name: str) -> str:
        """Return the text in a format that a client asks for by name.

        Raises RegistryError for a format that the language does not have.
        """


def read_json(text: str) -> Any:
    """Return the value of a JSON text. Raises InvalidSchema."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
        if "\\u" in text:  # there may be half a surrogate, which no text in UTF-8 has
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except ValueError as error:
        raise InvalidSchema(f"not JSON: {error}") from error
    except RecursionError:
        raise InvalidSchema("nested too deeply") from None


def _refuse_constant(name: str) -> None:
    """Python's library reads NaN and Infinity, which JSON does not have."""
    raise ValueError(f"{name} is no number")


def write_json(value: object, *, sort: bool = False) -> str:
    """Return JSON without spaces."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=sort)
