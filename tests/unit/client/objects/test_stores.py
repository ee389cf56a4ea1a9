"""What every object store does, the one in memory and a directory through obstore alike; and how
the errors of real ones are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from client.errors import (
    ConfigError,
    NoObject,
    ObjectExists,
    StoreRefuses,
    StoreUnavailable,
)
from client.objects.memory import Fault, MemoryObjectStore
from client.objects.obstore_store import ObstoreStore
from client.objects.store import PART_BYTES, ObjectStore
from tests.fakes.virtual_time import VirtualClock


@pytest.fixture(params=["memory", "directory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "memory":
        return MemoryObjectStore(VirtualClock())
    return ObstoreStore(f"file://{tmp_path}/objects")


async def parts_of(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def names(store: ObjectStore, prefix: str) -> list[str]:
    return [each.name async for each in store.list(prefix)]


async def test_what_was_put_is_read_back(store: ObjectStore) -> None:
    await store.put("log/a/1", parts_of(b"0123456789"))
    assert await store.read("log/a/1", 2, 5) == b"234"
    assert await store.read("log/a/1", 8, 50) == b"89"
    assert await store.tail("log/a/1", 3) == (b"789", 10)
    assert await store.tail("log/a/1", 64) == (b"0123456789", 10)
    found = await store.head("log/a/1")
    assert (found.name, found.size) == ("log/a/1", 10)
    assert found.modified_ms > 1_600_000_000_000
    await store.close()


async def test_an_object_of_many_parts_is_one(store: ObjectStore) -> None:
    big = bytes(range(256)) * (PART_BYTES // 256)
    await store.put("log/big", parts_of(big, big, b"end"))
    assert (await store.head("log/big")).size == 2 * PART_BYTES + 3
    assert await store.read("log/big", PART_BYTES - 1, PART_BYTES + 1) == b"\xff\x00"
    assert (await store.tail("log/big", 4)).data == b"\xffend"


async def test_a_name_is_not_used_twice(store: ObjectStore) -> None:
    await store.put("log/a", parts_of(b"first"))
    with pytest.raises(ObjectExists):
        await store.put("log/a", parts_of(b"second"))
    assert await store.read("log/a", 0, 9) == b"first"


async def test_what_is_not_there_is_said_and_deletes_do_not_mind(store: ObjectStore) -> None:
    calls: list[Any] = [
        store.read("log/none", 0, 1), store.tail("log/none", 1), store.head("log/none"),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(NoObject):
            await call
    await store.delete("log/none")
    await store.put("log/a", parts_of(b"x"))
    await store.delete("log/a")
    with pytest.raises(NoObject):
        await store.head("log/a")


async def test_a_list_has_what_is_in_the_folder_and_nothing_else(store: ObjectStore) -> None:
    for name in ("log/a/2", "log/a/1", "log/ab/3", "log/a/sub/4"):
        await store.put(name, parts_of(b"x"))
    assert sorted(await names(store, "log/a")) == ["log/a/1", "log/a/2", "log/a/sub/4"]
    assert await names(store, "log/none") == []


@pytest.mark.parametrize("count", [0, 3])
async def test_parts_that_fail_leave_nothing(store: ObjectStore, count: int) -> None:
    async def failing() -> AsyncIterator[bytes]:
        for _ in range(count):
            yield b"x" * PART_BYTES
        raise NoObject("of somebody else's")

    with pytest.raises(NoObject, match="somebody else"):
        await store.put("log/a", failing())
    assert await names(store, "log") == []


async def test_requests_are_counted(store: ObjectStore) -> None:
    await store.put("log/a", parts_of(b"x"))
    await store.tail("log/a", 1)
    await store.read("log/a", 0, 1)
    assert store.requests == {"put": 1, "read": 2, "head": 0, "delete": 0, "list": 0}


@pytest.mark.parametrize("url", ["", "objects", "ftp://host/x", "s3://", "s3:///folder"])
def test_a_place_that_is_none_is_refused_in_words(url: str) -> None:
    with pytest.raises(ConfigError, match="file:///DIRECTORY or s3://BUCKET/FOLDER"):
        ObstoreStore(url)


async def test_a_store_that_does_not_answer_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    store = ObstoreStore("s3://bucket/folder", endpoint="http://127.0.0.1:1", timeout_s=0.5)
    with pytest.raises(StoreUnavailable, match="s3://bucket/folder"):
        await store.head("log/a")
    await store.close()


async def test_a_directory_that_cannot_be_written_refuses(tmp_path: Path) -> None:
    (tmp_path / "objects").mkdir()
    store = ObstoreStore(f"file://{tmp_path}/objects")
    (tmp_path / "objects" / "log").write_bytes(b"a file where a folder should be")
    with pytest.raises((StoreRefuses, StoreUnavailable, NoObject)):
        await store.put("log/a", parts_of(b"x"))


async def test_the_store_of_tests_lies_as_it_is_told() -> None:
    clock = VirtualClock()
    store = MemoryObjectStore(clock)
    store.faults = lambda call, name: Fault(loses_answer=True)
    with pytest.raises(StoreUnavailable):
        await store.put("a", parts_of(b"0123"))
    store.faults = lambda call, name: Fault(says_exists=True)
    with pytest.raises(ObjectExists):
        await store.put("b", parts_of(b"0123"))
    store.faults = lambda call, name: Fault(cuts=True)
    assert await store.read("a", 0, 4) == b"01"
    store.faults = lambda call, name: Fault(flips=True)
    assert await store.read("b", 0, 4) != b"0123"
    store.faults = lambda call, name: Fault(refuses=StoreRefuses("no"))
    with pytest.raises(StoreRefuses):
        await store.delete("a")
    assert sorted(store.objects) == ["a", "b"]
    await asyncio.sleep(0)
