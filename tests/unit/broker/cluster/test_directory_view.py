"""A live copy of a directory forgets no change that it was told of."""

from __future__ import annotations

import pytest

from broker.cluster.directory_view import DirectoryView, Freshness
from client.errors import ConnectionLoss, LogCorrupt
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


def _number(name: str, data: bytes) -> int:
    if name == "worst":
        raise LogCorrupt("no number")
    return int(data)


async def test_a_child_that_cannot_be_read_is_there_all_the_same() -> None:
    tree = MemoryCluster()
    other = tree.session()
    await other.create("/things", b"")
    await other.create("/things/one", b"1")
    await other.create("/things/worst", b"1")
    changes: list[tuple[str, ...]] = []
    store = tree.session()
    view: DirectoryView[int] = DirectoryView(
        store, "/things", _number, lambda: changes.append(view.changed)
    )
    await view.start()
    assert (view.values, list(view.unreadable)) == ({"one": 1}, ["worst"])
    await other.set("/things/one", b"one")
    await until(lambda: "one" in view.unreadable)
    assert view.values == {"one": 1}, "what it was before stays in force"
    assert list(store.unreadable.all()) == ["/things/one", "/things/worst"]
    assert await view.look("one") == 1
    await other.set("/things/one", b"2")
    await until(lambda: view.values == {"one": 2})
    await other.delete("/things/worst")
    await until(lambda: not view.unreadable)
    assert not store.unreadable.all()
    assert changes == [("one", "worst"), ("one",), ("one",), ("worst",)]
    await view.close()


async def test_an_old_value_that_may_grant_too_much_does_not_stay() -> None:
    tree = MemoryCluster()
    other = tree.session()
    await other.create("/things/one", b"1", make_parents=True)
    view: DirectoryView[int] = DirectoryView(
        tree.session(), "/things", _number, lambda: None, in_place=lambda _: None
    )
    await view.start()
    await other.set("/things/one", b"one")
    await until(lambda: not view.values)
    assert list(view.unreadable) == ["one"]
    await other.delete("/things/one")
    await until(lambda: not view.unreadable)
    await view.close()
