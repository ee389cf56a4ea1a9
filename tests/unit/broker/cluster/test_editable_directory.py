"""A directory that brokers edit: no change is lost to another, and a lost answer is told apart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from broker.cluster.editable_directory import EditableDirectory
from broker.errors import RequestTimedOut
from client.metadata.memory import Fault, MemoryCluster


async def started(tree: MemoryCluster) -> EditableDirectory[str]:
    directory: EditableDirectory[str] = EditableDirectory(
        tree.session(), "/things", lambda name, data: data.decode(), lambda: None
    )
    await asyncio.gather(directory.start(), directory.start())
    return directory


async def test_changes_of_several_brokers_add_up_and_are_seen_at_once() -> None:
    tree = MemoryCluster()
    brokers = [await started(tree) for _ in range(3)]

    async def edit(broker: EditableDirectory[str]) -> None:
        await broker.edit("one", lambda before: (before or b"") + b"x", subject="one")
        assert "x" in broker.values["one"]

    await asyncio.gather(*(edit(broker) for broker in brokers))
    assert (await tree.session().get("/things/one")).data == b"xxx"
    for broker in brokers:
        await broker.close()


async def test_a_node_of_which_nothing_is_left_is_gone() -> None:
    tree = MemoryCluster()
    broker = await started(tree)
    await broker.edit("one", lambda before: b"x", subject="one")
    await broker.edit("one", lambda before: None, subject="one")
    await broker.edit("two", lambda before: before, subject="two")
    assert await tree.session().children("/things") == []
    assert broker.values == {}
    await broker.close()


async def test_what_stays_the_same_is_not_written_but_looked_at() -> None:
    tree = MemoryCluster()
    broker = await started(tree)
    await tree.session().create("/things/one", b"x")
    await broker.edit("one", lambda before: b"x", subject="one")
    assert (await tree.session().get("/things/one")).version == 0
    assert broker.values == {"one": "x"}
    await broker.close()


def edited(what: bytes, *, out: bool = False) -> Callable[[bytes | None], bytes | None]:
    """Add or remove one of the words of a node."""

    def change(before: bytes | None) -> bytes | None:
        words = {*(before or b"").split(), what}
        return b" ".join(sorted(words - {what} if out else words)) or None

    return change


async def test_what_was_removed_does_not_come_back_and_what_was_added_stays() -> None:
    """A node of which nothing is left is deleted, and its next versions begin at 0 again."""
    tree = MemoryCluster()
    brokers = [await started(tree) for _ in range(2)]
    store = brokers[1]._store
    await brokers[0].edit("r", edited(b"allow-alice"), subject="r")
    multi = store.multi

    async def late(changes: Any) -> Any:
        """Its connection is lost: the change is held, and comes when the others are done."""
        store.multi = multi  # type: ignore[method-assign]
        await brokers[0].edit("r", edited(b"allow-alice", out=True), subject="r")
        await brokers[0].edit("r", edited(b"deny-mallory"), subject="r")
        assert (await tree.session().get("/things/r")).version == 0
        return await multi(changes)

    store.multi = late  # type: ignore[method-assign]
    await brokers[1].edit("r", edited(b"allow-bob"), subject="r")
    assert (await tree.session().get("/things/r")).data == b"allow-bob deny-mallory"
    for broker in brokers:
        await broker.close()


async def test_an_edit_behind_a_server_that_lags_is_one_of_the_newest_content() -> None:
    tree = MemoryCluster()
    brokers = [await started(tree) for _ in range(2)]
    await brokers[0].edit("r", edited(b"allow-alice"), subject="r")
    await brokers[1].catch_up()
    tree.freeze(brokers[1]._store)  # type: ignore[arg-type]
    await brokers[0].edit("r", edited(b"allow-alice", out=True), subject="r")
    await brokers[0].edit("r", edited(b"deny-mallory"), subject="r")
    await brokers[1].edit("r", edited(b"deny-mallory", out=True), subject="r")
    assert await tree.session().children("/things") == [], "it was there to be removed"
    for broker in brokers:
        await broker.close()


async def test_a_view_that_catches_up_shows_what_others_have_changed() -> None:
    tree = MemoryCluster()
    brokers = [await started(tree) for _ in range(2)]
    await brokers[0].edit("one", edited(b"a"), subject="one")
    await brokers[1].catch_up()
    tree.freeze(brokers[1]._store)  # type: ignore[arg-type]
    await brokers[0].edit("one", edited(b"b"), subject="one")
    await brokers[0].edit("two", edited(b"c"), subject="two")
    assert brokers[1].values == {"one": "a"}
    await brokers[1].catch_up()
    assert brokers[1].values == {"one": "a b", "two": "c"}
    for broker in brokers:
        await broker.close()


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("steps", [1, 2])
async def test_a_change_whose_answer_was_lost_is_made_once(fault: Fault, steps: int) -> None:
    """Of a node that is made, and of one that is there; and its server lags."""
    tree = MemoryCluster()
    broker = await started(tree)
    tree.late_s = lambda: 5.0
    for _ in range(steps - 1):
        await broker.edit("one", lambda before: (before or b"") + b"x", subject="one")
    faults = [fault, fault]
    tree.on_request = lambda operation: (
        faults.pop() if faults and operation.name == "multi" else None
    )
    tree.freeze(broker._store)  # type: ignore[arg-type]
    await broker.edit("one", lambda before: (before or b"") + b"x", subject="one")
    assert (await tree.session().get("/things/one")).data == b"x" * steps
    assert broker.values == {"one": "x" * steps}
    await broker.close()


async def test_an_answer_that_never_comes_is_a_timeout() -> None:
    tree = MemoryCluster(reconnect_delay_s=0.0)
    broker = await started(tree)
    tree.on_request = lambda operation: Fault.LOSE_REQUEST if operation.name == "multi" else None
    with pytest.raises(RequestTimedOut, match="thing one could not be changed"):
        await broker.edit("one", lambda before: b"x", subject="thing one")
    await broker.close()


async def test_edits_of_many_brokers_at_once_all_come_through() -> None:
    tree = MemoryCluster()
    brokers = [await started(tree) for _ in range(8)]
    await asyncio.gather(
        *(
            broker.edit(f"n{number % 3}", edited(b"%d" % (100 * at + number)), subject="n")
            for at, broker in enumerate(brokers)
            for number in range(12)
        )
    )
    await brokers[0].catch_up()
    words = [word for value in brokers[0].values.values() for word in value.split()]
    assert len(words) == 96
    for broker in brokers:
        await broker.close()


async def test_a_directory_of_an_earlier_release_is_edited() -> None:
    """Its node is empty, was never set, and children of it come and go without it."""
    tree = MemoryCluster()
    old = tree.session()
    await old.create("/things/one", b"allow-alice", make_parents=True)
    broker = await started(tree)
    await broker.edit("one", edited(b"allow-bob"), subject="one")
    node = await old.get("/things/one")
    assert node.data == b"allow-alice allow-bob"
    await old.delete("/things/one", node.version)
    await broker.edit("one", edited(b"deny-mallory"), subject="one")
    assert (await old.get("/things/one")).data == b"deny-mallory"
    await broker.close()


async def test_a_large_directory_is_not_listed_again_for_each_new_child() -> None:
    tree = MemoryCluster()
    there = tree.session()
    for number in range(1_000):
        await there.create(f"/things/{number}", b"x", make_parents=True)
    lists: list[str] = []
    session = tree.session()
    children = session.children

    async def counted(path: str, *rest: Any) -> list[str]:
        lists.append(path)
        return await children(path, *rest)

    session.children = counted  # type: ignore[method-assign]
    follower: EditableDirectory[str] = EditableDirectory(
        session, "/things", lambda name, data: data.decode(), lambda: None
    )
    await follower.start()
    maker = await started(tree)
    loop = asyncio.get_running_loop()
    begin_s = loop.time()
    for number in range(200):
        await maker.edit(f"new{number}", lambda before: b"y", subject="one")
    async with asyncio.timeout(20):
        while len(follower.values) < 1_200:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    # A list of so many names comes every 50 ms at most, however many children are made.
    assert len(lists) <= 3 + (loop.time() - begin_s) / 0.05
    await follower.close()
    await maker.close()
