"""How commands reach the admin API: the options that say where it is, and who asks.

Covers the completion of names that a shell asks for, and how settings are shown. Every command that
uses the options takes `access`.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from client.errors import QuireError
from ops.admin_api import ADMIN_URL, Access, AdminApi
from ops.cli.addresses import Found, asked_option, named, prefer, resolve
from ops.cli.console import print_json, print_table, run, say

Command = TypeVar("Command", bound=Callable[..., Any])
Complete = Callable[[click.Context, click.Parameter, str], list[str]]

_COMPLETE_TIMEOUT_S: Final = 2.0


def _of_cluster(field: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return a callback that takes a value from the named cluster, unless it was typed."""

    def callback(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
        cluster = named(ctx)
        if cluster is None:
            return value
        text: str = getattr(cluster, field)
        return param.type_cast_value(ctx, text) if prefer(ctx, param, text) else value

    return callback


def _token(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    if ctx.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE:
        say("--admin-token: everybody on this machine can read it there; set QUIRE_ADMIN_TOKEN")
    return _of_cluster("admin_token")(ctx, param, value)


_OPTIONS = (
    click.option(
        "--admin",
        "admin_urls",
        metavar="URL[,...]",
        envvar="QUIRE_ADMIN",
        default=None,
        show_envvar=True,
        help="Where brokers have their admin API; one that answers is enough."
        f"  [default: what brokers tell, else {ADMIN_URL}]",
    ),
    click.option(
        "--admin-token",
        metavar="TOKEN",
        envvar="QUIRE_ADMIN_TOKEN",
        default="",
        show_envvar=True,
        callback=_token,
        help="The brokers' admin_token, if they require one.",
    ),
    click.option(
        "--admin-ca",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        envvar="QUIRE_ADMIN_CA",
        default=None,
        show_envvar=True,
        callback=_of_cluster("admin_ca"),
        help="PEM file with the authority of their certificates, if this machine lacks it.",
    ),
)


def admin_options(command: Command) -> Command:
    """Add the options to a command, which gets an `Access` as `access`."""

    @functools.wraps(command)
    def with_access(
        *args: Any, admin_urls: str | None, admin_token: str, admin_ca: Path | None, **rest: Any
    ) -> Any:
        found = resolve("admin_urls", admin_urls, ADMIN_URL)
        urls = tuple(url.strip() for url in found.value.split(",") if url.strip())
        access = Access(urls, admin_token, admin_ca, teller=found.teller)
        return command(*args, access=access, **rest)

    decorated: Any = with_access
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return asked_option(decorated)  # type: ignore[no-any-return]  # the same, with options


def key_options(command: Command) -> Command:
    """Add the options that say who asks, to a command that brokers tell where the admin API is; it
    gets `admin_token` and `admin_ca`."""
    decorated: Any = command
    for option in reversed(_OPTIONS[1:]):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]  # the same, with options


def with_api(access: Access, work: Callable[[AdminApi], Coroutine[Any, Any, None]]) -> None:
    """Run a command's coroutine with a connected admin API."""

    async def connected() -> None:
        async with AdminApi(access) as api:
            await work(api)

    run(connected())


def complete_from(path: str, field: str) -> Complete:
    """Return a completion of names that the admin API lists; of nothing when none answers."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        async def names(found: Found) -> list[str]:
            access = Access(
                tuple(found.value.split(",")),
                ctx.params.get("admin_token") or "",
                ctx.params.get("admin_ca"),
                _COMPLETE_TIMEOUT_S,
                patience_s=0,
                teller=found.teller,
            )
            async with AdminApi(access) as api:
                return [str(row[field]) for row in await api.list(path)]

        try:
            with ctx:
                found = resolve("admin_urls", ctx.params.get("admin_urls"), ADMIN_URL)
            return [name for name in asyncio.run(names(found)) if name.startswith(incomplete)]
        except QuireError:
            return []  # a shell that waits for words must not get sentences

    return complete


complete_topics: Final = complete_from("/topics", "topic")
complete_groups: Final = complete_from("/groups", "group")
complete_transactions: Final = complete_from("/transactions", "transactional_id")
complete_brokers: Final = complete_from("/brokers", "broker_id")


async def show_settings(api: AdminApi, path: str, source: str | None, *, as_json: bool) -> None:
    """Print the settings of a topic or a group, at `path`; with `source` those from there only.

    Raises AdminError.
    """
    settings = (await api.get(f"{path}/config"))["settings"]
    found = [row for row in settings if source in (None, row["source"])]
    if as_json:
        print_json(found)
    else:
        print_settings(found)


def print_settings(settings: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of settings as the admin API has them."""
    print_table(
        ["SETTING", "VALUE", "SOURCE", "EFFECT"],
        [
            [row["name"], row["value"], row["source"], "yes" if row["has_effect"] else "no"]
            for row in settings
        ],
    )
