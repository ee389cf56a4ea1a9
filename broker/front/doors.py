"""What stands between a listener's sockets and its connections: nothing, or TLS.

It also says who a client is by its certificate.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from broker.front.services import ANONYMOUS
from broker.metrics import Metrics
from broker.security.config import SecurityConfig
from broker.security.core.listeners import Listener
from broker.security.core.principal_rules import PrincipalRules
from broker.security.tls_files import TlsFiles
from client.node.tls_transport import Secured, TlsGate, TlsProtocol


class Securable(Secured, Protocol):
    """A connection that hears when its handshake is done."""

    def on_secured(self) -> None:
        """The client may have said who it is."""
        ...


class Doors:
    """One for all listeners of a broker."""

    def __init__(
        self, config: SecurityConfig, tls: TlsFiles, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._tls = tls
        self._gate = TlsGate(
            loop,
            tls.server_context,
            handshake_timeout_s=config.tls_handshake_timeout_ms / 1000,
            handshakes_max=config.tls_handshakes_max,
        )
        self._rules = PrincipalRules(config.tls_principal_rules)

    def load(self) -> None:
        """Read the files of TLS, if there are any. Raises ConfigError."""
        self._tls.load()

    def provide(self, metrics: Metrics) -> None:
        """Show what is counted here."""
        gate, tls = self._gate, self._tls
        metrics.provide_one("quire_broker_tls_handshakes", lambda: gate.handshakes)
        metrics.provide_one("quire_broker_tls_handshakes_failed", lambda: gate.failures)
        metrics.provide(
            "quire_broker_tls_certificate_expires_seconds",
            lambda: [] if tls.expires_s is None else [({}, tls.expires_s)],
        )

    def behind(self, listener: Listener, connection: Securable) -> asyncio.BaseProtocol:
        """Return what takes a socket's bytes for a new connection."""
        if listener.protocol.is_tls:
            return TlsProtocol(self._gate, connection, connection.on_secured)
        assert isinstance(connection, asyncio.BaseProtocol)
        return connection

    def user_of(self, transport: asyncio.BaseTransport) -> str | None:
        """Return the name of the client's principal; None if its certificate has none."""
        certificate = transport.get_extra_info("peercert")
        if not certificate:
            return ANONYMOUS
        return self._rules.name_of(certificate["subject"])
