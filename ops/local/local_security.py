"""What `quire up --secure` adds to a local cluster: an authority, TLS, users, access control lists.

Brokers, bookies and ZooKeeper know each other by one certificate; nobody else may use bookies or
see what is in ZooKeeper. The admin ports of brokers and bookies have it, too, and want a token;
there is one for each role.

Made once, in the folder `security` of the cluster's data: certificates (`certificates.py`),
passwords (`passwords.json`, readable by the owner only), tokens (`admin.token`, `admin.tokens`) and
one properties file for clients, which librdkafka and Quire's own commands read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from client.errors import ConfigError
from client.kafka_security import security_of
from client.pubsub.brokers import Brokers
from client.pubsub.errors import BrokerUnreachable
from client.security.admin_access import Role
from client.security.cluster_security import ClusterSecurity
from ops.local.node_files import Value, write_toml
from ops.secret_files import write_secret
from ops.security import certificates
from ops.security.security_admin import SecurityAdmin

BROKERS: Final = "brokers"
ADMIN: Final = "admin"
MECHANISM: Final = "SCRAM-SHA-512"
_NODE: Final = "local"
_ZOOKEEPER: Final = "ZooKeeper"
_ROLES: Final = {"operator": Role.OPERATE, "viewer": Role.LOOK}
"""Who else has a token of the admin ports."""
_SECRETS: Final = (BROKERS, ADMIN, "admin API", _ZOOKEEPER, *_ROLES)
_RULES: Final = "RULE:^CN=([^,]+).*$/$1/"
_PASSWORD_BYTES: Final = 24


class LocalSecurity:
    """Of one data directory. Methods raise ConfigError if files cannot be made or read."""

    def __init__(
        self,
        data: Path,
        hosts: tuple[str, ...] = ("127.0.0.1", "localhost"),
        *,
        has_zookeeper: bool = True,
    ) -> None:
        """`has_zookeeper`: whether the ZooKeeper server is the cluster's own, and speaks TLS."""
        self._has_zookeeper = has_zookeeper
        self.folder = (data / "security").resolve()
        self._hosts = hosts
        self._passwords: Mapping[str, str] = {}

    @property
    def ca(self) -> Path:
        """The authority's certificate."""
        return self.folder / "ca.pem"

    @property
    def client_config(self) -> Path:
        """The properties file of user admin."""
        return self.folder / "admin.properties"

    @property
    def java_config(self) -> Path:
        """The same, by the names of Java's client."""
        return self.folder / "admin-java.properties"

    @property
    def cluster_config(self) -> Path:
        """How commands reach bookies and ZooKeeper."""
        return self.folder / "cluster.toml"

    def cluster_security(self) -> ClusterSecurity:
        """Return how the cluster's programs reach bookies and ZooKeeper."""
        return ClusterSecurity(
            tls_ca=self.ca,
            tls_cert=self.folder / f"{_NODE}.pem",
            tls_key=self.folder / f"{_NODE}.key",
            bookie_tls=True,
            zookeeper_tls=self._has_zookeeper,
            zookeeper_user="quire",
            zookeeper_password=self._passwords[_ZOOKEEPER],
        )

    def prepare(self) -> None:
        """Make what is not there yet; renew the certificate if it expires soon."""
        now = datetime.datetime.now(datetime.UTC)
        certificates.make_authority(self.folder, now)
        there = {one.name: one for one in certificates.listed(self.folder)}
        if _NODE not in there:
            certificates.issue(self.folder, _NODE, self._hosts, now)
        elif there[_NODE].expires < now + datetime.timedelta(days=certificates.RENEW_BEFORE_DAYS):
            certificates.renew(self.folder, _NODE, now)
        self._passwords = self._read_passwords()
        for path, properties in (
            (self.client_config, self.properties(ADMIN)),
            (self.java_config, self._java_properties(ADMIN)),
        ):
            write_secret(path, "".join(f"{key}={value}\n" for key, value in properties.items()))
        write_toml(self.cluster_config, self._cluster_settings())

    def _cluster_settings(self) -> dict[str, Value]:
        security = self.cluster_security()
        shown = {
            field.name: getattr(security, field.name) for field in dataclasses.fields(security)
        }
        return {
            f"cluster_security.{name}": str(value) if isinstance(value, Path) else value
            for name, value in shown.items()
            if value is not None
        }

    def bookie_settings(self) -> dict[str, Value]:
        """Return what a bookie's settings have in addition."""
        return {
            **self._cluster_settings(),
            "access.tls": "required",
            "access.tls_client_auth": "required",
            "access.tls_principal_rules": _RULES,
            "access.allowed_clients": [_NODE],
            **self._admin_settings(),
            # Brokers do not ask for certificates: their page is for browsers, which would ask back.
            "admin_tls_client_ca": str(self.ca),
            "admin_tls_principal_rules": _RULES,
            "admin_principals": [f"{_NODE}:{Role.ADMINISTER.word}"],
        }

    def _admin_settings(self) -> dict[str, Value]:
        return {
            "admin_token": self._passwords["admin API"],
            "admin_tokens_file": str(self.admin_token_file.with_suffix(".tokens")),
            "admin_tls_cert": str(self.folder / f"{_NODE}.pem"),
            "admin_tls_key": str(self.folder / f"{_NODE}.key"),
        }

    def broker_settings(self, port: int) -> dict[str, Value]:
        """Return what a broker's settings have in addition, for one listener at a port."""
        return {
            **self._cluster_settings(),
            "security.listeners": [f"SASL_SSL://127.0.0.1:{port}"],
            "security.tls_cert": str(self.folder / f"{_NODE}.pem"),
            "security.tls_key": str(self.folder / f"{_NODE}.key"),
            "security.tls_peer_ca": str(self.ca),
            "security.inter_broker_user": BROKERS,
            "security.inter_broker_mechanism": MECHANISM,
            "security.inter_broker_password": self._passwords[BROKERS],
            "security.authorization": True,
            "security.super_users": [f"User:{BROKERS}", f"User:{ADMIN}"],
            **self._admin_settings(),
            "admin_tls_ca": str(self.ca),
        }

    def properties(self, user: str) -> dict[str, str]:
        """Return what a client needs, by librdkafka's names."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": self._passwords[user],
            "ssl.ca.location": str(self.ca),
        }

    def _java_properties(self, user: str) -> dict[str, str]:
        password = self._passwords[user]
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required"
            f' username="{user}" password="{password}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
        }

    @property
    def admin_token_file(self) -> Path:
        """Where the token of the admin API is; beside it, with the suffix .tokens, is a file with a
        name, a role and a token in each line, for the other roles."""
        return self.folder / "admin.token"

    @property
    def metrics_token_file(self) -> Path:
        """Where the token is that Prometheus sends, of role look."""
        return self.folder / "metrics.token"

    def known_brokers(self, host: str, port: int) -> frozenset[int]:
        """Return the ids of the brokers that one of them knows; empty without a good answer."""
        with contextlib.suppress(BrokerUnreachable), self._connect(host, port, BROKERS) as admin:
            return admin.broker_ids()
        return frozenset()

    def make_users(self, host: str, port: int) -> None:
        """Let user admin log in. Raises QuireError."""
        with self._connect(host, port, BROKERS) as admin:
            if not admin.users([ADMIN]):
                admin.set_password(ADMIN, self._passwords[ADMIN], (MECHANISM,))

    def _connect(self, host: str, port: int, user: str) -> SecurityAdmin:
        return SecurityAdmin(Brokers(f"{host}:{port}", security_of(self.properties(user))))

    def _read_passwords(self) -> Mapping[str, str]:
        path = self.folder / "passwords.json"
        try:
            found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
            made = {name: secrets.token_urlsafe(_PASSWORD_BYTES) for name in _SECRETS}
            passwords = {name: str({**made, **found}[name]) for name in _SECRETS}
            if passwords != found:
                write_secret(path, json.dumps(passwords) + "\n")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{path} has no passwords: {error!r}") from error
        write_secret(self.admin_token_file, passwords["admin API"] + "\n")
        lines = (f"{name} {role.word} {passwords[name]}\n" for name, role in _ROLES.items())
        write_secret(self.admin_token_file.with_suffix(".tokens"), "".join(lines))
        write_secret(self.metrics_token_file, passwords["viewer"] + "\n")
        return passwords
