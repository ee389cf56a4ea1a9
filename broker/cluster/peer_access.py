"""How this broker reaches others: TLS, and the login that their listener may want.

A connection logs in before anything else is sent, and again before the login ends (KIP-368), while
its other requests go on.
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
"""Of the time that a login is good for: then comes the next one."""


@dataclass(frozen=True, slots=True)
class Account:
    """The user that brokers log in as."""

    mechanism: str
    user: str
    password: str = field(repr=False)
    nonce: Callable[[], str] = field(repr=False)
    """Returns another text each time."""


@dataclass(frozen=True, slots=True)
class PeerAccess:
    """What connections to other brokers need."""

    tls: Callable[[], ssl.SSLContext] = ssl.create_default_context
    """Asked for each connection to a peer that wants TLS; raises ConfigError."""
    account: Account | None = None

    def options(self, peer: BrokerInfo) -> dict[str, Any]:
        """Return what the loop's `create_connection` is told. Raises ConfigError."""
        return {"ssl": self.tls()} if peer.is_tls else {}

    def login(
        self,
        peer: BrokerInfo,
        send: Callable[[bytes], None],
        on_done: Callable[[], None],
        on_refused: Callable[[str], None],
    ) -> PeerLogin | None:
        """Return how a connection to a peer logs in; None: it need not. Raises ConfigError."""
        if not peer.is_sasl:
            return None
        if self.account is None:
            raise ConfigError(
                f"broker {peer.id} wants a login at listener {peer.listener}: set"
                " security.inter_broker_user and inter_broker_password"
            )
        return PeerLogin(self.account, send, on_done, on_refused)


class PeerLogin:
    """One connection's."""

    def __init__(
        self,
        account: Account,
        send: Callable[[bytes], None],
        on_done: Callable[[], None],
        on_refused: Callable[[str], None],
    ) -> None:
        """`on_done` is called after the first login, not after later ones; `on_refused` when one
        fails, with the reason: the connection is of no use then."""
        self._account = account
        self._send = send
        self._on_done = on_done
        self._on_refused = on_refused
        self._login: SaslLogin | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.is_done = False
        """Whether other requests may be sent."""

    def start(self) -> None:
        """Begin, the connection being open."""
        account = self._account
        exchange = SaslExchange(account.mechanism, account.user, account.password, account.nonce())
        self._login = SaslLogin(account.mechanism, exchange)
        self._send(self._login.start())

    def close(self) -> None:
        """The connection is gone."""
        if self._timer is not None:
            self._timer.cancel()
        self._login = None

    def on_frame(self, frame: memoryview) -> None:
        """Take an answer that belongs to the login."""
        if self._login is None:
            self._on_refused("an answer to a login came that nobody waits for")
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
