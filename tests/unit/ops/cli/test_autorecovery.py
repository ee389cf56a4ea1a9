"""`quire autorecovery` and `quire bookie` on metadata in memory: what they write and say."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from click.testing import CliRunner, Result

from client.ids import BookieId, LedgerId
from client.ledger.under_replication import mark_under_replicated
from client.metadata import paths
from client.metadata.bookkeeper import init_bookkeeper
from client.metadata.memory import MemoryCluster
from client.metadata.store import MetadataStore
from ops.cli import autorecovery, bookie, bookie_departure
from ops.cli.main import quire
from tests.fakes.clock import rng

Invoke = Callable[..., Result]


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Run a command on one and the same tree."""
    cluster = MemoryCluster()

    @asynccontextmanager
    async def open_store(hosts: str) -> AsyncIterator[MetadataStore]:
        store = cluster.session()
        await init_bookkeeper(store, rng=rng())
        yield store
        await store.close()

    for module in (autorecovery, bookie, bookie_departure):
        monkeypatch.setattr(module, "open_store", open_store)

    def invoke(*words: str) -> Result:
        return CliRunner().invoke(quire, list(words))

    return invoke


def status(invoke: Invoke) -> dict[str, object]:
    result = invoke("autorecovery", "status", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert isinstance(found, dict)
    return found


def test_the_switch_is_the_clusters(invoke: Invoke) -> None:
    assert status(invoke)["enabled"] is True
    assert invoke("autorecovery", "disable").exit_code == 0
    assert status(invoke)["enabled"] is False
    assert "is off" in invoke("autorecovery", "status").output
    assert invoke("autorecovery", "enable").exit_code == 0
    assert status(invoke)["enabled"] is True


def test_triggering_writes_the_delay(invoke: Invoke) -> None:
    assert status(invoke)["lost_bookie_delay_s"] is None
    assert invoke("autorecovery", "trigger").exit_code == 0
    assert status(invoke)["lost_bookie_delay_s"] == 0.0


async def marked(store: MetadataStore) -> None:
    await mark_under_replicated(store, LedgerId(7), [BookieId("a:1")])
    await store.create(paths.replication_lock(LedgerId(7)), b'bookieId: "w:1"\n', make_parents=True)


def test_marked_ledgers_are_shown_with_who_works_on_them(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = autorecovery.open_store

    @asynccontextmanager
    async def with_mark(hosts: str) -> AsyncIterator[MetadataStore]:
        async with opened(hosts) as store:
            if await store.exists(paths.replication_lock(LedgerId(7))) is None:
                await marked(store)
            yield store

    monkeypatch.setattr(autorecovery, "open_store", with_mark)
    assert status(invoke)["ledgers"] == [{"ledger": 7, "lacking": ["a:1"], "worker": "w:1"}]
    assert "w:1" in invoke("autorecovery", "status").output


def test_a_bookie_nobody_knows_cannot_be_decommissioned(invoke: Invoke) -> None:
    result = invoke("bookie", "decommission", "ghost:1")
    assert result.exit_code == 1
    assert "cookie" in result.output


def test_recovering_a_bookie_without_ledgers_is_done_at_once(invoke: Invoke) -> None:
    result = invoke("bookie", "recover", "ghost:1")
    assert result.exit_code == 0, result.output
    assert "0 ledgers" in result.output
