"""Plan a stream's micro-batches: where the first one begins, where each ends, what it reads.

The class has the name of the interface in Spark that asks these questions, which
`read/stream_reader.py` passes on. An object lives as long as one run of the query and is lost
without notice: everything that must outlast it is in the offsets (`source_offset.py`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Final, Literal

from client.spark.brokers.kafka_cluster import EARLIEST, LATEST, KafkaCluster, TopicFacts
from client.spark.data_loss import check_topic_id, report_loss
from client.spark.errors import SparkSourceError, TopicReplaced
from client.spark.options import Options
from client.spark.plan.admission import Admission, TriggerLimits
from client.spark.plan.bounds import ids_of, partitions_of, require_topics, select_topics, starting
from client.spark.plan.input_partitions import bytes_per_record, drop_lost, plan_input_partitions
from client.spark.plan.source_offset import (
    Json,
    SourceOffset,
    advance,
    initial,
    parse_offset,
    starts,
)
from client.spark.splits import OffsetRange, Position, TaskSplits, TopicPartition

log = logging.getLogger(__name__)

Limit = Literal["options", "none"]
"""Whether Spark wants the options' limits kept, or everything that is there."""

SIZES_KEPT_S: Final = 30.0
"""How long a mean record size is good enough."""

_COMMIT_TIMEOUT_MS: Final = 5000
_RECORD_BYTES_MAX: Final = 1 << 20
"""Brokers take no larger records by default: this many records cannot be more bytes than this."""

Positions = Mapping[TopicPartition, int]
Topics = Mapping[str, TopicFacts]


