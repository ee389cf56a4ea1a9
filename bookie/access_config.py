"""Settings of who may use a bookie: the table `[access]`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from client.config import check_ranges, setting
from client.errors import ConfigError
from client.security.cluster_security import ClusterSecurity
from client.security.principal_rules import PrincipalRules


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessConfig:
    """Who may use the port of the BookKeeper protocol."""

    tls: Literal["off", "offered", "required"] = setting(
        "off",
        "Whether clients may speak TLS (BookKeeper's StartTLS), with the certificate of"
        " cluster_security. offered: those that do not are served as well; required: they are"
        " refused, whatever they ask.",
    )
    tls_client_auth: Literal["none", "required"] = setting(
        "none",
        "Whether clients that speak TLS must show a certificate of cluster_security.tls_ca.",
    )
    tls_principal_rules: str = setting(
        "DEFAULT",
        "How a certificate's distinguished name becomes a client's name, as in Kafka's"
        " ssl.principal.mapping.rules.",
    )
    allowed_clients: tuple[str, ...] = setting(
        (),
        "Names of the clients that may do anything: brokers, bookies, tools. Nobody else may then"
        " read, write or fence. Default: every client with a certificate of that authority. A name"
        " with commas can only stand in the file, unless a rule shortens it.",
    )
    tls_handshake_timeout_ms: int = setting(
        10_000,
        "A connection whose TLS handshake is not complete after this time is closed, and so is one"
        " of a client that is not allowed. Low: clients that are far away, or on a busy machine,"
        " cannot connect.",
        at_least=100,
    )
    tls_handshakes_max: int = setting(
        1_000, "Most TLS handshakes under way; connections that begin another one are closed.",
        at_least=1,
    )  # fmt: skip

    def __post_init__(self) -> None:
        """Check ranges and relations; raise ConfigError."""
        check_ranges(self)
        try:
            PrincipalRules(self.tls_principal_rules)
        except ConfigError as error:
            raise ConfigError(f"access.{error}") from None
        if self.tls == "off" and self.tls_client_auth != "none":
            raise ConfigError("access.tls_client_auth has no effect while access.tls is off")
        if self.allowed_clients and self.tls_client_auth != "required":
            raise ConfigError('access.allowed_clients needs access.tls_client_auth "required"')
        if self.allowed_clients and self.tls != "required":
            raise ConfigError(
                "access.allowed_clients protects nothing while plain text is served: set access.tls"
                ' to "required"'
            )

    def open_reason(self) -> str:
        """Say why strangers who reach the port may use it; "" if they may not."""
        if self.tls != "required":
            return "anyone who reaches this port can use every ledger; set access.tls"
        if self.tls_client_auth != "required":
            return "TLS without access.tls_client_auth keeps nobody out"
        return ""

    def check_beside(self, security: ClusterSecurity) -> None:
        """Check relations to the bookie's certificate. Raises ConfigError."""
        if self.tls != "off" and security.tls_cert is None:
            raise ConfigError(f"access.tls {self.tls} needs cluster_security.tls_cert and tls_key")
        if self.tls_client_auth == "required" and security.tls_ca is None:
            raise ConfigError("access.tls_client_auth needs cluster_security.tls_ca")
