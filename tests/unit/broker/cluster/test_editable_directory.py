"""A directory that brokers edit: no change is lost to another, and a lost answer is told apart."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.cluster.editable_directory import EditableDirectory
from broker.errors import RequestTimedOut
from client.errors import ConnectionLoss
from client.metadata.memory import Fault, MemoryCluster, Operation


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


@pytest.mark.parametrize("fault", list(Fault))
async def test_a_lost_answer_is_settled_only_for_who_may_do_it_again(fault: Fault) -> None:
    tree = MemoryCluster()
    broker = await started(tree)
    faults = [fault, fault]
    tree.on_request = lambda operation: (
        faults.pop() if faults and operation.name == "create" else None
    )
    with pytest.raises(ConnectionLoss):
        await broker.edit("one", lambda before: b"x", subject="one")
    await broker.edit("two", lambda before: b"x", subject="two", is_repeatable=True)
    assert not faults
    assert (await tree.session().get("/things/two")).data == b"x"
    await broker.close()


async def test_others_that_are_always_faster_are_a_timeout() -> None:
    tree = MemoryCluster()
    broker = await started(tree)
    await tree.session().create("/things/one", b"0")

    def be_faster(operation: Operation) -> None:
        if operation.name == "set":
            tree.tree.set("/things/one", b"theirs", -1)

    tree.on_request = be_faster
    with pytest.raises(RequestTimedOut, match="thing one could not be changed"):
        await broker.edit("one", lambda before: b"mine", subject="thing one")
    assert (await tree.session().get("/things/one")).data == b"theirs"
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
