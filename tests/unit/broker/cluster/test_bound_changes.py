"""A change hits the node that was read, or none, and is made once; each rule has its test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from broker.cluster.bound_changes import BoundChanges, Plan
from broker.errors import RequestTimedOut
from client.errors import ConnectionLoss, NoNode, SessionExpired
from client.metadata.memory import Fault, MemoryCluster, MemoryStore, Operation
from client.metadata.store import Change, Create, Delete, SetData, Versioned

_ANCHOR = "/anchor"
_PATH = "/things/one"


class Hooked:
    """A session of which a test has something done just before one of its requests."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.before: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def multi(self, changes: Sequence[Change]) -> Any:
        await self._do("multi")
        return await self._store.multi(changes)

    async def get_many(self, paths: Sequence[str]) -> list[Versioned | None]:
        """One after the other: a server may apply changes between two reads of one request."""
        found: list[Versioned | None] = []
        for path in paths:
            found += await self._store.get_many([path])
            await self._do("get_many")
        return found

    async def sync(self, path: str) -> None:
        await self._do("sync")
        await self._store.sync(path)

    async def _do(self, name: str) -> None:
        hook = self.before.pop(name, None)
        if hook is not None:
            await hook()


def put(data: bytes) -> Plan:
    async def plan(node: Versioned | None) -> Sequence[Change]:
        if node is None:
            return [Create(_PATH, data)]
        return [SetData(_PATH, node.data + data, node.version)]

    return plan


async def drop(node: Versioned | None) -> Sequence[Change]:
    return [] if node is None else [Delete(_PATH, node.version)]


class World:
    def __init__(self) -> None:
        self.tree = MemoryCluster()
        self.store, self.other = self.tree.session(), self.tree.session()
        self.hooked = Hooked(self.store)
        self.mine = BoundChanges(self.hooked)  # type: ignore[arg-type]
        self.theirs = BoundChanges(self.other)

    async def prepare(self, data: bytes) -> None:
        await self.other.create("/things")
        await self.change(self.theirs, put(data))

    async def change(self, who: BoundChanges, plan: Plan) -> None:
        await who.make(_ANCHOR, _PATH, plan, subject="thing one")

    async def make_anew(self) -> None:
        await self.change(self.theirs, drop)
        await self.change(self.theirs, put(b"new"))

    async def data(self) -> bytes:
        return (await self.other.get(_PATH)).data


@pytest.fixture
async def world() -> World:
    made = World()
    await made.prepare(b"old")
    return made


async def test_bound_a_late_change_of_a_node_that_was_made_anew_hits_nothing(world: World) -> None:
    seen: list[bytes] = []

    async def plan(node: Versioned | None) -> Sequence[Change]:
        assert node is not None
        assert node.version == 0, "a version is not an identity"
        seen.append(node.data)
        return [Delete(_PATH, node.version)] if node.data == b"old" else []

    world.hooked.before["multi"] = world.make_anew
    await world.change(world.mine, plan)
    assert seen == [b"old", b"new"]
    assert await world.data() == b"new"


async def test_anchor_first_a_change_between_the_two_reads_is_noticed(world: World) -> None:
    """In the other order the anchor would be that of the new node, and the node the old one."""
    seen: list[bytes] = []

    async def plan(node: Versioned | None) -> Sequence[Change]:
        assert node is not None
        seen.append(node.data)
        return [SetData(_PATH, node.data + b"+", node.version)]

    world.hooked.before["get_many"] = world.make_anew
    await world.change(world.mine, plan)
    assert await world.data() == b"new+"
    assert seen == [b"new", b"new"], "the first attempt expected the anchor of the old node"


async def test_sync_nothing_to_do_is_only_believed_of_a_read_after_a_sync(world: World) -> None:
    world.tree.freeze(world.store)
    await world.make_anew()
    await world.change(world.mine, put(b"+"))
    assert await world.data() == b"new+"
    world.tree.freeze(world.store)
    await world.change(world.theirs, drop)
    await world.change(world.theirs, put(b"x"))
    seen: list[bytes] = []

    async def look(node: Versioned | None) -> Sequence[Change]:
        assert node is not None
        seen.append(node.data)
        return []

    await world.change(world.mine, look)
    assert seen == [b"x"]


