"""`quire record`: look at single records and publish single ones, through the admin API.

`quire produce` and `quire consume` are for streams; these commands show where a record lies.
"""

from __future__ import annotations

import sys
from operator import itemgetter
from typing import Any

import click

from ops.admin_api import Access, AdminApi
from ops.amounts import utc
from ops.cli.admin import admin_options, complete_topics, with_api
from ops.cli.console import json_option, print_json, print_table, say
from ops.cli.options import place_of

_VALUE_CHARS_MAX = 60

_topic_argument = click.argument("topic", shell_complete=complete_topics)
_partition_argument = click.argument("partition", type=click.IntRange(min=0))


@click.group()
def record() -> None:
    """Look at single records, and publish single ones.

    \b
    Examples:
      quire record publish orders "three pears" --key anna
      quire record peek orders 0
    """


@record.command()
@_topic_argument
@_partition_argument
@click.option("--offset", type=click.IntRange(min=0), metavar="N", help="Start there.")
@click.option("--last", type=click.IntRange(1, 1_000), metavar="N", help="The last N instead.")
@click.option(
    "--max",
    "limit",
    type=click.IntRange(1, 1_000),
    metavar="N",
    default=20,
    show_default=True,
    help="Show at most this many.",
)
@json_option
@admin_options
def peek(
    topic: str,
    partition: int,
    offset: int | None,
    last: int | None,
    limit: int,
    as_json: bool,
    access: Access,
) -> None:
    """Show records of one PARTITION of TOPIC, with their offsets, without touching any group.

    \b
    Examples:
      quire record peek orders 0
      quire record peek orders 0 --last 5
    """
    if offset is not None and last is not None:
        raise click.UsageError("give --offset or --last, not both")

    async def work(api: AdminApi) -> None:
        found = await api.get(
            f"/topics/{topic}/partitions/{partition}/records",
            offset=offset,
            last=last,
            limit=max(limit, last or 0),
        )
        if as_json:
            print_json(found)
            return
        rows: list[list[object]] = [
            [row["offset"], _time(row["timestamp_ms"]), _cut(row["key"]), _cut(row["value"])]
            for row in found["records"]
        ]
        rows += [
            [row["offset"], None, None, f"cannot be read: {row['reason']}"]
            for row in found["unreadable"]
        ]
        print_table(["OFFSET", "TIME", "KEY", "VALUE"], sorted(rows, key=itemgetter(0)))
        for row in found["unreadable"]:
            say(
                f"The batch of offsets {row['offset']} to {row['next_offset'] - 1} cannot be read:"
                f" a consumer that stops there goes on at {row['next_offset']}."
            )
        say(
            f"Offsets {found['log_start_offset']} to {found['high_watermark']} are there;"
            f" the next one to look at is {found['next_offset']}."
        )

    with_api(access, work)


def _time(timestamp_ms: int) -> str | None:
    if timestamp_ms < 0:
        return None
    moment = utc(timestamp_ms, milliseconds=True)
    return moment if moment.endswith("ms") else f"{moment}Z"


def _cut(text: str | None) -> str | None:
    if text is None or len(text) <= _VALUE_CHARS_MAX:
        return None if text is None else text.replace("\n", "\\n")
    return f"{text[:_VALUE_CHARS_MAX]}... ({len(text)} characters)".replace("\n", "\\n")


@record.command()
@_topic_argument
@_partition_argument
@click.argument("offset", type=click.IntRange(min=0))
@admin_options
def fetch(topic: str, partition: int, offset: int, access: Access) -> None:
    """Write the value of one record to stdout, byte for byte.

    \b
    Example:
      quire record fetch orders 0 0
    """

    async def work(api: AdminApi) -> None:
        value = await api.send(
            "GET",
            f"/topics/{topic}/partitions/{partition}/records/{offset}",
            accept="application/octet-stream",
        )
        if value is None:
            say("The record has no value.")
        else:
            sys.stdout.buffer.write(value)

    with_api(access, work)


@record.command()
@_topic_argument
@_partition_argument
@click.option(
    "--at",
    metavar="PLACE",
    required=True,
    help="earliest, latest, or a time like 2026-03-01T12:00:00+01:00.",
)
@json_option
@admin_options
def find(topic: str, partition: int, at: str, as_json: bool, access: Access) -> None:
    """Say which offset of a PARTITION of TOPIC is at a place, or is the first from a time on.

    \b
    Examples:
      quire record find orders 0 --at latest
      quire record find orders 0 --at 2026-03-01T12:00:00+01:00
    """
    place = place_of(at, "--at")
    if "offset" in place:
        raise click.BadParameter("an offset is what this command finds", param_hint="--at")

    async def work(api: AdminApi) -> None:
        found = await api.get(
            f"/topics/{topic}/partitions/{partition}/offset",
            at=place["to"],
            timestamp_ms=place.get("timestamp_ms"),
        )
        if as_json:
            print_json(found)
        else:
            print(found["offset"])

    with_api(access, work)


@record.command()
@_topic_argument
@click.argument("value")
@click.option("--key", metavar="TEXT", help="Records with the same key go to the same partition.")
@click.option(
    "--partition", type=click.IntRange(min=0), metavar="N", help="[default: that of the key]"
)
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="A header; repeat as needed.",
)
@json_option
@admin_options
def publish(
    topic: str,
    value: str,
    key: str | None,
    partition: int | None,
    headers: tuple[str, ...],
    as_json: bool,
    access: Access,
) -> None:
    """Publish one record with the text VALUE, and say where it is.

    \b
    Example:
      quire record publish orders "three pears" --key anna
    """
    body: dict[str, Any] = {"value": value}
    if key is not None:
        body["key"] = key
    if headers:
        body["headers"] = [_header(text) for text in headers]
    at = f"/topics/{topic}" if partition is None else f"/topics/{topic}/partitions/{partition}"

    async def work(api: AdminApi) -> None:
        (stored,) = (await api.send("POST", f"{at}/records", {"records": [body]}))["records"]
        if as_json:
            print_json(stored)
        else:
            print(f"Stored in {topic}-{stored['partition']} at offset {stored['offset']}.")

    with_api(access, work)


def _header(text: str) -> dict[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--header")
    return {"name": name, "value": value}
