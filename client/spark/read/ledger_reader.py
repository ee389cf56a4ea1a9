"""Read a split of a ledger straight from the bookies, as Arrow batches.

A task has several reads under way, within a limit of bytes. It gives up on the bookies and has the
broker serve the rest of its offsets when

- no replica has an entry, even after a look for replaced bookies; or the ledger is gone, because
  retention removed it while the query ran. The broker resolves the offsets anew, and knows whether
  they are lost;
- the query reads committed records only, a batch belongs to a transaction, and the plan does not
  say what of the split was aborted, because that is written in a ledger that is still open. The
  broker says so with each answer.

What was given before is not given again: the broker is asked for the offsets that are left, and
the decoder drops what comes twice.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from client.errors import LedgerError, MetadataError
from client.ids import LedgerId
from client.ledger.core import metadata_codec
from client.log.entry_format import has_transactions, is_internal, next_offset
from client.spark.decode.decode import Wanted, decode
from client.spark.ledgers.ledger_access import RUN_ENTRIES_MAX, LedgerAccess
from client.spark.options import Options
from client.spark.plan.metadata_address import access as access_to
from client.spark.splits import AbortedTransaction, BrokerSplit, LedgerSplit
from client.wire.bookkeeper.entry import DigestType, Entry
from client.wire.bookkeeper.messages import FRAME_BYTES_MAX

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

RUNS_AHEAD: Final = 2
"""Reads under way while an earlier one is decoded; together within `ledger.maxInflightBytes`."""

_ENTRY_BYTES_GUESS: Final = 64 << 10

BrokerChunks = Callable[[BrokerSplit, list[AbortedTransaction]], Iterator[memoryview]]
"""Fetch a range from its leader; the list grows by the transactions that concern each chunk."""


def read_split(split: LedgerSplit, options: Options) -> Iterator[pa.RecordBatch]:
    """Yield the records of a split as Arrow batches. Raises as reading from a broker does."""
    access = access_to(options)
    aborted = list(split.aborted or ())
    return decode(
        chunks(split, options, access, aborted, _broker_chunks(options)),
        Wanted.by(
            options, split.topic, split.partition, split.offset_start, split.offset_end,
            verified=_has_digests(split),
        ),
        aborted,
    )  # fmt: skip


def _has_digests(split: LedgerSplit) -> bool:
    """Whether the entries' digests, which are compared when they arrive, cover their records."""
    kind = metadata_codec.decode(split.metadata).digest_type
    return kind not in (None, DigestType.DUMMY)


def chunks(
    split: LedgerSplit,
    options: Options,
    access: LedgerAccess,
    aborted: list[AbortedTransaction],
    broker_chunks: BrokerChunks,
) -> Iterator[memoryview]:
    """Yield the record batches of a split, entry by entry; from the broker where bookies fail."""
    following = split.offset_start
    asks_broker = options.read_committed and split.aborted is None
    last: memoryview | None = None
    try:
        for entry in _entries(split, options, access):
            payload = entry.payload
            if is_internal(payload):
                continue
            if asks_broker and has_transactions(payload):
                log.info("spark.ledger_left ledger=%d reason=transactions", split.ledger_id)
                break
            yield payload
            last = payload
        else:
            return
    except (LedgerError, MetadataError, TimeoutError) as error:
        log.warning(
            "spark.ledger_left topic=%s partition=%d ledger=%d error=%r",
            split.topic, split.partition, split.ledger_id, error,
        )  # fmt: skip
    if last is not None:
        following = max(following, next_offset(last))
    rest = BrokerSplit(
        split.topic_id, split.topic, split.partition, -1, following, split.offset_end
    )
    if rest.start < rest.end:
        yield from broker_chunks(rest, aborted)


def _entries(split: LedgerSplit, options: Options, access: LedgerAccess) -> Iterator[Entry]:
    """Yield the split's entries in order, with some reads under way."""
    metadata = metadata_codec.decode(split.metadata)
    ledger_id = LedgerId(split.ledger_id)
    budget = options.ledger_in_flight_bytes_max // RUNS_AHEAD
    count = metadata.last_entry + 1
    entry_bytes = metadata.length // count if count and metadata.length else _ENTRY_BYTES_GUESS
    position = split.first_entry
    under_way: deque[Future[list[Entry]]] = deque()

    def ask() -> None:
        """Have as many reads under way as there may be."""
        nonlocal position
        while position <= split.last_entry and len(under_way) < RUNS_AHEAD:
            run = min(max(1, budget // max(1, entry_bytes)), RUN_ENTRIES_MAX)
            until = min(split.last_entry, position + run - 1)
            read = access.read(ledger_id, metadata, position, until, _answer_bytes_max(budget))
            under_way.append(access.begin(read))
            position = until + 1

    ask()
    try:
        while under_way:
            entries = under_way[0].result(options.fetch_timeout_ms / 1000)
            under_way.popleft()
            entry_bytes = max(1, sum(len(one.payload) for one in entries) // len(entries))
            ask()  # before these are decoded, not after it
            yield from entries
    finally:
        for future in under_way:
            future.cancel()


def _answer_bytes_max(budget: int) -> int:
    """Return how large one answer may be: entries are larger than guessed now and then, and one
    that does not fit costs a request of its own."""
    return min(budget + budget // 4, FRAME_BYTES_MAX)


def _broker_chunks(options: Options) -> BrokerChunks:
    def fetch(split: BrokerSplit, aborted: list[AbortedTransaction]) -> Iterator[memoryview]:
        from client.spark.brokers.kafka_cluster import shared as shared_cluster
        from client.spark.read.broker_fetch import RangeFetch

        cluster = shared_cluster(options.bootstrap_servers, options.fetch_timeout_ms)
        for chunk in RangeFetch(cluster, split, options).chunks():
            aborted.extend(chunk.aborted)
            yield chunk.run.records

    return fetch
