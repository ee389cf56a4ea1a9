"""The security of listeners: TLS and logins of their connections, as their protocol requires.

Also maps a client's certificate to its principal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from broker.access.login import Login, Logins
from broker.metrics import Metrics
from broker.security.config import SecurityConfig
from broker.security.core.acls import ANONYMOUS
from broker.security.core.listeners import Listener
from broker.security.tls_files import TlsFiles
from client.node.tls.transport import Secured, TlsGate, TlsProtocol
from client.security.principal_rules import PrincipalRules


class Securable(Secured, Protocol):
    """A connection that is told when its TLS handshake is done."""

    def on_secured(self) -> None:
        """The handshake is done: the client may have sent a certificate."""
        ...


class ListenerSecurity:
    """One object for all listeners of a broker."""

    def __init__(
        self,
        config: SecurityConfig,
        tls: TlsFiles,
        logins: Logins,
        metrics: Metrics,
    ) -> None:
        self._tls = tls
        self._gate = TlsGate(
            asyncio.get_running_loop(),
            handshake_timeout_s=config.tls_handshake_timeout_ms / 1000,
            handshakes_max=config.tls_handshakes_max,
        )
        self._rules = PrincipalRules(config.tls_principal_rules)
        self._logins = logins
        self._provide(metrics)

    async def prepare(self, listeners: Iterable[Listener]) -> None:
        """Read the TLS files and the users, if the listeners need them.

        Raises ConfigError, MetadataError.
        """
        self._tls.load()
        if any(listener.protocol.is_sasl for listener in listeners):
            await self._logins.start()

    def close(self) -> None:
        """Accept no more logins."""
        self._logins.close()

    def _provide(self, metrics: Metrics) -> None:
        gate, tls, logins = self._gate, self._tls, self._logins
        metrics.provide_one("quire_broker_logins", lambda: logins.accepted)
        metrics.provide_one("quire_broker_logins_refused", lambda: logins.refused)
        metrics.provide_one("quire_broker_tls_handshakes", lambda: gate.handshakes)
        metrics.provide_one("quire_broker_tls_handshakes_failed", lambda: gate.failures)
        metrics.provide(
            "quire_broker_tls_certificate_expires_seconds",
            lambda: [] if tls.expires_s is None else [({}, tls.expires_s)],
        )

    def protocol_for(self, listener: Listener, connection: Securable) -> asyncio.BaseProtocol:
        """Return the protocol for the socket of a new connection: itself, or TLS around it."""
        if listener.protocol.is_tls:
            context = self._tls.server_context(asks_client=not listener.protocol.is_sasl)
            return TlsProtocol(self._gate, context, connection, connection.on_secured)
        assert isinstance(connection, asyncio.BaseProtocol)
        return connection

    def login_of(
        self, listener: Listener, on_user: Callable[[str], None], fail: Callable[[str], None]
    ) -> Login | None:
        """Return the login of a new connection's client, if the listener requires one."""
        return Login(self._logins, on_user, fail) if listener.protocol.is_sasl else None

    def user_of(self, transport: asyncio.BaseTransport) -> str | None:
        """Return the client's principal; None if no rule matches its certificate."""
        certificate = transport.get_extra_info("peercert")
        if not certificate:
            return ANONYMOUS
        return self._rules.name_of(certificate["subject"])
