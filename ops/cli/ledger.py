"""`quire ledger`: look at ledgers, straight from ZooKeeper and the bookies.

What changes them, and reading, is in `ledger_work.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import NamedTuple

import click

from client.errors import LedgerError, NoSuchLedger, QuireError
from client.ids import NO_ENTRY, BookieId, EntryId, LedgerId
from client.ledger.bookies.bookie_directory import BookieDirectory
from client.ledger.client import LedgerClient
from client.ledger.core.ledger_metadata import LedgerMetadata
from client.metadata import paths
from client.metadata.store import MetadataStore
from ops.amounts import count, size, utc
from ops.cli.console import json_option, print_json, print_table, run, say
from ops.cli.ledger_work import delete, ledger_argument, read, recover
from ops.cli.store import open_ledgers, open_store, zookeeper_option
from ops.ledger_map import LedgerPlace, find, places

_TAIL_TIMEOUT_S = 5.0


@click.group()
def ledger() -> None:
    """Look at the ledgers below the topics, and at any others.

    A topic partition is a list of ledgers: finite logs, each replicated over several bookies and
    immutable once closed. The last one of a partition is open: its leader writes to it.

    \b
    Example:
      quire ledger list
      quire ledger describe 7
    """


ledger.add_command(read)
ledger.add_command(recover)
ledger.add_command(delete)


@ledger.command(name="list")
@click.option("--topic", "topic_name", metavar="NAME", help="Only the ledgers of this topic.")
@click.option("--all", "is_all", is_flag=True, help="Also ledgers that belong to no topic.")
@json_option
@zookeeper_option
def list_ledgers(topic_name: str | None, is_all: bool, as_json: bool, hosts: str) -> None:
    """List the ledgers of all topics.

    \b
    Example:
      quire ledger list --topic orders
      quire ledger list --all
    """
    if is_all and topic_name is not None:
        raise click.UsageError("--all and --topic exclude each other")

    async def work() -> None:
        others: list[LedgerId] = []
        async with open_store(hosts) as store:
            found = [p async for p in places(store) if topic_name in (None, p.topic)]
            if is_all:
                others = await _others(store, {place.segment.ledger_id for place in found})
        if as_json:
            ours = [_place_as_json(place) for place in found]
            print_json([*ours, *({"ledger": ledger_id, "topic": None} for ledger_id in others)])
        elif found or others:
            print_table(
                ["LEDGER", "TOPIC", "PARTITION", "FIRST OFFSET", "LAST OFFSET", "EPOCH"],
                [
                    [
                        p.segment.ledger_id,
                        p.topic,
                        p.partition,
                        p.segment.base_offset,
                        p.segment.facts.last_offset if p.segment.facts else None,
                        p.segment.leader_epoch,
                    ]
                    for p in found
                ]
                + [[ledger_id, *[None] * 5] for ledger_id in others],
            )
        else:
            say("There are no ledgers. A topic's first one is created when a broker opens it.")

    run(work())


async def _others(store: MetadataStore, known: Collection[LedgerId]) -> list[LedgerId]:
    """Return the ledgers of the cluster that are not among the known ones."""
    async with open_ledgers(store) as client:
        return [ledger_id async for ledger_id in client.ledgers() if ledger_id not in known]


@ledger.command()
@ledger_argument
@json_option
@zookeeper_option
def describe(ledger_id: int, as_json: bool, hosts: str) -> None:
    """Show the ledger ID: its state, its copies, and the partition it belongs to.

    This disturbs nothing: an open ledger stays open for its writer, and its last entry is the
    last one that is confirmed now.

    \b
    Example:
      quire ledger describe 7
    """

    async def work() -> None:
        async with open_store(hosts) as store:
            description = await _describe(store, LedgerId(ledger_id))
        if as_json:
            print_json(_as_json(description))
        else:
            _print(description)

    run(work())


class _Description(NamedTuple):
    ledger_id: LedgerId
    metadata: LedgerMetadata
    last_entry: EntryId | None
    """Last confirmed entry; None if too few bookies could tell."""
    created_ms: int | None
    place: LedgerPlace | None
    bookies: dict[BookieId, str]
    """State of every bookie of its fragments: up, read-only or down."""


async def _describe(store: MetadataStore, ledger_id: LedgerId) -> _Description:
    async with open_ledgers(store) as ledgers:
        try:
            metadata = await ledgers.describe(ledger_id)
        except NoSuchLedger as error:
            raise QuireError(
                f"there is no ledger {ledger_id}: `quire ledger list` shows those of all topics"
            ) from error
        last_entry = await _last_entry(ledgers, ledger_id, metadata)
    directory = BookieDirectory(store, paths.LEDGERS_ROOT)
    await directory.start()
    directory.close()
    bookies = {
        bookie: _state(directory, bookie)
        for fragment in metadata.fragments
        for bookie in fragment.ensemble
    }
    # Few writers store the creation time; ZooKeeper always does.
    node = await store.exists(paths.ledger(ledger_id))
    created_ms = metadata.ctime_ms or (node.ctime_ms if node is not None else None)
    place = await find(store, ledger_id)
    return _Description(ledger_id, metadata, last_entry, created_ms, place, bookies)


async def _last_entry(
    ledgers: LedgerClient, ledger_id: LedgerId, metadata: LedgerMetadata
) -> EntryId | None:
    if metadata.is_closed:
        return metadata.last_entry
    try:
        async with asyncio.timeout(_TAIL_TIMEOUT_S):
            return (await ledgers.open(ledger_id, password=None)).last_entry
    except (LedgerError, TimeoutError):
        return None


def _state(directory: BookieDirectory, bookie: BookieId) -> str:
    if bookie in directory.writable:
        return "up"
    return "read-only" if bookie in directory.readonly else "down"


def _print(d: _Description) -> None:
    metadata = d.metadata
    print_table(
        ["LEDGER", str(d.ledger_id)],
        [
            ["state", metadata.state.name.replace("_", " ").lower()],
            ["entries", _entries(d)],
            ["belongs to", _belongs_to(d.place)],
            [
                "copies",
                f"{metadata.write_quorum} of each entry, {metadata.ack_quorum} safe before it "
                f"counts, over {count(metadata.ensemble_size, 'bookie')} at a time",
            ],
            ["digest", metadata.digest_type.name if metadata.digest_type else "unknown"],
            ["created", _created(d.created_ms)],
        ],
    )
    print()
    print_table(["FROM ENTRY", "TO ENTRY", "BOOKIES"], _fragment_rows(d))


def _entries(d: _Description) -> str:
    if d.last_entry is None:
        return "unknown: too few bookies answer"
    entries = count(d.last_entry + 1, "entry").replace("entrys", "entries")
    if d.metadata.is_closed:
        return f"{entries}, {size(d.metadata.length)}"
    return f"{entries} confirmed, as far as the bookies know"


def _belongs_to(place: LedgerPlace | None) -> str:
    if place is None:
        return "no topic"
    return (
        f"topic {place.topic}, partition {place.partition}, "
        f"segment {place.position + 1} of {place.segment_count}"
    )


def _created(created_ms: int | None) -> str:
    if created_ms is None:
        return "unknown"
    return f"{utc(created_ms)} UTC"


def _fragment_rows(d: _Description) -> list[list[object]]:
    rows: list[list[object]] = []
    for fragment, last_entry in zip(d.metadata.fragments, _last_entries(d), strict=True):
        bookies = (
            bookie if d.bookies[bookie] == "up" else f"{bookie} ({d.bookies[bookie]})"
            for bookie in fragment.ensemble
        )
        rows.append([fragment.first_entry, last_entry, ", ".join(bookies)])
    return rows


def _last_entries(d: _Description) -> Sequence[EntryId | None]:
    """Return where each fragment ends; None where nothing is known or there is no entry."""
    fragments = d.metadata.fragments
    ends: list[EntryId | None] = [EntryId(f.first_entry - 1) for f in fragments[1:]]
    last = d.last_entry
    return [*ends, None if last is None or last < fragments[-1].first_entry else last]


def _as_json(d: _Description) -> dict[str, object]:
    metadata = d.metadata
    return {
        "ledger": d.ledger_id,
        "state": metadata.state.name,
        "last_entry": d.last_entry if d.last_entry != NO_ENTRY else None,
        "length": metadata.length if metadata.is_closed else None,
        "ensemble_size": metadata.ensemble_size,
        "write_quorum": metadata.write_quorum,
        "ack_quorum": metadata.ack_quorum,
        "digest": metadata.digest_type.name if metadata.digest_type else None,
        "created_ms": d.created_ms,
        "fragments": [
            {"first_entry": f.first_entry, "last_entry": last, "bookies": list(f.ensemble)}
            for f, last in zip(metadata.fragments, _last_entries(d), strict=True)
        ],
        "bookies": dict(d.bookies),
        "partition": None if d.place is None else _place_as_json(d.place),
    }


def _place_as_json(place: LedgerPlace) -> dict[str, object]:
    segment = place.segment
    return {
        "ledger": segment.ledger_id,
        "topic": place.topic,
        "partition": place.partition,
        "segment": place.position,
        "base_offset": segment.base_offset,
        "last_offset": segment.facts.last_offset if segment.facts else None,
        "leader_epoch": segment.leader_epoch,
    }
