"""`quire broker`: who is there, how each is set, and giving its partitions away."""

from __future__ import annotations

from typing import Any

import click

from ops.admin_api import Access, AdminApi
from ops.amounts import size
from ops.cli.admin import admin_options, complete_brokers, with_api
from ops.cli.console import json_option, print_json, print_table, say
from ops.cli.run_node import add_run
from ops.rolling import wait_unloaded

_id_argument = click.argument(
    "broker_id", metavar="ID", type=click.IntRange(min=0), shell_complete=complete_brokers
)


@click.group()
def broker() -> None:
    """See the brokers, and take one out of service for a while.

    \b
    Examples:
      quire broker list
      quire broker unload 1
    """


add_run(broker, "broker")


@broker.command(name="list")
@json_option
@admin_options
def list_brokers(as_json: bool, access: Access) -> None:
    """List the live brokers.

    \b
    Example:
      quire broker list
    """

    async def work(api: AdminApi) -> None:
        brokers = await api.list("/brokers")
        if as_json:
            print_json(brokers)
            return
        print_table(
            ["BROKER", "ADDRESS", "RACK", "STATE", "LEADS", "GROUPS", "CONNECTIONS"],
            [
                [
                    row["broker_id"],
                    f"{row['host']}:{row['port']}",
                    row["rack"],
                    _state(row),
                    *((row["live"] or {}).get(name) for name in _COUNTS),
                ]
                for row in brokers
            ],
        )

    with_api(access, work)


_COUNTS = ("partitions_led", "groups", "connections")


def _state(row: dict[str, Any]) -> str:
    if row["live"] is None:
        return "silent"
    if row["is_unloaded"]:
        return "unloaded"
    return "ready" if row["live"]["is_ready"] else "not ready"


@broker.command()
@_id_argument
@json_option
@admin_options
def describe(broker_id: int, as_json: bool, access: Access) -> None:
    """Show the broker ID: where it is, what it does, and what it lacks to be ready.

    \b
    Example:
      quire broker describe 0
    """

    async def work(api: AdminApi) -> None:
        row = await api.get(f"/brokers/{broker_id}")
        if as_json:
            print_json(row)
            return
        live = row["live"] or {}
        shown: list[tuple[str, object]] = [
            ("address", f"{row['host']}:{row['port']}"),
            ("admin", row["admin_url"]),
            ("rack", row["rack"]),
            ("incarnation", row["incarnation"]),
            ("state", _state(row)),
            ("not ready because", "; ".join(live.get("not_ready", [])) or None),
            ("partitions led", live.get("partitions_led")),
            ("partitions opening", live.get("partitions_opening")),
            ("groups", live.get("groups")),
            ("connections", live.get("connections")),
            ("tail cache", size(live["tail_cache_bytes"]) if live else None),
        ]
        print_table(
            ["BROKER", str(broker_id)],
            [[name, "-" if value is None else str(value)] for name, value in shown],
        )

    with_api(access, work)


@broker.command()
@_id_argument
@click.option("--changed", is_flag=True, help="Only settings that somebody changed.")
@json_option
@admin_options
def config(broker_id: int, changed: bool, as_json: bool, access: Access) -> None:
    """Show every setting that the broker ID runs with, and where each came from.

    \b
    Example:
      quire broker config 0 --changed
    """

    async def work(api: AdminApi) -> None:
        settings = (await api.get(f"/brokers/{broker_id}/config"))["settings"]
        found = [row for row in settings if not changed or row["source"] != "default"]
        if as_json:
            print_json(found)
        else:
            print_table(
                ["SETTING", "VALUE", "SOURCE"],
                [[row["name"], _plain(row["value"]), row["source"]] for row in found],
            )

    with_api(access, work)


def _plain(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return "-" if value is None else str(value)


@broker.command()
@_id_argument
@click.option("--no-wait", is_flag=True, help="Return at once, while partitions still move.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    default=120.0,
    show_default=True,
    help="Longest wait, then exit code 1; the partitions go on moving.",
)
@admin_options
def unload(broker_id: int, no_wait: bool, timeout_s: float, access: Access) -> None:
    """Give the partitions of the broker ID to the others, before maintenance.

    It takes none until `quire broker load`, or until its process restarts.

    \b
    Example:
      quire broker unload 1
    """

    async def work(api: AdminApi) -> None:
        await api.send("PUT", f"/brokers/{broker_id}/unloaded")
        if not no_wait:
            await wait_unloaded(api, broker_id, timeout_s)
            say(f"Broker {broker_id} leads nothing any more.")

    with_api(access, work)


@broker.command()
@_id_argument
@admin_options
def load(broker_id: int, access: Access) -> None:
    """Let the broker ID lead partitions again.

    \b
    Example:
      quire broker load 1
    """

    async def work(api: AdminApi) -> None:
        await api.send("DELETE", f"/brokers/{broker_id}/unloaded")
        say(f"Broker {broker_id} takes its partitions back.")

    with_api(access, work)
