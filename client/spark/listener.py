"""Report the lag of a query, and store its offsets where Kafka's tools see them.

Spark keeps the offsets of a query in its checkpoint, where no Kafka tool sees them. `QuireListener`
reads the end of every batch from Spark's progress report and stores it as offsets of a consumer
group, the last batch of a run included; the source's own option `commitGroupId` stores a batch only
when the next one is planned, and so never the last one.

    from client.spark.listener import QuireListener

    spark.streams.addListener(QuireListener("localhost:9092", commit_group_id="dashboard"))
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Final

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from client.errors import QuireError
from client.pubsub.brokers import Brokers
from client.spark.brokers.kafka_cluster import KafkaCluster
from client.spark.plan.source_offset import ABOUT, SourceOffset, parse_offset
from client.spark.splits import TopicPartition

log = logging.getLogger(__name__)

Lags = Mapping[TopicPartition, int]
OnLag = Callable[[str, Lags], None]
"""Told the query's name (or id) and how many offsets each partition is behind."""

_TIMEOUT_MS: Final = 5000
"""Spark tells one listener at a time: a broker that is away may hold up the others this long."""


class QuireListener(StreamingQueryListener):
    """Logs and keeps the lag of queries on format quire, and stores their offsets.

    `lags` has the last known lag by query, in offsets: markers and compacted records count.
    """

    def __init__(
        self,
        bootstrap_servers: str | Brokers = "",
        *,
        commit_group_id: str = "",
        query_name: str | None = None,
        on_lag: OnLag | None = None,
    ) -> None:
        """Listen to one query by name, or to all of them.

        Raises ConfigError if a group is named, but not where its brokers are.
        """
        super().__init__()
        self.lags: dict[str, Lags] = {}
        self._group = commit_group_id
        self._query_name = query_name
        self._on_lag = on_lag
        self._cluster = KafkaCluster(bootstrap_servers, _TIMEOUT_MS) if commit_group_id else None

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Take the end of a batch that Spark has committed."""
        progress = event.progress
        if self._query_name not in (None, progress.name):
            return
        name = progress.name or str(progress.id)
        lags: dict[TopicPartition, int] = {}
        for source in progress.sources:
            end = offset_of(source.endOffset)
            if end is not None:
                lags.update(lags_of(end, offset_of(source.latestOffset)))
                self._store(end)
        if lags:
            self.lags[name] = lags
            behind = max(lags, key=lags.__getitem__)
            log.info(
                "query %s is %d offsets behind, %s by %d",
                name, sum(lags.values()), behind, lags[behind],
            )  # fmt: skip
            if self._on_lag is not None:
                self._on_lag(name, lags)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Leave what is known for whoever asks."""

    def _store(self, end: SourceOffset) -> None:
        if self._cluster is None:
            return
        try:
            self._cluster.commit(self._group, end.positions)
        except QuireError as error:
            log.warning("offsets of group %s are not stored: %s", self._group, error)


def offset_of(text: str | None) -> SourceOffset | None:
    """Read an offset out of a progress report; None if it is another source's."""
    try:
        tree = json.loads(text or "null")
    except ValueError:
        return None
    return parse_offset(tree) if isinstance(tree, dict) and ABOUT in tree else None


def lags_of(end: SourceOffset, latest: SourceOffset | None) -> dict[TopicPartition, int]:
    """Return how many offsets lie between the end of a batch and the end of each log."""
    ends = latest.positions if latest is not None else {}
    return {at: max(0, ends.get(at, done) - done) for at, done in sorted(end.positions.items())}
