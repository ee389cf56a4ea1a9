"""The secured cluster that is attacked: as `quire up --secure` makes it, and open to more logins.

A second listener wants logins without TLS, so that attackers need not pay for handshakes, and
passwords may come as they are (PLAIN), which are the costliest logins to check.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from broker.security.core.scram import PASSWORD_MECHANISMS
from tests.integration.cluster import LocalCluster

_BEHIND: Final = 50
"""Of the ports for HTTP: brokers have the first ones, and bookies those from 100 on."""


def plain_port_of(cluster: LocalCluster) -> int:
    """Return the port of the listener without TLS."""
    return cluster.ports["--admin-port"] + _BEHIND


def make(folder: Path) -> LocalCluster:
    """Return one of one broker, not started."""
    cluster = LocalCluster(folder, brokers=1, flags=("--secure",))
    tls, plain = cluster.ports["--kafka-port"], plain_port_of(cluster)
    cluster.environ |= {
        "QUIRE_BROKER_SECURITY_LISTENERS": (
            f"SASL_SSL://127.0.0.1:{tls},SASL_PLAINTEXT://127.0.0.1:{plain}"
        ),
        "QUIRE_BROKER_SECURITY_SASL_MECHANISMS": ",".join(PASSWORD_MECHANISMS),
    }
    return cluster
