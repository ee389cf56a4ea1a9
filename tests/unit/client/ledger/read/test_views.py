"""Views of a ledger's metadata that are kept: who refreshes them, and what never goes back."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import pytest

from client.errors import LedgerError
from client.ids import BookieId, EntryId, LedgerId
from client.ledger.client import LedgerClient
from client.ledger.config import LedgerClientConfig
from client.ledger.read.reader import LedgerReader
from client.ledger.write.writer import LedgerWriter
from client.metadata.memory import Fault, Operation
from tests.fakes.ledger_cluster import LedgerCluster, settle

QUORUMS = {"ensemble_size": 3, "write_quorum": 3, "ack_quorum": 2}
ENTRIES = [b"entry %d" % number for number in range(4)]


async def written(names: str = "abcdef") -> tuple[LedgerCluster, LedgerClient, LedgerWriter]:
    cluster = await LedgerCluster.start(*names)
    client = await cluster.client(LedgerClientConfig(metadata_retry_delay_ms=0))
    writer = await client.create(**QUORUMS)
    for payload in ENTRIES:
        await writer.append(payload)
    await settle()
    return cluster, client, writer


def move(cluster: LedgerCluster, ledger_id: LedgerId, first_entry: int = 0) -> None:
    """Do what auto recovery does after all members of a fragment were decommissioned."""
    metadata = cluster.stored_metadata(ledger_id)
    old = metadata.fragment_of(EntryId(first_entry)).ensemble
    new = [name for name in cluster.bookies.writable if name not in old][: len(old)]
    for before, after in zip(old, new, strict=True):
        cluster.bookies[after].ledgers = dict(cluster.bookies[before].ledgers)
        cluster.bookies[before].wipe()
    cluster.store_metadata(ledger_id, metadata.with_members(EntryId(first_entry), new))


async def read_all(reader: LedgerReader) -> Sequence[bytes]:
    return [bytes(entry.payload) for entry in await reader.read(0, len(ENTRIES) - 1)]


async def test_a_writers_reader_follows_copies_that_were_moved_after_the_close() -> None:
    cluster, _, writer = await written()
    reader = writer.reader()
    await writer.close()
    move(cluster, writer.ledger_id)
    assert await read_all(reader) == ENTRIES
    assert reader.metadata == cluster.stored_metadata(writer.ledger_id)
    move(cluster, writer.ledger_id)
    assert await read_all(reader) == ENTRIES, "again and again"


async def test_a_writers_reader_follows_an_earlier_fragment_of_its_open_ledger() -> None:
    cluster, _, writer = await written("abcdefghi")
    reader, ledger_id = writer.reader(), writer.ledger_id
    cluster.bookies[writer.metadata.last_fragment.ensemble[0]].crash()
    await writer.append(b"another")
    await writer.append(b"a third")  # with this one the bookie that failed is replaced
    metadata = cluster.stored_metadata(ledger_id)
    old, now = (fragment.ensemble for fragment in metadata.fragments)
    spare = [name for name in map(BookieId, "abcdefghi") if name not in {*old, *now}][:3]
    for name in spare:
        cluster.bookies[name].ledgers = {
            ledger_id: copy.deepcopy(cluster.bookies[old[1]].ledgers[ledger_id])
        }
    cluster.store_metadata(ledger_id, metadata.with_members(EntryId(0), spare))
    for name in old[1:]:
        entries = cluster.bookies[name].ledgers[ledger_id].entries
        for entry_id in range(metadata.last_fragment.first_entry):
            del entries[EntryId(entry_id)]
    assert await read_all(reader) == ENTRIES
    assert writer.metadata.last_fragment.ensemble == now
    assert await writer.append(b"one more") == 6
    await writer.close()
    assert reader.metadata == cluster.stored_metadata(ledger_id)


async def test_what_the_writer_wrote_since_is_newer_than_what_was_found() -> None:
    cluster, _, writer = await written("abcdefg")
    reader = writer.reader()
    for name in list(writer.metadata.last_fragment.ensemble):
        cluster.bookies[name].wipe()
    with pytest.raises(LedgerError):
        await read_all(reader)  # nobody has them, and the metadata is as before
    cluster.bookies[writer.metadata.last_fragment.ensemble[0]].crash()
    await writer.append(b"another")
    await writer.append(b"a third")
    assert len(writer.metadata.fragments) == 2
    assert reader.metadata == writer.metadata == cluster.stored_metadata(writer.ledger_id)


async def test_an_end_that_was_found_is_kept_although_it_is_not_stored_yet() -> None:
    cluster, _, writer = await written()
    client = await cluster.client()
    found = await client.recoveries.find_end(writer.ledger_id)
    members = writer.metadata.last_fragment.ensemble
    kept = {name: cluster.bookies[name].ledgers for name in members}
    for name in members:
        cluster.bookies[name].ledgers = {}
    with pytest.raises(LedgerError):
        await read_all(found.reader)
    assert (found.reader.closed, found.reader.last_entry) == (True, 3)
    for name, ledgers in kept.items():
        cluster.bookies[name].ledgers = ledgers
    assert await read_all(found.reader) == ENTRIES
    assert found.close is not None
    await client.requests.multi([found.close])


async def test_while_the_metadata_store_is_away_the_verdict_on_the_bookies_stands() -> None:
    cluster, client, writer = await written()
    await writer.close()
    readers = writer.reader(), await client.open(writer.ledger_id)
    for name in writer.metadata.last_fragment.ensemble:
        cluster.bookies[name].wipe()

    def lose(_operation: Operation) -> Fault:
        return Fault.LOSE_REQUEST

    cluster.metadata.on_request = lose
    for reader in readers:
        with pytest.raises(LedgerError):
            await read_all(reader)
