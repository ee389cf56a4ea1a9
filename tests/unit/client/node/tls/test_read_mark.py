"""How much the kernel gathers before the loop hears of it: never more than is still to come."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from client.node.tls.read_mark import MARK_BYTES_MAX, MARK_BYTES_MIN, ReadMark


class Socket:
    """Keeps the marks that are set."""

    def __init__(self) -> None:
        self.marks: list[int] = []

    def setsockopt(self, level: int, name: int, value: int) -> None:
        assert (level, name) == (socket.SOL_SOCKET, socket.SO_RCVLOWAT)
        self.marks.append(value)


def mark_of(made: object) -> ReadMark:
    return ReadMark(asyncio.Transport({"socket": made}))


@pytest.mark.parametrize(
    ("count", "mark"),
    [
        (MARK_BYTES_MIN, MARK_BYTES_MIN),
        (70_000, 70_000),
        (MARK_BYTES_MAX, MARK_BYTES_MAX),
        (MARK_BYTES_MAX + 1, MARK_BYTES_MAX),
    ],
)
def test_what_is_missing_is_gathered_first_up_to_a_limit(count: int, mark: int) -> None:
    made = Socket()
    mark_of(made).await_bytes(count)
    assert made.marks == [mark]


@pytest.mark.parametrize("count", [-5, 0, 1, 4, MARK_BYTES_MIN - 1])
def test_a_little_is_not_waited_for(count: int) -> None:
    made = Socket()
    mark = mark_of(made)
    mark.await_bytes(count)
    assert made.marks == [], "as it was from the beginning"
    mark.await_bytes(50_000)
    mark.await_bytes(count)
    assert made.marks == [50_000, 1]


def test_the_kernel_is_told_of_changes_alone() -> None:
    made = Socket()
    mark = mark_of(made)
    for count in (900_000, 700_000, 500_000, 60_000, 60_000, 4, 4):
        mark.await_bytes(count)
    assert made.marks == [MARK_BYTES_MAX, 60_000, 1]


def test_a_transport_without_a_socket_is_read_as_it_comes() -> None:
    mark = mark_of(None)
    mark.await_bytes(50_000)
    assert mark._mark == 1


def test_a_socket_that_is_closed_is_an_error() -> None:
    made = socket.socket()
    made.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        mark_of(made).await_bytes(50_000)


async def test_the_kernel_does_as_it_is_told() -> None:
    """Small pieces wake nobody up; the last one of those that are awaited does, and an end does."""
    loop = asyncio.get_running_loop()
    listener = socket.create_server(("127.0.0.1", 0))
    sender = socket.create_connection(listener.getsockname())
    receiver, _ = listener.accept()
    listener.close()
    receiver.setblocking(False)
    sizes: list[Any] = []
    readable = asyncio.Event()

    def on_readable() -> None:
        sizes.append(len(receiver.recv(1 << 20)))
        readable.set()

    mark_of(receiver).await_bytes(50_000)
    loop.add_reader(receiver, on_readable)
    for _ in range(50):
        sender.sendall(bytes(1_000))
        await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await readable.wait()
    assert sizes == [50_000]
    readable.clear()
    sender.sendall(bytes(7))
    sender.close()
    async with asyncio.timeout(10):
        await readable.wait()
    assert sizes == [50_000, 7]
    loop.remove_reader(receiver)
    receiver.close()
