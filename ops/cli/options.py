"""Turns a settings dataclass (`client/config.py`) into click options, so help is written once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from client.config import settings_of

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
            is_switch = entry.kind is bool
            shown = "" if is_switch or entry.default is None else f"  [default: {entry.default}]"
            command = click.option(
                entry.flag,
                entry.key,
                metavar=None if is_switch else entry.metavar,
                is_flag=is_switch,
                flag_value="true" if is_switch else None,
                default=None,
                help=f"{entry.doc}{shown}",
            )(command)
        return command

    return decorate
