"""The ephemeral node: made, waited for, moved, renewed after an expiry, taken away."""

from __future__ import annotations

import asyncio

import pytest

from bookie.membership.registration import Registration, service_info
from client.errors import ConfigError
from client.ids import BookieId
from client.metadata import paths
from client.metadata.memory import Fault, MemoryCluster, MemoryStore, Operation
from client.metadata.store import SessionState
from client.wire.bookkeeper import protobuf
from tests.fakes.bookie_box import settle

ROOT = "/ledgers"
BOOKIE = BookieId("b1:3181")
WRITABLE = paths.available_bookie(BOOKIE, ROOT)
READ_ONLY = paths.readonly_bookie(BOOKIE, ROOT)


def make(store: MemoryStore, takeover_timeout_s: float = 5.0) -> Registration:
    return Registration(
        store,
        BOOKIE,
        service_info("h", 3181, None),
        root=ROOT,
        takeover_timeout_s=takeover_timeout_s,
        loop=asyncio.get_running_loop(),
    )


async def _made() -> None:
    return


async def owner(store: MemoryStore, path: str) -> int | None:
    found = await store.exists(path)
    return None if found is None else found.ephemeral_owner


def test_service_info_lists_endpoints() -> None:
    info = protobuf.BookieServiceInfoFormat()
    info.ParseFromString(service_info("h", 3181, 8080))
    found = [(e.id, e.host, e.port, e.protocol) for e in info.endpoints]
    assert found == [("bookie", "h", 3181, "bookie-rpc"), ("httpserver", "h", 8080, "http")]
    info.ParseFromString(service_info("h", 3181, None))
    assert len(info.endpoints) == 1
    assert len(info.properties) == 0
    info.ParseFromString(service_info("h", 3181, None, "/east"))
    assert [(p.key, p.value) for p in info.properties] == [("rack", "/east")]


async def test_register_makes_an_ephemeral_and_the_directories() -> None:
    store = MemoryCluster().session()
    registration = make(store)
    await registration.register(read_only=False)
    assert registration.is_registered
    assert await owner(store, WRITABLE) == store.session_id
    assert (await store.get(WRITABLE)).data == service_info("h", 3181, None)
    assert await store.children(paths.readonly(ROOT)) == []
    await registration.close()
    assert await owner(store, WRITABLE) is None
    assert not registration.is_registered


async def test_an_older_sessions_node_is_waited_out_not_deleted() -> None:
    cluster = MemoryCluster(session_timeout_s=0.05)
    old, new = cluster.session(), cluster.session()
    await make(old).register(read_only=False)
    registration = make(new)
    registering = asyncio.create_task(registration.register(read_only=False))
    await settle()
    assert await owner(new, WRITABLE) == old.session_id
    assert not registration.is_registered
    cluster.kill(old)
    async with asyncio.timeout(5):
        await registering
    assert await owner(new, WRITABLE) == new.session_id


async def test_an_id_that_stays_taken_is_an_error() -> None:
    cluster = MemoryCluster()
    old, new = cluster.session(), cluster.session()
    await make(old).register(read_only=False)
    with pytest.raises(ConfigError, match="in use"):
        await make(new, takeover_timeout_s=0.01).register(read_only=False)
    assert await owner(old, WRITABLE) == old.session_id


async def test_registers_again_under_a_new_session() -> None:
    cluster = MemoryCluster()
    store = cluster.session()
    registration = make(store)
    await registration.register(read_only=False)
    first = store.session_id
    cluster.expire(store)
    await settle(50)
    assert registration.is_registered
    assert store.session_id != first
    assert await owner(store, WRITABLE) == store.session_id


async def test_a_lost_answer_to_our_own_create_is_recognised(monkeypatch) -> None:
    monkeypatch.setattr("bookie.membership.registration._RETRY_S", 0.0)
    cluster = MemoryCluster(reconnect_delay_s=0.0)
    store = cluster.session()
    lost: list[Operation] = []

    def lose(operation: Operation) -> Fault | None:
        if operation.name == "create" and operation.path == WRITABLE and not lost:
            lost.append(operation)
            return Fault.LOSE_REPLY
        return None

    cluster.on_request = lose
    async with asyncio.timeout(5):
        await make(store).register(read_only=False)
    assert lost
    assert await owner(store, WRITABLE) == store.session_id


