"""Settings: one frozen dataclass per program, filled once from file, environment and flags.

How a setting is declared, named, read and explained is the same for all. A program declares its
settings like this, and nothing else:

    @dataclass(frozen=True, slots=True, kw_only=True)
    class BookieConfig:
        \"\"\"Settings of one bookie.\"\"\"

        port: int = setting(3181, "TCP port of the BookKeeper protocol; 0 takes a free one.",
                            at_least=0, at_most=65535)
        data_dir: Path = required("Directory of the append log and its index.")
        zookeeper: tuple[str, ...] = setting(("127.0.0.1:2181",), "ZooKeeper servers, host:port.")
        rack: str | None = setting(None, "Failure domain, for placement.")

        def __post_init__(self) -> None:
            check_ranges(self)                       # then relations between fields:
            if ...: raise ConfigError("write_quorum (2) is larger than ensemble_size (1)")

The text of a setting says what it means, in which unit (the name ends in it) and what happens
when it is too low or too high. Types: int, float, bool, str, Path, an Enum, a Literal, a NewType
of these, `T | None`, `tuple[T, ...]`, and another settings dataclass (a TOML table).

`port` is then `port = 3181` in TOML, `QUIRE_BOOKIE_PORT=3181` in the environment and
`--port 3181` as a flag; later ones win. A nested `ledger.add_timeout_s` stands in the table
`[ledger]`, its variable ends in LEDGER_ADD_TIMEOUT_S, its flag is --ledger-add-timeout-s. A name
that nobody declared is an error that says which names come near. `load_program` is what a
`__main__` calls.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import functools
import os
import tomllib
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, NoReturn, TypeVar

from client.config_kinds import coerce, phrase, plain, short_name
from client.errors import ConfigError
from client.file_modes import warn_of_readers

C = TypeVar("C")
T = TypeVar("T")

DEFAULT: Final = "default"
"""Source of a value that nobody set."""

_METADATA: Final = "quire"
_NO_FLAG: Final = "; a secret: not as a flag"


class _Declared(NamedTuple):
    doc: str
    at_least: float | None = None
    at_most: float | None = None
    secret: bool = False


class Setting(NamedTuple):
    """One declared setting, as help texts and references need it."""

    key: str
    """Name with dots for tables, as in TOML."""
    kind: Any
    default: object
    """`dataclasses.MISSING` when the setting is required."""
    doc: str
    at_least: float | None
    at_most: float | None
    secret: bool

    @property
    def flag(self) -> str:
        return "--" + self.key.replace(".", "-").replace("_", "-")

    @property
    def metavar(self) -> str:
        """What stands for the value in a help text: INT, TEXT,..."""
        return short_name(self.kind)

    @property
    def is_switch(self) -> bool:
        """Whether its name alone, as a flag, means that it is on."""
        return self.kind in (bool, bool | None)

    def variable(self, env_prefix: str) -> str:
        """Return the name of the environment variable."""
        return env_prefix + self.key.replace(".", "_").upper()


class Resolved(NamedTuple, Generic[C]):
    """A configuration and where each of its values came from."""

    config: C
    sources: Mapping[str, str]
    """Setting key -> "default", "broker.toml", "QUIRE_BROKER_PORT" or "--port"."""


def setting(
    default: T,
    doc: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    secret: bool = False,
) -> T:
    """Declare a setting with a default. `secret` values are never shown again."""
    declared = _Declared(doc, at_least, at_most, secret)
    return dataclasses.field(default=default, repr=not secret, metadata={_METADATA: declared})


def required(
    doc: str, *, at_least: float | None = None, at_most: float | None = None, secret: bool = False
) -> Any:
    """Declare a setting that has no default."""
    declared = _Declared(doc, at_least, at_most, secret)
    return dataclasses.field(repr=not secret, metadata={_METADATA: declared}, kw_only=True)


def settings_of(cls: type, prefix: str = "") -> list[Setting]:
    """Return every setting of a settings dataclass, nested ones with dotted keys, in order."""
    return list(_settings_of(cls, prefix))


@functools.cache
def _settings_of(cls: type, prefix: str = "") -> tuple[Setting, ...]:
    """Find them once: to resolve the annotations of a class takes half a millisecond."""
    hints = typing.get_type_hints(cls)
    found: list[Setting] = []
    for field in dataclasses.fields(cls):
        key, kind = prefix + field.name, hints[field.name]
        if dataclasses.is_dataclass(kind):
            found += _settings_of(typing.cast(type, kind), f"{key}.")
            continue
        declared = field.metadata.get(_METADATA)
        if declared is None:
            raise TypeError(f"{cls.__name__}.{field.name} is not declared by setting()")
        found.append(Setting(key, kind, field.default, *declared))
    return tuple(found)


def check_ranges(config: object) -> None:
    """Raise ConfigError if a numeric value leaves its declared range. For `__post_init__`."""
    for declared in settings_of(type(config)):
        if "." not in declared.key:
            _check_range(declared, getattr(config, declared.key), declared.key)


def resolve(
    cls: type[C],
    *,
    toml_path: Path | None = None,
    env_prefix: str,
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Resolved[C]:
    """Fill `cls` and remember where each value came from.

    `flags` maps keys (`port`, `ledger.add_timeout_s`) to text or to typed values; None means
    not given. Raises ConfigError, one sentence, naming the setting and its source.
    """
    declared = {entry.key: entry for entry in settings_of(cls)}
    values: dict[str, object] = {}
    sources = dict.fromkeys(declared, DEFAULT)
    for key, value, source in (
        *_from_toml(declared, toml_path),
        *_from_environment(declared, env_prefix, environ),
        *_from_flags(declared, flags or {}),
    ):
        values[key] = _convert(declared[key], value, source)
        sources[key] = source
    for key, entry in declared.items():
        if entry.default is dataclasses.MISSING and key not in values:
            raise ConfigError(
                f"{key} is not set: give {entry.flag}, {entry.variable(env_prefix)}"
                f" or a line `{key} = ...` in the configuration file"
            )
    return Resolved(_build(cls, values, ""), sources)


def load(
    cls: type[C],
    *,
    toml_path: Path | None = None,
    env_prefix: str,
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> C:
    """Like `resolve`, for callers that do not care where values came from."""
    return resolve(
        cls, toml_path=toml_path, env_prefix=env_prefix, flags=flags, environ=environ
    ).config


def load_program(
    cls: type[C],
    *,
    prog: str,
    env_prefix: str,
    argv: Sequence[str],
    environ: Mapping[str, str] = os.environ,
) -> Resolved[C]:
    """What a `__main__` calls: read `--config FILE` and one flag per setting from `argv`.

    `--help` prints every setting and exits. A secret is refused as a flag: lists of processes show
    them. Raises ConfigError.
    """
    parser = build_parser(cls, prog=prog, env_prefix=env_prefix)
    flags = vars(parser.parse_args(argv))
    toml_path = flags.pop("config")
    for entry in settings_of(cls):
        if entry.secret and flags[entry.key] is not None:
            raise ConfigError(
                f"{entry.flag}: everybody on this machine can read the flags of a process; give"
                f" {entry.variable(env_prefix)}, or a line in the configuration file"
            )
    path = Path(toml_path) if toml_path else None
    resolved = resolve(cls, toml_path=path, env_prefix=env_prefix, flags=flags, environ=environ)
    if any(one.secret and resolved.sources[one.key] == str(path) for one in settings_of(cls)):
        warn_of_readers(path)
    return resolved


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, rest = self.parse_known_args(args, namespace)
        if rest:
            known = [flag for action in self._actions for flag in action.option_strings]
            raise ConfigError(f"unknown flag {rest[0]}{_near(rest[0].partition('=')[0], known)}")
        return found


def build_parser(cls: type, *, prog: str, env_prefix: str) -> argparse.ArgumentParser:
    """Return a parser with `--config` and a flag per setting; values stay text, None if absent."""
    parser = _Parser(
        prog=prog,
        description=(cls.__doc__ or "").split("\n\n")[0],
        allow_abbrev=False,
        epilog=f"Each setting can stand in the file, in the environment ({env_prefix}...)"
        " or among the flags; later ones take precedence.",
    )
    parser.add_argument("--config", metavar="FILE", help="TOML file with settings")
    for entry in settings_of(cls):
        is_switch = entry.is_switch
        parser.add_argument(
            entry.flag,
            dest=entry.key,
            metavar=entry.metavar,
            nargs="?" if is_switch else None,
            const="true" if is_switch else None,
            help=f"{entry.doc} ({default_text(entry)}{_NO_FLAG if entry.secret else ''})".replace(
                "%", "%%"
            ),
        )
    return parser


def reference(cls: type, *, env_prefix: str) -> str:
    """Return a Markdown table of every setting: name, type, default, variable, meaning."""
    rows = ["| setting | type | default | variable | meaning |", "|---|---|---|---|---|"]
    for entry in settings_of(cls):
        shown = default_text(entry).removeprefix("default ")
        kind = entry.metavar.replace("|", "\\|")
        variable = entry.variable(env_prefix)
        rows.append(f"| `{entry.key}` | {kind} | {shown} | `{variable}` | {entry.doc} |")
    return "\n".join(rows) + "\n"


def effective(resolved: Resolved[C]) -> list[dict[str, object]]:
    """Return every setting with its value and source, ready for JSON; secrets are hidden."""
    shown = []
    for entry in settings_of(type(resolved.config)):
        value: Any = resolved.config
        for part in entry.key.split("."):
            value = getattr(value, part)
        shown.append(
            {
                "name": entry.key,
                "value": "(hidden)" if entry.secret and value else plain(value),
                "source": resolved.sources[entry.key],
                "doc": entry.doc,
            }
        )
    return shown


def _from_toml(
    declared: Mapping[str, Setting], path: Path | None
) -> Iterable[tuple[str, object, str]]:
    if path is None:
        return
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    for key, value in _flatten(tables, declared, ""):
        if key not in declared:
            raise ConfigError(f"unknown setting {key} in {path}{_near(key, declared)}")
        yield key, value, str(path)


def _flatten(
    table: Mapping[str, object], declared: Mapping[str, Setting], prefix: str
) -> Iterable[tuple[str, object]]:
    for name, value in table.items():
        key = prefix + name
        if isinstance(value, dict) and any(known.startswith(f"{key}.") for known in declared):
            yield from _flatten(value, declared, f"{key}.")
        else:
            yield key, value


def _from_environment(
    declared: Mapping[str, Setting], env_prefix: str, environ: Mapping[str, str]
) -> Iterable[tuple[str, object, str]]:
    variables = {entry.variable(env_prefix): key for key, entry in declared.items()}
    for variable in sorted(environ):
        if not variable.startswith(env_prefix):
            continue
        if variable not in variables:
            raise ConfigError(
                f"unknown setting {variable} in the environment{_near(variable, variables)}"
            )
        yield variables[variable], environ[variable], variable


def _from_flags(
    declared: Mapping[str, Setting], flags: Mapping[str, object]
) -> Iterable[tuple[str, object, str]]:
    for key, value in flags.items():
        if key not in declared:
            raise ConfigError(f"unknown setting {key} among the flags{_near(key, declared)}")
        if value is not None:
            yield key, value, declared[key].flag


def _near(name: str, known: Iterable[str]) -> str:
    matches = difflib.get_close_matches(name, list(known), n=3)
    return f"; did you mean {' or '.join(matches)}?" if matches else ""


def _build(cls: type[C], values: Mapping[str, object], prefix: str) -> C:
    hints = typing.get_type_hints(cls)
    arguments: dict[str, object] = {}
    for field in dataclasses.fields(typing.cast(Any, cls)):
        key, kind = prefix + field.name, hints[field.name]
        if dataclasses.is_dataclass(kind):
            arguments[field.name] = _build(typing.cast(type, kind), values, f"{key}.")
        elif key in values:
            arguments[field.name] = values[key]
    return cls(**arguments)


def _convert(entry: Setting, value: object, source: str) -> object:
    # A flag or a variable names the setting by itself, a file does not.
    names_it = source == entry.flag or source.endswith(entry.variable(""))
    name = source if names_it else f"{entry.key} in {source}"
    try:
        converted = coerce(entry.kind, value)
    except ValueError as error:
        shown = "(hidden)" if entry.secret else repr(value)
        raise ConfigError(f"{name} must be {phrase(entry.kind)}, not {shown}") from error
    _check_range(entry, converted, name)
    return converted


def _check_range(entry: Setting, value: object, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if entry.at_least is not None and value < entry.at_least:
        raise ConfigError(f"{name} must be at least {entry.at_least}, not {value}")
    if entry.at_most is not None and value > entry.at_most:
        raise ConfigError(f"{name} must be at most {entry.at_most}, not {value}")


def default_text(entry: Setting) -> str:
    """Say what holds when nobody sets it, as help texts do."""
    if entry.default is dataclasses.MISSING:
        return "required"
    value = entry.default
    if isinstance(value, tuple):
        return f"default {','.join(str(item) for item in value) or 'none'}"
    shown = str(plain(value)).lower() if isinstance(value, bool) else plain(value)
    return f"default {'none' if value is None or value == '' else shown}"
