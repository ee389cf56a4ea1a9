"""`quire ledger read`, `recover`, `delete`: ledgers themselves, whoever they belong to."""

from __future__ import annotations

import base64
from typing import Any

import click

from client.errors import LogCorrupt, NoSuchLedger, QuireError
from client.ids import LedgerId
from client.ledger.client import LedgerClient
from client.log.entry_format import batch_headers, is_internal, open_internal
from client.metadata.store import MetadataStore
from client.wire.bookkeeper.entry import Entry
from client.wire.bookkeeper.messages import Buffer
from ops.amounts import count, size
from ops.cli.console import json_option, print_json, print_table, run, say
from ops.cli.store import open_ledgers, open_store, zookeeper_option
from ops.ledger_map import find

_SHOWN_BYTES = 32

ledger_argument = click.argument("ledger_id", metavar="ID", type=click.IntRange(min=0))


@click.command()
@ledger_argument
@click.option("--from", "first", type=click.IntRange(min=0), default=0, help="First entry.")
@click.option("--to", "last", type=click.IntRange(min=0), help="Last entry at most.")
@json_option
@zookeeper_option
def read(ledger_id: int, first: int, last: int | None, as_json: bool, hosts: str) -> None:
    """Read entries of the ledger ID and verify their digests.

    This disturbs nothing: an open ledger stays open for its writer, and is read as far as it
    is confirmed. With --json each entry is a line, its payload in base64.

    \b
    Example:
      quire ledger read 7 --to 9
    """

    async def work() -> None:
        async with open_store(hosts) as store, open_ledgers(store) as client:
            try:
                reader = await client.open(ledger_id, password=None)
            except NoSuchLedger as error:
                raise _unknown(ledger_id) from error
            end = reader.last_entry
            if first > max(end, 0):
                raise QuireError(f"ledger {ledger_id} ends at entry {end}")
            rows: list[list[object]] = []
            async for entry in reader.entries(first, end if last is None else min(last, end)):
                if as_json:
                    print_json(_entry_as_json(entry))
                else:
                    payload = entry.payload
                    rows.append([entry.entry_id, entry.lac, len(payload), summary(payload)])
        if end < 0:
            say(f"Ledger {ledger_id} has no confirmed entry.")
        elif not as_json:
            print_table(["ENTRY", "CONFIRMED BEFORE", "BYTES", "CONTENT"], rows)

    run(work())


@click.command()
@ledger_argument
@json_option
@zookeeper_option
def recover(ledger_id: int, as_json: bool, hosts: str) -> None:
    """Recover the ledger ID: fence its writer, determine its last entry and close it.

    A broker that writes to it goes on in a new ledger. Nothing that was acknowledged is lost.

    \b
    Example:
      quire ledger recover 7
    """

    async def work() -> None:
        async with open_store(hosts) as store, open_ledgers(store) as client:
            try:
                was_closed = (await client.describe(ledger_id)).is_closed
                reader = await client.recover(ledger_id, password=None)
            except NoSuchLedger as error:
                raise _unknown(ledger_id) from error
        metadata = reader.metadata
        if as_json:
            print_json(
                {
                    "ledger": ledger_id,
                    "was_closed": was_closed,
                    "last_entry": None if metadata.last_entry < 0 else metadata.last_entry,
                    "length": metadata.length,
                }
            )
            return
        entries = f"{metadata.last_entry + 1:,} entries, {size(metadata.length)}"
        how = "was closed already" if was_closed else "is closed"
        say(f"Ledger {ledger_id} {how}: {entries}.")

    run(work())


@click.command()
@ledger_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Delete it although a topic needs it.")
@json_option
@zookeeper_option
def delete(ledger_id: int, yes: bool, force: bool, as_json: bool, hosts: str) -> None:
    """Delete the ledger ID with all its entries. This cannot be undone.

    Ledgers of topics are deleted by retention, or with their topic; this is for ledgers that
    belong to nothing. Bookies reclaim the space within minutes.

    \b
    Example:
      quire ledger delete 7 --yes
    """

    async def work() -> None:
        async with open_store(hosts) as store, open_ledgers(store) as client:
            await _check_unneeded(store, client, ledger_id, force)
            if not yes:
                click.confirm(f"Delete ledger {ledger_id} for good?", abort=True, err=True)
            await client.delete(ledger_id)
        if as_json:
            print_json({"ledger": ledger_id, "deleted": True})
        else:
            say(f"Ledger {ledger_id} is deleted.")

    run(work())


async def _check_unneeded(
    store: MetadataStore, client: LedgerClient, ledger_id: int, force: bool
) -> None:
    try:
        await client.describe(ledger_id)
    except NoSuchLedger as error:
        raise _unknown(ledger_id) from error
    place = await find(store, LedgerId(ledger_id))
    if place is not None and not force:
        raise QuireError(
            f"ledger {ledger_id} is a part of topic {place.topic}, partition {place.partition}:"
            " its records would be lost. `quire topic delete` deletes a topic; --force deletes"
            " this ledger all the same"
        )


def _unknown(ledger_id: int) -> QuireError:
    return QuireError(
        f"there is no ledger {ledger_id}: `quire ledger list --all` shows those there are"
    )


def summary(payload: Buffer) -> str:
    """Say in a few words what a payload is."""
    try:
        if is_internal(payload):
            return f"internal, the log ends at offset {open_internal(payload).log_end_offset}"
        found = [header for _, header in batch_headers(payload)]
    except LogCorrupt:
        begin = bytes(payload[:_SHOWN_BYTES])
        return repr(begin)[2:-1] + ("..." if len(payload) > _SHOWN_BYTES else "")
    first, last = found[0].base_offset, found[-1].next_offset - 1
    records = count(sum(header.record_count for header in found), "record")
    return f"offsets {first} to {last}, {records}"


def _entry_as_json(entry: Entry) -> dict[str, Any]:
    return {
        "entry": entry.entry_id,
        "last_add_confirmed": entry.lac,
        "length": entry.length,
        "payload": base64.b64encode(entry.payload).decode(),
    }
