"""`quire cluster`: the whole cluster at a glance, and waiting until it is healthy."""

from __future__ import annotations

from typing import Any

import click

from ops.admin_api import Access, AdminApi
from ops.amounts import utc
from ops.cli.admin import admin_options, with_api
from ops.cli.console import json_option, print_json, print_table, say
from ops.rolling import RollingRestart


@click.group()
def cluster() -> None:
    """See the whole cluster, and wait until it is healthy.

    \b
    Examples:
      quire cluster describe
      quire cluster wait
      quire cluster audit
    """


@cluster.command()
@json_option
@admin_options
def describe(as_json: bool, access: Access) -> None:
    """Show brokers, partitions, bookies and groups in numbers.

    \b
    Example:
      quire cluster describe
    """

    async def work(api: AdminApi) -> None:
        about = await api.get("/cluster")
        if as_json:
            print_json(about)
            return
        print_table(["CLUSTER", about["cluster_id"]], _rows(about))

    with_api(access, work)


def _rows(about: dict[str, Any]) -> list[list[object]]:
    brokers, partitions, bookies = about["brokers"], about["partitions"], about["bookies"]
    rows: list[list[object]] = [
        ["brokers", brokers["live"]],
        ["brokers unloaded", _ids(brokers["unloaded"])],
        ["brokers not ready", _ids(brokers["not_ready"])],
        ["brokers silent", _ids(brokers["silent"])],
        ["controller", about["controller_id"]],
        ["topics", about["topics"]],
        ["partitions", partitions["count"]],
        ["partitions led", partitions["led"]],
        *([f"bookies {state.replace('_', '-')}", count] for state, count in bookies.items()),
        ["nodes unreadable", _ids(about["unreadable"])],
        ["topics with foreign settings", _ids(about["carried"])],
        ["groups", about["groups"]],
        ["connections", about["connections"]],
    ]
    return [[name, "-" if value is None else str(value)] for name, value in rows]


def _ids(ids: Any) -> str:
    return ", ".join(map(str, ids)) or "none"


@cluster.command()
@click.option(
    "--limit", type=click.IntRange(1, 2_000), default=50, show_default=True,
    help="How many entries at most.",
)  # fmt: skip
@json_option
@admin_options
def audit(limit: int, as_json: bool, access: Access) -> None:
    """Show who changed what, and who was refused, the newest first.

    Brokers remember it since they started. It needs a token of role administer, if any.

    \b
    Example:
      quire cluster audit --limit 10
    """

    async def work(api: AdminApi) -> None:
        found = await api.get("/audit", limit=limit)
        if as_json:
            print_json(found)
            return
        for broker, why in found["silent"].items():
            say(f"Broker {broker} is missing: {why}")
        rows = [
            [_time(one["time_ms"]), one["event"], one["user"] or None, one["address"] or None,
             one["what"], one["count"]]
            for one in found["items"]
        ]  # fmt: skip
        print_table(["TIME", "EVENT", "WHO", "FROM", "ABOUT", "TIMES"], rows)

    with_api(access, work)


def _time(ms: int) -> str:
    return utc(ms)


@cluster.command()
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    default=300.0,
    show_default=True,
    help="Give up after this time, with exit code 1.",
)
@admin_options
def wait(timeout_s: float, access: Access) -> None:
    """Wait until every partition is led, every bookie there and no ledger lacks copies.

    What to wait for between two steps of any maintenance.

    \b
    Example:
      quire cluster wait --timeout 60
    """

    async def work(api: AdminApi) -> None:
        await RollingRestart(api, {}, say, timeout_s=timeout_s).wait_whole("yet")
        say("The cluster is whole.")

    with_api(access, work)
