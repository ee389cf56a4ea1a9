"""`quire consume`: print the records of a topic, a line per record."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import Sequence
from typing import Literal

import click

from client.errors import QuireError
from client.pubsub import Record, Subscriber, TopicAdmin
from client.pubsub.brokers import Brokers
from client.pubsub.errors import TopicNotFound
from client.pubsub.subscriber import BATCH_RECORDS_MAX
from ops.amounts import count
from ops.cli import lines
from ops.cli.addresses import bootstrap_option
from ops.cli.console import is_interactive, run, say

_POLL_MS = 500


@click.command()
@click.argument("topic")
@click.option(
    "--from-beginning",
    is_flag=True,
    help="Start with the oldest record. [default: only new records]",
)
@click.option(
    "--group",
    metavar="NAME",
    help="Read as a member of this group: its members share the partitions, and the next run "
    "goes on where the group has stopped.",
)
@click.option(
    "--partition",
    type=click.IntRange(min=0),
    metavar="N",
    help="Read this partition only; not with --group. `quire record peek` shows single records,"
    " by the HTTP API.",
)
@click.option(
    "--offset",
    type=click.IntRange(min=0),
    metavar="N",
    help="Begin at this offset of the --partition.",
)
@click.option(
    "--isolation-level",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted",
    show_default=True,
    help="With read_committed, leave out what aborted transactions wrote, and wait for open ones.",
)
@click.option(
    "--max",
    "record_count_max",
    type=click.IntRange(min=1),
    metavar="N",
    help="Stop after this many records.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop when no record has come for this long. [default: wait for ever]",
)
@click.option(
    "--key-separator",
    metavar="TEXT",
    help=r"Print the key, this text, and then the value; \t is a tab.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print a JSON object per record, with key, value, headers, partition and offset.",
)
@bootstrap_option
def consume(
    topic: str,
    from_beginning: bool,
    group: str | None,
    partition: int | None,
    offset: int | None,
    isolation_level: Literal["read_uncommitted", "read_committed"],
    record_count_max: int | None,
    timeout_s: float | None,
    key_separator: str | None,
    as_json: bool,
    bootstrap_servers: Brokers,
) -> None:
    """Print the records of TOPIC, a line per record, until Ctrl-C.

    With --group a record counts as read when it is printed, so each is printed at least once.
    --from-beginning then matters only the first time, before the group has a position. If --max
    is given and fewer records come before the --timeout, the exit code is 1.

    \b
    Examples:
      quire consume greetings --from-beginning
      quire consume users --from-beginning --group audit --max 10
      quire consume orders --partition 0 --offset 12
    """

    async def work() -> None:
        separator = None if key_separator is None else lines.separator(key_separator)
        if partition is None and offset is not None:
            raise click.UsageError("--offset needs --partition")
        if partition is not None and group is not None:
            raise click.UsageError("--partition and --group exclude each other")
        await _must_exist(topic, bootstrap_servers, partition or 0)
        subscriber = Subscriber(
            topic,
            bootstrap_servers=bootstrap_servers,
            group=group,
            isolation_level=isolation_level,
            start="earliest" if from_beginning else "latest",
            client_id="quire-consume",
            partition=partition,
            offset=offset,
        )
        if is_interactive() and not from_beginning and offset is None:
            say(
                f"Waiting for new records of {topic}; --from-beginning shows the earlier ones, "
                "Ctrl-C stops."
            )
        async with subscriber:
            printer = _Printer(separator, as_json)
            await _print_records(subscriber, printer, group, record_count_max, timeout_s)
        say(f"Read {count(printer.record_count, 'record')}.")
        if record_count_max is not None and printer.record_count < record_count_max:
            raise QuireError(
                f"only {printer.record_count:,} of {record_count_max:,} records came "
                f"within {timeout_s:g} s of each other"
            )

    run(work())


async def _must_exist(topic: str, bootstrap_servers: Brokers, partition: int) -> None:
    # Subscribing to a misspelled name would create that topic.
    async with TopicAdmin(bootstrap_servers) as topics:
        counts = {one.name: one.partition_count for one in await topics.listings()}
    if topic not in counts:
        raise TopicNotFound(f"there is no topic {topic}")
    if partition >= counts[topic]:
        raise TopicNotFound(f"topic {topic} has partitions 0 to {counts[topic] - 1}")


class _Printer:
    """Writes records to stdout, whole lines at a time."""

    def __init__(self, key_separator: bytes | None, as_json: bool) -> None:
        self._key_separator = key_separator
        self._as_json = as_json
        self.record_count = 0

    def print(self, records: Sequence[Record]) -> None:
        """Write records and flush, so that a reader of our output sees them at once."""
        out = sys.stdout.buffer
        if self._as_json:
            out.writelines(_json_line(record) for record in records)
        else:
            separator = self._key_separator
            out.writelines(lines.to_line(r.key, r.value, separator) for r in records)
        out.flush()
        self.record_count += len(records)


async def _print_records(
    subscriber: Subscriber,
    printer: _Printer,
    group: str | None,
    record_count_max: int | None,
    timeout_s: float | None,
) -> None:
    loop = asyncio.get_running_loop()
    deadline_s = None if timeout_s is None else loop.time() + timeout_s
    while record_count_max is None or printer.record_count < record_count_max:
        wait_ms = _POLL_MS
        if deadline_s is not None:
            wait_ms = min(wait_ms, round((deadline_s - loop.time()) * 1000))
            if wait_ms <= 0:
                return
        wanted = BATCH_RECORDS_MAX
        if record_count_max is not None:
            wanted = min(wanted, record_count_max - printer.record_count)
        records = await subscriber.next_batch(timeout_ms=wait_ms, records_max=wanted)
        if not records:
            continue
        printer.print(records)
        if group is not None:
            await subscriber.commit()
        if timeout_s is not None:
            deadline_s = loop.time() + timeout_s


def _json_line(record: Record) -> bytes:
    value = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": _json_bytes(record.key),
        "value": _json_bytes(record.value),
        "headers": [[name, _json_bytes(content)] for name, content in record.headers],
    }
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"


def _json_bytes(content: bytes | None) -> object:
    """Return text as a string, other bytes as {"base64": ...}, absent bytes as null."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}
