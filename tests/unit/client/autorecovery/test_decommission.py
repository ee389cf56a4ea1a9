"""A decommission goes by what the metadata store has now, not by what a server still shows."""

from __future__ import annotations

import random

import pytest

from client.autorecovery.decommission import Decommission
from client.autorecovery.fragment_replicator import FragmentReplicator
from client.autorecovery.tree import ReplicationTree
from client.errors import IncorrectParameter
from client.ids import BookieId, EntryId, LedgerId
from client.ledger.client import LedgerClient
from client.ledger.core import metadata_codec
from client.ledger.core.ledger_metadata import Fragment, LedgerMetadata
from client.metadata import paths
from client.metadata.bookkeeper import init_bookkeeper
from client.metadata.memory import MemoryCluster
from tests.fakes.clock import FakeClock

ROOT = paths.LEDGERS_ROOT
LOST, OTHER = BookieId("lost:1"), BookieId("other:1")
LEDGER = LedgerId(7)


def naming(bookie: BookieId) -> bytes:
    metadata = LedgerMetadata(
        ensemble_size=1, write_quorum=1, ack_quorum=1, fragments=(Fragment(EntryId(0), (bookie,)),)
    )
    return metadata_codec.encode(metadata)


class Departing:
    """A bookie that has stopped, and an operator whose server lags."""

    def __init__(self) -> None:
        self.cluster = MemoryCluster()
        self.newest, self.lagging = self.cluster.session(), self.cluster.session()

    async def begin(self) -> Decommission:
        await init_bookkeeper(self.newest, rng=random.Random(1))
        tree = ReplicationTree(self.lagging, BookieId("operator"), ROOT)
        await tree.prepare()
        await self.newest.create(paths.cookie(LOST), b"", make_parents=True)
        await self.newest.create(paths.available_bookie(OTHER), b"", make_parents=True)
        client = LedgerClient(self.lagging, rng=random.Random(1), clock=FakeClock())
        return Decommission(self.lagging, tree, client, LOST, ROOT)


async def test_a_ledger_that_a_lagging_server_does_not_show_keeps_the_cookie() -> None:
    departing = Departing()
    departure = await departing.begin()
    cluster = departing.cluster
    waited: list[int] = []
    trigger = departure._tree.switches.trigger

    async def trigger_and_lag() -> None:
        await trigger()
        cluster.freeze(departing.lagging)
        await departing.newest.create(paths.ledger(LEDGER), naming(LOST), make_parents=True)

    departure._tree.switches.trigger = trigger_and_lag  # type: ignore[method-assign]

    def on_waiting(left: int) -> None:
        waited.append(left)
        cluster.tree.set(paths.ledger(LEDGER), naming(OTHER), -1)

    await departure.decommission(0.0, on_waiting)
    assert waited == [1]
    assert await departing.newest.exists(paths.cookie(LOST)) is None


async def test_a_bookie_that_a_lagging_server_does_not_show_runs() -> None:
    departing = Departing()
    departure = await departing.begin()
    departing.cluster.freeze(departing.lagging)
    await departing.newest.create(paths.available_bookie(LOST), b"", make_parents=True)
    with pytest.raises(IncorrectParameter, match="is running"):
        await departure.recover(FragmentReplicator(departure._client, batch_entries=1))
