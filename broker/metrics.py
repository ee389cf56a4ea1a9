"""Counts what a broker does, for Prometheus.

Names and meanings are in `metric_table.py`. Hot paths add to plain ints and histograms here, which
become samples only when Prometheus scrapes. Parts of the broker that keep a number anyway hand in a
function that reads it (`provide`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from broker.faults import Code
from broker.metric_table import (
    REQUEST_SECONDS,
    STAGE_SECONDS,
    TABLE,
    TAKEOVER_SECONDS,
)
from client.histogram import Histogram, Stopwatch, loop_time, observe_each
from client.ledger.core.placement import RackRelation
from client.ledger.metrics import APPEND_SECONDS
from client.node.exposition import Exposition, Samples
from client.node.process_metrics import LOOP_LAG_SECONDS
from client.wire.kafka.apis import LINK_API_KEY, ApiKey
from client.wire.kafka.connection import Slot

OTHER_TOPICS: Final = "(others)"
"""Label of the topics beyond the limit."""

_STAGES: Final[Mapping[int, tuple[str, str]]] = {
    ApiKey.PRODUCE: ("append", "quorum"),
    ApiKey.FETCH: ("wait", "read"),
}
"""API -> its two stages between queue and respond; the others have one."""

_EXPECTED_ERRORS: Final = (
    Code.offset_out_of_range, Code.unknown_topic_or_partition, Code.not_leader_or_follower,
    Code.request_timed_out, Code.not_enough_replicas,
)  # fmt: skip
"""Shown from 0 on: a series that begins with its first error shows no increase."""

_COUNTERS: Final = (
    "connections_opened", "connections_refused", "connections_cut_off", "protocol_errors",
    "received_bytes",
    "sent_bytes", "produced_records", "produced_batches", "produced_bytes",
    "recompressed_batches", "fetched_bytes",
    "takeovers_lost", "leaderships_lost", "segments_rolled", "segments_trimmed",
    "compaction_rounds", "compaction_failures", "compaction_read_bytes", "compaction_written_bytes",
    "compaction_removed_records",
    "offload_failures", "offload_copied_segments", "offload_copied_bytes",
    "offload_dropped_ledgers",
    "dead_letters", "dead_letter_failures",
)  # fmt: skip
"""Fields of `Metrics` without labels; in the table they begin with quire_broker_."""


class _Timing:
    """Where the time of one API's requests goes."""

    __slots__ = ("each", "first", "queue", "request", "respond", "second")

    def __init__(self) -> None:
        self.request = Histogram()
        self.queue = Histogram()
        self.first = Histogram()
        self.second = Histogram()
        self.respond = Histogram()
        self.each = (self.request, self.queue, self.first, self.second, self.respond)


class _Topic:
    """What went through one topic."""

    __slots__ = ("fetched_bytes", "produced_bytes", "produced_records")

    def __init__(self) -> None:
        self.produced_records = 0
        self.produced_bytes = 0
        self.fetched_bytes = 0


