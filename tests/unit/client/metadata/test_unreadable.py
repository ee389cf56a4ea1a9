"""Nodes that cannot be decoded are named, counted while they are, and logged now and then."""

from __future__ import annotations

import asyncio
import logging

import pytest

from client.errors import LogCorrupt
from client.metadata.unreadable import _NODES_MAX, UnreadableNodes
from tests.fakes.virtual_time import run


def _refuse(data: bytes) -> bytes:
    raise LogCorrupt(f"not {data!r}")


def test_a_node_counts_from_when_it_is_found_until_it_can_be_read() -> None:
    async def scenario() -> None:
        nodes = UnreadableNodes()
        with pytest.raises(LogCorrupt):
            nodes.decode("/b", b"x", _refuse)
        nodes.note("/a", ValueError())
        assert nodes.all() == {"/a": "ValueError", "/b": "not b'x'"}
        assert nodes.decode("/b", b"7", int) == 7
        assert nodes.all() == {"/a": "ValueError"}
        assert len(nodes) == 1

    run(scenario())


def test_one_that_nobody_reads_any_more_is_forgotten_but_not_a_watched_one() -> None:
    async def scenario() -> None:
        nodes = UnreadableNodes()
        nodes.note("/read once", ValueError("x"))
        nodes.note("/watched", ValueError("x"), is_watched=True)
        await asyncio.sleep(1_000)
        assert list(nodes.all()) == ["/watched"]
        nodes.forget("/watched")
        assert not nodes.all()

    run(scenario())


def test_the_log_hears_of_a_node_once_in_ten_minutes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)

    async def scenario() -> None:
        nodes = UnreadableNodes()
        for _ in range(21):
            nodes.note("/a", ValueError("x"))
            await asyncio.sleep(60)
        assert len(caplog.records) == 3
        assert "path=/a error='x' advice=" in caplog.text
        nodes.note("/a", ValueError("y"))
        assert len(caplog.records) == 4, "for another reason"

    run(scenario())


def test_no_more_than_so_many_are_named() -> None:
    async def scenario() -> None:
        nodes = UnreadableNodes()
        for number in range(_NODES_MAX + 5):
            nodes.note(f"/{number}", ValueError("x" * 10_000))
        assert len(nodes) == _NODES_MAX
        assert max(map(len, nodes.all().values())) < 1_000

    run(scenario())
