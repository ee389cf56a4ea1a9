"""The admin servers: large, slow and nonsensical requests, and connections without any."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from broker.admin import schema
from client.node.http_connections import HttpConnections
from tests.fakes.admin import AdminCloud
from tests.fakes.broker import until

CPU_S_MAX = 3.0
"""For one hostile request, on a busy machine."""
HEAD = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n"


@pytest.fixture
async def cloud() -> AsyncIterator[AdminCloud]:
    async with AdminCloud(control_request_bytes_max=1 << 20) as made:
        yield made


BODIES = {
    "no JSON": b"{",
    "no UTF-8": b'{"name": "\xff"}',
    "nested": b'{"name":' * 100_000,
    "nested lists": b"[" * 500_000,
    "huge number": b'{"name": "t", "partitions": ' + b"9" * 100_000 + b"}",
    "no number": b'{"name": "t", "partitions": NaN}',
    "infinite": b'{"name": "t", "partitions": 1e999}',
    "unknown fields": json.dumps({f"field{n}": 1 for n in range(50_000)}).encode(),
    "one long field": json.dumps({"name" * 200_000: 1}).encode(),
    "another type": b'["t"]',
    "half a surrogate": b'{"name": "\\ud800"}',
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
async def test_bad_bodies_are_refused_quickly(cloud: AdminCloud, body: bytes) -> None:
    began_s = time.process_time()
    headers = {"Content-Type": "application/json"}
    answer = await cloud.ask("PUT", "/admin/v1/topics/t", data=body, headers=headers)
    assert answer.status in (400, 413, 422)
    assert len(json.dumps(answer.body)) < 100_000
    assert time.process_time() - began_s < CPU_S_MAX
    assert await cloud.get("/topics")


async def test_a_body_above_the_limit_is_refused(cloud: AdminCloud) -> None:
    headers = {"Content-Type": "application/json"}
    data = b" " * ((1 << 20) + 1)
    answer = await cloud.ask("PUT", "/admin/v1/topics/t", data=data, headers=headers)
    assert answer.status == 413
    assert await cloud.get("/topics")


async def test_a_body_of_too_many_values_is_not_parsed(
    cloud: AdminCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A parser of a megabyte of empty lists lets nobody else have a turn."""
    parsed: list[bytes] = []
    monkeypatch.setattr("broker.admin.server.parse_json", lambda body, **_: parsed.append(body))
    headers = {"Content-Type": "application/json"}
    for data in (b"[" + b"[]," * 300_000 + b"1]", b'["' + b'","' * 300_000 + b'"]'):
        answer = await cloud.ask("PUT", "/admin/v1/topics/t", data=data, headers=headers)
        assert answer.status == 413
        assert answer.body["type"] == "urn:quire:problem:too-many-values"
    assert parsed == []


@pytest.mark.parametrize(
    "path",
    ["/topics/..", "/topics/%2e%2e%2fx", "/topics/a%00b", "/topics/" + "x" * 1100,
     "/topics/t/partitions/" + "9" * 5000, "/topics?limit=" + "9" * 5000,
     "/topics/t/partitions/-1", "/groups/" + "%0d%0aX: y"],
)  # fmt: skip
async def test_bad_paths_and_queries_are_refused(cloud: AdminCloud, path: str) -> None:
    from yarl import URL

    url = URL(cloud.admins[1].url + "/admin/v1" + path, encoded=True)
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert answer.status in (400, 404, 422)


def test_no_more_than_so_many_faults_are_looked_for() -> None:
    fields = {"items": schema.list_of(schema.whole("A number."), "Numbers.", at_most=1000)}
    with pytest.raises(schema.Faults) as caught:
        schema.read(schema.record("Things.", fields), {"items": ["x"] * 1_000_000}, "", {})
    assert len(caught.value.faults) <= 101


class TestDoors:
    """Connections that have no request, or never finish one."""

    @pytest.fixture
    async def port(self) -> AsyncIterator[tuple[int, HttpConnections]]:
        doors = HttpConnections(connections_max=5, patience_s=0.4)

        async def echo(request: web.Request) -> web.Response:
            return web.Response(body=await doors.body(request))

        async def slow(request: web.Request) -> web.Response:
            await asyncio.sleep(1.0)
            return web.Response(text="done")

        app = web.Application(middlewares=[doors.watch])
        app.router.add_post("/echo", echo)
        app.router.add_get("/slow", slow)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        yield await doors.listen(runner, "127.0.0.1", 0), doors
        doors.close()
        await runner.cleanup()

    @pytest.mark.parametrize("said", [b"", b"POST /ec", HEAD, HEAD + b"X: y\r\n"])
    async def test_without_a_whole_head_a_connection_ends(
        self, port: tuple[int, HttpConnections], said: bytes
    ) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port[0])
        writer.write(said)
        async with asyncio.timeout(20):
            with pytest.raises(ConnectionError):
                assert await reader.read() == b""
                raise ConnectionError
        writer.close()
        await until(lambda: not port[1]._doors, 20.0)

    async def test_a_body_that_does_not_end_is_given_up(
        self, port: tuple[int, HttpConnections]
    ) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port[0])
        writer.write(HEAD + b"\r\nhalf")
        async with asyncio.timeout(20):
            assert b"408" in await reader.readline()
        writer.close()

    async def test_bodies_together_have_a_limit_and_the_next_one_is_told_to_come_again(
        self, port: tuple[int, HttpConnections], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        number, doors = port
        monkeypatch.setattr("client.node.http_connections.BODIES_BYTES_MAX", 100)
        _, held = await asyncio.open_connection("127.0.0.1", number)
        held.write(HEAD.replace(b"Length: 100", b"Length: 60") + b"\r\nhalf")
        await until(lambda: doors.bodies_bytes == 60, 20.0)
        url = f"http://127.0.0.1:{number}/echo"
        async with aiohttp.ClientSession() as session:
            async with session.post(url, data=bytes(41)) as answer:
                assert answer.status == 503
            async with session.post(url, data=bytes(40)) as answer:
                assert await answer.read() == bytes(40)
        await until(lambda: not doors.bodies_bytes, 20.0)
        held.close()

    async def test_a_slow_answer_is_no_silence(self, port: tuple[int, HttpConnections]) -> None:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port[0]}/slow") as answer,
        ):
            assert await answer.text() == "done"

    async def test_so_many_connections_and_no_more(self, port: tuple[int, HttpConnections]) -> None:
        number, doors = port
        streams = [await asyncio.open_connection("127.0.0.1", number) for _ in range(6)]
        await until(lambda: doors.refused_count == 1, 20.0)
        for _, writer in streams:
            writer.transport.abort()
        await until(lambda: not doors._doors, 20.0)
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"http://127.0.0.1:{number}/echo", data=b"x") as answer,
        ):
            assert await answer.read() == b"x"
