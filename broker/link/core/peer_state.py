"""Decides when requests to one broker are sent, and when they have failed.

    IDLE ──ask──▶ CONNECTING ──▶ GREETING ──welcome──▶ UP
      ▲                │             │                 │
      └── a pause ─────┴─────────────┴─────────────────┘   lost, refused, or an answer too late

The number of requests in flight is bounded, and so is the number that wait. A request that was
never sent is *refused*: nothing has happened. One that was sent and gets no answer is *unanswered*:
its outcome is unknown. A late answer ends the connection and all requests on it, because a peer
answers in the order of requests: none after it would be answered sooner.

After a failure there is a pause before the next attempt, which doubles with each further failure.
Meanwhile requests are refused at once; callers pause before they retry. A connection that ends
while no request is in flight (peers close idle ones) is opened again by the next request.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from client.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkConfig:
    """Limits of the link to one broker."""

    requests_max: int = 64
    """Requests in flight."""
    waiting_max: int = 256
    """Requests that wait for one of those, or for the connection; more are refused."""
    answer_ms_max: int = 5_000
    """How long an answer may take. Lower: hanging peers are given up sooner, but slow ones, too."""
    pause_ms_min: int = 20
    """First pause after a failure."""
    pause_ms_max: int = 1_000
    """Longest such pause."""

    def __post_init__(self) -> None:
        """Check ranges; raise ConfigError."""
        if (
            min(self.requests_max, self.answer_ms_max, self.pause_ms_min) <= 0
            or self.waiting_max < self.requests_max
            or self.pause_ms_max < self.pause_ms_min
        ):
            raise ConfigError(
                "the limits of links between brokers must be positive, waiting_max at least"
                " requests_max, and pause_ms_max at least pause_ms_min"
            )


class Connect(NamedTuple):
    """Open a connection; then `on_connected`, or `on_lost`."""


class Greet(NamedTuple):
    """Send the hello; then `on_welcome`, or `on_lost`."""


class Send(NamedTuple):
    """Send a request; then `on_answer`, unless the connection is lost."""

    request_id: int


class Refused(NamedTuple):
    """Tell the caller that the request was not sent."""

    request_id: int
    reason: str


class Unanswered(NamedTuple):
    """Tell the caller that the outcome of the request is unknown."""

    request_id: int
    reason: str


class Break(NamedTuple):
    """Close the connection; `on_lost` is not called for it."""

    reason: str


Effect = Connect | Greet | Send | Refused | Unanswered | Break
Effects = Sequence[Effect]


class PeerPhase(enum.Enum):
    """The state of the link."""

    IDLE = "idle"
    CONNECTING = "connecting"
    GREETING = "greeting"
    UP = "up"
    CLOSED = "closed"


class PeerState:
    """The requests to one broker, and their connection."""

    def __init__(self, config: LinkConfig) -> None:
        self.phase = PeerPhase.IDLE
        self._config: Final = config
        self._waiting: deque[int] = deque()
        self._sent: dict[int, float] = {}
        """Requests in flight, oldest first, with the deadlines of their answers."""
        self._late_s = 0.0
        """Deadline of connecting and greeting."""
        self._retry_s = float("-inf")
        self._failures = 0

    def ask(self, request_id: int, now_s: float) -> Effects:
        """Accept a request; its id is never reused."""
        if self.phase is PeerPhase.CLOSED:
            return (Refused(request_id, "the link is closed"),)
        if self.phase is PeerPhase.IDLE:
            if now_s < self._retry_s:
                return (Refused(request_id, "the last connection failed a moment ago"),)
            self.phase = PeerPhase.CONNECTING
            self._late_s = now_s + self._config.answer_ms_max / 1000
            self._waiting.append(request_id)
            return (Connect(),)
        if len(self._waiting) >= self._config.waiting_max:
            return (Refused(request_id, "too many requests are waiting for it"),)
        self._waiting.append(request_id)
        return self._send(now_s)

    def on_connected(self) -> Effects:
        """The connection is open."""
        if self.phase is not PeerPhase.CONNECTING:
            return (Break("the connection is no longer needed"),)
        self.phase = PeerPhase.GREETING
        return (Greet(),)

    def on_welcome(self, now_s: float) -> Effects:
        """The peer has accepted the hello."""
        if self.phase is not PeerPhase.GREETING:
            return self._fail("it answered a hello that was not sent", now_s)
        self.phase = PeerPhase.UP
        return self._send(now_s)

    def on_answer(self, request_id: int, now_s: float) -> Effects:
        """An answer arrived; an unexpected one breaks the connection."""
        if self._sent.pop(request_id, None) is None:
            return self._fail("it answered a request that was not sent", now_s)
        self._failures = 0
        return self._send(now_s)

    def on_lost(self, reason: str, now_s: float) -> Effects:
        """The connection was lost, could not be made, or was refused."""
        return self._end(reason, now_s)

    def on_broken(self, reason: str, now_s: float) -> Effects:
        """The peer sent something invalid."""
        return self._fail(reason, now_s)

    def close(self) -> Effects:
        """The peer is no longer registered, or this broker stops."""
        if self.phase is PeerPhase.CLOSED:
            return ()
        effects = [Break("closed"), *self._give_up("the link was closed")]
        self.phase = PeerPhase.CLOSED
        return effects

    def next_deadline(self) -> float | None:
        """Return when to call `on_deadline`; None: no deadline."""
        if self.phase in (PeerPhase.CONNECTING, PeerPhase.GREETING):
            return self._late_s
        return next(iter(self._sent.values()), None)

    def on_deadline(self, now_s: float) -> Effects:
        """Check whether an answer is late."""
        late_s = self.next_deadline()
        if late_s is None or now_s < late_s:
            return ()
        return self._fail(f"no answer within {self._config.answer_ms_max} ms", now_s)

    def check(self) -> None:
        """Assert the invariants; tests call this after every input."""
        assert len(self._sent) <= self._config.requests_max
        assert len(self._waiting) <= self._config.waiting_max
        assert not self._sent or self.phase is PeerPhase.UP
        assert not self._waiting or self.phase not in (PeerPhase.IDLE, PeerPhase.CLOSED)
        room = len(self._sent) < self._config.requests_max
        assert not (self._waiting and room and self.phase is PeerPhase.UP), "it waits for nothing"

    def _send(self, now_s: float) -> list[Effect]:
        effects: list[Effect] = []
        if self.phase is not PeerPhase.UP:
            return effects
        while self._waiting and len(self._sent) < self._config.requests_max:
            request_id = self._waiting.popleft()
            self._sent[request_id] = now_s + self._config.answer_ms_max / 1000
            effects.append(Send(request_id))
        return effects

    def _fail(self, reason: str, now_s: float) -> Effects:
        if self.phase in (PeerPhase.IDLE, PeerPhase.CLOSED):
            return ()
        return [Break(reason), *self._end(reason, now_s)]

    def _end(self, reason: str, now_s: float) -> Effects:
        if self.phase in (PeerPhase.IDLE, PeerPhase.CLOSED):
            return ()
        if self.phase is not PeerPhase.UP or self._sent:
            config = self._config
            pause_ms = min(config.pause_ms_min << min(self._failures, 30), config.pause_ms_max)
            self._failures += 1
            self._retry_s = now_s + pause_ms / 1000
        self.phase = PeerPhase.IDLE
        return self._give_up(reason)

    def _give_up(self, reason: str) -> list[Effect]:
        effects: list[Effect] = [Unanswered(one, reason) for one in self._sent]
        effects += (Refused(one, reason) for one in self._waiting)
        self._sent.clear()
        self._waiting.clear()
        return effects
