"""What `quire topic` does through the admin API: what Kafka's own protocol has no words for.

`topic.py` adds these commands to its group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from ops.admin_api import Access, AdminApi
from ops.amounts import count, utc
from ops.cli.admin import (
    admin_options,
    complete_brokers,
    complete_topics,
    show_settings,
    with_api,
)
from ops.cli.console import json_option, print_json, print_table, say
from ops.cli.options import changes_of, changes_options

_name_argument = click.argument("name", shell_complete=complete_topics)
_partition_argument = click.argument("partition", type=click.IntRange(min=0))


Row = dict[str, Any]


@click.command()
@_name_argument
@click.option(
    "--partitions",
    "partition_count",
    type=click.IntRange(min=1),
    metavar="N",
    help="The new number of partitions, larger than now. This moves keys to other partitions.",
)
@changes_options("its default")
@admin_options
def alter(
    name: str,
    partition_count: int | None,
    settings: tuple[str, ...],
    defaults: tuple[str, ...],
    access: Access,
) -> None:
    """Add partitions to the topic NAME, or change its settings.

    \b
    Example:
      quire topic alter orders --partitions 4 --config retention.ms=3600000
    """
    body: dict[str, Any] = {}
    if partition_count is not None:
        body["partition_count"] = partition_count
    if changed := changes_of(settings, defaults):
        body["settings"] = changed
    if not body:
        raise click.UsageError("nothing to change: give --partitions, --config or --unset")

    async def work(api: AdminApi) -> None:
        about = await api.send("PATCH", f"/topics/{name}", body)
        say(f"Topic {name} has {count(about['partition_count'], 'partition')} now.")

    with_api(access, work)


@click.command()
@_name_argument
@click.option("--changed", is_flag=True, help="Only what was set for this topic.")
@json_option
@admin_options
def config(name: str, changed: bool, as_json: bool, access: Access) -> None:
    """Show every setting of the topic NAME, and whether it has an effect.

    \b
    Example:
      quire topic config orders
    """

    async def work(api: AdminApi) -> None:
        await show_settings(api, f"/topics/{name}", "topic" if changed else None, as_json=as_json)

    with_api(access, work)


@click.command()
@_name_argument
@json_option
@admin_options
def partitions(name: str, as_json: bool, access: Access) -> None:
    """List the partitions of the topic NAME: their leaders, leader epochs and offsets.

    \b
    Example:
      quire topic partitions orders
    """

    async def work(api: AdminApi) -> None:
        found = await api.list(f"/topics/{name}/partitions")
        if as_json:
            print_json(found)
            return
        fields = (
            "partition", "state", "leader", "pinned_to", "leader_epoch", "log_start_offset",
            "high_watermark", "bytes",
        )  # fmt: skip
        titles = ["PARTITION", "STATE", "LEADER", "PINNED TO", "EPOCH", "START", "END", "BYTES"]
        print_table(titles, [[row[field] for field in fields] for row in found])

    with_api(access, work)


@click.command()
@_name_argument
@_partition_argument
@json_option
@admin_options
def segments(name: str, partition: int, as_json: bool, access: Access) -> None:
    """List the segments of a PARTITION of the topic NAME: its ledgers and their bookies.

    \b
    Example:
      quire topic segments orders 0
    """

    async def work(api: AdminApi) -> None:
        found = await api.list(f"/topics/{name}/partitions/{partition}/segments")
        if as_json:
            print_json(found)
            return
        print_table(
            ["LEDGER", "STATE", "FIRST", "LAST", "BYTES", "EPOCH", "BOOKIES"],
            [
                [
                    row["ledger_id"],
                    row["state"],
                    row["base_offset"],
                    row["last_offset"],
                    row["bytes"],
                    row["leader_epoch"],
                    _bookies(row),
                ]
                for row in found
            ],
        )

    with_api(access, work)


def _bookies(segment: dict[str, Any]) -> str:
    names = [name for part in segment["fragments"] for name in part["bookies"]]
    return " ".join(dict.fromkeys(names))


@click.command(name="move-leader")
@_name_argument
@_partition_argument
@click.option(
    "--to",
    "broker_id",
    type=click.IntRange(min=0),
    metavar="ID",
    help="A live broker; the partition stays there while it lives.",
    shell_complete=complete_brokers,
)
@click.option("--anywhere", is_flag=True, help="Let the cluster choose again.")
@admin_options
def move_leader(
    name: str, partition: int, broker_id: int | None, anywhere: bool, access: Access
) -> None:
    """Move the leadership of a PARTITION of the topic NAME to another broker.

    No data moves: the ledgers stay on their bookies.

    \b
    Examples:
      quire topic move-leader orders 0 --to 1
      quire topic move-leader orders 0 --anywhere
    """
    if (broker_id is None) != anywhere:
        raise click.UsageError("give either --to or --anywhere")
    path = f"/topics/{name}/partitions/{partition}/leader"

    async def work(api: AdminApi) -> None:
        if anywhere:
            await api.send("DELETE", path)
            say(f"The cluster chooses who leads {name}-{partition}.")
        else:
            await api.send("PUT", path, {"broker_id": broker_id})
            say(f"{name}-{partition} moves to broker {broker_id}.")

    with_api(access, work)


@click.command()
@_name_argument
@click.argument("partition", type=click.IntRange(min=0), required=False)
@admin_options
def roll(name: str, partition: int | None, access: Access) -> None:
    """Continue the topic NAME, or one PARTITION of it, in new ledgers.

    The current ones are closed; writes continue meanwhile.

    \b
    Example:
      quire topic roll orders 0
    """

    async def work(api: AdminApi) -> None:
        about = await api.get(f"/topics/{name}")
        chosen = range(about["partition_count"]) if partition is None else [partition]
        for index in chosen:
            await api.send("POST", f"/topics/{name}/partitions/{index}/roll")
        say(f"Topic {name} continues in {count(len(chosen), 'new ledger')}.")

    with_api(access, work)


@click.command()
@_name_argument
@_partition_argument
@click.option(
    "--before",
    "offset",
    type=click.IntRange(min=0),
    metavar="OFFSET",
    required=True,
    help="Drop the records below it.",
)
@admin_options
def trim(name: str, partition: int, offset: int, access: Access) -> None:
    """Drop the oldest records of a PARTITION of the topic NAME, for good.

    \b
    Example:
      quire topic trim orders 0 --before 1
    """

    async def work(api: AdminApi) -> None:
        path = f"/topics/{name}/partitions/{partition}/trim"
        await api.send("POST", path, {"before_offset": offset})
        say(f"{name}-{partition} begins at offset {offset} now.")

    with_api(access, work)


@click.command()
@_name_argument
@json_option
@admin_options
def compaction(name: str, as_json: bool, access: Access) -> None:
    """Show how clean the partitions of the compacted topic NAME are, and what they wait for.

    DIRTY is the share of bytes never compacted, of those that may be; NEXT DUE is when time alone
    makes a partition due. A partition that cannot be compacted says why.

    \b
    Example:
      quire topic compaction settings
    """

    async def work(api: AdminApi) -> None:
        about = await api.get(f"/topics/{name}")
        found = await compaction_of(api, name, about["partition_count"])
        if as_json:
            print_json(found)
        else:
            print_compaction(name, found)

    with_api(access, work)


@click.command()
@_name_argument
@json_option
@admin_options
def offload(name: str, as_json: bool, access: Access) -> None:
    """Show what the object store has of the topic NAME, and how far that is behind.

    STORED BELOW is the offset below which everything is in the store, LOCAL FROM the one below
    which bookies have nothing any more. A partition that fails says why.

    \b
    Example:
      quire topic offload orders
    """

    async def work(api: AdminApi) -> None:
        about = await api.get(f"/topics/{name}")
        found = [
            await api.get(f"/topics/{name}/partitions/{index}/offload")
            for index in range(about["partition_count"])
        ]
        if as_json:
            print_json(found)
            return
        print_table(
            ["PARTITION", "STATE", "LOG START", "LOCAL FROM", "STORED BELOW", "LAG BYTES",
             "BEHIND SINCE"],
            [
                [
                    row["partition"], row["state"], row["log_start_offset"], row["local_from"],
                    row["stored_until"], row["lag_bytes"],
                    "-" if row["lag_since_ms"] is None else f"{utc(row['lag_since_ms'])} UTC",
                ]
                for row in found
            ],
        )  # fmt: skip
        for row in found:
            if row["reason"]:
                say(f"{name}-{row['partition']} is failing: {row['reason']}")

    with_api(access, work)


@click.command()
@_name_argument
@click.argument("partition", type=click.IntRange(min=0), required=False)
@click.option("--roll", "rolls", is_flag=True, help="Seal the newest segment first.")
@admin_options
def compact(name: str, partition: int | None, rolls: bool, access: Access) -> None:
    """Compact the topic NAME, or one PARTITION of it, as soon as possible.

    The last two segments are never compacted. Answers at once: see `quire topic compaction NAME`.

    \b
    Example:
      quire topic compact settings 0
    """

    async def work(api: AdminApi) -> None:
        about = await api.get(f"/topics/{name}")
        chosen = range(about["partition_count"]) if partition is None else [partition]
        for index in chosen:
            path = f"/topics/{name}/partitions/{index}"
            if rolls:
                await api.send("POST", f"{path}/roll")
            await api.send("POST", f"{path}/compact")
        say(f"Topic {name} is compacted: {count(len(chosen), 'partition')}.")

    with_api(access, work)


COMMANDS = (
    alter, config, partitions, segments, move_leader, roll, trim, compaction, offload, compact,
)  # fmt: skip


async def compaction_of(api: AdminApi, name: str, partition_count: int) -> list[Row]:
    """Return what the admin API says of each partition. Raises AdminError."""
    return [
        await api.get(f"/topics/{name}/partitions/{index}/compaction")
        for index in range(partition_count)
    ]


def print_compaction(name: str, found: Sequence[Row]) -> None:
    """Print the table, and why partitions are stuck that are."""
    print_table(
        ["PARTITION", "STATE", "WHY", "DIRTY", "CLEAN BELOW", "LAST CLEAN", "NEXT DUE",
         "SAVED BYTES"],
        [
            [
                row["partition"], row["state"], row["why"] or "-",
                "-" if row["dirty_percent"] is None else f"{row['dirty_percent']} %",
                row["cleaned_until"], _when(row["cleaned_ms"], "never"), next_due(row),
                row["saved_bytes"],
            ]
            for row in found
        ],
    )  # fmt: skip
    for row in found:
        if row["reason"]:
            say(f"{name}-{row['partition']} is {row['state']}: {row['reason']}")


def next_due(row: Row) -> str:
    """Return when time alone will make a partition due; how dirty it gets is not foreseen."""
    if row["why"] is not None:
        return "now"
    times = [row[key] for key in ("overdue_ms", "tombstones_ms") if row[key] is not None]
    return _when(min(times), "") if times else "-"


def _when(at_ms: int | None, never: str) -> str:
    if at_ms is None:
        return never
    return f"{utc(at_ms)} UTC"
