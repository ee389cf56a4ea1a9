"""The security of listeners: TLS and logins of their connections, as their protocol requires.

TLS contexts are kept in step with the files of certificates and keys (`TlsFiles`). The files are
looked at now and then. When one has changed, all are read again, and connections from then on get
the new context; those that are open keep theirs. Files that do not fit together (one of two was
written so far) are reported, the old context stays in use, and they are tried again when they
change again.

Also maps a client's certificate to its principal.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from broker.metrics import Metrics
from broker.security.config import ClientAuth, SecurityConfig
from broker.security.core.acls import ANONYMOUS
from broker.security.core.listeners import Listener
from broker.security.login import Login, Logins
from client.errors import ConfigError
from client.ids import Clock
from client.node import background
from client.node.tls.transport import Secured, TlsGate, TlsProtocol
from client.security.certificate_dates import first_expiry_s
from client.security.principal_rules import PrincipalRules
from client.security.tls_contexts import (
    Stamps,
    client_context,
    load_authority,
    load_chain,
    server_context,
    stamps_of,
)

log = logging.getLogger(__name__)

_WARN_BEFORE_S: Final = 30 * 86_400
_WARN_INTERVAL_S: Final = 86_400.0
_TABLE: Final = "security"
_VERIFY: Final = {
    "none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED,
}  # fmt: skip


class TlsFiles:
    """The contexts of the moment."""

    def __init__(self, config: SecurityConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._server: ssl.SSLContext | None = None
        self._quiet: ssl.SSLContext | None = None
        self._peers: ssl.SSLContext | None = None
        self._stamps: Stamps = ()
        self._warned_s = 0.0
        self._task: asyncio.Task[None] | None = None
        self.expires_s: int | None = None
        """When the first certificate of the chain expires, as Unix time; None without TLS."""

    def load(self) -> None:
        """Read the files. Raises ConfigError."""
        if self._config.tls_cert is not None:
            stamps = self._look()
            self._read()
            self._stamps = stamps

    def start(self) -> None:
        """Begin to look for changes."""
        if self._config.tls_cert is not None:
            self._task = background.run(self._follow(), "tls files")

    async def close(self) -> None:
        """Stop looking."""
        await background.stop(self._task)

    def server_context(self, *, asks_client: bool) -> ssl.SSLContext:
        """Return what the next connection of a client gets. `asks_client`: whether it may be asked
        for a certificate, as the settings say; one that logs in is not, as in Kafka."""
        context = self._server if asks_client else self._quiet
        assert context is not None, "loaded before anybody listens"
        return context

    def peer_context(self) -> ssl.SSLContext:
        """Return what the next connection to another broker gets."""
        if self._peers is None:
            self._peers = _peer_context(self._config)
        return self._peers

    def _look(self) -> Stamps:
        config = self._config
        paths = (config.tls_cert, config.tls_key, config.tls_client_ca, config.tls_peer_ca)
        return stamps_of(paths)

    def _read(self) -> None:
        config = self._config
        server, peers = _server_context(config, config.tls_client_auth), _peer_context(config)
        quiet = _server_context(config, "none")
        assert self._config.tls_cert is not None
        try:
            expires_s = first_expiry_s(self._config.tls_cert.read_text(encoding="ascii"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"security.tls_cert {self._config.tls_cert}: {error}") from error
        self._server, self._quiet, self._peers = server, quiet, peers
        self.expires_s = expires_s
        self._warned_s = 0.0
        self._warn()

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(self._config.tls_reload_interval_ms / 1000)
            self._warn()
            stamps = self._look()
            if stamps == self._stamps:
                continue
            self._stamps = stamps
            try:
                self._read()
            except ConfigError as error:
                log.error("tls.not_reloaded reason=%r", str(error))
            else:
                log.info("tls.reloaded expires_s=%d", self.expires_s or 0)

    def _warn(self) -> None:
        """Report once a day that the certificate expires soon."""
        now_s = self._clock.now_ms() / 1000
        if self.expires_s is None or self.expires_s - now_s > _WARN_BEFORE_S:
            return
        if now_s - self._warned_s >= _WARN_INTERVAL_S:
            self._warned_s = now_s
            days = int((self.expires_s - now_s) // 86_400)
            log.warning("tls.expires_soon file=%s days=%d", self._config.tls_cert, days)


def _server_context(config: SecurityConfig, client_auth: ClientAuth) -> ssl.SSLContext:
    """Return the context of this broker's listeners. Raises ConfigError."""
    assert config.tls_cert is not None and config.tls_key is not None
    version_min = config.tls_version_min
    context = server_context(_TABLE, config.tls_cert, config.tls_key, version_min=version_min)
    if config.tls_client_ca is not None and client_auth != "none":
        load_authority(context, _TABLE, "tls_client_ca", config.tls_client_ca)
    context.verify_mode = _VERIFY[client_auth]
    return context


def _peer_context(config: SecurityConfig) -> ssl.SSLContext:
    """Return the context of connections to other brokers. Raises ConfigError."""
    ca = None if config.tls_peer_ca is None else ("tls_peer_ca", config.tls_peer_ca)
    context = client_context(_TABLE, ca, version_min=config.tls_version_min)
    if config.tls_cert is not None:
        load_chain(context, _TABLE, config.tls_cert, config.tls_key)
    return context


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
        self._reserved = config.reserved_users
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
        self,
        listener: Listener,
        on_user: Callable[[str], None],
        fail: Callable[[str], None],
        let_go: Callable[[], None],
    ) -> Login | None:
        """Return the login of a new connection's client, if the listener requires one."""
        return Login(self._logins, on_user, fail, let_go) if listener.protocol.is_sasl else None

    def user_of(self, transport: asyncio.BaseTransport) -> str | None:
        """Return the client's principal; None if no rule matches its certificate, or it names a
        user that no certificate may name."""
        certificate = transport.get_extra_info("peercert")
        if not certificate:
            return ANONYMOUS
        name = self._rules.name_of(certificate["subject"])
        return None if name in self._reserved else name
