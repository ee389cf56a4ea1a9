"""Decides at which address a client can reach a broker.

(The most frequent trouble of Kafka's users.) A client is told the addresses of the listener that it
came by. Where an address is configured for clients, it is always told that one. Otherwise the
address that the client itself connected to is the best guess for every broker on this machine: it
evidently works from where the client is.

A broker that has no listener of that name (it is about to get one, or to lose it) is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from broker.cluster.core.topology import BrokerInfo, Endpoint
from broker.config import BrokerConfig
from broker.front.services import Peer, Services
from broker.security.core.listeners import DEFAULT_NAME, Address, Listener, SecurityProtocol
from client.wire.kafka.produce import NodeEndpoint

_MAPPED_IPV4 = "::ffff:"
_EVERYWHERE = ("0.0.0.0", "::", "")  # noqa: S104  (compared with, not listened on)


def listeners_of(config: BrokerConfig) -> tuple[Listener, ...]:
    """Return the listeners of this broker; at least one."""
    found = config.security.parsed_listeners()
    if found:
        return found
    advertised = None
    if config.advertised_host:
        advertised = Address(config.advertised_host, config.advertised_port)
    bind = Address(config.listen_host, config.port)
    return (Listener(DEFAULT_NAME, SecurityProtocol.PLAINTEXT, bind, advertised),)


def endpoints_of(config: BrokerConfig, ports: Mapping[str, int]) -> dict[str, Endpoint]:
    """Return what this broker registers, by listener; `ports` are those listened on."""
    found = {}
    for name, protocol, bind, advertised in listeners_of(config):
        host, port = _host_of(config, bind), ports[name]
        if advertised is not None:
            host, port = advertised.host, advertised.port or port
        elif not config.security.listeners:
            port = config.advertised_port or port
        found[name] = Endpoint(host, port, advertised is not None, protocol)
    return found


def _host_of(config: BrokerConfig, bind: Address) -> str:
    return bind.host if bind.host not in _EVERYWHERE else config.hostname or "127.0.0.1"


def endpoint_for(services: Services, broker: BrokerInfo, peer: Peer) -> tuple[str, int] | None:
    """Return (host, port) of a broker for the client at the other end of a connection; None if the
    broker has no such listener."""
    endpoint = broker.endpoints.get(peer.listener)
    if endpoint is None:
        return None
    if endpoint.advertised or not peer.local_host:
        return endpoint.host, endpoint.port
    my_id = services.config.node_id
    me = services.cluster.brokers.get(my_id)
    mine = None if me is None else me.endpoints.get(peer.listener)
    if broker.id == my_id or (mine is not None and mine.host == endpoint.host):
        return peer.local_host.removeprefix(_MAPPED_IPV4), endpoint.port
    return endpoint.host, endpoint.port


def reachable(
    services: Services, brokers: Iterable[BrokerInfo], peer: Peer
) -> Iterator[tuple[BrokerInfo, str, int]]:
    """Yield the brokers that have the client's listener, each with host and port."""
    for broker in brokers:
        found = endpoint_for(services, broker, peer)
        if found is not None:
            yield broker, *found


def leader_endpoints(
    services: Services, leaders: Collection[int], peer: Peer
) -> list[NodeEndpoint]:
    """Return the same of those leaders that are there, as the wire codecs take it."""
    there = [broker for broker in services.cluster.brokers.values() if broker.id in leaders]
    return [
        NodeEndpoint(broker.id, host, port, broker.rack)
        for broker, host, port in reachable(services, there, peer)
    ]
