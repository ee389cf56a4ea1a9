"""What a writer that ends tells the owners of adds that were already sent."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from client.errors import BookieUnavailable, LedgerError, Outcome, WriteFailed
from client.ids import BookieId, EntryId
from client.ledger.bookies.bookie_link import OnAnswer
from client.ledger.client import LedgerClient
from client.metadata.bookkeeper import init_bookkeeper
from client.metadata.memory import MemoryCluster
from client.wire.bookkeeper.messages import AddRequest, AddResponse, Request, Status


class _Clock:
    def now_ms(self) -> int:
        return 0


class _Bookie:
    """Stores adds, or refuses them all."""

    is_unreachable = False

    def __init__(self, *, refuses: bool) -> None:
        self._refuses = refuses
        self.stored: list[EntryId] = []

    def request(self, request: Request, on_answer: OnAnswer, size: int = 0) -> None:
        assert isinstance(request, AddRequest)
        loop = asyncio.get_running_loop()
        if self._refuses:
            loop.call_soon(on_answer, request, BookieUnavailable("refused"))
            return
        self.stored.append(request.entry_id)
        answer = AddResponse(Status.OK, request.ledger_id, request.entry_id)
        loop.call_soon(on_answer, request, answer)


class _Bookies:
    """Three bookies of which two refuse: no ack quorum of two, nobody to replace them with."""

    def __init__(self) -> None:
        self.by_id = {
            BookieId(f"b{number}:3181"): _Bookie(refuses=number > 0) for number in range(3)
        }

    @property
    def writable(self) -> tuple[BookieId, ...]:
        return tuple(self.by_id)

    @property
    def readonly(self) -> tuple[BookieId, ...]:
        return ()

    @property
    def has_long_poll(self) -> bool:
        return False

    def rack(self, bookie: BookieId) -> str:
        return "everywhere"

    def bookie(self, bookie: BookieId) -> _Bookie:
        return self.by_id[bookie]

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Nothing ever changes."""

    def remove_listener(self, listener: Callable[[], None]) -> None:
        """Nothing ever changes."""

    async def start(self) -> None:
        """Nothing to learn."""

    def close(self) -> None:
        """Nothing to close."""


async def test_an_add_that_a_bookie_stored_never_fails_for_certain() -> None:
    # Found by simulation: "no replacement" is certain of itself, not of entries already sent.
    # One bookie holds the entry, a later recovery keeps it; a caller that was told "not applied"
    # would send it a second time.
    store = MemoryCluster().session()
    await init_bookkeeper(store, rng=random.Random(1))
    bookies = _Bookies()
    told: list[LedgerError | None] = []
    async with LedgerClient(
        store, rng=random.Random(2), clock=_Clock(), bookies=bookies
    ) as ledgers:
        writer = await ledgers.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        writer.add([b"payload"], lambda entry_id, error: told.append(error))
        while not told:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert bookies.by_id[BookieId("b0:3181")].stored == [0]
    assert isinstance(told[0], WriteFailed)
    assert told[0].outcome is Outcome.UNKNOWN
