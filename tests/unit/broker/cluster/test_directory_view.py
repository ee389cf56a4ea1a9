"""A live copy of a directory forgets no change that it was told of."""

from __future__ import annotations

import pytest

from broker.cluster.directory_view import DirectoryView
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
