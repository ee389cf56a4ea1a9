"""How this broker connects to others: TLS, and the login that their listener may require.

A connection logs in before anything else is sent, and again before the login expires (KIP-368),
while its other requests go on.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from broker.cluster.core.topology import BrokerInfo
from client.errors import ConfigError, RemoteProtocolError
from client.wire.kafka.sasl_client import SaslExchange
from client.wire.kafka.sasl_login import LoginRefused, SaslLogin

_LOGIN_SHARE: Final = 0.8
"""Share of a login's lifetime after which the connection logs in again."""


@dataclass(frozen=True, slots=True)
class Account:
    """The user that brokers log in as."""

    mechanism: str
    user: str
    password: str = field(repr=False)
    nonce: Callable[[], str] = field(repr=False)
    """Returns a different text each time."""


@dataclass(frozen=True, slots=True)
class PeerAccess:
    """What connections to other brokers need."""

    tls: Callable[[], ssl.SSLContext] = ssl.create_default_context
    """Called for each connection to a peer with TLS; raises ConfigError."""
    account: Account | None = None

    def options(self, peer: BrokerInfo) -> dict[str, Any]:
        """Return arguments for the loop's `create_connection`. Raises ConfigError."""
        return {"ssl": self.tls()} if peer.is_tls else {}

    def login(
        self,
        peer: BrokerInfo,
        send: Callable[[bytes], None],
        on_done: Callable[[], None],
        on_refused: Callable[[str], None],
    ) -> PeerLogin | None:
        """Return the login of a connection to a peer; None: none is needed. Raises ConfigError."""
        if not peer.is_sasl:
            return None
        if self.account is None:
            raise ConfigError(
                f"listener {peer.listener} of broker {peer.id} requires a login: set"
                " security.inter_broker_user and inter_broker_password"
            )
        return PeerLogin(self.account, send, on_done, on_refused)


class PeerLogin:
    """The login of one connection."""

    def __init__(
        self,
        account: Account,
        send: Callable[[bytes], None],
        on_done: Callable[[], None],
        on_refused: Callable[[str], None],
    ) -> None:
        """`on_done` is called after the first login only. `on_refused` is called with the reason
        when any login fails: the connection cannot be used then."""
        self._account = account
        self._send = send
        self._on_done = on_done
        self._on_refused = on_refused
        self._login: SaslLogin | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.is_done = False
        """Whether other requests may be sent."""

    def start(self) -> None:
        """Begin to log in; the connection is open."""
        account = self._account
        exchange = SaslExchange(account.mechanism, account.user, account.password, account.nonce())
        self._login = SaslLogin(account.mechanism, exchange)
        self._send(self._login.start())

    def close(self) -> None:
        """The connection was closed."""
        if self._timer is not None:
            self._timer.cancel()
        self._login = None

    def on_frame(self, frame: memoryview) -> None:
        """Take an answer that belongs to the login."""
        if self._login is None:
            self._on_refused("an unexpected answer to a login arrived")
            return
        try:
            answer = self._login.on_answer(frame)
        except (LoginRefused, RemoteProtocolError) as error:
            self._on_refused(f"the login of {self._account.user!r} failed: {error}")
            return
        if answer is not None:
            self._send(answer)
            return
        lifetime_s = self._login.lifetime_ms / 1000
        self._login = None
        if lifetime_s:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_LOGIN_SHARE * lifetime_s, self.start)
        if not self.is_done:
            self.is_done = True
            self._on_done()
