"""Sends requests to one broker: the shell around `core/peer_state.py`, and its connection.

Every request gets exactly one outcome: the answer's bytes, PeerUnavailable (it was never sent) or
PeerUnanswered (the outcome is unknown). The connection stays open; after it has ended, the next
request opens a new one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from broker.cluster.core.topology import BrokerInfo
from broker.cluster.peer_access import PeerAccess, PeerLogin
from broker.errors import PeerError, PeerUnanswered, PeerUnavailable
from broker.link.core.link_frames import (
    ANSWER_BYTES_MAX,
    HELLO_ID,
    HELLO_KIND,
    request_frame,
    split_answer,
)
from broker.link.core.peer_state import (
    Break,
    Connect,
    Effects,
    Greet,
    LinkConfig,
    PeerPhase,
    PeerState,
    Refused,
    Send,
    Unanswered,
)
from client import callbacks
from client.errors import ConfigError, RemoteProtocolError
from client.node import background
from client.wire.frames import FrameSplitter
from client.wire.kafka.sasl_login import is_login

_LOG = logging.getLogger(__name__)

OnDone = Callable[[memoryview | PeerError], None]
"""Gets the answer's bytes, or the error."""


class LinkConnection(asyncio.Protocol):
    """One connection: frames in, frames out."""

    def __init__(
        self, on_frame: Callable[[memoryview], None], on_lost: Callable[[str], None]
    ) -> None:
        self._splitter = FrameSplitter(ANSWER_BYTES_MAX)
        self._on_frame = on_frame
        self._on_lost: Callable[[str], None] | None = on_lost
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are of another class

    def data_received(self, data: bytes) -> None:
        """Pass frames on, unless the connection was abandoned meanwhile."""
        try:
            frames = self._splitter.feed(data)
        except RemoteProtocolError as error:
            self._lose(str(error))
            return
        for frame in frames:
            if self._on_lost is None:
                return
            self._on_frame(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the loss, once."""
        self._lose("the peer closed the connection" if exc is None else str(exc))

    def send(self, frame: bytes) -> None:
        """Write a frame."""
        assert self._transport is not None
        self._transport.write(frame)

    def abandon(self) -> None:
        """Close the connection without reporting its loss."""
        self._on_lost = None
        if self._transport is not None:
            self._transport.abort()

    def _lose(self, reason: str) -> None:
        on_lost, self._on_lost = self._on_lost, None
        if self._transport is not None:
            self._transport.abort()
        if on_lost is not None:
            on_lost(reason)


class PeerLink:
    """Requests of one kind of work to one broker, from its first to `close`."""

    def __init__(
        self,
        peer: BrokerInfo,
        hello: bytes,
        config: LinkConfig,
        access: PeerAccess,
    ) -> None:
        """`hello`: the encoded hello to that very process. `access`: how to connect to it."""
        self._peer = peer
        self._access = access
        self._hello = hello
        self._loop = asyncio.get_running_loop()
        self._state = PeerState(config)
        self._asked: dict[int, tuple[bytes, OnDone]] = {}
        self._last_id: int = HELLO_ID
        self._connection: LinkConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._login: PeerLogin | None = None
        self._timer: asyncio.TimerHandle | None = None

    def ask(self, kind: int, body: bytes, on_done: OnDone) -> None:
        """Send a request; `on_done` is called once, possibly before `ask` returns."""
        self._last_id += 1
        self._asked[self._last_id] = request_frame(kind, self._last_id, body), on_done
        self._perform(self._state.ask(self._last_id, self._loop.time()))

    @property
    def open_count(self) -> int:
        """How many requests have no outcome yet, including those that wait to be sent."""
        return len(self._asked)

    @property
    def is_up(self) -> bool:
        """Whether there is a connection whose hello the peer has accepted."""
        return self._state.phase is PeerPhase.UP

    def close(self) -> None:
        """Close the link; requests without an outcome fail."""
        self._perform(self._state.close())

    # --- carrying out -------------------------------------------------------------------------

    def _perform(self, effects: Effects) -> None:
        for effect in effects:
            match effect:
                case Send(request_id):
                    assert self._connection is not None
                    self._connection.send(self._asked[request_id][0])
                case Connect():
                    self._connecting = background.run(self._connect(), f"link {self._peer.id}")
                case Greet():
                    assert self._connection is not None
                    self._connection.send(request_frame(HELLO_KIND, HELLO_ID, self._hello))
                case Refused(request_id, reason):
                    self._settle(request_id, PeerUnavailable(f"broker {self._peer.id}: {reason}"))
                case Unanswered(request_id, reason):
                    self._settle(request_id, PeerUnanswered(f"broker {self._peer.id}: {reason}"))
                case Break(reason):
                    self._break(reason)
        self._arm()

    def _settle(self, request_id: int, outcome: memoryview | PeerError) -> None:
        _, on_done = self._asked.pop(request_id)
        try:
            on_done(outcome)
        except callbacks.RAISED as error:  # of one owner: the others get their outcomes
            callbacks.failed(callbacks.Kind.LINK, error)

    def _break(self, reason: str) -> None:
        _LOG.info("link.broken broker=%d reason=%r", self._peer.id, reason)
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            self._connection.abandon()
        self._forget_connection()

    def _forget_connection(self) -> None:
        self._connection = None
        if self._login is not None:
            self._login.close()
            self._login = None

    def _arm(self) -> None:
        at_s = self._state.next_deadline()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at_s is not None:
            self._timer = self._loop.call_at(at_s, self._on_timer)

    # --- inputs -------------------------------------------------------------------------------

    async def _connect(self) -> None:
        connection = LinkConnection(self._on_frame, self._on_lost)
        peer = self._peer
        try:
            options = self._access.options(peer)
            await self._loop.create_connection(lambda: connection, peer.host, peer.port, **options)
            login = self._access.login(peer, connection.send, self._on_ready, self._on_refused)
        except (OSError, ConfigError, ValueError) as error:  # ValueError: an invalid host name
            connection.abandon()
            self._connecting = None
            self._perform(self._state.on_lost(str(error), self._loop.time()))
            return
        except asyncio.CancelledError:
            connection.abandon()
            raise
        self._connecting = None
        self._connection, self._login = connection, login
        if login is None:
            self._on_ready()
        else:
            login.start()

    def _on_ready(self) -> None:
        self._perform(self._state.on_connected())

    def _on_refused(self, reason: str) -> None:
        """The login failed, the first one or a later one."""
        _LOG.warning("link.refused broker=%d reason=%r", self._peer.id, reason)
        if self._connection is not None:
            self._connection.abandon()
        self._forget_connection()
        self._perform(self._state.on_lost(reason, self._loop.time()))

    def _on_frame(self, frame: memoryview) -> None:
        if self._login is not None and is_login(frame):
            self._login.on_frame(frame)
            return
        now_s = self._loop.time()
        try:
            answer = split_answer(frame)
        except RemoteProtocolError as error:
            self._perform(self._state.on_broken(str(error), now_s))
            return
        if answer.correlation_id == HELLO_ID:
            if answer.refusal is None:
                self._perform(self._state.on_welcome(now_s))
            else:
                _LOG.warning("link.refused broker=%d reason=%r", self._peer.id, answer.refusal)
                self._perform(self._state.on_broken(answer.refusal, now_s))
            return
        asked = self._asked.get(answer.correlation_id)
        effects = self._state.on_answer(answer.correlation_id, now_s)
        if self._state.phase is PeerPhase.UP and asked is not None:
            if answer.refusal is None:
                self._settle(answer.correlation_id, answer.body)
            else:
                reason = f"broker {self._peer.id}: {answer.refusal}"
                self._settle(answer.correlation_id, PeerUnanswered(reason))
        self._perform(effects)

    def _on_lost(self, reason: str) -> None:
        if self._state.phase is PeerPhase.GREETING:
            # A broker of another kind, or of a release without links, closes it on the hello.
            _LOG.warning("link.refused broker=%d reason=%r", self._peer.id, reason)
        self._forget_connection()
        self._perform(self._state.on_lost(reason, self._loop.time()))

    def _on_timer(self) -> None:
        self._timer = None
        self._perform(self._state.on_deadline(self._loop.time()))
