"""`quire group`: consumer groups, how far behind they are, and where they continue."""

from __future__ import annotations

import sys
import time
from urllib.parse import quote

import click

from client.errors import QuireError
from ops.admin_api import Access, AdminApi
from ops.admin_errors import AdminError
from ops.cli.admin import admin_options, complete_groups, complete_topics, with_api
from ops.cli.console import fail, json_option, print_json, print_table, say
from ops.cli.places import place_of

_name_argument = click.argument("name", shell_complete=complete_groups)


@click.group()
def group() -> None:
    """See consumer groups and their lag, and set where they go on reading.

    \b
    Examples:
      quire group list
      quire group describe audit
    """


def _path(name: str) -> str:
    return f"/groups/{quote(name, safe='')}"


@group.command(name="list")
@click.option(
    "--topic",
    metavar="NAME",
    help="Only groups that read this topic.",
    shell_complete=complete_topics,
)
@json_option
@admin_options
def list_groups(topic: str | None, as_json: bool, access: Access) -> None:
    """List the consumer groups, with lags that are some seconds old.

    \b
    Example:
      quire group list
    """

    async def work(api: AdminApi) -> None:
        groups = await api.list("/groups", topic=topic)
        if as_json:
            print_json(groups)
        elif groups:
            print_table(
                ["GROUP", "STATE", "MEMBERS", "LAG", "LAG SECONDS", "COORDINATOR"],
                [
                    [
                        row["group"],
                        row["state"],
                        row["members"],
                        row["lag_records"],
                        _seconds(row["lag_seconds"]),
                        row["coordinator"],
                    ]
                    for row in groups
                ],
            )
        else:
            say("There are no groups.")

    with_api(access, work)


def _seconds(value: float | None) -> str | None:
    return None if value is None else f"{value:.1f}"


@group.command()
@_name_argument
@json_option
@admin_options
def describe(name: str, as_json: bool, access: Access) -> None:
    """Show the group NAME: its members, what each reads, and how far behind it is.

    \b
    Example:
      quire group describe audit
    """

    async def work(api: AdminApi) -> None:
        about = await api.get(_path(name))
        if as_json:
            print_json(about)
            return
        say(
            f"Group {name} is {about['state']}, has {len(about['members'])} members"
            f" and is coordinated by broker {about['coordinator']}."
        )
        clients = {one["member_id"]: one["client_id"] for one in about["members"]}
        print_table(
            ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "LAG SECONDS", "MEMBER", "CLIENT"],
            [
                [
                    row["topic"],
                    row["partition"],
                    row["committed_offset"],
                    row["high_watermark"],
                    row["lag_records"],
                    _seconds(row["lag_seconds"]),
                    row["member_id"],
                    clients.get(row["member_id"]),
                ]
                for row in about["offsets"]
            ],
        )
        if about["pending"]:
            say("Pending: offsets of transactions that are not over (quire transaction describe).")
            now_s = time.time()
            ids = {
                one["producer_id"]: one["transactional_id"]
                for one in await api.list("/transactions")
            }
            print_table(
                [
                    *("TOPIC", "PARTITION", "OFFSET", "AGE SECONDS"),
                    *("TRANSACTIONAL ID", "PRODUCER ID", "EPOCH"),
                ],
                [
                    [
                        row["topic"],
                        row["partition"],
                        row["offset"],
                        _seconds(max(0.0, now_s - row["committed_ms"] / 1000)),
                        ids.get(row["producer_id"]),
                        row["producer_id"],
                        row["producer_epoch"],
                    ]
                    for row in about["pending"]
                ],
            )

    with_api(access, work)


@group.command()
@_name_argument
@click.option(
    "--topic", metavar="NAME", required=True, help="Whose offsets.", shell_complete=complete_topics
)
@click.option(
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="Only this one; repeat as needed. [default: all]",
)
@click.option(
    "--to",
    metavar="PLACE",
    required=True,
    help="earliest, latest, an offset, or a time like 2026-03-01T12:00:00+01:00.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@json_option
@admin_options
def reset(
    name: str,
    topic: str,
    partitions: tuple[int, ...],
    to: str,
    dry_run: bool,
    as_json: bool,
    access: Access,
) -> None:
    """Set where the group NAME goes on reading. It must have no members.

    A group that does not exist yet is created.

    \b
    Examples:
      quire group reset audit --topic orders --to earliest --dry-run
      quire group reset audit --topic orders --to latest
    """
    body: dict[str, object] = {"topic": topic, "dry_run": dry_run, **place_of(to, "--to")}
    if partitions:
        body["partitions"] = list(partitions)

    async def work(api: AdminApi) -> None:
        done = await api.send("PUT", f"{_path(name)}/offsets", body)
        if as_json:
            print_json(done)
            return
        print_table(
            ["TOPIC", "PARTITION", "BEFORE", "AFTER"],
            [
                [row["topic"], row["partition"], row["before"], row["after"]]
                for row in done["offsets"]
            ],
        )
        if not done["is_done"]:
            say("Nothing was changed: this was a dry run.")

    with_api(access, work)


@group.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_groups)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--if-exists", is_flag=True, help="Succeed even if the group does not exist.")
@admin_options
def delete(names: tuple[str, ...], yes: bool, if_exists: bool, access: Access) -> None:
    """Delete groups without members, with their offsets.

    \b
    Example:
      quire group delete audit
    """
    if not yes:
        if not sys.stdin.isatty():
            fail("Deleting needs a confirmation: add --yes.")
        click.confirm(f"Forget the offsets of {', '.join(names)}?", abort=True, err=True)

    async def work(api: AdminApi) -> None:
        for name in names:
            try:
                await api.send("DELETE", _path(name))
            except AdminError as error:
                if not (if_exists and error.status == 404):
                    raise QuireError(f"group {name} is not deleted: {error}") from error
            else:
                print(f"Group {name} is deleted.")

    with_api(access, work)
