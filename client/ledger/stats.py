"""What a ledger client counts: for dashboards, never for decisions.

Times are from handing a request to a connection until its answer, whatever the answer says; an
error here is a request without an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from client.histogram import Histogram, Stopwatch, loop_time
from client.ids import BookieId
from client.ledger.bookies.core.racks import RackRelation
from client.wire.bookkeeper.messages import (
    AddRequest,
    BatchReadRequest,
    BatchReadResponse,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
)

ADD: Final = "add"
READ: Final = "read"
OTHER: Final = "other"


class BookieStats:
    """How one bookie answers."""

    __slots__ = ("adds", "errors", "links", "now_s", "others", "read_bytes", "reads")

    def __init__(self, now_s: Stopwatch) -> None:
        self.now_s = now_s
        self.adds = Histogram()
        self.reads = Histogram()
        self.others = Histogram()
        self.errors = 0
        self.read_bytes = 0
        """Of entries in its answers to reads, whether somebody still waited for them or not."""
        self.links: dict[object, Callable[[], int]] = {}
        """Open connections, each with how to read the payload bytes under way on it."""

    def on_answer(self, request: Request, response: Response, seconds: float) -> None:
        """Count a request that was answered."""
        if isinstance(request, AddRequest):
            self.adds.observe(seconds)
        elif isinstance(request, (ReadRequest, BatchReadRequest)):
            self.reads.observe(seconds)
            if isinstance(response, BatchReadResponse):
                self.read_bytes += sum(map(len, response.entries))
            elif isinstance(response, ReadResponse) and response.entry is not None:
                self.read_bytes += len(response.entry)
        else:
            self.others.observe(seconds)

    def by_operation(self) -> tuple[tuple[str, Histogram], ...]:
        """Return the times of each kind of request."""
        return (ADD, self.adds), (READ, self.reads), (OTHER, self.others)


class LedgerStats:
    """The numbers of one client."""

    def __init__(self, now_s: Stopwatch = loop_time) -> None:
        self.now_s = now_s
        self.bookies: dict[BookieId, BookieStats] = {}
        """Of every bookie that was ever asked."""
        self.created = 0
        self.recovered = 0
        self.recovery_failures = 0
        self.recovery_seconds = Histogram()
        self.writers = 0
        """Those that have not ended yet."""
        self.unanswered: dict[object, Callable[[], int]] = {}
        """Those, each with how to read the payload bytes that some bookie has to answer."""
        self.batch_buffer_bytes: Callable[[], int] = lambda: 0
        """How to read the memory of the buffers that batch reads are received in."""
        self.rack_relation: Callable[[BookieId], RackRelation] = lambda _: RackRelation.UNKNOWN
        """How to find out whether a bookie is in the client's own rack."""
        self.writer_failures = 0
        self.sent_entries = 0
        self.settled_entries = 0
        """Of those sent: confirmed or failed."""
        self.confirmed_entries = 0
        self.ensemble_changes = 0
        self.slow_replacements = 0
        self.busy_pauses = 0
        self.explicit_lacs = 0
        self.lac_reads = 0
        self.read_seconds = Histogram()
        self.read_entries = 0
        self.read_failures = 0
        self.read_retries = 0
        self.speculative_reads = 0
        self.quarantines = 0
        self.marks = 0

    def bookie(self, bookie: BookieId) -> BookieStats:
        """Return the numbers of a bookie, to be counted on."""
        return self.bookies.setdefault(bookie, BookieStats(self.now_s))
