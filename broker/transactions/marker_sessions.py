"""Takes a coordinator's markers to other brokers, in sessions (CHANNEL).

Each broker hears a coordinator in one session at a time. When an answer does not come, the session
is over: what follows is of a newer one, and from its first request on the broker drops whatever of
the old one arrives late. Numbers of sessions grow for as long as this process runs, and a leader
epoch belongs to one process; so they grow through every new loading of a coordinator, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Final

from broker.errors import PeerUnanswered
from broker.link.links import Links
from broker.transactions.core.connection_order import Session
from broker.transactions.core.link_messages import MarkersRequest, MarkerTopic, SentMarker
from broker.transactions.core.marker_queue import Marker, Outcome
from broker.transactions.core.transaction_types import TransactionVersion
from broker.transactions.link_apis import MARKERS
from broker.transactions.marker_link import CoordinatorTerm, MarkerSessions
from client.ids import BrokerId

LANE: Final = "markers"
"""Markers wait for appends, and hold up each other only."""


class LinkedMarkers:
    """Implements `MarkerLink`."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._numbers = itertools.count(1)

    def open(self, coordinator: CoordinatorTerm) -> MarkerSessions:
        """Begin to send for a coordinator."""
        return _Sessions(self._links, coordinator, self._numbers)


class _Sessions:
    """The sessions of one loading of a coordinator. Implements `MarkerSessions`."""

    def __init__(self, links: Links, coordinator: CoordinatorTerm, numbers: Iterator[int]) -> None:
        self._links = links
        self._coordinator = coordinator
        self._numbers = numbers
        self._sessions: dict[BrokerId, Session] = {}

    async def send(self, broker: BrokerId, markers: Sequence[Marker]) -> Sequence[Outcome]:
        """Have markers written. Raises PeerError: the session is over."""
        session = self._sessions.pop(broker, None)
        if session is None:
            session = Session(self._coordinator.epoch, next(self._numbers))
        request = MarkersRequest(
            self._coordinator.partition, session, [_sent(marker) for marker in markers]
        )
        answer = await self._links.ask(broker, MARKERS, request, LANE)
        if not answer.is_heard:
            raise PeerUnanswered(f"broker {broker} has heard a newer session than {session}")
        if len(answer.outcomes) != len(markers):
            raise PeerUnanswered(f"broker {broker} has answered for {len(answer.outcomes)} markers")
        self._sessions[broker] = session
        return answer.outcomes

    def close(self) -> None:
        """End all sessions: what comes next is of newer ones."""
        self._sessions.clear()


def _sent(marker: Marker) -> SentMarker:
    partition = marker.partition
    return SentMarker(
        MarkerTopic(partition.topic_id, partition.topic),
        partition.partition,
        marker.leader_epoch,
        marker.producer.producer_id,
        marker.producer.epoch,
        marker.is_commit,
        marker.version is TransactionVersion.TV2,
    )