class MicroBatchStream:
    """One run of a streaming query."""

    def __init__(
        self,
        options: Options,
        cluster: KafkaCluster | None = None,
        *,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        servers = options.bootstrap_servers
        self._options = options
        self._cluster = cluster or KafkaCluster(servers, options.fetch_timeout_ms)
        self._committer = cluster or KafkaCluster(servers, _COMMIT_TIMEOUT_MS)
        self._now_s = now_s
        self._sleep = sleep
        self._admission = Admission(
            TriggerLimits(
                options.trigger_offsets_max,
                options.trigger_bytes_max,
                options.trigger_offsets_min,
                options.trigger_delay_ms,
            )
        )
        self._initial: Json | None = None
        self._target: Positions | None = None
        self._latest: Positions | None = None
        self._record_bytes: dict[TopicPartition, float] = {}
        self._sizes_at_s = -SIZES_KEPT_S

    def initial(self) -> Json:
        """Return where the query begins if no checkpoint says so. Spark asks twice."""
        if self._initial is None:
            topics = select_topics(self._cluster, self._options)
            if not self._options.subscribe_pattern:  # what matches may come later
                require_topics(topics, self._options)
            partitions = partitions_of(topics)
            positions = starting(self._cluster, self._options, partitions)
            missing = [at for at in partitions if at not in positions]
            if missing:
                raise SparkSourceError(
                    f"the leader of {missing[0]} does not say where it begins or ends"
                )
            self._initial = initial(positions, ids_of(topics)).to_json()
        return self._initial

    def stop_at_what_is_there(self) -> None:
        """Take the ends of now as the last ones (Trigger.AvailableNow)."""
        topics = select_topics(self._cluster, self._options)
        self._target = self._ends(partitions_of(topics))

    def latest(self, start_json: Json, limit: Limit) -> Json:
        """Return the end of the batch that begins at `start`; `start` itself if there is none."""
        start = parse_offset(start_json)
        topics = self._current_topics(start)
        wanted = partitions_of(topics)
        if self._target is not None:
            known = {*self._target, *start.positions}
            wanted = [at for at in wanted if at in known]
        read = {at.topic for at in wanted}
        ids = {name: topic_id for name, topic_id in ids_of(topics).items() if name in read}
        replaced = {name for name in ids if ids[name] != start.ids.get(name, ids[name])}
        added = self._added(start, [
            at for at in wanted if at not in start.positions or at.topic in replaced
        ])  # fmt: skip
        begin = {at: added.get(at, start.positions.get(at, 0)) for at in wanted}
        latest = self._not_before(begin, self._bounded(self._ends(wanted)))
        self._latest = latest
        positions = self._admit(begin, latest, limit)
        if positions == dict(start.positions) and not added and ids == dict(start.ids):
            return start_json
        return advance(start, positions, ids, added, self._hints(start, positions, ids)).to_json()

    def report(self) -> Json | None:
        """Return the ends that `latest` last saw, for Spark's progress reports."""
        return None if self._latest is None else SourceOffset(self._latest).to_json()

    def tasks(self, start_json: Json, end_json: Json) -> list[TaskSplits]:
        """Plan the batch between two offsets that were told before, maybe by an earlier run."""
        start, end = parse_offset(start_json), parse_offset(end_json)
        ranges: list[OffsetRange] = []
        for at, begin in starts(start, end).items():
            if begin is None:
                raise SparkSourceError(
                    f"the checkpoint does not say where {at} begins: it was not written by Quire"
                )
            ranges.append(
                OffsetRange(
                    end.ids.get(at.topic, ""), at.topic, at.partition, begin,
                    end.positions[at], start.hints.get(at),
                )
            )  # fmt: skip
        ranges = [each for each in ranges if len(each)]
        if not ranges:
            return []
        ranges = self._drop_replaced(ranges)
        ranges = drop_lost(self._cluster, ranges, self._options)
        sizes = self._sizes({each.at: each.start for each in ranges}, end.positions)
        return plan_input_partitions(self._cluster, ranges, self._options, sizes)

    def commit(self, end_json: Json) -> None:
        """Store what Spark has finished as offsets of `commitGroupId`; failing is no failure."""
        group = self._options.commit_group_id
        if not group:
            return
        try:
            self._committer.commit(group, parse_offset(end_json).positions)
        except SparkSourceError as error:
            log.warning("option commitGroupId: %s", error)

    def close(self) -> None:
        """Close connections."""
        self._cluster.close()
        self._committer.close()

    def _drop_replaced(self, ranges: list[OffsetRange]) -> list[OffsetRange]:
        """Report topics that are others by now than when the batch was planned first."""
        topics = self._cluster.topics(sorted({each.topic for each in ranges}))
        kept: list[OffsetRange] = []
        for each in ranges:
            found = topics[each.topic].topic_id if each.topic in topics else ""
            try:
                check_topic_id(each.topic, each.topic_id, found)
            except TopicReplaced as error:
                if self._options.fail_on_data_loss:
                    raise
                log.warning("%s; offsets %d to %d are lost", error, each.start, each.end - 1)
            else:
                kept.append(each)
        return kept

    def _current_topics(self, start: SourceOffset) -> Topics:
        """Return what is read now; report what has vanished since `start`."""
        topics = select_topics(self._cluster, self._options)
        gone = [at for at in start.positions if at not in set(partitions_of(topics))]
        if gone and self._options.subscribe_pattern:
            self._sleep(
                self._options.retry_ms / 1000
            )  # a broker that has just come up may not know
            topics = select_topics(self._cluster, self._options)
            gone = [at for at in start.positions if at not in set(partitions_of(topics))]
        if gone:
            first = min(gone)
            report_loss(
                f"{', '.join(map(str, sorted(gone)))} no longer exists, or is no longer asked"
                f" for; {first} had been read up to offset {start.positions[first]}",
                fail=self._options.fail_on_data_loss,
            )
        for name, facts in topics.items():
            if self._options.fail_on_data_loss:
                check_topic_id(name, start.ids.get(name, ""), facts.topic_id)
        return topics

    def _added(
        self, start: SourceOffset, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return where partitions begin that the query has not read before: at their beginning."""
        if not partitions:
            return {}
        begin = self._cluster.offsets(dict.fromkeys(partitions, EARLIEST))
        for at in partitions:
            # A partition added to a topic that was read all along was empty not long ago.
            if begin.get(at, 0) > 0 and at.topic in start.ids and at not in start.positions:
                report_loss(
                    f"the new partition {at} begins at offset {begin[at]}: what it held before"
                    " is gone",
                    fail=self._options.fail_on_data_loss,
                )
            log.info("reading %s from offset %d", at, begin.get(at, 0))
        return {at: begin.get(at, 0) for at in partitions}

    def _ends(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        asked = dict.fromkeys(partitions, LATEST)
        return self._cluster.offsets(asked, read_committed=self._options.read_committed)

    def _bounded(self, ends: Positions) -> dict[TopicPartition, int]:
        if self._target is None:
            return dict(ends)
        # A partition that has come since does not move in this run.
        return {at: min(end, self._target.get(at, 0)) for at, end in ends.items()}

    def _not_before(self, begin: Positions, latest: Positions) -> dict[TopicPartition, int]:
        """Return ends that are not before `begin`, asking again while a log seems to shrink.

        A log never shrinks, but a leader that has just taken over may not know its end yet.
        """
        for _ in range(self._options.retries):
            short = [at for at in begin if latest.get(at, -1) < self._floor(begin, at)]
            if not short:
                break
            self._sleep(self._options.retry_ms / 1000)
            latest = {**latest, **self._bounded(self._ends(short))}
        for at in begin:
            if latest.get(at, -1) < self._floor(begin, at):
                report_loss(
                    f"{at} ends at offset {latest.get(at, -1)}, but had been read up to"
                    f" {begin[at]}",
                    fail=self._options.fail_on_data_loss,
                )
        return {at: max(begin[at], latest.get(at, begin[at])) for at in begin}

    def _floor(self, begin: Positions, at: TopicPartition) -> int:
        """Below this an end is suspicious; a target of this run may well lie before the start."""
        return begin[at] if self._target is None else min(begin[at], self._target.get(at, 0))

    def _admit(
        self, begin: Positions, latest: Positions, limit: Limit
    ) -> dict[TopicPartition, int]:
        if limit == "none":
            return dict(latest)
        sizes: Mapping[TopicPartition, float] = {}
        if self._options.trigger_bytes_max is not None and begin != latest:
            sizes = self._sizes(begin, latest, always=True)
        now_ms = int(self._now_s() * 1000)
        hurry = self._target is not None
        return self._admission.end(begin, latest, now_ms, sizes, hurry=hurry)

    def _sizes(
        self, begin: Positions, end: Positions, *, always: bool = False
    ) -> Mapping[TopicPartition, float]:
        """Return mean record sizes; asked anew only where they could matter and are old."""
        records = sum(end[at] - begin[at] for at in begin)
        if not always and records * _RECORD_BYTES_MAX < self._options.partition_bytes_max:
            return self._record_bytes
        if self._now_s() - self._sizes_at_s >= SIZES_KEPT_S:
            asked = list(begin)
            self._record_bytes = bytes_per_record(
                self._cluster,
                {at.topic for at in asked},
                self._cluster.offsets(dict.fromkeys(asked, EARLIEST)),
                self._ends(asked),
            )
            self._sizes_at_s = self._now_s()
        return self._record_bytes

    def _hints(
        self, start: SourceOffset, positions: Positions, ids: Mapping[str, str]
    ) -> dict[TopicPartition, Position]:
        """Return ledger positions of the ends; those that did not move keep theirs."""
        if self._options.read_mode == "broker":
            return {}
        from client.spark.plan import ledger_mode

        still = {
            at: start.hints[at]
            for at in positions
            if at in start.hints and positions[at] == start.positions.get(at)
        }
        moved = [
            OffsetRange(
                ids.get(at.topic, ""), at.topic, at.partition, start.positions.get(at, 0),
                positions[at], start.hints.get(at),
            )
            for at in positions if at not in still
        ]  # fmt: skip
        return {**still, **ledger_mode.locate(moved, self._options)}
