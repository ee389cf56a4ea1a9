"""Who may use a bookie: whether a connection has to speak TLS, and whose certificate is good.

Everybody may open a connection. Where TLS is required, nothing is served before StartTLS: requests
are answered with UNAUTHORIZED, in the version they came in, and a handshake that fails, or a
certificate that nobody allowed, ends the connection. AUTH is answered in any case, as Apache's
bookies answer it: whoever has a plugin configured finds out that there is none here. Apache's
client sends it right behind StartTLS, in plain text; the answer goes out behind the handshake.

Source: Apache BookKeeper `AuthHandler`, `BookieRequestProcessor.processStartTLSRequestV3`.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Final

from bookie.access_config import AccessConfig
from client.errors import ConfigError, RemoteProtocolError
from client.node.tls.transport import TlsGate
from client.security.certificate_dates import first_expiry_s
from client.security.cluster_security import TABLE, ClusterSecurity
from client.security.principal_rules import PrincipalRules
from client.security.tls_contexts import FreshContext, load_authority, server_context
from client.wire.bookkeeper.connection import Call, decode_call
from client.wire.bookkeeper.messages import AuthRequest
from client.wire.frames import LENGTH_BYTES

UNTRUSTED_FRAME_BYTES_MAX: Final = 64 << 10
"""Largest request of a client that may ask nothing: what it sends must not take others' room."""
_ANY_AUTH: Final = AuthRequest("", b"")


class Guard:
    """One for all connections of a bookie that has a certificate."""

    def __init__(
        self, config: AccessConfig, security: ClusterSecurity, loop: asyncio.AbstractEventLoop
    ) -> None:
        """Reads the files of certificates. Raises ConfigError."""
        self._config = config
        self._security = security
        self._rules = PrincipalRules(config.tls_principal_rules)
        self.timeout_s = config.tls_handshake_timeout_ms / 1000
        """How long a connection lives that may ask nothing."""
        self.gate = TlsGate(
            loop,
            handshake_timeout_s=self.timeout_s,
            handshakes_max=config.tls_handshakes_max,
        )
        files = security.tls_cert, security.tls_key, security.tls_ca
        self._contexts = FreshContext(files, self._make)

    @property
    def serves_plain(self) -> bool:
        """Whether a connection may ask anything as it is."""
        return self._config.tls != "required"

    @property
    def expires_s(self) -> int:
        """When the first certificate of the chain expires, as Unix time."""
        return self._contexts.get()[1]

    def context(self) -> ssl.SSLContext:
        """Return what the next connection gets."""
        return self._contexts.get()[0]

    def refusal_of(self, certificate: Any) -> str | None:
        """Say why a client that has shaken hands may not go on; None: it may.

        `certificate`: of the standard library's `getpeercert`; None if it showed none.
        """
        allowed = self._config.allowed_clients
        if not allowed:
            return None
        name = self._rules.name_of(certificate["subject"]) if certificate else None
        if name is None:
            return "no rule of tls_principal_rules matches the client's certificate"
        return None if name in allowed else f"{name!r} is not among access.allowed_clients"

    def _make(self) -> tuple[ssl.SSLContext, int]:
        security = self._security
        cert, key = security.tls_cert, security.tls_key
        assert cert is not None and key is not None, "the configuration was checked"
        context = server_context(TABLE, cert, key, version_min=security.tls_version_min)
        if self._config.tls_client_auth == "required":
            assert security.tls_ca is not None, "the configuration was checked"
            load_authority(context, TABLE, "tls_ca", security.tls_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        try:
            return context, first_expiry_s(cert.read_text(encoding="ascii"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"{TABLE}.tls_cert {cert}: {error}") from error


def first_frame(data: memoryview) -> memoryview | None:
    """Return a copy of the frame that bytes begin with; None if it is not whole."""
    end = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "big")
    is_whole = LENGTH_BYTES < end <= len(data)
    return memoryview(bytes(data[LENGTH_BYTES:end])) if is_whole else None


def auth_of(frame: memoryview) -> Call | None:
    """Return the request in a frame if it is an AUTH, without what that says; else None."""
    try:
        call = decode_call(frame)
    except RemoteProtocolError:
        return None
    return call._replace(request=_ANY_AUTH) if type(call.request) is AuthRequest else None