class Metrics(Exposition):
    """The counters of one broker."""

    def __init__(self, *, topics_max: int = 200, now_s: Stopwatch = loop_time) -> None:
        """`topics_max`: topics with series of their own. `now_s`: measures every duration."""
        super().__init__(TABLE)
        self.now_s = now_s
        self.connections_opened = 0
        self.connections_refused = 0
        self.connections_cut_off = 0
        self.protocol_errors = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        self.produced_records = 0
        self.produced_batches = 0
        self.produced_bytes = 0
        self.recompressed_batches = 0
        self.fetched_bytes = 0
        self.fetched_rack_bytes = dict.fromkeys(RackRelation, 0)
        self.cache_read_bytes = 0
        self.ledger_read_bytes = 0
        self.takeovers_lost = 0
        self.leaderships_lost = 0
        self.segments_rolled = 0
        self.segments_trimmed = 0
        self.compaction_rounds = 0
        self.compaction_failures = 0
        self.compaction_read_bytes = 0
        self.compaction_written_bytes = 0
        self.compaction_removed_records = 0
        self.offload_failures = 0
        self.offload_copied_segments = 0
        self.offload_copied_bytes = 0
        self.offload_dropped_ledgers = 0
        self.dead_letters = 0
        self.dead_letter_failures = 0
        self.request_failures: dict[int, int] = {}
        """By API key: requests that failed in a way that no handler expected."""
        self.produce_errors: dict[int, int] = {}
        """By error code, per partition of a request."""
        self.fetch_errors: dict[int, int] = {}
        self.takeover_seconds = Histogram()
        self.append_seconds = Histogram()
        self.loop_lag_seconds = Histogram()
        self._timings: dict[int, _Timing] = {}
        self._topics_max = topics_max
        self._topics: dict[str, _Topic] = {}
        self._other_topics = _Topic()
        self._provide_own()

    # --- counting -----------------------------------------------------------------------

    def on_answered(self, slot: Slot, now_s: float) -> None:
        """Count a request whose answer was sent."""
        timing = self._timings.get(slot.api_key)
        if timing is None:
            timing = self._timings[slot.api_key] = _Timing()
        arrived_s, opened_s, answered_s = slot.arrived_s, slot.opened_s, slot.answered_s
        split_s = slot.split_s or answered_s
        times_s = (
            now_s - arrived_s,
            opened_s - arrived_s,
            split_s - opened_s,
            answered_s - split_s,
            now_s - answered_s,
        )
        observe_each(timing.each, times_s)

    def on_produced(self, topic: str, record_count: int, size: int) -> None:
        """Count an accepted batch."""
        self.produced_batches += 1
        self.produced_records += record_count
        self.produced_bytes += size
        counts = self._topics.get(topic) or self._topic(topic)
        counts.produced_records += record_count
        counts.produced_bytes += size

    def on_fetched(
        self, topic: str, size: int, relation: RackRelation = RackRelation.UNKNOWN
    ) -> None:
        """Count record bytes on their way to a consumer, whose rack has that relation to ours."""
        self.fetched_bytes += size
        self.fetched_rack_bytes[relation] += size
        self._topic(topic).fetched_bytes += size

    @property
    def answered_count(self) -> int:
        """Requests answered so far."""
        return sum(timing.request.count for timing in self._timings.values())

    def keep_topics(self, names: Iterable[str]) -> None:
        """Forget topics that are gone: their series end."""
        kept = dict.fromkeys(names)
        self._topics = {name: one for name, one in self._topics.items() if name in kept}

    def _topic(self, name: str) -> _Topic:
        counts = self._topics.get(name)
        if counts is None:
            if len(self._topics) >= self._topics_max:
                return self._other_topics
            counts = self._topics[name] = _Topic()
        return counts

    # --- showing ------------------------------------------------------------------------

    def _provide_own(self) -> None:
        for name in _COUNTERS:
            self.provide_one(f"quire_broker_{name}", lambda name=name: getattr(self, name))  # type: ignore[misc]
        self.provide_one(TAKEOVER_SECONDS, lambda: self.takeover_seconds)
        self.provide_one(APPEND_SECONDS, lambda: self.append_seconds)
        self.provide_one(LOOP_LAG_SECONDS, lambda: self.loop_lag_seconds)
        self.provide(REQUEST_SECONDS, self._requests)
        self.provide(STAGE_SECONDS, self._stages)
        self.provide(
            "quire_broker_request_failures",
            self._failures,
        )
        for name, counts in (
            ("produce", self.produce_errors),
            ("fetch", self.fetch_errors),
        ):
            self.provide(f"quire_broker_{name}_errors", lambda counts=counts: _errors(counts))  # type: ignore[misc]
        self.provide(
            "quire_broker_read_bytes",
            lambda: [
                ({"source": "memory"}, self.cache_read_bytes),
                ({"source": "bookies"}, self.ledger_read_bytes),
            ],
        )
        self.provide(
            "quire_broker_fetched_rack_bytes",
            lambda: [({"rack": rack}, size) for rack, size in self.fetched_rack_bytes.items()],
        )
        for name in _Topic.__slots__:
            self.provide(f"quire_topic_{name}", lambda name=name: self._by_topic(name))  # type: ignore[misc]

    def _requests(self) -> Samples:
        for key, timing in sorted(self._timings.items()):
            yield {"api": _api(key)}, timing.request

    def _failures(self) -> Samples:
        # From 0 on, or the first failure would be no increase.
        for key in sorted({*self._timings, *self.request_failures}):
            yield {"api": _api(key)}, self.request_failures.get(key, 0)

    def _stages(self) -> Samples:
        for key, timing in sorted(self._timings.items()):
            api = _api(key)
            yield {"api": api, "stage": "queue"}, timing.queue
            if key in _STAGES:
                first, second = _STAGES[key]
                yield {"api": api, "stage": first}, timing.first
                yield {"api": api, "stage": second}, timing.second
            else:
                yield {"api": api, "stage": "handle"}, timing.first
            yield {"api": api, "stage": "respond"}, timing.respond

    def _by_topic(self, field: str) -> Samples:
        for name, counts in sorted(self._topics.items()):
            yield {"topic": name}, getattr(counts, field)
        others = getattr(self._other_topics, field)
        if others:
            yield {"topic": OTHER_TOPICS}, others


def _api(key: int) -> str:
    if key == LINK_API_KEY:
        return "link"
    try:
        return ApiKey(key).name.lower()
    except ValueError:
        return str(key)


def _errors(counts: Mapping[int, int]) -> Iterator[tuple[Mapping[str, str], float]]:
    for code in sorted({*_EXPECTED_ERRORS, *counts}):
        yield {"error": Code(code).name}, counts.get(code, 0)
