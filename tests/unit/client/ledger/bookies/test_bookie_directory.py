"""The list of bookies and their addresses."""

from __future__ import annotations

import asyncio

import pytest

from client.errors import BookieUnavailable, ConnectionLoss
from client.ids import BookieId
from client.ledger.bookies.bookie_directory import (
    Address,
    BookieDirectory,
    ServiceInfo,
    parse_service_info,
)
from client.metadata.memory import Fault, MemoryCluster
from client.wire.bookkeeper import protobuf
from tests.fakes.ledger_cluster import settle

ROOT = "/ledgers"
B0, B1, B2 = (BookieId(f"b{i}:3181") for i in range(3))


def service_info(
    host: str, port: int, protocol: str = "bookie-rpc", rack: str | None = None
) -> bytes:
    info = protobuf.BookieServiceInfoFormat()
    if rack is not None:
        info.properties.add(key="rack", value=rack)
    info.endpoints.add(id="http", host=host, port=8080, protocol="http")
    info.endpoints.add(id="bookie", host=host, port=port, protocol=protocol)
    data: bytes = info.SerializeToString()
    return data


async def start(*paths: str) -> tuple[MemoryCluster, BookieDirectory]:
    cluster = MemoryCluster(reconnect_delay_s=0.0)
    store = cluster.session()
    for path in paths:
        await store.create(f"{ROOT}/{path}", make_parents=True)
    directory = BookieDirectory(cluster.session(), ROOT)
    await directory.start()
    return cluster, directory


async def test_lists_writable_and_readonly_bookies() -> None:
    _, directory = await start(
        f"available/{B1}", f"available/{B0}", f"available/readonly/{B2}", f"available/readonly/{B0}"
    )
    assert directory.writable == (B0, B1)
    assert directory.readonly == (B2,), "one in both lists is writable"


async def test_follows_changes_and_tells_listeners() -> None:
    cluster, directory = await start(f"available/{B0}", "available/readonly")
    store = cluster.session()
    seen: list[tuple[BookieId, ...]] = []

    def listener() -> None:
        seen.append(directory.writable)

    directory.add_listener(listener)
    await store.create(f"{ROOT}/available/{B1}")
    await settle()
    assert seen[-1] == (B0, B1)
    await store.create(f"{ROOT}/available/readonly/{B0}")
    await store.delete(f"{ROOT}/available/{B0}")
    await settle()
    assert (directory.writable, directory.readonly) == ((B1,), (B0,))
    directory.remove_listener(listener)
    seen.clear()
    await store.create(f"{ROOT}/available/{B2}")
    await settle()
    assert seen == []
    assert directory.writable == (B1, B2)


async def test_waits_for_directories_that_do_not_exist_yet() -> None:
    cluster, directory = await start()
    assert directory.writable == ()
    await cluster.session().create(f"{ROOT}/available/{B0}", make_parents=True)
    await settle()
    assert directory.writable == (B0,)


async def test_lists_again_after_a_session_expired() -> None:
    cluster, directory = await start(f"available/{B0}", "available/readonly")
    store = directory._store
    cluster.expire(store)  # type: ignore[arg-type]
    await cluster.session().create(f"{ROOT}/available/{B1}")
    await settle()
    assert directory.writable == (B0, B1)


async def test_lists_again_when_the_store_could_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("client.ledger.bookies.bookie_directory._RELIST_DELAY_S", 0.0)
    cluster, directory = await start(f"available/{B0}", "available/readonly")
    faults = [Fault.LOSE_REPLY, Fault.LOSE_REQUEST]
    cluster.on_request = lambda operation: (
        faults.pop() if operation.name == "children" and faults else None
    )
    await cluster.session().create(f"{ROOT}/available/{B1}")
    for _ in range(5):
        await settle()
    assert directory.writable == (B0, B1)
    assert faults == []


async def test_close_stops_watching() -> None:
    cluster, directory = await start(f"available/{B0}", "available/readonly")
    directory.close()
    await cluster.session().create(f"{ROOT}/available/{B1}")
    await settle()
    assert directory.writable == (B0,)


async def test_address_comes_from_the_registration_and_is_remembered() -> None:
    cluster, directory = await start("available/readonly")
    store = cluster.session()
    await store.create(f"{ROOT}/available/{B0}", service_info("10.0.0.9", 4000))
    await store.create(f"{ROOT}/available/readonly/{B1}", service_info("10.0.0.8", 4001))
    await settle()
    assert await directory.address(B0) == Address("10.0.0.9", 4000)
    assert await directory.address(B1) == ("10.0.0.8", 4001)
    await store.set(f"{ROOT}/available/{B0}", service_info("10.0.0.9", 5000))
    assert await directory.address(B0) == ("10.0.0.9", 4000)
    directory.doubt_address(B0)
    assert await directory.address(B0) == ("10.0.0.9", 5000)


async def test_the_last_known_address_serves_while_the_store_is_away() -> None:
    cluster, directory = await start(f"available/{B0}", f"available/{B1}")
    await directory.address(B0)
    cluster.on_request = lambda operation: Fault.LOSE_REQUEST
    assert await directory.address(B0) == Address("b0", 3181)
    directory.doubt_address(B0)
    assert await directory.address(B0) == Address("b0", 3181)
    with pytest.raises(ConnectionLoss):
        await directory.address(B2)


async def test_racks_are_what_bookies_publish() -> None:
    cluster, directory = await start("available/readonly")
    store = cluster.session()
    await store.create(f"{ROOT}/available/{B0}", service_info("h", 1, rack="/east"))
    await store.create(f"{ROOT}/available/{B1}", b"\xff\xff\xff")
    await settle()
    assert directory.writable == (B0, B1), "listed, whatever it says of itself"
    assert [directory.rack(b) for b in (B0, B1, B2)] == ["/east", None, None]
    await store.delete(f"{ROOT}/available/{B0}")
    await settle()
    assert directory.rack(B0) == "/east", "its ledgers are still there"
    await store.create(f"{ROOT}/available/{B0}", service_info("h", 1, rack="/west"))
    await settle()
    assert directory.rack(B0) == "/west"


async def test_address_of_an_unregistered_bookie_is_its_id() -> None:
    _, directory = await start("available/readonly")
    assert await directory.address(B2) == Address("b2", 3181)
    with pytest.raises(BookieUnavailable):
        await directory.address(BookieId("just-a-name"))
    await asyncio.sleep(0)


def test_service_info_without_a_bookie_endpoint_falls_back_to_the_id() -> None:
    assert parse_service_info(B0, b"") == ServiceInfo(Address("b0", 3181), None)
    info = parse_service_info(B0, service_info("h", 1, protocol="ftp"))
    assert info.address == Address("b0", 3181)
    with pytest.raises(BookieUnavailable):
        parse_service_info(B0, b"\xff\xff\xff")


def test_service_info_names_the_admin_server() -> None:
    info = protobuf.BookieServiceInfoFormat()
    info.endpoints.add(id="bookie", port=4000, host="h", protocol="bookie-rpc")
    assert parse_service_info(B0, info.SerializeToString()).http is None
    info.endpoints.add(id="httpserver", port=8080, host="h", protocol="http")
    assert parse_service_info(B0, info.SerializeToString()).http == Address("h", 8080)
