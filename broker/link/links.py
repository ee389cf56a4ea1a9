"""Sends requests to other brokers, and to this one: one link per broker and kind of work.

Answers on a link come in the order of its requests, so slow work has a link of its own (`lane`). A
request to this broker itself goes directly to its service, without a socket and without a copy.
Links follow the registrations: a link to a process that is gone is closed, and all requests on it
are unanswered.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from broker.cluster.core.topology import BrokerInfo
from broker.cluster.peer_access import PeerAccess
from broker.errors import PeerError, PeerUnanswered, PeerUnavailable
from broker.link.core.link_api import A, LinkApi, Q
from broker.link.core.link_frames import Hello, encode_hello
from broker.link.core.peer_state import LinkConfig
from broker.link.link_services import LinkServices
from broker.link.peer_link import PeerLink
from client.errors import RemoteProtocolError
from client.ids import BrokerId

ANSWERED: Final = "answered"
UNANSWERED: Final = "unanswered"
UNSENT: Final = "unsent"
OUTCOMES: Final = (ANSWERED, UNANSWERED, UNSENT)
"""Outcomes of a request: answered; sent, but the outcome is unknown; never sent."""


class ClusterBrokers(Protocol):
    """The part of the cluster's view that links follow."""

    cluster_id: str
    brokers: Mapping[BrokerId, BrokerInfo]

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call after any change."""
        ...


class Links:
    """The links of one broker to all."""

    def __init__(
        self,
        cluster: ClusterBrokers,
        services: LinkServices,
        config: LinkConfig,
        access: PeerAccess | None = None,
    ) -> None:
        """`access`: how to connect to peers."""
        self.services = services
        """Services of this broker, for itself and others."""
        self._cluster = cluster
        self._config = config
        self._access = PeerAccess() if access is None else access
        self._links: dict[tuple[BrokerId, str, str], PeerLink] = {}
        """By broker, incarnation and lane."""
        self._closing = False
        self.outcomes: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
        """Requests to other brokers by outcome."""

    def start(self) -> None:
        """Follow the registrations."""
        self._cluster.add_listener(self._follow)

    async def close(self) -> None:
        """Close all links, and stop serving requests."""
        self._closing = True
        self._follow()
        await self.services.close()

    @property
    def open_count(self) -> int:
        """How many requests to other brokers have no outcome yet."""
        return sum(link.open_count for link in self._links.values())

    @property
    def up_count(self) -> int:
        """How many connections to other brokers are up."""
        return sum(link.is_up for link in self._links.values())

    async def ask(self, broker: BrokerId, api: LinkApi[Q, A], request: Q, lane: str = "") -> A:
        """Return a broker's answer.

        Raises PeerUnavailable (nothing was sent), PeerUnanswered (the outcome is unknown); for this
        broker itself, whatever the service raises.
        """
        if broker == self.services.me:
            return await self.services.call(api, request)
        future: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()

        def on_done(outcome: memoryview | PeerError) -> None:
            self.outcomes[_name_of(outcome)] += 1
            if future.done():
                return  # the caller was cancelled
            if isinstance(outcome, PeerError):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        self._link(broker, lane).ask(api.kind, api.encode_request(request), on_done)
        body = await future
        try:
            return api.decode_answer(body)
        except RemoteProtocolError as error:
            raise PeerUnanswered(f"broker {broker}: {api.name}: {error}") from error

    def _link(self, broker: BrokerId, lane: str) -> PeerLink:
        peer = self._cluster.brokers.get(broker)
        if peer is None or self._closing:
            raise PeerUnavailable(f"broker {broker} is not registered")
        key = broker, peer.incarnation, lane
        link = self._links.get(key)
        if link is None:
            me = self.services
            hello = Hello(self._cluster.cluster_id, me.me, me.incarnation, broker, peer.incarnation)
            link = PeerLink(peer, encode_hello(hello), self._config, self._access)
            self._links[key] = link
        return link

    def _follow(self) -> None:
        live = {(info.id, info.incarnation) for info in self._cluster.brokers.values()}
        for key in list(self._links):
            if self._closing or key[:2] not in live:
                self._links.pop(key).close()


def _name_of(outcome: memoryview | PeerError) -> str:
    match outcome:
        case PeerUnanswered():
            return UNANSWERED
        case PeerUnavailable():
            return UNSENT
    return ANSWERED