async def test_a_lost_answer_to_a_removal_is_not_believed_to_be_no_removal(monkeypatch) -> None:
    """Seed 621 of the simulation's wrecks: a bookie that nobody could find any more."""
    monkeypatch.setattr("bookie.membership.registration._RETRY_S", 0.0)
    cluster = MemoryCluster(reconnect_delay_s=0.0)
    store = cluster.session()
    registration = make(store)
    await registration.register(read_only=False)

    def lose_once(operation: Operation) -> Fault | None:
        if operation.name == "delete" and operation.path == WRITABLE:
            cluster.on_request = lambda _: None
            # The disk has space again before the removal is tried again.
            registration.set_read_only(False)
            return Fault.LOSE_REPLY
        return None

    cluster.on_request = lose_once
    registration.set_read_only(True)
    await settle(100)
    assert registration.is_registered
    assert await owner(store, WRITABLE) == store.session_id
    assert await owner(store, READ_ONLY) is None


@pytest.mark.parametrize("lags", [True, False])
async def test_a_lost_answer_to_a_creation_is_not_believed_to_be_no_creation(
    monkeypatch, lags: bool
) -> None:
    monkeypatch.setattr("bookie.membership.registration._RETRY_S", 0.0)
    cluster = MemoryCluster(reconnect_delay_s=0.0)
    store = cluster.session()
    registration = make(store)
    await registration.register(read_only=True)

    def lose_once(operation: Operation) -> Fault | None:
        if operation.name == "create" and operation.path == WRITABLE:
            cluster.on_request = lambda _: None
            registration.set_read_only(True)
            return Fault.LOSE_REPLY
        return None

    cluster.on_request = lose_once
    if lags:
        monkeypatch.setattr(registration, "_store_directories", _made)  # a write, it would catch up
        cluster.freeze(store)
    registration.set_read_only(False)
    await settle(100)
    cluster.thaw(store)
    assert registration.is_registered
    assert await owner(store, READ_ONLY) == store.session_id
    assert await owner(store, WRITABLE) is None, "writers would take it for writable"


async def test_what_another_session_made_meanwhile_is_left_alone(monkeypatch) -> None:
    monkeypatch.setattr("bookie.membership.registration._RETRY_S", 0.0)
    cluster = MemoryCluster(reconnect_delay_s=0.0)
    store, other = cluster.session(), cluster.session()
    registration = make(store)
    await registration.register(read_only=True)

    def lose_once(operation: Operation) -> Fault | None:
        if operation.name == "create" and operation.session_id == store.session_id:
            cluster.on_request = lambda _: None
            registration.set_read_only(True)
            return Fault.LOSE_REQUEST
        return None

    await other.create(WRITABLE, b"", ephemeral=True, make_parents=True)
    cluster.on_request = lose_once
    registration.set_read_only(False)
    await settle(100)
    assert await owner(store, WRITABLE) == other.session_id
    assert await owner(store, READ_ONLY) == store.session_id


async def test_a_read_only_bookie_registers_as_such() -> None:
    store = MemoryCluster().session()
    registration = make(store)
    await registration.register(read_only=True)
    assert await owner(store, READ_ONLY) == store.session_id
    assert await owner(store, WRITABLE) is None


async def test_close_survives_a_metadata_store_that_is_away(monkeypatch) -> None:
    cluster = MemoryCluster()
    store = cluster.session()
    registration = make(store)
    await registration.register(read_only=False)
    cluster.on_request = lambda operation: Fault.LOSE_REQUEST
    await registration.close()
    cluster.on_request = lambda operation: None
    assert await owner(store, WRITABLE) == store.session_id  # it goes with the session
    other = make(store)
    await other.close()


async def test_close_does_not_wait_for_a_metadata_store_without_end(monkeypatch) -> None:
    monkeypatch.setattr("bookie.membership.registration._CLOSE_TIMEOUT_S", 0.01)
    cluster = MemoryCluster()
    store = cluster.session()
    registration = make(store)
    await registration.register(read_only=False)
    cluster.suspend(store)
    async with asyncio.timeout(5):
        await registration.close()
    assert not registration.is_registered


