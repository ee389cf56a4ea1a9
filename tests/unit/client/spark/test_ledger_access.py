"""Reaching bookies from a task: whom it asks where they are, and when it looks again."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from client.errors import BookieUnavailable, MetadataError, NoSuchEntry, NoSuchLedger
from client.ids import BookieId, EntryId, LedgerId
from client.ledger.bookie_directory import Address
from client.ledger.core.ledger_metadata import Fragment, LedgerMetadata
from client.spark.ledger_access import BookieAddresses, LedgerAccess
from client.spark.metadata_view import MetadataView
from tests.fakes.library import FakeLedger


class Unreachable(MetadataView):
    """A metadata store that must not be asked, or cannot be."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1:1")
        self.asked: list[str] = []

    async def get(self, path: str, watcher: Any = None) -> Any:
        self.asked.append(path)
        raise MetadataError("nobody there")


async def test_an_id_that_is_an_address_needs_no_metadata() -> None:
    view = Unreachable()
    addresses = BookieAddresses(view)
    assert await addresses.address(BookieId("10.0.0.1:3181")) == Address("10.0.0.1", 3181)
    assert view.asked == []
    assert addresses.writable == ("10.0.0.1:3181",)


async def test_registrations_are_asked_for_names_and_for_addresses_in_doubt() -> None:
    view = Unreachable()
    addresses = BookieAddresses(view)
    with pytest.raises(MetadataError):
        await addresses.address(BookieId("bookie-a"))
    assert view.asked == ["/ledgers/available/bookie-a"]
    addresses.doubt_address(BookieId("10.0.0.1:3181"))
    with pytest.raises((MetadataError, BookieUnavailable)):
        await addresses.address(BookieId("10.0.0.1:3181"))
    assert len(view.asked) > 1


class Moving(LedgerAccess):
    """Reads fail with what `known` says; `describe` tells what stands now."""

    def __init__(self, now: LedgerMetadata | None, error: Exception) -> None:
        self.now = now
        self.error = error
        self.reads: list[LedgerMetadata] = []

    async def describe(self, ledger_id: LedgerId) -> LedgerMetadata:
        if self.now is None:
            raise NoSuchLedger("deleted")
        return self.now

    async def _read(
        self, ledger_id: Any, metadata: Any, first: int, last: int, size_max: int
    ) -> list[Any]:
        self.reads.append(metadata)
        if metadata is not self.now:
            raise self.error
        return []


def ledger() -> LedgerMetadata:
    made = FakeLedger(10, 0)
    made.add_snapshot()
    made.close()
    return made.metadata()


async def test_replaced_bookies_are_looked_up_once() -> None:
    known = ledger()
    ensemble = tuple(BookieId(f"10.0.1.{number}:3181") for number in (1, 2, 3))
    moved = replace(known, fragments=(Fragment(EntryId(0), ensemble),))
    access = Moving(moved, NoSuchEntry("gone"))
    assert await access.read(LedgerId(10), known, 0, 0, 1 << 20) == []
    assert access.reads == [known, moved]


async def test_a_failure_at_the_known_places_is_told() -> None:
    known = ledger()
    access = Moving(replace(known), NoSuchEntry("gone"))
    with pytest.raises(NoSuchEntry):
        await access.read(LedgerId(10), known, 0, 0, 1 << 20)
    assert len(access.reads) == 1
    with pytest.raises(NoSuchLedger):
        await Moving(None, NoSuchEntry("gone")).read(LedgerId(10), known, 0, 0, 1 << 20)


ENDING = """
import asyncio
from client.spark import ledger_access

async def work():
    while True:
        await asyncio.sleep(0)

access = ledger_access.shared("127.0.0.1:1", 200)
access.begin(work())
access.call(asyncio.sleep(0.01))
"""


def test_a_process_ends_quietly_whatever_its_thread_does() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDING],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])},
        capture_output=True,
        timeout=50,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
