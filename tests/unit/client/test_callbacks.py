"""The completion boundary: reports of callbacks that raised."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

import pytest

from client import callbacks
from client.callbacks import Kind
from client.errors import ReadFailed
from tests.fakes.raised import Bug, Reports, broken


def cancelled() -> None:
    raise asyncio.CancelledError


async def test_everybody_is_called_whatever_one_raises() -> None:
    reports, called = Reports(), list[str]()
    calls = [partial(called.append, "first"), broken, cancelled, partial(called.append, "last")]
    callbacks.each(Kind.BOOKIES, calls)
    assert called == ["first", "last"]
    assert reports.kinds() == {Kind.BOOKIES: 2}


async def test_a_report_has_the_traceback(caplog: pytest.LogCaptureFixture) -> None:
    Reports()
    with caplog.at_level(logging.ERROR):
        callbacks.each(Kind.METADATA, [broken])
    assert "callback.failed kind=metadata" in caplog.text
    assert "in broken" in caplog.text


async def test_who_waits_gets_an_error_caused_by_what_was_raised() -> None:
    reports = Reports()
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    callbacks.fail(Kind.REQUEST, Bug("why"), future, ReadFailed("it broke"))
    with pytest.raises(ReadFailed) as caught:
        await future
    assert isinstance(caught.value.__cause__, Bug)
    callbacks.fail(Kind.REQUEST, Bug("again"), future, ReadFailed("it broke"))
    assert reports.kinds() == {Kind.REQUEST: 2}
