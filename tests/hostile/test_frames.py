"""Frames that lie about their length, come in crumbs, or never end; answers that nobody reads."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from client.node.connection_limits import PROGRESS_BYTES, ConnectionQuotas, HeldBytes
from client.wire.frames import FrameSplitter
from tests.hostile.fronts import FRAME_BYTES_MAX, HELD_BYTES_MAX, KINDS, front

CLAIM_BYTES_MAX = 64 * 1024
"""What a length alone, without the bytes, may cost."""


def length(size: int) -> bytes:
    return struct.pack(">i", size)


def peak_of(run: Callable[[], Any]) -> int:
    """Return by how many bytes memory rose at most."""
    tracemalloc.start()
    try:
        kept = run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        del kept
        tracemalloc.stop()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "data",
    [length(0), length(3) + bytes(3), length(-1), length(-(2**31)), length(FRAME_BYTES_MAX + 1),
     length(2**31 - 1)],
    ids=["empty", "below a header", "negative", "most negative", "above the limit", "largest"],
)  # fmt: skip
async def test_a_length_that_no_request_has_closes_the_connection(kind: str, data: bytes) -> None:
    async with front(kind) as server:
        stranger = await server.connect()
        stranger.send(data)
        assert await stranger.is_closed()
        await server.honest()


def test_a_claimed_length_costs_nothing_until_bytes_come() -> None:
    claim = length(FRAME_BYTES_MAX) + b"\x00\x00"

    def claims() -> list[FrameSplitter]:
        splitters = [FrameSplitter(FRAME_BYTES_MAX) for _ in range(100)]
        for splitter in splitters:
            assert splitter.feed(claim) == []
        return splitters

    assert peak_of(claims) / 100 < CLAIM_BYTES_MAX / 16


@pytest.mark.parametrize("kind", KINDS)
async def test_connections_that_claim_cost_less_than_64_kib_each(kind: str) -> None:
    async with front(kind) as server:
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            strangers = [await server.connect() for _ in range(40)]
            for stranger in strangers:
                stranger.send(length(FRAME_BYTES_MAX) + b"\x00\x00")
            await server.settled(lambda: server.server.unfinished.total_bytes == 40 * 6)
            assert tracemalloc.get_traced_memory()[1] - before < 40 * CLAIM_BYTES_MAX + (1 << 20)
        finally:
            tracemalloc.stop()
        for stranger in strangers:
            stranger.close()


def test_a_frame_in_crumbs_costs_what_it_weighs() -> None:
    """Two bytes as an object of their own take fifty."""
    body = bytes(1 << 17)

    def crumbs() -> FrameSplitter:
        splitter = FrameSplitter(FRAME_BYTES_MAX)
        splitter.feed(length(len(body) + 1))
        for at in range(0, len(body), 2):
            assert splitter.feed(body[at : at + 2]) == []
        return splitter

    assert peak_of(crumbs) < 3 * len(body)


def test_a_crumb_does_not_keep_its_chunk_in_memory() -> None:
    """Whoever ends a chunk of whole requests with one byte more would hold all of it."""

    def chunks() -> list[FrameSplitter]:
        splitters = [FrameSplitter(FRAME_BYTES_MAX) for _ in range(40)]
        for splitter in splitters:
            splitter.feed(length(200_000) + bytes(200_000) + b"\x00")
        return splitters

    assert peak_of(chunks) < 1 << 20


@pytest.mark.parametrize("kind", KINDS)
async def test_one_byte_at_a_time_ends_by_the_timer(kind: str) -> None:
    """The bytes keep coming, so it is never silent."""
    async with front(kind) as server:
        stranger = await server.connect()
        stranger.send(length(1000))
        for number in range(1, 4):
            stranger.send(b"\x00")
            held = server.server.unfinished
            await server.settled(lambda held=held, n=number: held.total_bytes == 4 + n)
            server.let_time_pass(9.0)
            assert server.cut_off == 0
        server.let_time_pass(9.0)
        assert await stranger.is_closed()
        assert server.cut_off == 1
        await server.honest()


@pytest.mark.parametrize("kind", KINDS)
async def test_half_a_frame_and_then_silence_ends_by_the_timer(kind: str) -> None:
    async with front(kind) as server:
        stranger = await server.connect()
        stranger.send(length(FRAME_BYTES_MAX) + bytes(FRAME_BYTES_MAX // 2))
        held = server.server.unfinished
        # Half of it is enough for a place for all of it.
        await server.settled(lambda: held.total_bytes == 4 + FRAME_BYTES_MAX)
        server.let_time_pass(31.0)
        assert await stranger.is_closed()
        await server.settled(lambda: held.total_bytes == 0)
        await server.honest()


@pytest.mark.parametrize("kind", KINDS)
async def test_half_frames_of_all_connections_together_are_bounded(kind: str) -> None:
    async with front(kind) as server:
        size = 4 + FRAME_BYTES_MAX  # with the places for what does not come
        fitting = HELD_BYTES_MAX // size
        held = server.server.unfinished
        strangers = []
        for number in range(1, 13):
            strangers.append(await server.connect())
            strangers[-1].send(length(FRAME_BYTES_MAX) + bytes(300_000))
            gone, kept = max(0, number - fitting), min(number, fitting)
            await server.settled(
                lambda gone=gone, kept=kept: (
                    server.cut_off == gone and held.total_bytes == kept * size
                )
            )
        for stranger in strangers[: server.cut_off]:
            assert await stranger.is_closed()
        await server.honest()
        for stranger in strangers:
            stranger.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_silent_connection_ends_by_the_idle_timer(kind: str) -> None:
    async with front(kind) as server:
        stranger = await server.connect()
        await server.settled(lambda: len(server.server._connections) == 1)
        server.let_time_pass(599.0)
        assert len(server.server._connections) == 1
        server.let_time_pass(2.0)
        assert await stranger.is_closed()
        await server.honest()


@pytest.mark.parametrize("kind", KINDS)
async def test_answers_that_nobody_reads_are_bounded_and_end(kind: str) -> None:
    async with front(kind, unread_bytes_max=8 << 20) as server:
        question = await server.store_large()
        gluttons = [await server.connect() for _ in range(12)]
        for glutton in gluttons:
            glutton.writer.transport.pause_reading()  # type: ignore[attr-defined]
            for _ in range(12):
                glutton.send(question)
        unread = server.server.unread
        await server.settled(lambda: unread.total_bytes > 1 << 20)
        await server.honest()
        assert unread.total_bytes <= 8 << 20
        server.let_time_pass(601.0)
        assert unread.total_bytes == 0
        assert server.cut_off >= 1
        await server.honest()
        for glutton in gluttons:
            glutton.close()


class TestCounts:
    """The rules behind it, without sockets."""

    def test_each_host_has_a_limit_of_its_own(self) -> None:
        quotas = ConnectionQuotas(3, 2)
        assert [quotas.add("a") for _ in range(2)] == [None, None]
        assert "per_host" in (quotas.add("a") or "")
        assert quotas.add("b") is None
        assert "connections_max" in (quotas.add("c") or "")
        quotas.remove("a")
        assert quotas.add("c") is None
        assert quotas.total == 3

    def test_a_large_frame_on_a_slow_link_ends(self) -> None:
        held: HeldBytes[str] = HeldBytes(1 << 30, 30.0)
        for minute in range(60):
            held.note("slow", minute * PROGRESS_BYTES + 1, minute * 29.0)
            assert held.overdue(minute * 29.0) == []
        assert held.overdue(59 * 29.0 + 30.0) == ["slow"]

    def test_a_stream_of_frames_is_never_overdue(self) -> None:
        held: HeldBytes[str] = HeldBytes(1 << 30, 30.0)
        for second in range(100):
            held.note("busy", 100, float(second), is_new=True)
            assert held.overdue(float(second)) == []

    def test_who_was_not_read_is_not_to_blame(self) -> None:
        held: HeldBytes[str] = HeldBytes(1 << 30, 30.0)
        held.note("paused", 100, 0.0)
        held.resume("paused", 100.0)
        assert held.overdue(129.0) == []
        assert held.overdue(130.0) == ["paused"]

    def test_the_oldest_of_the_large_ones_goes_first(self) -> None:
        held: HeldBytes[str] = HeldBytes(1000, 30.0)
        for number, (name, size) in enumerate([("crumb", 1), ("old", 600), ("new", 500)]):
            held.note(name, size, float(number))
        assert held.excess() == "old"
        held.forget("old")
        assert held.excess() is None
        assert held.total_bytes == 501
