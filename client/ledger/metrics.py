"""The metrics of a ledger client: names, meaning, and where each number is kept.

Numbers are for dashboards, never for decisions. Brokers and nodes of auto recovery show them alike.
Bookies are as many series as were ever asked by this process. Times are from handing a request to a
connection until its answer, whatever the answer says; an error here is a request without an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from client.histogram import Histogram, Stopwatch, loop_time
from client.ids import BookieId
from client.ledger.core.placement import RackRelation
from client.node.exposition import Exposition, Kind, Row, Samples
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


_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM
_L: Final = "quire_ledger_"
APPEND_SECONDS: Final = _L + "append_seconds"
BOOKIE_SECONDS: Final = _L + "bookie_seconds"
READ_SECONDS: Final = _L + "read_seconds"

_COUNTERS: Final = {
    "created": "Ledgers created.",
    "recovered": "Recoveries of ledgers begun, because a writer was gone or had to be stopped.",
    "recovery_failures": "Recoveries of ledgers that failed; each is tried again.",
    "writer_failures": "Writers that ended other than by closing their ledger.",
    "confirmed_entries": "Entries that reached their ack quorum, in order.",
    "ensemble_changes": "Bookies replaced in ledgers being written.",
    "slow_replacements": "Of these, for staying behind the others without having failed.",
    "busy_pauses": "Pauses before adds that bookies shed for want of room were sent again.",
    "explicit_lacs": "Times that bookies were told the last add confirmed without an entry.",
    "lac_reads": "Times that bookies were asked for the last add confirmed.",
    "read_entries": "Entries read.",
    "read_failures": "Reads that no replica could serve.",
    "read_retries": "Entries asked of a further replica because one failed.",
    "speculative_reads": "Entries asked of a further replica because one took long.",
    "quarantines": "Bookies put into quarantine for too many errors.",
    "marks": "Ledgers marked as lacking copies by this client.",
}
"""Field of `LedgerStats` -> meaning."""

ROWS: Final = (
    *(Row(_L + name, _C, text) for name, text in _COUNTERS.items()),
    Row(_L + "writers", _G, "Ledgers being written."),
    Row(_L + "unconfirmed_entries", _G,
        "Entries sent and not confirmed: how far the last add confirmed is behind."),
    Row(
        _L + "unanswered_bytes", _G,
        "Payload bytes of ledgers being written that some bookie has still to answer.",
    ),
    Row(
        _L + "bookie_in_flight_bytes", _G, "Payload bytes under way to a bookie.", ("bookie",)
    ),
    Row(_L + "batch_buffer_bytes", _G, "Bytes of receive buffers that batch reads keep."),
    Row(_L + "bookies", _G, "Bookies that take new entries, as this process sees it."),
    Row(READ_SECONDS, _H, "From asking for a run of entries until all are there."),
    Row(_L + "recovery_seconds", _H, "Recovery of a ledger: fence, find its end, close it."),
    Row(
        BOOKIE_SECONDS, _H,
        "From a request to a bookie until its answer; op=add is part of quire_ledger_append,"
        " op=read of quire_ledger_read.",
        ("bookie", "op"), APPEND_SECONDS,
    ),
    Row(_L + "bookie_errors", _C, "Requests that a bookie failed or left unanswered.", ("bookie",)),
    Row(
        _L + "bookie_read_bytes", _C,
        "Bytes of entries read from a bookie; rack says whether it is in this client's own: same,"
        " other, or unknown where one of the two has none.",
        ("bookie", "rack"),
    ),
)  # fmt: skip


def provide_ledgers(
    exposition: Exposition, stats: LedgerStats, bookie_count: Callable[[], int]
) -> None:
    """Show a client's numbers. `bookie_count`: of those that take new entries."""
    one = exposition.provide_one
    for name in _COUNTERS:
        one(_L + name, lambda name=name: getattr(stats, name))  # type: ignore[misc]
    one(_L + "writers", lambda: stats.writers)
    one(_L + "unconfirmed_entries", lambda: stats.sent_entries - stats.settled_entries)
    one(_L + "unanswered_bytes", lambda: sum(read() for read in stats.unanswered.values()))
    one(_L + "batch_buffer_bytes", lambda: stats.batch_buffer_bytes())
    one(_L + "bookies", bookie_count)
    exposition.provide(_L + "bookie_in_flight_bytes", lambda: _bookie_in_flight(stats))
    one(READ_SECONDS, lambda: stats.read_seconds)
    one(_L + "recovery_seconds", lambda: stats.recovery_seconds)
    exposition.provide(BOOKIE_SECONDS, lambda: _bookie_seconds(stats))
    exposition.provide(
        _L + "bookie_errors",
        lambda: [({"bookie": bookie}, one.errors) for bookie, one in sorted(stats.bookies.items())],
    )
    exposition.provide(_L + "bookie_read_bytes", lambda: _bookie_read(stats))


def _bookie_read(stats: LedgerStats) -> Samples:
    for bookie, one in sorted(stats.bookies.items()):
        yield {"bookie": bookie, "rack": stats.rack_relation(bookie)}, one.read_bytes


def _bookie_in_flight(stats: LedgerStats) -> Samples:
    for bookie, one in sorted(stats.bookies.items()):
        yield {"bookie": bookie}, sum(read() for read in one.links.values())


def _bookie_seconds(stats: LedgerStats) -> Samples:
    for bookie, one in sorted(stats.bookies.items()):
        for operation, seconds in one.by_operation():
            yield {"bookie": bookie, "op": operation}, seconds
