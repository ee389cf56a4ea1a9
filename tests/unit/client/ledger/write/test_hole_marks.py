"""Marks in the background: kept while the metadata store is away, merged, never early."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from client.errors import ConnectionLoss
from client.ids import BookieId, LedgerId
from client.ledger.core.ledger_metadata import Fragment, LedgerMetadata
from client.ledger.ledger_nodes import LedgerNodes
from client.ledger.under_replication import HoleMarks, mark_under_replicated, read_mark
from client.metadata import paths
from client.metadata.memory import Fault, MemoryCluster, MemoryStore, Operation
from tests.fakes.virtual_time import VirtualClock, run

LEDGER = LedgerId(7)
A, B = BookieId("a:1"), BookieId("b:1")


class Bench:
    """A store with one ledger in it, and the marks of one client."""

    def __init__(self) -> None:
        self.cluster = MemoryCluster(reconnect_delay_s=0.0)
        self.store: MemoryStore = self.cluster.session()
        self.nodes = LedgerNodes(self.store, paths.LEDGERS_ROOT, attempts_max=2, retry_delay_s=0.1)
        self.marks = HoleMarks(self.store, self.nodes, VirtualClock(), root=paths.LEDGERS_ROOT)

    async def start(self) -> Bench:
        metadata = LedgerMetadata(
            ensemble_size=1,
            write_quorum=1,
            ack_quorum=1,
            fragments=(Fragment(0, (A,)),),  # type: ignore[arg-type]
        )
        await self.nodes.create(LEDGER, metadata)
        return self

    async def marked(self) -> tuple[tuple[BookieId, ...], int] | None:
        mark = await read_mark(self.store, LEDGER)
        return None if mark is None else (mark.bookies, mark.version)


def test_a_mark_is_written_with_the_time() -> None:
    async def scenario() -> None:
        bench = await Bench().start()
        bench.marks.want(LEDGER, [A])
        await bench.marks.close(1.0)
        mark = await read_mark(bench.store, LEDGER)
        assert mark is not None
        assert mark.bookies == (A,)
        assert mark.ctime_ms == VirtualClock().now_ms()

    run(scenario())


def test_what_is_wanted_while_a_mark_is_written_gets_another() -> None:
    """Also for the same bookie: a worker may have read the first one and looked already."""

    async def scenario() -> None:
        bench = await Bench().start()
        bench.marks.want(LEDGER, [A])
        while await bench.marked() is None:  # noqa: ASYNC110  there is no event behind it
            await asyncio.sleep(0)
        bench.marks.want(LEDGER, [A])
        bench.marks.want(LEDGER, [B])
        await bench.marks.close(1.0)
        assert await bench.marked() == ((A, B), 1), "the two became one"

    run(scenario())


def test_a_deleted_ledger_is_not_marked() -> None:
    async def scenario() -> None:
        bench = await Bench().start()
        await bench.nodes.delete(LEDGER)
        bench.marks.want(LEDGER, [A])
        await bench.marks.close(1.0)
        assert await bench.marked() is None

    run(scenario())


def test_marks_wait_for_the_metadata_store() -> None:
    async def scenario() -> None:
        bench = await Bench().start()
        bench.cluster.on_request = failing(lambda operation: operation.name == "create")
        bench.marks.want(LEDGER, [A])
        await asyncio.sleep(60)
        assert await bench.marked() is None
        bench.marks.want(LEDGER, [B])
        bench.cluster.on_request = lambda operation: None
        await asyncio.sleep(10)
        assert await bench.marked() == ((A, B), 0)

    run(scenario())


def test_what_cannot_be_written_before_the_end_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        bench = await Bench().start()
        bench.cluster.on_request = failing(lambda operation: True)
        bench.marks.want(LEDGER, [A])
        await bench.marks.close(1.0)

    run(scenario())
    assert "ledger.not_marked ledger=7 lacking=a:1" in caplog.text


def test_a_malformed_mark_is_left_alone_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)

    async def scenario() -> None:
        bench = await Bench().start()
        path = paths.under_replicated_ledger(LEDGER)
        await bench.store.create(path, b"}", make_parents=True)
        bench.marks.want(LEDGER, [A])
        await bench.marks.close(1.0)
        assert (await bench.store.get(path)).data == b"}"
        await bench.store.delete(path)
        bench.marks.want(LEDGER, [B])
        await bench.marks.close(1.0)
        assert await bench.marked() == ((B,), 0)

    run(scenario())
    assert "ledger.not_marked" in caplog.text


def test_a_lost_answer_is_no_reason_for_two_marks() -> None:
    async def scenario() -> None:
        bench = await Bench().start()
        faults = [Fault.LOSE_REPLY]
        bench.cluster.on_request = lambda operation: (
            faults.pop() if operation.name == "create" and faults else None
        )
        with pytest.raises(ConnectionLoss):
            await mark_under_replicated(bench.store, LEDGER, [A])
        await mark_under_replicated(bench.store, LEDGER, [A])
        assert await bench.marked() == ((A,), 1)

    run(scenario())


def failing(which: Callable[[Operation], bool]) -> Callable[[Operation], Fault | None]:
    return lambda operation: Fault.LOSE_REQUEST if which(operation) else None
