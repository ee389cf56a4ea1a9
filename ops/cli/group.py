"""`quire group`: consumer groups, how far behind they are, and where they continue."""

from __future__ import annotations

import sys
import time
from typing import Any
from urllib.parse import quote

import click

from client.errors import QuireError
from ops.admin_api import Access, AdminApi
from ops.admin_errors import AdminError
from ops.cli.admin import (
    admin_options,
    complete_groups,
    complete_topics,
    print_settings,
    show_settings,
    with_api,
)
from ops.cli.console import fail, json_option, print_json, print_table, say
from ops.cli.options import changes_of, changes_options, place_of

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
                ["GROUP", "TYPE", "STATE", "MEMBERS", "LAG", "LAG SECONDS", "COORDINATOR"],
                [
                    [
                        row["group"],
                        row["type"],
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


def _print_members(about: Any) -> None:
    """Show the members of a group of type consumer or share, and what each waits for."""
    if about["type"] in ("consumer", "share") and about["members"]:
        print_table(
            ["MEMBER", "CLIENT", "HOST", "EPOCH", "PARTITIONS", "WAITS FOR"],
            [
                [
                    one["member_id"],
                    one["client_id"],
                    one["client_host"],
                    one["epoch"],
                    sum(len(topic["partitions"]) for topic in one["assignment"]),
                    one["waits_for"],
                ]
                for one in about["members"]
            ],
        )


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
        _print_members(about)
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
        if about["settings"]:
            print_settings(about["settings"])
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


_REPLAY = "replay"
_LETTERS = "errors.deadletterqueue.topic.name"


@group.command(name="dead-letters")
@_name_argument
@click.argument("action", required=False, type=click.Choice([_REPLAY]))
@click.option("--topic", metavar="NAME", help="The topic that has them. [default: the group's]")
@click.option("--again", is_flag=True, help="Replay all that are there, not only newer ones.")
@click.option("--dry-run", is_flag=True, help="Only show what would be replayed.")
@json_option
@admin_options
def dead_letters(
    name: str,
    action: str | None,
    topic: str | None,
    again: bool,
    dry_run: bool,
    as_json: bool,
    access: Access,
) -> None:
    """Show which records of the share group NAME wait for their dead letters, and why; or replay
    the letters that are written: publish their records again where they came from.

    How far was replayed is kept as the offsets of a group of its own, dead-letters.NAME.

    \b
    Examples:
      quire group dead-letters jobs
      quire group dead-letters jobs replay --dry-run
    """
    if action is None and (topic or again or dry_run):
        raise click.UsageError("--topic, --again and --dry-run are for replay")

    async def work(api: AdminApi) -> None:
        if action is None:
            await _show_waiting(api, name, as_json=as_json)
            return
        source = topic or await _letters_topic(api, name)
        done = await _replay(api, name, source, again=again, dry_run=dry_run)
        if as_json:
            print_json(done)
            return
        print_table(
            ["TOPIC", "PARTITION", "REPLAYED", "LEFT", "NEXT OFFSET"],
            [
                [source, row["partition"], row["replayed"], len(row["left"]), row["next_offset"]]
                for row in done
            ],
        )
        for row in done:
            for one in row["left"]:
                say(
                    f"Left: {source}-{row['partition']} at offset {one['offset']}: {one['reason']}."
                )
        if dry_run:
            say("Nothing was published: this was a dry run.")

    with_api(access, work)


async def _show_waiting(api: AdminApi, name: str, *, as_json: bool) -> None:
    rows = await api.list(f"{_path(name)}/dead-letters")
    if as_json:
        print_json(rows)
    elif rows:
        print_table(
            ["TOPIC", "PARTITION", "FIRST", "LAST", "DELIVERIES", "REASON", "ATTEMPTS", "PROBLEM"],
            [
                [
                    row["topic"],
                    row["partition"],
                    row["first_offset"],
                    row["last_offset"],
                    row["deliveries"],
                    row["reason"],
                    row["attempts"],
                    row["problem"],
                ]
                for row in rows
            ],
        )
    else:
        say(f"No record of group {name} waits for its dead letter.")


async def _letters_topic(api: AdminApi, name: str) -> str:
    settings = (await api.get(f"{_path(name)}/config"))["settings"]
    found = next((str(row["value"]) for row in settings if row["name"] == _LETTERS), "")
    if not found:
        raise QuireError(f"group {name} has no {_LETTERS}: name the topic with --topic")
    return found


async def _replay(
    api: AdminApi, name: str, topic: str, *, again: bool, dry_run: bool
) -> list[dict[str, Any]]:
    """Replay what is in each partition now; return what became of it."""
    place = quote(topic, safe="")
    count = (await api.get(f"/topics/{place}"))["partition_count"]
    reader = f"dead-letters.{name}"
    begun = {} if again else await _replayed(api, reader, topic)
    done = []
    for index in range(count):
        row: dict[str, Any] = {"partition": index, "replayed": 0, "left": []}
        at, end = begun.get(index, 0), None
        while end is None or at < end:
            body = {"group": name, "offset": at, "dry_run": dry_run}
            path = f"/topics/{place}/partitions/{index}/dead-letters"
            step = await api.send("POST", path, body)
            end = step["high_watermark"] if end is None else end
            row["replayed"] += step["replayed"]
            row["left"] += step["left"]
            moved, at = step["next_offset"] > at, step["next_offset"]
            if moved and not dry_run:
                await api.send(
                    "PUT",
                    f"{_path(reader)}/offsets",
                    {"topic": topic, "partitions": [index], "to": "offset", "offset": at},
                )
            if step["problem"] is not None:
                raise QuireError(f"{topic}-{index} is replayed up to {at}: {step['problem']}")
            if not moved:
                break
        done.append({**row, "next_offset": at})
    return done


async def _replayed(api: AdminApi, reader: str, topic: str) -> dict[int, int]:
    """Return how far each partition was replayed."""
    try:
        known = await api.get(_path(reader))
    except AdminError as error:
        if error.status == 404:
            return {}
        raise
    return {
        row["partition"]: row["committed_offset"]
        for row in known["offsets"]
        if row["topic"] == topic
    }


@group.command()
@_name_argument
@click.option("--changed", is_flag=True, help="Only what was set for this group.")
@json_option
@admin_options
def config(name: str, changed: bool, as_json: bool, access: Access) -> None:
    """Show every setting of the group NAME, which need not exist, and whether it has an effect.

    \b
    Example:
      quire group config audit
    """

    async def work(api: AdminApi) -> None:
        await show_settings(api, _path(name), "group" if changed else None, as_json=as_json)

    with_api(access, work)


@group.command()
@_name_argument
@changes_options("what all groups have")
@admin_options
def alter(name: str, settings: tuple[str, ...], defaults: tuple[str, ...], access: Access) -> None:
    """Change settings of the group NAME, which need not exist; they hold at once.

    \b
    Example:
      quire group alter audit --config consumer.session.timeout.ms=60000
    """
    changed = changes_of(settings, defaults)
    if not changed:
        raise click.UsageError("nothing to change: give --config or --unset")

    async def work(api: AdminApi) -> None:
        await api.send("PATCH", f"{_path(name)}/config", {"settings": changed})
        say(f"Group {name} has its settings now.")

    with_api(access, work)