async def test_an_expiry_after_close_registers_nothing() -> None:
    cluster = MemoryCluster()
    store = cluster.session()
    registration = make(store)
    await registration.register(read_only=False)
    await registration.close()
    cluster.expire(store)
    await settle(50)
    assert await owner(store, WRITABLE) is None


async def test_close_stops_a_registration_on_its_way(monkeypatch) -> None:
    cluster = MemoryCluster()
    store, rival = cluster.session(), cluster.session()
    registration = make(store, takeover_timeout_s=0.001)
    monkeypatch.setattr("bookie.membership.registration._RETRY_S", 0.001)
    await registration.register(read_only=False)
    cluster.expire(store)
    await rival.create(WRITABLE, ephemeral=True)
    await asyncio.sleep(0.02)
    assert not registration.is_registered
    await registration.close()
    assert await owner(rival, WRITABLE) == rival.session_id


async def test_moves_to_read_only_and_back_without_a_gap() -> None:
    cluster = MemoryCluster()
    store = cluster.session()
    registration = make(store)
    await registration.register(read_only=False)
    seen: list[tuple[str, str]] = []

    def note(operation: Operation) -> None:
        if operation.name in ("create", "delete") and operation.path.endswith(BOOKIE):
            seen.append((operation.name, operation.path))

    cluster.on_request = note
    for read_only, here, gone in ((True, READ_ONLY, WRITABLE), (False, WRITABLE, READ_ONLY)):
        seen.clear()
        registration.set_read_only(read_only)
        await settle(50)
        assert seen == [("create", here), ("delete", gone)]
        assert await owner(store, here) == store.session_id
        assert await owner(store, gone) is None
        assert registration.is_registered
        assert registration.is_read_only is read_only
    await registration.close()
    assert await owner(store, WRITABLE) is None


async def test_a_change_of_mind_on_the_way_ends_where_it_should(monkeypatch) -> None:
    monkeypatch.setattr("bookie.membership.registration._RETRY_S", 0.0)
    cluster = MemoryCluster(reconnect_delay_s=0.0)
    store = cluster.session()
    registration = make(store)
    await registration.register(read_only=False)
    for turns in range(12):
        for read_only in (True, False):
            registration.set_read_only(read_only)
            await settle(turns)
    cluster.on_request = lambda operation: Fault.LOSE_REPLY if operation.name == "delete" else None
    registration.set_read_only(True)
    await settle(5)
    cluster.on_request = lambda operation: None
    await settle(100)
    assert await owner(store, WRITABLE) is None
    assert await owner(store, READ_ONLY) == store.session_id


async def test_an_expiry_on_the_way_to_read_only_ends_read_only(monkeypatch) -> None:
    monkeypatch.setattr("bookie.membership.registration._RETRY_S", 0.0)
    for turns in range(12):
        cluster = MemoryCluster()
        store = cluster.session()
        registration = make(store)
        await registration.register(read_only=False)
        registration.set_read_only(True)
        await settle(turns)
        cluster.expire(store)
        await settle(100)
        assert await owner(store, READ_ONLY) == store.session_id
        assert await owner(store, WRITABLE) is None


async def test_a_node_of_a_session_that_ended_before_its_answer_counts_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end is heard of before whoever waits for the answer goes on."""
    store = MemoryCluster().session()
    registration = make(store)
    create = store.create
    ends = [True]

    async def create_and_end(path: str, *args: object, **options: object) -> str:
        made = await create(path, *args, **options)  # type: ignore[arg-type]
        if path == WRITABLE and ends:
            ends.clear()
            await store.delete(path)
            registration._on_session(SessionState.EXPIRED)
        return made

    monkeypatch.setattr(store, "create", create_and_end)
    async with asyncio.timeout(5):
        await registration.register(read_only=False)
        await settle(100)
    assert registration.is_registered
    assert await owner(store, WRITABLE) == store.session_id
    await registration.close()
