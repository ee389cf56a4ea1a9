"""One answer of `/metrics` for everybody who asks within a second."""

from __future__ import annotations

import asyncio

import pytest

from client.node import scrapes
from client.node.scrapes import Scrapes


async def test_however_often_it_is_asked_for_it_is_made_once_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, made = asyncio.get_running_loop(), []
    now_s = 100.0
    monkeypatch.setattr(loop, "time", lambda: now_s)

    def make() -> bytes:
        made.append(now_s)
        return b"%d" % len(made)

    shown = Scrapes(make)
    assert [shown.answer().body for _ in range(1000)] == [b"1"] * 1000
    now_s += scrapes.AGE_S_MAX - 0.01
    assert shown.answer().body == b"1"
    now_s += 0.02
    assert shown.answer().body == b"2"
    assert len(made) == 2
