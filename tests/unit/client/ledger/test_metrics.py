"""What a ledger client counts while ledgers are written, read and recovered."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from client.errors import LedgerError, LedgerFenced
from client.ids import BookieId, EntryId
from client.ledger.client import LedgerClient
from client.ledger.config import LedgerClientConfig
from client.ledger.metrics import APPEND_SECONDS, ROWS, provide_ledgers
from client.node.exposition import Exposition, table
from client.wire.bookkeeper.messages import AddRequest, ReadRequest, Request
from tests.fakes.bookies import Fate
from tests.fakes.ledger_cluster import LedgerCluster, Outcomes, settle
from tests.fakes.scrape import parse

QUICK = LedgerClientConfig(
    metadata_retry_delay_ms=0, speculative_read_ms=1, explicit_lac_interval_ms=1
)


class Scraped:
    """A client and what a scrape of it says."""

    def __init__(self, client: LedgerClient) -> None:
        self.client = client
        self._made = Exposition(table(ROWS))
        provide_ledgers(self._made, client.stats, lambda: len(client.writable_bookies))

    def __getitem__(self, name: str) -> float:
        return parse(self._made.exposition())[f"quire_ledger_{name}"]

    def text(self) -> bytes:
        return self._made.exposition()


def hold_adds(request: Request) -> Fate:
    return Fate.HOLD_REQUEST if isinstance(request, AddRequest) else Fate.DELIVER


async def test_adds_are_unconfirmed_until_their_ack_quorum_stored_them() -> None:
    cluster = await LedgerCluster.start("b0", "b1", "b2", "b3")
    scraped = Scraped(await cluster.client())
    writer = await scraped.client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    outcomes = Outcomes(writer)
    slow = [cluster.bookies[name] for name in writer.metadata.last_fragment.ensemble[:2]]
    for bookie in slow:
        bookie.fate_of = hold_adds
    for _ in range(3):
        outcomes.add()
    await settle()
    assert (scraped["created_total"], scraped["writers"], scraped["bookies"]) == (1, 1, 4)
    assert (scraped["unconfirmed_entries"], scraped["confirmed_entries_total"]) == (3, 0)
    assert scraped["unanswered_bytes"] == writer.progress.in_flight_bytes > 0
    slow[0].crash()
    await settle()
    await writer.close()
    assert scraped["unanswered_bytes"] == 0
    assert scraped["confirmed_entries_total"] == 3
    assert (scraped["unconfirmed_entries"], scraped["writers"]) == (0, 0)
    assert scraped["writer_failures_total"] == 0
    assert scraped["ensemble_changes_total"] == 1


async def test_a_fenced_writer_fails_and_its_ledger_is_recovered() -> None:
    cluster = await LedgerCluster.start("b0", "b1", "b2")
    old, new = Scraped(await cluster.client()), Scraped(await cluster.client())
    writer = await old.client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    outcomes = Outcomes(writer)
    outcomes.add()
    await settle()
    await new.client.recover(writer.ledger_id)
    assert new["recovered_total"] == new["recovery_seconds_count"] == 1
    assert new["recovery_failures_total"] == 0
    outcomes.add()
    await settle()
    assert isinstance(outcomes.told[-1][1], LedgerFenced)
    assert (old["writer_failures_total"], old["writers"]) == (1, 0)
    assert (old["unconfirmed_entries"], old["confirmed_entries_total"]) == (0, 1)


async def test_reads_are_timed_and_further_replicas_counted() -> None:
    cluster = await LedgerCluster.start("b0", "b1", "b2")
    scraped = Scraped(await cluster.client(QUICK))
    writer = await scraped.client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    for _ in range(3):
        await writer.append(b"x")
    await writer.close()
    reader = await scraped.client.open(writer.ledger_id)
    await reader.read(EntryId(0), EntryId(2))
    assert (scraped["read_entries_total"], scraped["read_seconds_count"]) == (3, 1)
    assert scraped["speculative_reads_total"] == scraped["read_retries_total"] == 0

    def fate_of_reads(fate: Fate) -> Callable[[Request], Fate]:
        return lambda request: fate if isinstance(request, ReadRequest) else Fate.DELIVER

    first = cluster.bookies[writer.metadata.last_fragment.ensemble[0]]
    first.fate_of = fate_of_reads(Fate.HOLD_REQUEST)
    await reader.read(EntryId(0), EntryId(0))
    assert (scraped["speculative_reads_total"], scraped["read_retries_total"]) == (1, 0)
    other = cluster.bookies[writer.metadata.last_fragment.ensemble[1]]
    other.fate_of = first.fate_of
    first.crash()
    other.crash()
    await reader.read(EntryId(0), EntryId(0))
    assert scraped["read_failures_total"] == 0
    cluster.bookies[writer.metadata.last_fragment.ensemble[2]].crash()
    with pytest.raises(LedgerError):
        await reader.read(EntryId(0), EntryId(0))
    assert scraped["read_retries_total"] >= 2
    assert scraped["read_failures_total"] == 1


async def test_every_row_is_shown() -> None:
    cluster = await LedgerCluster.start("b0", "b1", "b2")
    scraped = Scraped(await cluster.client())
    scraped.client.stats.bookie(BookieId("b0")).errors = 1
    shown = {
        re.sub(r"(_total|_bucket|_sum|_count)$", "", name.partition("{")[0])
        for name in parse(scraped.text())
    }
    assert shown == {row.name for row in ROWS} - {APPEND_SECONDS}
