"""The thread that compresses batches: what is begun there is heard of once, or not at all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.front.codec_thread import CodecThread
from broker.metrics import Metrics


@pytest.mark.parametrize("is_done", [False, True])
async def test_whoever_cancels_hears_nothing_though_the_work_is_just_done(
    monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    loop = asyncio.get_running_loop()
    work: asyncio.Future[Any] = loop.create_future()
    monkeypatch.setattr(loop, "run_in_executor", lambda thread, call: work)
    heard: list[Any] = []
    thread = CodecThread(Metrics())
    cancel = thread.begin(lambda: None, heard.append)  # type: ignore[arg-type,return-value]
    if is_done:
        work.set_result((b"", None))
    cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert heard == []
    thread.close()


async def test_a_thread_that_ends_tells_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    work: asyncio.Future[Any] = loop.create_future()
    monkeypatch.setattr(loop, "run_in_executor", lambda thread, call: work)
    heard: list[Any] = []
    thread = CodecThread(Metrics())
    thread.begin(lambda: None, heard.append)  # type: ignore[arg-type,return-value]
    work.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert heard == []
    thread.close()
