"""Bootstrap addresses: what is accepted, and the diagnosis when nobody answers."""

from __future__ import annotations

import asyncio
import socket

import pytest

from client.errors import ConfigError
from client.pubsub import addresses


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        ("a:1, b:65535", [("a", 1), ("b", 65535)]),
        ("a", [("a", 9092)]),
        ("[::1]:7", [("::1", 7)]),
        ("[::1]", [("::1", 9092)]),
    ],
)
def test_accepts_lists_of_host_and_port(text: str, expected: list[tuple[str, int]]) -> None:
    assert addresses.parse(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", ":9092", "a:", "a:b", "a:0", "a:65536", "a:1,,b:1", "a:-1", "a..b:9092", f"{'a' * 64}:1"],
)
def test_refuses_anything_else_naming_the_part(text: str) -> None:
    with pytest.raises(ConfigError, match="is not an address: write host:port"):
        addresses.parse(text)


async def test_says_when_nothing_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert await addresses.why_unreachable(f"127.0.0.1:{port}") == (
        f"nothing listens at 127.0.0.1:{port}"
    )


async def test_says_when_something_else_listens() -> None:
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert await addresses.why_unreachable(f"127.0.0.1:{port}") == (
            f"127.0.0.1:{port} accepts connections, but no Kafka broker answers there"
        )


async def test_says_when_the_host_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_such_name(*_: object, **__: object) -> object:
        raise socket.gaierror

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "create_connection", no_such_name)
    assert await addresses.why_unreachable("nowhere:1") == "there is no host named nowhere"


async def test_says_when_there_is_no_answer_or_no_route(monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[Exception] = [TimeoutError(), OSError(113, "No route to host")]

    async def fail(*_: object, **__: object) -> object:
        raise errors.pop(0)

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", fail)
    assert await addresses.why_unreachable("a:1,b:2") == (
        "a:1 does not answer; b:2 cannot be reached (No route to host)"
    )
