"""The connection thread's sockets: what is read ahead, gathered and counted, and who is ready."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from client.metadata.zookeeper_io import BufferedSocket, Wake, select_ready

_MORE_THAN_THE_KERNEL_TAKES = bytes(8 << 20)


@pytest.fixture
def pair() -> Iterator[tuple[BufferedSocket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with BufferedSocket(ours) as made, theirs:
        made.setblocking(False)
        theirs.setblocking(False)
        yield made, theirs


@pytest.fixture
def wake() -> Iterator[Wake]:
    made = Wake()
    yield made
    made.close()


def test_pieces_come_out_of_one_read(pair: tuple[BufferedSocket, socket.socket]) -> None:
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
    pair: tuple[BufferedSocket, socket.socket],
) -> None:
    ours, theirs = pair
    theirs.sendall(b"ab")
    theirs.close()
    assert [ours.recv(1), ours.recv(1), ours.recv(1)] == [b"a", b"b", b""]


def test_who_is_ready(pair: tuple[BufferedSocket, socket.socket]) -> None:
    ours, theirs = pair
    assert select_ready([ours], 0) == []
    theirs.sendall(b"ab")
    assert select_ready([ours], None) == [ours]
    ours.recv(1)
    assert select_ready([ours], 0) == [ours], "read ahead"
    ours.recv(1)
    assert select_ready([ours], 0.001) == []
    theirs.close()
    assert select_ready([ours], None) == [ours], "its end is to be read"


def test_requests_leave_together_before_the_thread_waits(
    pair: tuple[BufferedSocket, socket.socket], wake: Wake
) -> None:
    ours, theirs = pair
    for _ in range(3):
        wake.send(b"\0")
    for request in (b"one", b"two", b"three"):
        assert select_ready([ours, wake], None) == [wake]
        assert ours.send(request) == len(request)
        wake.recv(1)
        with pytest.raises(BlockingIOError):
            theirs.recv(100)
    assert select_ready([ours, wake], 0) == []
    assert theirs.recv(100) == b"onetwothree"


def test_much_leaves_though_there_is_more_to_send(
    pair: tuple[BufferedSocket, socket.socket], wake: Wake
) -> None:
    ours, theirs = pair
    wake.send(b"\0")
    ours.send(bytes(100_000))
    assert select_ready([ours, wake], None) == [wake]
    assert len(theirs.recv(1)) == 1


def test_a_server_that_takes_nothing_is_noticed(
    pair: tuple[BufferedSocket, socket.socket],
) -> None:
    ours, theirs = pair
    ours.send(_MORE_THAN_THE_KERNEL_TAKES)
    with pytest.raises(TimeoutError):
        select_ready([ours], 0.01)
    received = 0
    while received < len(_MORE_THAN_THE_KERNEL_TAKES):
        ours.flush()
        received += len(theirs.recv(1 << 20))
    assert ours.flush()


def test_a_lost_server_shows_when_requests_leave(
    pair: tuple[BufferedSocket, socket.socket],
) -> None:
    ours, theirs = pair
    theirs.close()
    ours.send(b"one")
    with pytest.raises(OSError, match="pipe"):
        select_ready([ours], 0)


def test_a_request_wakes_whoever_waits_once(wake: Wake) -> None:
    assert select_ready([wake], 0) == []
    wake.send(b"\0")
    wake.send(b"\0")
    assert select_ready([wake], None) == [wake]
    assert [wake.recv(1), wake.recv(1)] == [b"\0", b"\0"]
    assert select_ready([wake], 0) == [], "one byte was for both"
    with pytest.raises(BlockingIOError):
        wake.recv(1)
    wake.send(b"\0")
    assert select_ready([wake], None) == [wake], "and the next one wakes again"


def test_a_byte_that_came_late_is_taken_in_a_look_in_vain(wake: Wake) -> None:
    wake.send(b"\0")
    wake._is_noticed = False  # as if the thread had looked between count and byte
    wake.recv(1)
    assert select_ready([wake], 0) == [wake]
    assert wake.recv(1) == b"\0"
    assert select_ready([wake], 0) == []


def test_nobody_is_told_of_requests_once_closed(wake: Wake) -> None:
    wake.close()
    with pytest.raises(OSError, match="closed"):
        wake.send(b"\0")
