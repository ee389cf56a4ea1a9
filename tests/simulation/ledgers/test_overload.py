"""Busy is not failed: bookies that shed adds and narrow connections cost time, never a ledger.

Nothing breaks in these schedules. One bookie is weak: it takes two adds at a time, sheds the
others, and its disk is slow; connections take a few adds; writers do not wait for room. So no add
may fail, no ensemble may change, and nothing may be recovered. Planted defects show that a client
that takes busy for failed is seen. `clusters/test_load.py` has the same of whole clusters.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from client.errors import BookieUnavailable, LedgerClosed, LedgerError
from client.ledger.bookies.bookie_link import Link
from client.ledger.core.adds import Adds
from tests.simulation.bookies import machines, swarm
from tests.simulation.bookies.swarm import BookieOptions, DiskOptions, LedgerSwarm
from tests.simulation.ledgers.world import LedgerWorld
from tests.simulation.machine.net import NetOptions
from tests.simulation.mutants.table import Patch

SEEDS = range(4)


def crowded(seed: int) -> LedgerSwarm:
    """Return the options of a schedule without faults in which everybody is busy."""
    payload_bytes = 1000
    room_bytes = 4 * payload_bytes
    return replace(
        swarm.draw(seed),
        bookies=3,
        quorums=((3, 3, 2), (3, 3, 3), (3, 2, 2))[seed % 3],
        writers=2,
        recoverers=0,
        readers=0,
        adds=60,
        adds_per_ledger=30,
        payload_bytes=payload_bytes,
        in_flight=20,
        deletes_p=0.0,
        think_s=0.0,
        pace_s=0.0,
        fault_every_s=0.0,
        fault_phase_s=4.0,
        ambush_p=0.0,
        fill_p=0.0,
        faults={},
        request_timeout_s=2.0,
        client={
            "wire_version": "both",
            "bookie_in_flight_bytes_max": room_bytes,
            "writer_in_flight_bytes_max": room_bytes,
        },
        net=NetOptions(window_bytes=3_000),
        disk=DiskOptions(sync_s=0.001),
        bookie=BookieOptions(weak_adds_max=2),
        hostile=False,
    )


def troubles(seed: int) -> list[str]:
    """Run a schedule; say what went wrong in it."""
    options = crowded(seed)
    world = LedgerWorld(options, log=False)
    found: list[str] = []
    note = world.oracle.added

    def added(ledger_id: int, entry_id: int, error: LedgerError | None) -> None:
        note(ledger_id, entry_id, error)
        # Some writers abandon their ledger with adds under way, which they are told of so.
        if error is not None and not isinstance(error, LedgerClosed):
            found.append(f"add {ledger_id}/{entry_id} failed: {error!r}")

    world.oracle.added = added  # type: ignore[method-assign]
    result = machines.run(world, options)
    if result.violation:
        found.append(result.violation)
    for book in world.oracle.ledgers.values():
        if book.metadata is not None and len(book.metadata.fragments) > 1:
            found.append(f"ledger {book.ledger_id} changed its ensemble")
    if result.counts.get("adds", 0) < 20:
        found.append("hardly anything was written")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_busy_cluster_fails_nobody(seed: int) -> None:
    assert troubles(seed) == []


def shed_is_failed(patch: Any) -> None:
    """The first add that a bookie sheds counts as a failure of it."""

    def on_busy(self: Adds, entry_id: Any, index: int, bookie: Any, error: Any, now_s: Any) -> Any:
        return self.on_failed(entry_id, index, bookie, error)

    patch(Adds, "on_busy", on_busy)


def full_is_failed(patch: Any) -> None:
    """An add for which a connection has no room fails."""

    def add(self: Link, record: Any) -> None:
        if self._has_room(record):
            self.send(record)
        else:
            error = BookieUnavailable("the connection is full")
            self._loop.call_soon(record.on_answer, record.request, error)

    patch(Link, "add", add)


@pytest.mark.slow
@pytest.mark.parametrize("plant", [shed_is_failed, full_is_failed])
def test_a_client_that_takes_busy_for_failed_is_seen(plant: Any) -> None:
    patch = Patch()
    try:
        plant(patch)
        assert any(troubles(seed) for seed in SEEDS)
    finally:
        patch.undo()
