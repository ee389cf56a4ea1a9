"""The completion boundary: what a callback raises is reported, counted, and affects nobody else.

A connection completes the requests of many, a confirmation the adds of many, a session the watches
of many, each by one call after the other. A callback that raises is a bug of its owner's: it must
not cost the others their completions, nor all of them the connection. So whoever calls back
catches `RAISED` around each single call and hands what it caught to `failed`:

    at            the owner learns of it by
    add_done      the writer fails: nobody goes on adding who cannot take what was confirmed
    add_answer    the same
    writer_room   the same
    request       the request's own future or queue gets an error, where the callback is ours;
                  a connection that finds one that escaped reports it and goes on
    append        the report alone: what became of the batch does not depend on who hears of it
    link          the same
    bookies       the report alone: a listener that missed a change is called with the next one
    metadata      the same

The report is an error in the log with the traceback, the counter `quire_callback_failures_total`,
and a call of the loop's exception handler, by which tests and simulations fail.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

log = logging.getLogger(__name__)

RAISED: Final = (Exception, asyncio.CancelledError)
"""What a callback may raise. No task is cancelled in one, so CancelledError is no exception: it
comes from the result of something that was cancelled."""


class Kind(enum.StrEnum):
    """Whom a callback told of what."""

    ADD_DONE = "add_done"
    """The owner of an add, of its outcome."""
    ADD_ANSWER = "add_answer"
    """A writer, of a bookie's answer or a timer."""
    WRITER_ROOM = "writer_room"
    """Who waits for room in a writer, that there is some."""
    REQUEST = "request"
    """Who asked a bookie for something else, of the answer."""
    APPEND = "append"
    """Who appended to a partition or waits for its high watermark, of the outcome."""
    LINK = "link"
    """Who asked another broker, of the answer."""
    BOOKIES = "bookies"
    """A listener, that bookies came or went."""
    METADATA = "metadata"
    """A watcher or a session listener of the metadata store."""


failures: Final[dict[Kind, int]] = dict.fromkeys(Kind, 0)
"""Callbacks of this process that raised: shown, never asked."""


def failed(kind: Kind, error: BaseException) -> None:
    """Report what a callback raised."""
    failures[kind] += 1
    log.error("callback.failed kind=%s", kind.value, exc_info=error)
    asyncio.get_running_loop().call_exception_handler(
        {"message": f"callback {kind.value} failed", "exception": error, "is_logged": True}
    )


def fail(kind: Kind, error: BaseException, future: asyncio.Future[Any], failure: Exception) -> None:
    """Report what a callback raised; who waits for `future` gets `failure`, caused by it."""
    failed(kind, error)
    failure.__cause__ = error
    if not future.done():
        future.set_exception(failure)


def each(kind: Kind, calls: Iterable[Callable[[], None]]) -> None:
    """Call everybody, whatever one of them raises."""
    for call in calls:
        try:
            call()
        except RAISED as error:
            failed(kind, error)
