"""What `quire top` shows of a cluster at one moment, as any broker's admin API tells it.

Covers what is asked and the shape that `--json` prints. Brokers say their own rates; those of
topics come from two looks. What cannot be reached is None, never 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol

MARKS_SHOWN_MAX: Final = 1_000
"""Ledgers lacking copies that are counted; beyond, it is said that there are more."""

READY: Final = "ready"
NOT_READY: Final = "not ready"
UNLOADED: Final = "unloaded"
SILENT: Final = "silent"


class Api(Protocol):
    """What is needed of the admin API."""

    async def get(self, path: str, **query: object) -> Any:
        """GET a path below the prefix."""
        ...

    async def list(self, path: str, **query: object) -> Sequence[Any]:
        """Return all items of a list."""
        ...


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """A live broker. Numbers are None while it cannot be reached; rates are per second."""

    broker_id: int
    state: str
    why: str | None
    partitions_led: int | None
    groups: int | None
    connections: int | None
    requests: float | None
    produced_records: float | None
    produced_bytes: float | None
    fetched_bytes: float | None


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic; what its leaders say is None where one is silent."""

    topic: str
    partitions: int
    partitions_led: int
    records: int
    bytes: int
    produced: int
    """High watermarks, summed up."""
    produced_records: float | None = None
    """Per second, since the look before."""


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A consumer group."""

    group: str
    state: str
    members: int
    lag_records: int | None
    lag_seconds: float | None


@dataclass(frozen=True, slots=True)
class BookieRow:
    """A bookie that belongs to the cluster."""

    bookie_id: str
    state: str
    rack: str | None
    disk_free_bytes: int | None
    disk_total_bytes: int | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look."""

    at_s: float
    """Unix time of whoever looks."""
    cluster_id: str
    answered_by: int
    partitions: int
    partitions_led: int
    brokers: Sequence[BrokerRow]
    topics: Sequence[TopicRow]
    groups: Sequence[GroupRow]
    bookies: Sequence[BookieRow]
    under_replicated: int
    """Ledgers that lack copies, at most `MARKS_SHOWN_MAX`."""
    under_replicated_more: bool

    def as_json(self) -> dict[str, Any]:
        """Return it ready for JSON."""
        return asdict(self)


async def take(api: Api, now_s: float, before: Snapshot | None = None) -> Snapshot:
    """Look at the cluster; `before` is what rates are counted from. Raises AdminError."""
    cluster, brokers, topics, groups, bookies, marks = await asyncio.gather(
        api.get("/cluster"),
        api.list("/brokers"),
        api.list("/topics"),
        api.list("/groups"),
        api.list("/bookies"),
        api.get("/under-replication", limit=MARKS_SHOWN_MAX),
    )
    return Snapshot(
        at_s=now_s,
        cluster_id=cluster["cluster_id"],
        answered_by=cluster["answered_by"],
        partitions=cluster["partitions"]["count"],
        partitions_led=cluster["partitions"]["led"],
        brokers=[_broker(row) for row in brokers],
        topics=[_topic(row, now_s, before) for row in topics],
        groups=[
            GroupRow(
                row["group"], row["state"], row["members"], row["lag_records"], row["lag_seconds"]
            )
            for row in groups
        ],
        bookies=[
            BookieRow(
                row["bookie_id"], row["state"], row["rack"], row["disk_free_bytes"],
                row["disk_total_bytes"],
            )
            for row in bookies
        ],
        under_replicated=len(marks["items"]),
        under_replicated_more=marks["next"] is not None,
    )  # fmt: skip


def _broker(row: Mapping[str, Any]) -> BrokerRow:
    live = row["live"] or {}
    rates = live.get("rates") or {}
    state, why = READY, None
    if not live:
        state, why = SILENT, row["silence"]
    elif row["is_unloaded"]:
        state, why = UNLOADED, "gave its partitions away"
    elif not live["is_ready"]:
        state, why = NOT_READY, "; ".join(live["not_ready"])
    return BrokerRow(
        broker_id=row["broker_id"],
        state=state,
        why=why,
        partitions_led=live.get("partitions_led"),
        groups=live.get("groups"),
        connections=live.get("connections"),
        requests=rates.get("requests"),
        produced_records=rates.get("produced_records"),
        produced_bytes=rates.get("produced_bytes"),
        fetched_bytes=rates.get("fetched_bytes"),
    )


def _topic(row: Mapping[str, Any], now_s: float, before: Snapshot | None) -> TopicRow:
    totals = row["totals"]
    rate = None
    if before is not None and now_s > before.at_s:
        known = next((one for one in before.topics if one.topic == row["topic"]), None)
        is_same = known is not None and known.partitions_led == totals["partitions_led"]
        if known is not None and is_same and totals["produced"] >= known.produced:
            rate = (totals["produced"] - known.produced) / (now_s - before.at_s)
    return TopicRow(
        topic=row["topic"],
        partitions=row["partition_count"],
        partitions_led=totals["partitions_led"],
        records=totals["records"],
        bytes=totals["bytes"],
        produced=totals["produced"],
        produced_records=rate,
    )
