"""Fetch a range of offsets from the partition's leader: whole record batches, in order.

A task sends raw Fetch requests and hands undecoded batches on (`decode/decode.py`): a client
library would make an object of each record, which costs more than all the rest. What each error
code means for the reader is decided here, and that the topic was the same one from beginning to
end.

Holes are normal: compaction and transaction markers leave offsets without records. What is not
normal is a log that begins after the wanted offset, and that is reported (`data_loss.py`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from kio.schema.errors import ErrorCode as Code

from client.spark.brokers.kafka_cluster import EARLIEST, LATEST, NO_LEADER, KafkaCluster
from client.spark.brokers.kafka_link import LinkBroken
from client.spark.brokers.retries import FIRST_PAUSE_S, PAUSE_S_MAX, Transient, check_code
from client.spark.data_loss import check_topic_id, report_loss
from client.spark.decode.batch_run import BatchRun, first_batches, flaw, read_run
from client.spark.decode.record_fields import PADDING
from client.spark.errors import BrokersUnreachable, SparkSourceError
from client.spark.options import Options
from client.spark.splits import AbortedTransaction, BrokerSplit, TopicPartition
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.fetch_client import VERSION, FetchAnswer, decode_fetch, encode_fetch

WAIT_MS: Final = 500
"""How long a leader holds an answer back while it has no records."""

_FIRST_BYTES_MIN: Final = 64 << 10
_RECORD_BYTES_GUESS: Final = 1 << 10


class Chunk(NamedTuple):
    """Whole record batches of one answer."""

    run: BatchRun
    aborted: Sequence[AbortedTransaction]
    """Those that concern these batches, and not beyond them."""
    start: int = 0
    """The offset that was asked for: records below it, in the first of the batches, were read
    before or have been reported as gone."""


class RangeFetch:
    """Fetches one split. Iterate over `chunks()` once."""

    def __init__(self, cluster: KafkaCluster, split: BrokerSplit, options: Options) -> None:
        self._cluster = cluster
        self._split = split
        self._options = options
        self._at = TopicPartition(split.topic, split.partition)
        self._position = split.start
        self._unknown_count = 0

    def chunks(self) -> Iterator[Chunk]:
        """Yield the batches that hold the split's offsets.

        Raises BrokersUnreachable without progress for `fetch.timeoutMs`, DataLost, TopicReplaced,
        RequestRefused, SparkSourceError for damaged bytes.
        """
        while self._position < self._split.end:
            chunk = self._next()
            if chunk is not None:
                yield chunk
        self._check_topic()

    def _next(self) -> Chunk | None:
        """Return the next batches, or None when the position moved without any."""
        deadline = time.monotonic() + self._cluster.timeout_s
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return self._attempt()
            except (LinkBroken, Transient) as error:
                if time.monotonic() > deadline:
                    raise BrokersUnreachable(
                        f"reading {self._at} made no progress at offset {self._position} for"
                        f" {self._cluster.timeout_s:g} s (fetch.timeoutMs): {error}"
                    ) from error
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)
            self._look_again()

    def _attempt(self) -> Chunk | None:
        leader = self._cluster.leader(self._at)
        if leader.broker_id == NO_LEADER:
            self._check_topic()
            leader = self._cluster.leader(self._at)
            if leader.broker_id == NO_LEADER:
                raise Transient(f"{self._at} has no leader")
        link = self._cluster.link(leader.broker_id)
        body = encode_fetch(
            self._at.topic,
            self._at.partition,
            self._position,
            leader_epoch=leader.epoch,
            wait_ms_max=WAIT_MS,
            bytes_max=self._bytes_max(),
            read_committed=self._options.read_committed,
        )
        try:
            raw = link.ask_raw(
                ApiKey.FETCH, body, self._cluster.ask_timeout_s, VERSION, room_bytes=len(PADDING)
            )
        except LinkBroken:
            self._cluster.drop(link)
            raise
        return self._judge(decode_fetch(raw[: len(raw) - len(PADDING)]), raw)

    def _bytes_max(self) -> int:
        """Return how large an answer may be: the first one of a split with few records no larger
        than they are likely to be, for what stands behind them is sent and thrown away."""
        bytes_max = self._options.arrow_batch_bytes
        if self._position > self._split.start:
            return bytes_max
        likely = _RECORD_BYTES_GUESS * (self._split.end - self._position)
        return min(bytes_max, max(_FIRST_BYTES_MIN, likely))

    def _judge(self, answer: FetchAnswer, raw: memoryview) -> Chunk | None:
        code = answer.error_code
        if code == Code.offset_out_of_range:
            self._out_of_range()
            return None
        if code == Code.unknown_topic_or_partition:
            self._unknown_count += 1
            if self._unknown_count > self._options.retries:
                self._lost(f"{self._at} no longer exists", self._split.end)
                return None
        check_code(code, f"reading {self._at} at offset {self._position}")
        if not answer.records:
            time.sleep(answer.throttle_ms / 1000)
            raise Transient("the leader has no records there yet")
        padded_size = len(answer.records) + len(PADDING)
        padded = raw[answer.records_at : answer.records_at + padded_size]
        chunk, position = whole_batches(
            self._at, padded, self._split.end, answer.aborted, self._split.aborted
        )
        if position <= self._position:
            raise SparkSourceError(
                f"the leader of {self._at} answers offset {self._position} with older records"
            )
        chunk = chunk._replace(start=self._position)
        self._position = position
        return chunk

    def _out_of_range(self) -> None:
        earliest = self._ask(EARLIEST)
        if self._position < earliest:
            self._lost(
                f"{self._at} now begins at offset {earliest}: offsets {self._position} to"
                f" {min(earliest, self._split.end) - 1} are gone",
                min(earliest, self._split.end),
            )
            return
        raise Transient(f"the log ends at offset {self._ask(LATEST)} for its leader")

    def _ask(self, which: int) -> int:
        answers = self._cluster.offsets({self._at: which})
        if self._at not in answers:
            raise Transient(f"{self._at} is not there")
        return answers[self._at]

    def _lost(self, message: str, go_on_at: int) -> None:
        report_loss(message, fail=self._options.fail_on_data_loss)
        self._position = go_on_at

    def _look_again(self) -> None:
        """Ask for the leader; that nobody answers now is seen by the next attempt."""
        try:
            self._check_topic()
        except BrokersUnreachable:
            return

    def _check_topic(self) -> None:
        """Raise TopicReplaced if the topic's name stands for another topic.

        At the end of a split this vouches for all of it: topic ids never come back, so one that
        is still there was there all the time.
        """
        facts = self._cluster.topics([self._at.topic]).get(self._at.topic)
        check_topic_id(self._at.topic, self._split.topic_id, facts.topic_id if facts else "")


def whole_batches(
    at: TopicPartition,
    padded: memoryview,
    end: int,
    aborted: Sequence[tuple[int, int]],
    known_aborted: Sequence[AbortedTransaction] = (),
) -> tuple[Chunk, int]:
    """Return the whole batches that begin before offset `end`, and the offset after them.

    `padded`: the batches of an answer, and PADDING. A batch that is cut off at the end is left
    out. Raises SparkSourceError for a batch whose checksum is wrong, or an answer without a whole
    one.
    """
    run = read_run(padded)
    if not len(run.headers):
        why = flaw(padded[: len(padded) - len(PADDING)])
        raise SparkSourceError(
            f"the leader of {at} answered with less than one record batch: {why}"
        )
    beyond = np.flatnonzero(run.headers.base_offsets[1:] >= end)
    if len(beyond):
        run = first_batches(run, int(beyond[0]) + 1)
    headers = run.headers
    if (damaged := headers.damaged(padded)) is not None:
        raise SparkSourceError(
            f"the record batch of {at} at offset {damaged} is damaged: its checksum is wrong"
        )
    position = int(headers.next_offsets[-1])
    if len(beyond):
        position = max(position, end)
    markers = headers[np.flatnonzero(headers.is_control)]
    ends = list(zip(markers.column("producer_id"), markers.base_offsets, strict=True))
    ranges = [_aborted_range(one, ends, position) for one in aborted]
    return Chunk(run, [*known_aborted, *ranges]), position


def _aborted_range(
    transaction: tuple[int, int], markers: Sequence[tuple[int, int]], position: int
) -> AbortedTransaction:
    """A transaction ends with its producer's next marker, or goes on after these batches.

    `markers`: producer id and offset of each.
    """
    producer_id, first = transaction
    ends = [offset for marked, offset in markers if marked == producer_id and offset > first]
    return AbortedTransaction(producer_id, first, int(min(ends)) if ends else position - 1)
