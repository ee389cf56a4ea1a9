"""Decides at which address a client can reach a broker.

(The most frequent trouble of Kafka's users.) A broker with a configured advertised host is always
advertised under that. Otherwise the address that the client itself connected to is the best guess
for every broker on this machine: it evidently works from where the client is.
"""

from __future__ import annotations

from collections.abc import Collection

from broker.cluster.core.topology import BrokerInfo
from broker.config import BrokerConfig
from broker.front.services import Peer, Services
from client.wire.kafka.node_endpoints import NodeEndpoint

_MAPPED_IPV4 = "::ffff:"
_EVERYWHERE = ("0.0.0.0", "::", "")  # noqa: S104  (compared with, not listened on)


def registered_host(config: BrokerConfig) -> str:
    """Return the host under which this broker registers."""
    if config.advertised_host:
        return config.advertised_host
    if config.listen_host not in _EVERYWHERE:
        return config.listen_host
    return config.hostname or "127.0.0.1"


def endpoint_for(services: Services, broker: BrokerInfo, peer: Peer) -> tuple[str, int]:
    """Return (host, port) of a broker for the client at the other end of a connection."""
    if broker.advertised or not peer.local_host:
        return broker.host, broker.port
    me = services.cluster.brokers.get(services.config.node_id)
    if broker.id == services.config.node_id or (me is not None and me.host == broker.host):
        return peer.local_host.removeprefix(_MAPPED_IPV4), broker.port
    return broker.host, broker.port


def leader_endpoints(
    services: Services, peer: Peer, leaders: Collection[int]
) -> list[NodeEndpoint]:
    """Return the same of those leaders that are there, as the wire codecs take it."""
    found = []
    for broker in services.cluster.brokers.values():
        if broker.id in leaders:
            host, port = endpoint_for(services, broker, peer)
            found.append(NodeEndpoint(broker.id, host, port, broker.rack))
    return found
