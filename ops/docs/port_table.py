"""Which ports there are, and who talks to whom: written by hand, with numbers from the samples.

Every setting that is a port of a program has its row; a test finds what is missing.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final, NamedTuple

from client.config import settings_of
from ops.schemas.config import SchemasConfig

_SAMPLE: Final = Path(__file__).resolve().parent.parent / "deploy" / "config" / "three-machines"


class Port(NamedTuple):
    """One port."""

    number: str
    of: str
    setting: str
    """As the program's settings call it; of ZooKeeper, its own."""
    protocol: str
    reached_by: str
    closed_by: str
    """What makes it ask who is there."""


def ports() -> list[Port]:
    """Return every port, by the numbers that the sample for three machines has."""
    broker = tomllib.loads((_SAMPLE / "broker.toml").read_text(encoding="utf-8"))
    bookie = tomllib.loads((_SAMPLE / "bookie.toml").read_text(encoding="utf-8"))
    zoo = (_SAMPLE / "zoo.cfg").read_text(encoding="utf-8")
    (client,) = re.findall(r"^clientPort=(\d+)", zoo, re.M)
    peers, election = re.findall(r"^server\.1=[^:]+:(\d+):(\d+)", zoo, re.M)[0]
    schemas = next(one.default for one in settings_of(SchemasConfig) if one.key == "port")
    admin = "`admin_token`, `admin_tls_cert`; certificates by `admin_tls_client_ca`"
    return [
        Port(str(broker["port"]), "broker", "`port`, or the ports of `security.listeners`",
             "Kafka, plain or TLS", "clients, other brokers, schema registries, `quire`",
             "`security.listeners` with SASL_SSL or SSL, `security.authorization`"),
        Port(str(broker["admin_port"]), "broker", "`admin_port`", "HTTP or HTTPS",
             "browsers, `quire`, other brokers, Prometheus, probes", admin),
        Port(str(bookie["port"]), "bookie", "`port`", "BookKeeper, TLS by StartTLS",
             "brokers, other bookies, auto recovery, `quire ledger`, Spark in ledger mode",
             "`access.tls`, `access.tls_client_auth`, `access.allowed_clients`"),
        Port(str(bookie["admin_port"]), "bookie", "`admin_port`", "HTTP or HTTPS",
             "brokers (for the page), `quire bookie`, Prometheus, probes", admin),
        Port("none", "auto recovery", "`admin_port`", "HTTP or HTTPS",
             "Prometheus, probes", admin),
        Port(str(schemas), "schema registry", "`port`", "HTTP or HTTPS",
             "serializers, Prometheus, probes", admin),
        Port(client, "ZooKeeper", "clientPort or secureClientPort", "ZooKeeper, plain or TLS",
             "brokers, bookies, auto recovery, `quire metadata`, `quire doctor`",
             "`cluster_security.zookeeper_user`, `cluster_security.zookeeper_tls`"),
        Port(peers, "ZooKeeper", "server.N, first port", "ZooKeeper's quorum",
             "other ZooKeeper servers", "sslQuorum in zoo.cfg"),
        Port(election, "ZooKeeper", "server.N, second port", "ZooKeeper's elections",
             "other ZooKeeper servers", "sslQuorum in zoo.cfg"),
    ]  # fmt: skip
