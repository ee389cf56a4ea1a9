"""Checks of ZooKeeper and of a bookie's cookie."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from bookie.config import BookieConfig
from bookie.membership.cookie import FILE_NAME, Cookie
from client.ids import BookieId
from client.metadata import paths
from client.metadata.bookkeeper import init_bookkeeper, init_quire, read_instance_id
from client.metadata.memory import MemoryCluster, MemoryStore
from ops.doctor.findings import Level
from ops.doctor.metadata import ask_server, check_cookie, check_server, check_trees
from ops.ports import pick_free

ID = BookieId("b0:3181")


@pytest.mark.parametrize(
    ("answer", "level", "word"),
    [
        ("Zookeeper version: 3.9.3\nMode: standalone\n", Level.FINE, "standalone"),
        ("Mode: follower\n", Level.FINE, "follower"),
        ("Mode: read-only\n", Level.TROUBLE, "read-only"),
        (
            "This ZooKeeper instance is not currently serving requests\n",
            Level.TROUBLE,
            "no quorum",
        ),
        (
            "srvr is not executed because it is not in the whitelist.\n",
            Level.WARNING,
            "does not tell",
        ),
        ("", Level.WARNING, "says nothing"),
        (None, Level.TROUBLE, "does not answer"),
    ],
)
def test_servers(answer: str | None, level: Level, word: str) -> None:
    found = check_server("z:2181", answer)
    assert found.level is level
    assert word in found.what
    assert found.advice or level is Level.FINE


async def test_servers_are_asked_in_their_own_words() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(4) == b"srvr"
        writer.write(b"Mode: leader\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    assert await ask_server("127.0.0.1", port) == "Mode: leader\n"
    server.close()
    assert await ask_server("127.0.0.1", pick_free(1)[0]) is None


@pytest.fixture
def store() -> MemoryStore:
    return MemoryCluster().session()


async def test_trees_that_are_not_there_and_those_that_are(store: MemoryStore) -> None:
    empty = await check_trees(store, paths.LEDGERS_ROOT)
    assert [one.level for one in empty] == [Level.TROUBLE] * 2
    assert all("`quire metadata init`" in one.advice for one in empty)
    await init_bookkeeper(store, rng=random.Random(1))
    await init_quire(store, rng=random.Random(1))
    made = await check_trees(store, paths.LEDGERS_ROOT)
    assert [one.level for one in made] == [Level.FINE] * 2
    await store.set(paths.layout(), b"2\norg.example.Other:1")
    assert (await check_trees(store, paths.LEDGERS_ROOT))[0].level is Level.TROUBLE


async def cookie_level(store: MemoryStore, folder: Path, **settings: object) -> tuple[Level, str]:
    config = BookieConfig(data_dir=folder, bookie_id=ID, **settings)  # type: ignore[arg-type]
    (found,) = await check_cookie(store, config)
    return found.level, found.what


async def test_cookies(store: MemoryStore, tmp_path: Path) -> None:
    await init_bookkeeper(store, rng=random.Random(1))
    instance_id = await read_instance_id(store)
    mine = Cookie(ID, (str(tmp_path),), instance_id)
    node = paths.cookie(ID)

    assert await cookie_level(store, tmp_path) == (Level.FINE, f"bookie {ID} is new to the cluster")
    await store.create(node, mine.encode(), make_parents=True)
    level, what = await cookie_level(store, tmp_path)
    assert level is Level.TROUBLE and "directories are empty" in what

    file = tmp_path / FILE_NAME
    file.write_bytes(mine.encode())
    assert (await cookie_level(store, tmp_path))[0] is Level.FINE
    file.write_bytes(mine._replace(bookie_id=BookieId("b9:1")).encode())
    assert "that of bookie b9:1" in (await cookie_level(store, tmp_path))[1]
    file.write_bytes(mine._replace(instance_id="other").encode())
    assert "that of another cluster" in (await cookie_level(store, tmp_path))[1]
    file.write_bytes(b"nonsense")
    level, what = await cookie_level(store, tmp_path)
    assert level is Level.TROUBLE and str(file) in what
    file.write_bytes(mine.encode())
    await store.delete(node)
    assert "the cluster forgot" in (await cookie_level(store, tmp_path))[1]
