"""A chaos cluster with TLS and logins on every link, and certificates that are renewed meanwhile.

Clients, brokers, bookies and ZooKeeper, its servers among each other included, speak TLS only;
clients and brokers log in by SCRAM, everybody shows ZooKeeper a certificate and a password, and
access control lists decide. It is what `quire up --secure` makes, for the addresses of a chaos
cluster, whose links pass bytes on and know nothing of TLS.
"""

from __future__ import annotations

import datetime
import ssl
import urllib.request
from pathlib import Path

from client.metadata.zookeeper import ZooKeeperStore
from ops.local.local_security import LocalSecurity
from ops.local.node_files import Value
from ops.security import certificates
from ops.zookeeper import ServerTls, server_tls

_NODE = "local"
_EARLIER = datetime.timedelta(hours=2)
"""Certificates are valid from before any moment to which a clock is set back."""
_RELOAD_MS = 500

_QUORUM = """\
sslQuorum=true
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
ssl.quorum.keyStore.type=PEM
ssl.quorum.keyStore.location={keys}
ssl.quorum.trustStore.type=PEM
ssl.quorum.trustStore.location={ca}
ssl.quorum.hostnameVerification=false
ssl.hostnameVerification=false
"""


class ChaosSecurity:
    """Of one cluster."""

    def __init__(self, folder: Path, hosts: tuple[str, ...]) -> None:
        """`hosts`: every address by which somebody knows a node."""
        self._local = LocalSecurity(folder, hosts)
        made = datetime.datetime.now(datetime.UTC) - _EARLIER
        certificates.make_authority(self._local.folder, made)
        certificates.issue(self._local.folder, _NODE, hosts, made)
        self._local.prepare()
        self._context = ssl.create_default_context(cafile=self._local.ca)
        self.renewals = 0

    @property
    def properties(self) -> dict[str, str]:
        """What clients need, by librdkafka's names."""
        return self._local.properties("admin")

    @property
    def client_config(self) -> Path:
        """The file with that."""
        return self._local.client_config

    def renew(self) -> None:
        """Put a new certificate in the place of the one that all nodes have."""
        now = datetime.datetime.now(datetime.UTC) - _EARLIER
        certificates.renew(self._local.folder, _NODE, now)
        self.renewals += 1

    def bookie_settings(self) -> dict[str, Value]:
        """What a bookie's settings have in addition."""
        return self._local.bookie_settings()

    def broker_settings(self, host: str, known: str, port: int) -> dict[str, Value]:
        """What a broker's settings have in addition; `known`: the host that clients are told."""
        return {
            **self._local.broker_settings(port),
            "security.listeners": [f"SASL_SSL://{host}:{port}"],
            "security.advertised_listeners": [f"SASL_SSL://{known}:{port}"],
            "security.tls_reload_interval_ms": _RELOAD_MS,
        }

    def zookeeper_tls(self) -> ServerTls:
        """What a ZooKeeper server needs."""
        return server_tls(self._local.cluster_security())

    def zookeeper_config(self, folder: Path) -> str:
        """What the configuration of a server in a folder has in addition."""
        return _QUORUM.format(keys=(folder / "keys.pem").resolve(), ca=self._local.ca)

    def zookeeper_context(self) -> ssl.SSLContext:
        """Return what clients of ZooKeeper connect with."""
        return self._local.cluster_security().contexts().get()

    def store(self, hosts: list[str]) -> ZooKeeperStore:
        """Return a store, not yet started."""
        return ZooKeeperStore(hosts, security=self._local.cluster_security())

    def make_users(self, host: str, port: int) -> None:
        """Let clients log in. Raises QuireError."""
        self._local.make_users(host, port)

    def known_brokers(self, host: str, port: int) -> frozenset[int]:
        """Return the ids of the brokers that one of them knows; empty without a good answer."""
        return self._local.known_brokers(host, port)

    def is_renewed(self, host: str, port: int) -> bool:
        """Tell whether a broker shows the newest certificate."""
        try:
            shown = ssl.get_server_certificate(
                (host, port), ca_certs=str(self._local.ca), timeout=5
            )
        except OSError:
            return False
        return shown.split() == (self._local.folder / f"{_NODE}.pem").read_text().split()

    def admin_answers(self, url: str) -> bool:
        """Tell whether a node's admin server answers a GET well."""
        token = self._local.admin_token_file.read_text(encoding="utf-8").strip()
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        try:
            with urllib.request.urlopen(request, timeout=1, context=self._context) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False
