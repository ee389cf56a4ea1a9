"""`quire bookie`: look at bookies and control them; other modules inspect and remove them."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from client.errors import QuireError
from client.ledger.client import LedgerClient
from client.metadata.store import MetadataStore
from ops import bookie_http
from ops.amounts import size, utc
from ops.bookie_http import BookieAccess
from ops.bookies import DOWN, BookieView, all_bookies, one_bookie, running
from ops.cli.admin import key_options
from ops.cli.bookie_departure import decommission, recover
from ops.cli.bookie_inspect import inspect
from ops.cli.console import json_option, print_json, print_table, run, say, sentence
from ops.cli.run_node import add_run
from ops.cli.store import cluster_security, open_ledgers, open_store, zookeeper_option

_V1 = "/api/v1/bookie"

Command = TypeVar("Command", bound=Callable[..., Any])


def _access_option(command: Command) -> Command:
    """Add the options that say who asks a bookie to a command, which gets them as `access`."""

    @functools.wraps(command)
    def with_access(*args: Any, admin_token: str, admin_ca: Path | None, **rest: Any) -> Any:
        return command(
            *args, access=BookieAccess(admin_token, admin_ca, cluster_security()), **rest
        )

    decorated: Any = with_access
    return key_options(decorated)  # type: ignore[no-any-return]  # the same, with options


@click.group()
def bookie() -> None:
    """See the bookies, control them, and decommission them.

    Bookies store the ledgers. One that is read-only takes no new entries, except copies that
    repairs need.

    \b
    Example:
      quire bookie list
    """


bookie.add_command(decommission)
bookie.add_command(recover)
bookie.add_command(inspect)
add_run(bookie, "bookie")


@asynccontextmanager
async def _cluster(hosts: str) -> AsyncIterator[tuple[MetadataStore, LedgerClient]]:
    async with open_store(hosts) as store, open_ledgers(store) as client:
        yield store, client


@bookie.command(name="list")
@json_option
@zookeeper_option
def list_bookies(as_json: bool, hosts: str) -> None:
    """List all bookies that ever registered, with their states and the space on their disks.

    \b
    Example:
      quire bookie list
      quire bookie list --json
    """

    async def work() -> None:
        async with _cluster(hosts) as (store, client):
            found = await all_bookies(store, client)
        if as_json:
            print_json([_as_json(view) for view in found])
        elif found:
            rows = [
                [v.bookie_id, v.state, v.address, v.rack, _size(v.free_bytes), _size(v.total_bytes)]
                for v in found
            ]
            print_table(["BOOKIE", "STATE", "ADDRESS", "RACK", "FREE", "TOTAL"], rows)
        else:
            say("There are no bookies. `quire up` starts a cluster with three.")

    run(work())


@bookie.command()
@click.argument("bookie_id", metavar="ID")
@json_option
@zookeeper_option
@_access_option
def info(bookie_id: str, as_json: bool, hosts: str, access: BookieAccess) -> None:
    """Show the bookie ID: its state and why, its disks, its garbage collection.

    \b
    Example:
      quire bookie info 127.0.0.1:3181
    """

    async def work() -> None:
        async with _cluster(hosts) as (store, client):
            view = await one_bookie(store, client, bookie_id)
        # What the admin server tells comes on top: without one the rest is shown.
        told = None
        if view.state != DOWN and view.admin_url is not None:
            try:
                told = await _ask_details(view, access)
            except QuireError as error:
                say(sentence(error))
        if as_json:
            print_json({**_as_json(view), "details": told})
        else:
            print_table(["BOOKIE", view.bookie_id], _rows(view, told))

    run(work())


async def _ask_details(view: BookieView, access: BookieAccess) -> dict[str, Any]:
    async def get(path: str) -> Any:
        return await bookie_http.ask(
            view.bookie_id, running(view), "GET", f"{_V1}/{path}", access=access
        )

    read_only = await get("state/readonly")
    state = await get("state")
    [garbage] = await get("gc_details")
    return {**state, **read_only, "gc": garbage}


def _rows(view: BookieView, told: dict[str, Any] | None) -> list[list[object]]:
    rows: list[list[object]] = [
        ["state", view.state],
        ["address", view.address],
        ["admin server", view.admin_url],
        ["rack", view.rack],
        ["free space", _size(view.free_bytes)],
        ["total space", _size(view.total_bytes)],
    ]
    if told is None:
        return rows
    is_taken = told["availableForHighPriorityWrites"]
    rows += [
        ["read-only because", "; ".join(told["reasons"]) or "it is not"],
        ["recovery writes", "taken" if is_taken else "refused"],
    ]
    for kind in ("major", "minor"):
        count = told["gc"][f"{kind}CompactionCounter"]
        last = _time(told["gc"][f"last{kind.capitalize()}CompactionTime"])
        is_held = told["gc"][f"{kind}CompactionSuspended"]
        rows.append([f"{kind} compactions", f"{count}, last {last}{', held' if is_held else ''}"])
    return rows


@bookie.command()
@click.argument("bookie_id", metavar="ID")
@click.option("--off", is_flag=True, help="Take entries again.")
@json_option
@zookeeper_option
@_access_option
def readonly(bookie_id: str, off: bool, as_json: bool, hosts: str, access: BookieAccess) -> None:
    """Make the bookie ID read-only, until you undo it or it restarts.

    Writers replace it in their ledgers, and readers go on. With --off it takes entries again,
    unless its disk is full or damaged: then this fails and says so.

    \b
    Example:
      quire bookie readonly 127.0.0.1:3181
      quire bookie readonly 127.0.0.1:3181 --off
    """

    async def work() -> None:
        async with _cluster(hosts) as (store, client):
            view = await one_bookie(store, client, bookie_id)
        wanted = {"readOnly": not off}
        path = f"{_V1}/state/readonly"
        answer = await bookie_http.ask(bookie_id, running(view), "PUT", path, wanted, access=access)
        if as_json:
            print_json({"bookie": bookie_id, **answer})
        elif off:
            say(f"Bookie {bookie_id} takes entries again.")
        else:
            say(f"Bookie {bookie_id} is read-only: {'; '.join(answer['reasons'])}.")

    run(work())


@bookie.command()
@click.argument("bookie_id", metavar="ID")
@click.option("--minor", is_flag=True, help="Also rewrite log files with very few live entries.")
@click.option("--major", is_flag=True, help="Also rewrite those with few live entries.")
@json_option
@zookeeper_option
@_access_option
def gc(
    bookie_id: str, minor: bool, major: bool, as_json: bool, hosts: str, access: BookieAccess
) -> None:
    """Have the bookie ID delete the ledgers that the cluster deleted, now.

    It does so by itself every few minutes. Space comes back as log files are given back; with
    --minor or --major files are rewritten for that, too.

    \b
    Example:
      quire bookie gc 127.0.0.1:3181
      quire bookie gc 127.0.0.1:3181 --major
    """

    async def work() -> None:
        async with _cluster(hosts) as (store, client):
            view = await one_bookie(store, client, bookie_id)
        wanted = {"forceMajor": major, "forceMinor": minor}
        await bookie_http.ask(bookie_id, running(view), "PUT", f"{_V1}/gc", wanted, access=access)
        if as_json:
            print_json({"bookie": bookie_id, "asked": True, "minor": minor, "major": major})
        else:
            say(f"Bookie {bookie_id} collects garbage; `quire bookie info {bookie_id}` shows it.")

    run(work())


def _as_json(view: BookieView) -> dict[str, Any]:
    return {
        "bookie": view.bookie_id,
        "state": view.state,
        "address": view.address,
        "admin_url": view.admin_url,
        "rack": view.rack,
        "free_bytes": view.free_bytes,
        "total_bytes": view.total_bytes,
    }


def _size(byte_count: int | None) -> str | None:
    return None if byte_count is None else size(byte_count)


def _time(ms: int) -> str:
    return f"{utc(ms)} UTC" if ms else "never"
