"""Decides which markers go to which broker, and when they are sent again.

One queue serves one coordinator partition. Every marker is kept until it is confirmed, or its
partition's topic is gone; an error of one delays no other. To each broker one request is on its
way, so that all markers decided meanwhile go in the next.

    MARKER-ADDRESS  A marker names the topic's id and the leader epoch that the sender knows: a
                    leader of another epoch refuses it, and it is addressed anew.

What an answer says of a marker (`Outcome`):

    WRITTEN             it is in the log, or was before
    SUPERSEDED          the partition knows a newer epoch of the producer, so that nothing of this
                        transaction is open there: done, for this partition
    COORDINATOR_FENCED  the partition knows a newer coordinator. This one is about to hear of it;
                        nothing is given up until then
    FAILED              anything else: sent again after a pause, to whoever leads then

Source: Kafka's TransactionMarkerChannelManager, which gives the whole transaction up where
SUPERSEDED and COORDINATOR_FENCED are said here (KAFKA-16352 is such a case).
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from broker.transactions.core.transaction import (
    MarkerWritten,
    ProducerIdAndEpoch,
    TransactionPartition,
    TransactionVersion,
    WriteMarkers,
)
from client.errors import ConfigError
from client.ids import BrokerId, LeaderEpoch

_NOBODY: Final = LeaderEpoch(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerQueueConfig:
    """How markers are sent."""

    request_markers_max: int = 200
    """Markers in one request. Higher: fewer requests, longer ones."""
    retry_ms_min: int = 20
    """First pause before a marker is sent again; it doubles each time."""
    retry_ms_max: int = 1_000
    """Longest such pause."""

    def __post_init__(self) -> None:
        """Check ranges; raise ConfigError."""
        if self.request_markers_max <= 0 or not 0 < self.retry_ms_min <= self.retry_ms_max:
            raise ConfigError("request_markers_max > 0, 0 < retry_ms_min <= retry_ms_max")


class Leader(NamedTuple):
    """Who leads a partition, as far as this broker knows."""

    broker: BrokerId
    epoch: LeaderEpoch


class Unled(enum.Enum):
    """Why a partition has no leader to be asked."""

    UNKNOWN = "nobody leads it, or this broker has not heard"
    DELETED = "its topic is gone for good"


class Leaders(Protocol):
    """What the cluster's view says."""

    def leader(self, partition: TransactionPartition) -> Leader | Unled:
        """Return who leads a partition of the topic with that id (without one: of that name)."""
        ...


class Outcome(enum.Enum):
    """What an answer says of one marker."""

    WRITTEN = "written"
    SUPERSEDED = "superseded"
    COORDINATOR_FENCED = "coordinator fenced"
    FAILED = "failed"


@dataclass(slots=True, eq=False)
class Marker:
    """One marker of one partition."""

    transactional_id: str
    number: int
    producer: ProducerIdAndEpoch
    is_commit: bool
    version: TransactionVersion
    partition: TransactionPartition
    leader_epoch: LeaderEpoch = _NOBODY
    """Which leader it is addressed to."""
    attempts: int = 0

    def written(self) -> MarkerWritten:
        """Return what the shard hears when the partition has it."""
        return MarkerWritten(self.transactional_id, self.number, self.producer, self.partition)


class SendMarkers(NamedTuple):
    """Send markers to a broker; then `on_answer`, or `on_no_answer`."""

    request_id: int
    broker: BrokerId
    markers: tuple[Marker, ...]


class MarkersWritten(NamedTuple):
    """Tell the shard."""

    written: tuple[MarkerWritten, ...]


QueueEffects = Sequence[SendMarkers | MarkersWritten]


