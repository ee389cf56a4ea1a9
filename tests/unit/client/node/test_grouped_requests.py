"""Requests that leave together: as few as there can be, and each caller its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from client.errors import (
    ConnectionLoss,
    MetadataError,
    NodeExists,
    NoNode,
    SessionExpired,
    VersionConflict,
)
from client.metadata.memory import Fault, MemoryCluster, MemoryStore, Operation
from client.metadata.store import NODE_BYTES_MAX, Create, Delete, SetData
from client.node.grouped_requests import GROUP_BYTES_MAX, GROUP_MAX, GroupedRequests
from tests.fakes.virtual_time import run


class Lab:
    """One session, and what of it reached the server."""

    def __init__(self) -> None:
        self.cluster = MemoryCluster()
        self.store: MemoryStore = self.cluster.session()
        self.requests = GroupedRequests(self.store)
        self.seen: list[str] = []
        self.faults: dict[str, Fault] = {}
        """Operation -> how its next request is lost."""
        self.cluster.latency = lambda: 0.01

    async def start(self) -> Lab:
        await self.store.create("/d")
        self.cluster.on_request = self._on_request
        return self

    def _on_request(self, operation: Operation) -> Fault | None:
        self.seen.append(operation.name)
        return self.faults.pop(operation.name, None)

    def data(self, path: str) -> bytes:
        return self.cluster.tree.get(path).data


def scenario(test: Callable[[Lab], Awaitable[None]]) -> Callable[[], None]:
    def whole() -> None:
        async def begun() -> None:
            await test(await Lab().start())

        run(begun())

    whole.__name__ = test.__name__
    whole.__doc__ = test.__doc__
    return whole


async def outcomes(*calls: Awaitable[Any]) -> list[Any]:
    """Return results, and the class of what was raised."""
    found = await asyncio.gather(*calls, return_exceptions=True)
    return [type(one) if isinstance(one, BaseException) else one for one in found]


@scenario
async def test_who_comes_alone_is_sent_as_what_it_is(lab: Lab) -> None:
    ask = lab.requests
    assert await ask.create("/d/a", b"1") == "/d/a"
    assert await ask.set("/d/a", b"2", 0) == 1
    assert (await ask.get("/d/a")).data == b"2"
    await ask.delete("/d/a", 1)
    with pytest.raises(NoNode):
        await ask.get("/d/a")
    assert lab.seen == ["create", "set", "get", "delete", "get"]


@scenario
async def test_changes_of_many_are_one_transaction(lab: Lab) -> None:
    await lab.store.create("/d/old")
    lab.seen.clear()
    ask = lab.requests
    assert await outcomes(
        ask.create("/d/a", b"1"),
        ask.set("/d/old", b"2", 0),
        ask.create("/d/n-", ephemeral=True, sequential=True),
        ask.create("/d/n-", ephemeral=True, sequential=True),
        ask.delete("/d/old"),
    ) == ["/d/a", 1, "/d/n-0000000002", "/d/n-0000000003", None]
    assert lab.seen == ["multi"]
    assert lab.cluster.tree.get("/d/n-0000000003").ephemeral_owner == lab.store.session_id


@scenario
async def test_reads_of_many_are_one_request(lab: Lab) -> None:
    await lab.store.create("/d/a", b"1")
    lab.seen.clear()
    ask = lab.requests
    found = await outcomes(ask.get("/d/a"), ask.get("/d/gone"), ask.get("/d"))
    assert [found[0].data, found[1], found[2].data] == [b"1", NoNode, b""]
    assert lab.seen == ["get_many"]


@scenario
async def test_reads_that_leave_watches_are_one_request(lab: Lab) -> None:
    await lab.store.create("/d/a")
    await lab.store.create("/d/b")
    lab.seen.clear()
    ask, fired = lab.requests, list[str]()
    found = await outcomes(
        ask.get("/d/a", lambda: fired.append("a")),
        ask.get("/d/gone", lambda: fired.append("gone")),
        ask.get("/d/b", lambda: fired.append("b")),
        ask.get("/d"),
    )
    assert found[1] is NoNode
    assert sorted(lab.seen) == ["get", "get_many"]
    await ask.set("/d/b", b"1")
    await ask.create("/d/gone")
    assert fired == ["b"]
    await ask.get("/d/a", lambda: fired.append("a again"))
    await ask.set("/d/a", b"1")
    assert fired == ["b", "a", "a again"]


@scenario
async def test_what_comes_while_a_group_is_under_way_leaves_together(lab: Lab) -> None:
    first = asyncio.ensure_future(lab.requests.create("/d/0"))
    await asyncio.sleep(0.005)
    others = []
    for number in range(1, 9):
        others.append(asyncio.ensure_future(lab.requests.create(f"/d/{number}")))
        await asyncio.sleep(0.001)
    assert await asyncio.gather(first, *others) == [f"/d/{number}" for number in range(9)]
    assert lab.seen == ["create", "multi"]


@scenario
async def test_a_group_has_a_largest_number_and_a_largest_size(lab: Lab) -> None:
    ask = lab.requests
    await asyncio.gather(*(ask.create(f"/d/{n}") for n in range(2 * GROUP_MAX + 1)))
    assert lab.seen == ["multi", "multi", "create"]
    lab.seen.clear()
    part = bytes(GROUP_BYTES_MAX // 2)
    await asyncio.gather(*(ask.set(f"/d/{n}", part) for n in range(3)))
    assert lab.seen == ["set", "set", "set"]
    lab.seen.clear()
    await asyncio.gather(*(ask.set(f"/d/{n}", part[:-100]) for n in range(4)))
    assert lab.seen == ["multi", "multi"]


@scenario
async def test_one_that_is_refused_harms_no_other(lab: Lab) -> None:
    """Nothing of a refused transaction has happened: each is sent alone, in the same order."""
    await lab.store.create("/d/taken")
    lab.seen.clear()
    ask = lab.requests
    assert await outcomes(
        ask.create("/d/a"),
        ask.create("/d/taken"),
        ask.set("/d/a", b"1", 0),
        ask.set("/d/a", b"2", 0),
        ask.create("/d/deep/below", make_parents=True),
        ask.create("/d/x/y"),
        ask.delete("/d/gone"),
    ) == ["/d/a", NodeExists, 1, VersionConflict, "/d/deep/below", NoNode, NoNode]
    assert lab.seen[0] == "multi"
    assert sorted(lab.seen[1:]) == ["create"] * 4 + ["delete"] + ["set"] * 2
    assert lab.data("/d/a") == b"1"


@scenario
async def test_changes_that_belong_together_stay_together(lab: Lab) -> None:
    await lab.store.create("/d/old")
    lab.seen.clear()
    ask = lab.requests
    both = [SetData("/d/old", b"1", 0), Create("/d/new", b"2")]
    assert await outcomes(ask.create("/d/a"), ask.multi(both)) == ["/d/a", [1, "/d/new"]]
    assert lab.seen == ["multi"]
    assert await ask.multi([Delete("/d/new"), SetData("/d/old", b"3", 1)]) == [None, 2]


@scenario
async def test_of_changes_that_belong_together_all_are_refused_and_no_others(lab: Lab) -> None:
    await lab.store.create("/d/old")
    lab.seen.clear()
    ask = lab.requests
    assert await outcomes(
        ask.multi([Create("/d/new"), SetData("/d/old", b"1", 7)]),
        ask.create("/d/a"),
        ask.multi([SetData("/d/old", b"2", 0), Create("/d/b")]),
    ) == [VersionConflict, "/d/a", [1, "/d/b"]]
    assert lab.seen == ["multi", "multi", "create", "multi"]
    assert lab.cluster.tree.children("/d") == ["a", "b", "old"]


@scenario
async def test_parents_of_changes_that_belong_together_are_made(lab: Lab) -> None:
    ask = lab.requests
    deep = [Create("/d/deep/below"), SetData("/d", b"1", 0)]
    assert await ask.multi(deep) == ["/d/deep/below", 1]
    assert lab.seen == ["multi", "create", "multi"]
    lab.seen.clear()
    assert await outcomes(ask.multi([Create("/d/a"), SetData("/d/gone", b"")])) == [NoNode]
    assert lab.cluster.tree.children("/d") == ["deep"]


@scenario
async def test_changes_that_belong_together_are_checked_first(lab: Lab) -> None:
    ask = lab.requests
    large = bytes(NODE_BYTES_MAX + 1)
    assert await outcomes(
        ask.multi([Create("/d/a"), Delete("d")]), ask.multi([SetData("/d", large)])
    ) == [ValueError, MetadataError]
    assert lab.seen == []


@pytest.mark.parametrize("fault", list(Fault))
def test_without_an_answer_the_outcome_is_unknown_for_each(fault: Fault) -> None:
    async def begun() -> None:
        lab = await Lab().start()
        lab.faults["multi"] = fault
        ask = lab.requests
        found = await outcomes(ask.create("/d/a"), ask.create("/d/b"))
        assert found == [ConnectionLoss, ConnectionLoss]
        made = [] if fault is Fault.LOSE_REQUEST else ["a", "b"]
        assert lab.cluster.tree.children("/d") == made
        assert lab.seen == ["multi"], "nothing is sent once more: that is the caller's to decide"
        found = await outcomes(ask.create("/d/c"), ask.create("/d/e"))
        assert found == ["/d/c", "/d/e"], "and the next ones go on"

    run(begun())


@scenario
async def test_each_has_an_error_of_its_own(lab: Lab) -> None:
    """An exception that two tasks raise collects the tracebacks of both, and holds their frames."""
    lab.faults["multi"] = Fault.LOSE_REQUEST
    found = await asyncio.gather(
        lab.requests.create("/d/a"), lab.requests.create("/d/b"), return_exceptions=True
    )
    assert found[0] is not found[1]


@scenario
async def test_a_session_that_ended_is_told_to_all(lab: Lab) -> None:
    asked = [asyncio.ensure_future(lab.requests.create(f"/d/{n}")) for n in range(3)]
    await asyncio.sleep(0.005)
    lab.cluster.expire(lab.store)
    assert await outcomes(*asked) == [SessionExpired] * 3


@scenario
async def test_who_was_cancelled_is_not_sent_and_disturbs_nobody(lab: Lab) -> None:
    under_way = asyncio.ensure_future(lab.requests.create("/d/0"))
    await asyncio.sleep(0.005)
    waiting = [asyncio.ensure_future(lab.requests.create(f"/d/{n}")) for n in range(1, 4)]
    await asyncio.sleep(0.001)
    waiting[0].cancel()
    await asyncio.sleep(0.02)
    waiting[1].cancel()  # its group is under way: it is made all the same
    assert await outcomes(under_way, *waiting) == [
        "/d/0", asyncio.CancelledError, asyncio.CancelledError, "/d/3",
    ]  # fmt: skip
    assert lab.cluster.tree.children("/d") == ["0", "2", "3"]


@scenario
async def test_what_cannot_be_sent_is_refused_at_once(lab: Lab) -> None:
    ask = lab.requests
    large = bytes(NODE_BYTES_MAX + 1)
    assert await outcomes(
        ask.get("d"), ask.create("d"), ask.set("/d/", b""), ask.delete("/d//a"),
        ask.create("/d/a", large), ask.set("/d", large), ask.create("/d/b"),
    ) == [ValueError] * 4 + [MetadataError] * 2 + ["/d/b"]  # fmt: skip
    assert lab.seen == ["create"]


@pytest.mark.parametrize("raised", [RuntimeError("a bug"), asyncio.CancelledError()])
@pytest.mark.parametrize("operation", ["get_many", "get", "multi", "create", "alone"])
def test_nobody_waits_for_ever_whatever_sending_raises(
    operation: str, raised: BaseException
) -> None:
    async def begun() -> None:
        lab = await Lab().start()
        failures: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, told: failures.append(told))
        name = "create" if operation == "alone" else operation
        sound = getattr(lab.store, name)

        async def break_once(*_args: Any, **_options: Any) -> Any:
            setattr(lab.store, name, sound)
            await asyncio.sleep(0.01)
            raise raised

        setattr(lab.store, name, break_once)
        ask = lab.requests
        if operation == "alone":  # of a group that was refused: each is sent alone
            calls = [ask.create("/d"), *(ask.create(f"/d/{n}") for n in range(4))]
        elif operation in ("get", "create"):
            calls = [ask.get("/d") if operation == "get" else ask.create("/d/0")]
        elif operation == "get_many":
            calls = [ask.get("/d") for _ in range(5)]
        else:
            calls = [ask.create(f"/d/{n}") for n in range(5)]
        async with asyncio.timeout(3):
            found = await outcomes(*calls)
        assert ConnectionLoss in found, "the outcome is unknown"
        assert RuntimeError not in found
        await asyncio.sleep(1)
        assert len(failures) == isinstance(raised, RuntimeError), "which is told, too"
        assert await ask.create("/d/later") == "/d/later"

    run(begun())