@pytest.mark.parametrize("fault", list(Fault))
async def test_once_a_lost_answer_is_settled_by_the_token(world: World, fault: Fault) -> None:
    """Others have changed the node since, and this session's server does not show it yet."""
    faults = [fault]

    def lose(operation: Operation) -> Fault | None:
        if operation.name != "multi" or operation.session_id != world.store.session_id:
            return None
        return faults.pop() if faults else None

    world.tree.on_request = lose
    world.tree.freeze(world.store)
    await world.change(world.mine, put(b"+"))
    assert not faults
    assert await world.data() == b"old+"


async def test_once_what_has_happened_since_hides_nothing(world: World) -> None:
    calls = 0

    async def plan(node: Versioned | None) -> Sequence[Change]:
        nonlocal calls
        calls += 1
        return await put(b"+")(node)

    async def lose() -> None:
        world.tree.on_request = lambda operation: (
            Fault.LOSE_REPLY if operation.name == "multi" else None
        )
        world.hooked.before["sync"] = others

    async def others() -> None:
        world.tree.on_request = lambda operation: None
        for _ in range(5):
            await world.make_anew()

    world.hooked.before["multi"] = lose
    await world.change(world.mine, plan)
    assert calls == 1
    assert await world.data() == b"new"


async def test_once_is_for_each_change_of_a_session_whoever_makes_it(world: World) -> None:
    for _ in range(2):
        await world.change(BoundChanges(world.store), put(b"+"))
    assert await world.data() == b"old++"


async def test_others_that_are_always_faster_are_a_timeout(world: World) -> None:
    def be_faster(operation: Operation) -> None:
        if operation.name == "multi":
            world.tree.tree.set(_ANCHOR, b"", -1)

    world.tree.on_request = be_faster
    with pytest.raises(RequestTimedOut, match="thing one could not be changed"):
        await world.change(world.mine, put(b"+"))
    assert await world.data() == b"old"


async def test_an_anchor_that_was_never_set_or_holds_anything_is_one(world: World) -> None:
    """Earlier releases left it empty, and somebody may have removed it by hand."""
    for data in (b"", b"\xff\x00 what is this", b"x " * 1000):
        await world.other.set(_ANCHOR, data)
        await world.change(world.mine, put(b"+"))
        assert len((await world.other.get(_ANCHOR)).data) < 2_000
    await world.other.delete(_ANCHOR)
    await world.change(world.mine, put(b"+"))
    assert await world.data() == b"old++++"
    assert (await world.other.get(_ANCHOR)).version == 0


async def test_the_first_change_wants_the_anchor_as_it_was_made(world: World) -> None:
    await world.other.create("/new")

    async def make() -> None:
        await world.mine.make("/new", "/things/two", created, subject="thing two", is_first=True)

    async def created(node: Versioned | None) -> Sequence[Change]:
        assert node is None
        return [Create("/things/two")]

    await world.other.set("/new", b"swept")
    with pytest.raises(NoNode):
        await make()
    await world.other.delete("/new")
    with pytest.raises(NoNode):
        await make()
    await world.other.create("/new")
    world.tree.on_request = lambda operation: (
        Fault.LOSE_REPLY if operation.name == "multi" else None
    )
    await make()
    assert await world.other.children("/things") == ["one", "two"]


async def test_without_a_connection_nothing_has_happened(world: World) -> None:
    world.tree.on_request = lambda operation: (
        Fault.LOSE_REQUEST if operation.name == "sync" else None
    )
    with pytest.raises(ConnectionLoss):
        await world.change(world.mine, put(b"+"))
    world.tree.on_request = lambda operation: None
    await world.store.close()
    with pytest.raises(SessionExpired):
        await world.change(world.mine, put(b"+"))
    assert await world.data() == b"old"