class MarkerQueue:
    """The markers of one coordinator partition that are not confirmed yet."""

    def __init__(self, leaders: Leaders, config: MarkerQueueConfig) -> None:
        self._leaders: Final = leaders
        self._config: Final = config
        self._addressed: dict[BrokerId, list[Marker]] = {}
        """To be sent, oldest first."""
        self._paused: list[tuple[float, int, Marker]] = []
        """A heap: to be addressed at a time."""
        self._sent: dict[int, SendMarkers] = {}
        self._busy: set[BrokerId] = set()
        self._last_number = 0

    def __len__(self) -> int:
        return (
            sum(len(markers) for markers in self._addressed.values())
            + len(self._paused)
            + sum(len(request.markers) for request in self._sent.values())
        )

    def add(self, decided: WriteMarkers, now_s: float) -> QueueEffects:
        """Take the markers of a decision that is durable."""
        markers = [
            Marker(
                decided.transactional_id,
                decided.number,
                decided.producer,
                decided.is_commit,
                decided.version,
                partition,
            )
            for partition in decided.partitions
        ]
        return self._address(markers, now_s)

    def on_answer(self, request_id: int, outcomes: Sequence[Outcome], now_s: float) -> QueueEffects:
        """A broker has answered; one outcome per marker of the request, in its order."""
        request = self._sent.pop(request_id)
        self._busy.discard(request.broker)
        done: list[MarkerWritten] = []
        for marker, outcome in zip(request.markers, outcomes, strict=True):
            if outcome in (Outcome.WRITTEN, Outcome.SUPERSEDED):
                done.append(marker.written())
            else:
                self._pause(marker, now_s)
        return [*_tell(done), *self._send()]

    def on_no_answer(self, request_id: int, now_s: float) -> QueueEffects:
        """A broker could not be reached, or has not answered: the outcome is unknown."""
        request = self._sent.pop(request_id)
        self._busy.discard(request.broker)
        for marker in request.markers:
            self._pause(marker, now_s)
        return self._send()

    def on_leaders_changed(self, now_s: float) -> QueueEffects:
        """The cluster's view has changed: address everything anew that is not on its way."""
        waiting = [marker for markers in self._addressed.values() for marker in markers]
        waiting += [marker for _, _, marker in sorted(self._paused)]
        self._addressed.clear()
        self._paused.clear()
        return self._address(waiting, now_s)

    def next_deadline(self) -> float | None:
        """Return when `on_deadline` wants to be called."""
        return self._paused[0][0] if self._paused else None

    def on_deadline(self, now_s: float) -> QueueEffects:
        """Pauses are over."""
        due = []
        while self._paused and self._paused[0][0] <= now_s:
            due.append(heapq.heappop(self._paused)[2])
        return self._address(due, now_s)

    def check(self) -> None:
        """Assert the invariants; tests call this after every input."""
        assert self._busy == {request.broker for request in self._sent.values()}
        assert len(self._busy) == len(self._sent), "one request to a broker at a time"
        assert all(self._addressed.values()), "an empty list"
        assert self._addressed.keys() <= self._busy, "a marker waits for nothing"

    def _address(self, markers: Sequence[Marker], now_s: float) -> QueueEffects:
        gone: list[MarkerWritten] = []
        for marker in markers:
            leader = self._leaders.leader(marker.partition)
            if isinstance(leader, Leader):
                marker.leader_epoch = leader.epoch
                self._addressed.setdefault(leader.broker, []).append(marker)
            elif leader is Unled.DELETED:
                gone.append(marker.written())
            else:
                self._pause(marker, now_s)
        return [*_tell(gone), *self._send()]

    def _send(self) -> list[SendMarkers]:
        found = []
        for broker in sorted(self._addressed.keys() - self._busy):
            markers = self._addressed.pop(broker)
            size = self._config.request_markers_max
            self._last_number += 1
            request = SendMarkers(self._last_number, broker, tuple(markers[:size]))
            if markers[size:]:
                self._addressed[broker] = markers[size:]
            self._sent[request.request_id] = request
            self._busy.add(broker)
            found.append(request)
        return found

    def _pause(self, marker: Marker, now_s: float) -> None:
        config = self._config
        pause_ms = min(config.retry_ms_min << min(marker.attempts, 30), config.retry_ms_max)
        marker.attempts += 1
        self._last_number += 1
        heapq.heappush(self._paused, (now_s + pause_ms / 1000, self._last_number, marker))


def _tell(written: Sequence[MarkerWritten]) -> Sequence[MarkersWritten]:
    return (MarkersWritten(tuple(written)),) if written else ()
