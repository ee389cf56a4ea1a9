"""A live copy of a directory forgets no change that it was told of."""

from __future__ import annotations

import pytest

from broker.cluster.directory_view import DirectoryView
from broker.security.core.freshness import Freshness
from client.errors import ConnectionLoss
from client.metadata.memory import Fault, MemoryCluster, Operation
from tests.fakes.broker import until


async def test_a_change_is_seen_although_whoever_looked_meanwhile_got_no_answer() -> None:
    tree = MemoryCluster()
    other = tree.session()
    await other.create("/things", b"")
    await other.create("/things/one", b"old")
    view: DirectoryView[str] = DirectoryView(
        tree.session(), "/things", lambda name, data: data.decode(), lambda: None
    )
    await view.start()
    asked: list[Operation] = []

    def lose_reads(operation: Operation) -> Fault | None:
        if operation.name != "get":
            return None
        asked.append(operation)
        return Fault.LOSE_REPLY

    tree.on_request = lose_reads
    await other.set("/things/one", b"new", 0)
    await until(lambda: len(asked) == 1)  # the view looked by itself, and pauses now
    with pytest.raises(ConnectionLoss):
        await view.look("one")
    tree.on_request = lambda operation: None
    await until(lambda: view.values == {"one": "new"})
    await view.close()


async def test_what_was_told_of_and_not_read_keeps_everything_as_old_as_before() -> None:
    tree = MemoryCluster()
    other = tree.session()
    await other.create("/things", b"")
    await other.create("/things/one", b"old")
    freshness, shown = Freshness(10.0), list[bool]()
    view: DirectoryView[str] = DirectoryView(
        tree.session(), "/things", lambda name, data: data.decode(),
        lambda: shown.append(freshness.is_fresh(110.0)), freshness,
    )  # fmt: skip
    freshness.answered(100.0)
    await view.start()
    lost: list[Operation] = []

    def lose(operation: Operation) -> Fault | None:
        if operation.name not in ("get", "children"):
            return None
        lost.append(operation)
        return Fault.LOSE_REPLY

    tree.on_request = lose
    await other.set("/things/one", b"new", 0)
    await other.create("/things/two", b"")
    await until(lambda: len(lost) >= 2)
    freshness.answered(109.0)
    assert not freshness.is_fresh(110.0), "two changes after 100 are not known"
    tree.on_request = lambda operation: None
    await until(lambda: view.values == {"one": "new", "two": ""})

    def is_fresh_again() -> bool:
        freshness.answered(109.5)
        return freshness.is_fresh(119.4)

    await until(is_fresh_again)
    assert not any(shown), "a change counts once whoever decides by it was called"
    await view.close()
