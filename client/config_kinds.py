"""The types a setting may have: how text and TOML values become them, and how they are called.

int, float, bool, str, Path, an Enum, a Literal, a NewType of these, `T | None`, `tuple[T, ...]`.
Only `client/config.py` uses this file.
"""

from __future__ import annotations

import enum
import math
import types
import typing
from pathlib import Path
from typing import Any, Final, Literal

_TRUE: Final = ("true", "yes", "on", "1")
_FALSE: Final = ("false", "no", "off", "0")


def coerce(kind: Any, value: object) -> object:
    """Turn text (environment, flags) or a TOML value into `kind`. Raises ValueError."""
    kind = getattr(kind, "__supertype__", kind)
    inner = _optional(kind)
    if inner is not None:
        nothing = value is None or (isinstance(value, str) and value.lower() in ("", "none"))
        return None if nothing else coerce(inner, value)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",") if part.strip()]
        if not isinstance(value, list | tuple):
            raise ValueError(value)
        return tuple(coerce(arguments[0], item) for item in value)
    if origin is Literal:
        for choice in arguments:
            if value == choice or value == str(choice):
                return choice
        raise ValueError(value)
    if issubclass(kind, enum.Enum):
        return kind(value)
    return _coerce_plain(kind, value)


def _coerce_plain(kind: type, value: object) -> object:
    if kind is bool and isinstance(value, str) and value.lower() in _TRUE + _FALSE:
        return value.lower() in _TRUE
    if isinstance(value, bool) and kind is not bool:
        raise ValueError(value)
    if kind is int and isinstance(value, str):
        return int(value)
    if kind is float and isinstance(value, str | int | float):
        number = float(value)
        if not math.isfinite(number):
            raise ValueError(value)
        return number
    if kind is Path and isinstance(value, str) and value:
        return Path(value).expanduser()
    if isinstance(value, kind):
        return value
    raise ValueError(value)


def _optional(kind: Any) -> Any:
    """Return T for `T | None`, else None."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        rest = [part for part in typing.get_args(kind) if part is not type(None)]
        if len(rest) == 1:
            return rest[0]
    return None


def phrase(kind: Any) -> str:
    """Say what a value must be, for the sentence "port must be ..."."""
    kind = _optional(kind) or getattr(kind, "__supertype__", kind)
    if typing.get_origin(kind) is tuple:
        return f"a list, each {phrase(typing.get_args(kind)[0])}"
    if typing.get_origin(kind) is Literal or (
        isinstance(kind, type) and issubclass(kind, enum.Enum)
    ):
        return f"one of {short_name(kind).replace('|', ', ')}"
    phrases = {int: "a whole number", float: "a number", bool: "true or false", Path: "a path"}
    return phrases.get(kind, "text")


def short_name(kind: Any) -> str:
    """Name a kind in a help text: INT, TEXT,..., crc32|crc32c."""
    kind = _optional(kind) or kind
    kind = getattr(kind, "__supertype__", kind)
    if typing.get_origin(kind) is tuple:
        return f"{short_name(typing.get_args(kind)[0])},..."
    if typing.get_origin(kind) is Literal:
        return "|".join(str(choice) for choice in typing.get_args(kind))
    if issubclass(kind, enum.Enum):
        return "|".join(str(member.value) for member in kind)
    names = {int: "INT", float: "NUMBER", bool: "BOOL", str: "TEXT", Path: "PATH"}
    return names[kind]


def plain(value: object) -> object:
    """Turn a typed value into what JSON can hold."""
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, enum.Enum):
        return value.value
    return str(value) if isinstance(value, Path) else value
