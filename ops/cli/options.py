"""Options of commands: settings and places in a partition.

A settings dataclass (`client/config.py`) becomes click options, so that help is written once, and
KEY=VALUE. A place is earliest, latest, an offset or a time.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click

from client.config import default_text, settings_of

Command = TypeVar("Command", bound=Callable[..., Any])


def settings_options(cls: type) -> Callable[[Command], Command]:
    """Return a decorator that adds one option per setting of `cls` that is no secret: lists of
    processes show options, and what is in the environment they do not.

    The command receives them as keyword arguments, as text or None, ready for
    `client.config.load(cls, flags=...)`, which checks them and names mistakes.
    """

    def decorate(command: Command) -> Command:
        for entry in reversed(settings_of(cls)):
            if entry.secret:
                continue
            is_on = entry.default is not False
            shown = f"  [{default_text(entry).replace('default', 'default:')}]"
            command = click.option(
                f"{entry.flag}/--no-{entry.flag[2:]}" if entry.is_switch and is_on else entry.flag,
                entry.key,
                metavar=None if entry.is_switch else entry.metavar,
                is_flag=entry.is_switch,
                default=None,
                help=f"{entry.doc}{'' if entry.is_switch and not is_on else shown}",
            )(command)
        return command

    return decorate


def setting_of(text: str) -> tuple[str, str]:
    """Take KEY=VALUE apart. Raises BadParameter."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--config")
    return key, value


def changes_options(reset_to: str) -> Callable[[Command], Command]:
    """Return a decorator for a command that changes settings: `--config` and `--unset`, which it
    receives as `settings` and `defaults`. `reset_to`: what a setting has that was set nothing.
    """

    def decorate(command: Command) -> Command:
        command = click.option(
            "--unset",
            "defaults",
            multiple=True,
            metavar="KEY",
            help=f"Reset a setting to {reset_to}. Repeat as needed.",
        )(command)
        return click.option(
            "--config",
            "--set",
            "settings",
            multiple=True,
            metavar="KEY=VALUE",
            help="A setting under its Kafka name. Repeat as needed.",
        )(command)

    return decorate


def changes_of(settings: tuple[str, ...], defaults: tuple[str, ...]) -> dict[str, str | None]:
    """Return settings to change, None: to be reset. Raises BadParameter."""
    return {**dict(map(setting_of, settings)), **dict.fromkeys(defaults)}


def place_of(text: str, option: str) -> dict[str, object]:
    """Return a place as the admin API takes it. Raises click.BadParameter, naming the option.

    A time without a zone is one of this machine's.
    """
    if text in ("earliest", "latest"):
        return {"to": text}
    if text.isascii() and text.isdigit():
        return {"to": "offset", "offset": int(text)}
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is neither earliest, latest, an offset nor a time", param_hint=option
        ) from None
    return {"to": "timestamp", "timestamp_ms": round(moment.astimezone().timestamp() * 1000)}
