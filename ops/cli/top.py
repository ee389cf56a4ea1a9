"""`quire top`: the cluster at a glance, live."""

from __future__ import annotations

import asyncio
import sys
import time

import click
from rich.console import Console

from ops.admin_api import Access, AdminApi
from ops.cli.admin import admin_options
from ops.cli.console import json_option, print_json, run
from ops.top.screen import Screen
from ops.top.snapshot import Snapshot, take
from ops.top.view import picture

_BETWEEN_LOOKS_S = 1.0
_PLAIN_WIDTH = 160


@click.command()
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0.2),
    metavar="SECONDS",
    default=2.0,
    show_default=True,
    help="How often to update.",
)
@click.option(
    "--once", "is_once", is_flag=True, help="Print one snapshot and exit, as into a pipe."
)
@json_option
@admin_options
def top(interval_s: float, is_once: bool, as_json: bool, access: Access) -> None:
    """Watch brokers, topics, groups and bookies live.

    Any broker answers for the whole cluster. Keys: q quits, s changes how topics and groups are
    sorted, p pauses. With --json each update is a line of JSON.

    \b
    Examples:
      quire top
      quire top --once --json
    """

    async def work() -> None:
        async with AdminApi(access) as api:
            if as_json:
                await _print_lines(api, interval_s, is_once=is_once)
            elif is_once or not sys.stdout.isatty():
                console = Console(highlight=False)
                if not sys.stdout.isatty():
                    console.width = _PLAIN_WIDTH
                console.print(picture(await _with_rates(api)))
            else:
                first = await take(api, time.time())
                await Screen(api, first, Console(highlight=False), interval_s).run()

    run(work())


async def _with_rates(api: AdminApi) -> Snapshot:
    """Look twice: a topic's rate is what came between."""
    before = await take(api, time.time())
    await asyncio.sleep(_BETWEEN_LOOKS_S)
    return await take(api, time.time(), before)


async def _print_lines(api: AdminApi, interval_s: float, *, is_once: bool) -> None:
    latest = await _with_rates(api)
    print_json(latest.as_json())
    while not is_once:
        await asyncio.sleep(interval_s)
        latest = await take(api, time.time(), latest)
        print_json(latest.as_json())
