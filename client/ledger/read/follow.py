"""Waiting for an open ledger to go on: long polls parked at its bookies.

Covers carrying long polls out; whom to ask when is decided by `core/long_polls.py`. A bookie
answers a poll when it learns of a LAC above the one asked with: a later entry carries it, or the
writer tells it explicitly (rule EXPLICIT-LAC). A LAC is the writer's own word, so the first one
that tells of it is believed.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from functools import partial

from client import callbacks
from client.errors import LedgerError, ReadFailed
from client.ids import BookieId, EntryId, LedgerId
from client.ledger.bookies.bookies import BookieSet
from client.ledger.core.long_polls import LongPolls
from client.wire.bookkeeper.messages import (
    LAST_ENTRY,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
)


class Follower:
    """The long polls of one reader."""

    def __init__(
        self,
        ledger_id: LedgerId,
        bookies: BookieSet,
        poll_s: float,
        on_lac: Callable[[EntryId], None],
    ) -> None:
        """`poll_s`: how long a bookie may hold a poll. `on_lac` is told what bookies know."""
        self._loop = asyncio.get_running_loop()
        self._ledger_id = ledger_id
        self._bookies = bookies
        self._poll_s = poll_s
        self._on_lac = on_lac
        self._polls = LongPolls()
        self._news: asyncio.Future[None] | None = None

    async def hear(self, ensemble: Sequence[BookieId], lac: EntryId) -> None:
        """Return after something was heard of the ledger, or somebody must be asked again."""
        self._news = self._loop.create_future()
        for bookie in self._polls.due(ensemble, self._loop.time()):
            self._ask(bookie, lac)
        due_s = self._polls.next_due_s(ensemble)
        timer = self._loop.call_at(due_s, self.wake) if due_s < math.inf else None
        try:
            await self._news
        finally:
            if timer is not None:
                timer.cancel()

    def wake(self) -> None:
        """Let `hear` return."""
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _ask(self, bookie: BookieId, lac: EntryId) -> None:
        request = ReadRequest(
            self._ledger_id,
            LAST_ENTRY,
            previous_lac=lac,
            timeout_ms=round(self._poll_s * 1000),
            piggyback=True,
        )
        on_answer = partial(self._on_answer, bookie, lac, self._loop.time())
        self._bookies.bookie(bookie).request(request, on_answer)

    def _on_answer(
        self,
        bookie: BookieId,
        lac: EntryId,
        asked_s: float,
        _request: Request,
        answer: Response | LedgerError,
    ) -> None:
        now_s = self._loop.time()
        found = answer.max_lac if isinstance(answer, ReadResponse) else None
        try:
            if found is not None and found > lac:
                self._on_lac(found)
            waited = found is not None and now_s - asked_s >= self._poll_s / 2
            is_news = waited or (found is not None and found > lac)
            self._polls.on_answer(bookie, now_s, is_news=is_news)
            self.wake()
        except callbacks.RAISED as error:
            failure = ReadFailed(f"following could not go on: {error!r}")
            assert self._news is not None, "whoever asked has waited"
            callbacks.fail(callbacks.Kind.REQUEST, error, self._news, failure)
