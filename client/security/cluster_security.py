"""Settings of how processes of a cluster, and tools, reach its bookies and its ZooKeeper.

Brokers, bookies, auto recovery, the `quire` command, Spark's ledger mode and programs that use
ledgers have the same table. Who has none of it speaks plain text and is nobody.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from client.config import check_ranges, load, setting
from client.errors import ConfigError
from client.security.admin_access import is_loopback
from client.security.tls_contexts import FreshContext, TlsVersion, client_context, load_chain

TABLE: Final = "cluster_security"
ZooKeeperScheme = Literal["digest", "sasl", "both"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSecurity:
    """Settings of connections to bookies and ZooKeeper."""

    tls_ca: Path | None = setting(
        None,
        "PEM file with the authority of bookies' and ZooKeeper's certificates; default: those that"
        " this machine trusts.",
    )
    tls_cert: Path | None = setting(
        None,
        "PEM file with the certificate chain of this process: its identity towards bookies and"
        " ZooKeeper and, for a bookie, towards its clients.",
    )
    tls_key: Path | None = setting(None, "PEM file with the certificate's key, unencrypted.")
    tls_checks_name: bool = setting(
        True, "Whether a server's certificate must be valid for the host that it is reached by."
    )
    tls_version_min: TlsVersion = setting("1.2", "Lowest TLS version.")
    bookie_tls: bool = setting(
        False,
        "Speak TLS with bookies (BookKeeper's StartTLS), and refuse those that do not.",
    )

    zookeeper_tls: bool = setting(
        False,
        "Speak TLS with ZooKeeper; the servers' secureClientPort is what the addresses name then.",
    )
    zookeeper_user: str = setting(
        "",
        "User name of this process at ZooKeeper; the same for the whole cluster. The nodes that it"
        " creates belong to that user alone.",
    )
    zookeeper_password: str = setting("", "That user's password.", secret=True)
    zookeeper_scheme: ZooKeeperScheme = setting(
        "digest",
        "How ZooKeeper learns who the user is, and who owns nodes then. digest: the password is"
        " sent to it. sasl: a login by DIGEST-MD5, for which servers have a JAAS file; the password"
        " is not sent, and a wrong one is refused. both: as digest and as sasl, while a cluster"
        " goes from one to the other.",
    )
    zookeeper_acl: bool = setting(
        True,
        "Whether nodes belong to that user alone. Turn it off while some programs of the cluster"
        " do not have the user yet.",
    )

    def __post_init__(self) -> None:
        """Check relations; raise ConfigError."""
        check_ranges(self)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError(f"{TABLE}.tls_cert and {TABLE}.tls_key must be set together")
        if bool(self.zookeeper_user) != bool(self.zookeeper_password):
            raise ConfigError(f"{TABLE}.zookeeper_user and zookeeper_password must be set together")
        if ":" in self.zookeeper_user:
            raise ConfigError(f"{TABLE}.zookeeper_user must not have a colon")
        if self.zookeeper_by_sasl and not self.zookeeper_user:
            raise ConfigError(
                f"{TABLE}.zookeeper_scheme {self.zookeeper_scheme} needs zookeeper_user and"
                " zookeeper_password"
            )
        if self.zookeeper_by_sasl and "@" in self.zookeeper_user:
            raise ConfigError(
                f"{TABLE}.zookeeper_user must not have an @ with zookeeper_scheme"
                f" {self.zookeeper_scheme}: ZooKeeper takes what follows for a Kerberos realm"
            )

    @property
    def zookeeper_by_digest(self) -> bool:
        """Whether the user, if there is one, comes to ZooKeeper by its scheme digest."""
        return self.zookeeper_scheme != "sasl"

    @property
    def zookeeper_by_sasl(self) -> bool:
        """Whether the user logs in at ZooKeeper by SASL."""
        return self.zookeeper_scheme != "digest"

    def check_told(self, servers: str, option: str) -> None:
        """Check addresses of ZooKeeper that a broker told, or whoever posed as one, before the
        user's password goes there. `option`: with which the operator names them instead.

        Raises ConfigError unless the password is not sent, stays on this machine, or goes to
        servers with a certificate of the cluster's authority.
        """
        is_sent = self.zookeeper_user and self.zookeeper_by_digest
        is_proven = self.zookeeper_tls and self.tls_ca is not None
        hosts = [server.rpartition(":")[0] for server in servers.partition("/")[0].split(",")]
        if is_sent and not is_proven and not all(is_loopback(host.strip("[] ")) for host in hosts):
            raise ConfigError(
                f"a broker told that ZooKeeper is at {servers}, which nothing proves, so the"
                f" password of {self.zookeeper_user} is not sent there: if it is right, name it"
                f" with {option}, or have {TABLE}.zookeeper_tls and tls_ca"
            )

    def contexts(self) -> FreshContext[ssl.SSLContext]:
        """Return the context of connections. Raises ConfigError."""
        return FreshContext((self.tls_cert, self.tls_key, self.tls_ca), self._make)

    def _make(self) -> ssl.SSLContext:
        ca = None if self.tls_ca is None else ("tls_ca", self.tls_ca)
        context = client_context(TABLE, ca, version_min=self.tls_version_min)
        if not self.tls_checks_name:
            context.check_hostname = False
        if self.tls_cert is not None:
            load_chain(context, TABLE, self.tls_cert, self.tls_key)
        return context


OPEN_CLUSTER: Final = ClusterSecurity()
"""Plain text to all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """What a file has for programs without settings of their own."""

    cluster_security: ClusterSecurity = field(default_factory=ClusterSecurity)


def read_cluster_security(path: Path) -> ClusterSecurity:
    """Read a TOML file that has this table alone. Raises ConfigError."""
    return load(_File, toml_path=path, env_prefix="QUIRE_", environ={}).cluster_security
