"""Decides which segments of a partition are copied to the object store, and which ledgers go.

GAPLESS: oldest first, one after the other, so that everything below one offset is in the store.
DECIDED: only what is sealed and ends at or below the last stable offset, for which what is aborted
in it is known for good. KEEP-TAIL: never a ledger that a takeover may need.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from broker.cluster.core.topic_config import UNLIMITED, RemoteStorage
from client.ids import Offset
from client.log.offloaded import needed
from client.log.segment import Segment, SegmentFacts
from client.log.segments import SegmentList


class Plan(NamedTuple):
    """What is to be done for a partition, and how far it is behind."""

    copy: Segment | None = None
    """The next one to copy."""
    drop: Segment | None = None
    """The next one whose ledger may go."""
    lag_bytes: int = 0
    """Of sealed segments that are due to be copied and are not."""
    lag_since_ms: int = -1
    """When the oldest of them was ended; -1: there is none."""


class Log(NamedTuple):
    """A partition as the plan needs it."""

    listed: SegmentList
    segments: Sequence[Segment]
    """All of the list, oldest first."""
    stable_offset: Offset
    active_bytes: int


def plan(log: Log, remote: RemoteStorage, grace_ms: int, now_ms: int) -> Plan:
    """Look at a partition of a topic that has `remote`. `grace_ms`: see `ledger_grace_ms`."""
    kept = needed(log.listed)
    newer_bytes = sum(one.facts.size_bytes for one in log.segments if one.facts is not None)
    newer_bytes += log.active_bytes
    copy = drop = None
    lag_bytes, lag_since_ms = 0, -1
    for at, segment in enumerate(log.segments):
        facts, end = segment.facts, segment.end_offset
        if facts is None or end is None:
            break
        newer_bytes -= facts.size_bytes
        if end == segment.base_offset or end <= log.listed.log_start_offset:
            continue
        ended_ms = log.segments[at + 1].created_ms if at + 1 < len(log.segments) else now_ms
        age_ms = now_ms - _newest_ms(facts, ended_ms)
        if segment.stored is None:
            if end > log.stable_offset or not _is_due(remote, age_ms, newer_bytes):
                break
            if remote.copies:
                copy = copy or segment
                lag_bytes += facts.size_bytes
                lag_since_ms = ended_ms if lag_since_ms < 0 else lag_since_ms
        elif drop is None and not segment.stored.ledger_gone:
            is_old = remote.local_ms != UNLIMITED and age_ms > remote.local_ms
            is_much = remote.local_bytes != UNLIMITED and newer_bytes >= remote.local_bytes
            is_over = now_ms - segment.stored.since_ms >= grace_ms
            if segment.ledger_id not in kept and (is_old or is_much) and is_over:
                drop = segment
    return Plan(copy, drop, lag_bytes, lag_since_ms)


def _newest_ms(facts: SegmentFacts, ended_ms: int) -> int:
    """As retention counts: the newest record's timestamp; without one, the segment's end."""
    return facts.max_timestamp_ms if facts.max_timestamp_ms >= 0 else ended_ms


def _is_due(remote: RemoteStorage, age_ms: int, newer_bytes: int) -> bool:
    """Whether either lag is over (KIP-1241)."""
    if 0 in (remote.lag_ms, remote.lag_bytes):
        return True
    is_old = remote.lag_ms != UNLIMITED and age_ms >= remote.lag_ms
    return is_old or (remote.lag_bytes != UNLIMITED and newer_bytes >= remote.lag_bytes)
