"""The connection thread's socket: what is read ahead, and who is ready."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from client.metadata.zookeeper import _BufferedSocket, _InlineHandler


@pytest.fixture
def pair() -> Iterator[tuple[_BufferedSocket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with _BufferedSocket(ours) as made, theirs:
        made.setblocking(False)
        yield made, theirs


def test_pieces_come_out_of_one_read(pair: tuple[_BufferedSocket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.sendall(b"0123456789")
    assert ours.recv(4) == b"0123"
    assert ours.pending() == 6
    theirs.sendall(b"abc")
    assert [ours.recv(5), ours.recv(5), ours.recv(5)] == [b"45678", b"9", b"abc"]
    assert ours.pending() == 0
    with pytest.raises(BlockingIOError):
        ours.recv(1)


def test_the_end_shows_after_what_was_read_ahead(
    pair: tuple[_BufferedSocket, socket.socket],
) -> None:
    ours, theirs = pair
    theirs.sendall(b"ab")
    theirs.close()
    assert [ours.recv(1), ours.recv(1), ours.recv(1)] == [b"a", b"b", b""]


def test_who_is_ready(pair: tuple[_BufferedSocket, socket.socket]) -> None:
    ours, theirs = pair
    handler = _InlineHandler()
    assert handler.select([ours], [], [], 0) == ([], [], [])
    assert handler.select([], [ours], [], 0) == ([], [ours], [])
    theirs.sendall(b"ab")
    assert handler.select([ours], [], [], None) == ([ours], [], [])
    ours.recv(1)
    assert handler.select([ours], [], [], 0) == ([ours], [], []), "read ahead"
    ours.recv(1)
    assert handler.select([ours], [], [], 0.001) == ([], [], [])
    theirs.close()
    assert handler.select([ours], [], [], None) == ([ours], [], []), "its end is to be read"
