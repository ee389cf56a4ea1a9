"""The link between brokers (an API of our own, not advertised), version 1.

Behaviour: the first request of a connection is a hello; the others go to the services of
`broker/link`, and are answered in their order. Frames are in `broker/link/core/link_frames.py`.

Who may open a link is asked here, and nowhere else: whoever reaches the listener of brokers, which
TLS with certificates can close to others, may act for the cluster where there are ACLs, and knows
the incarnations of two brokers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.access.rights import CLUSTER_ACTION
from broker.front.dispatch import Channel
from broker.front.services import Call, Services
from broker.link.core.link_frames import LINK_VERSION
from client.errors import RemoteProtocolError
from client.wire.kafka.apis import LINK_API_KEY

KEY: Final = LINK_API_KEY
VERSIONS: Final = (LINK_VERSION, LINK_VERSION)
NEEDS: Final = (CLUSTER_ACTION,)


def start(services: Services, call: Call, body: memoryview, channel: Channel, size: int) -> None:
    """Answer one request. Raises RemoteProtocolError."""
    if call.peer.listener != services.config.security.inter_broker_name:
        raise RemoteProtocolError(f"a link by listener {call.peer.listener}")
    if not services.rights.may(call.peer, CLUSTER_ACTION):
        raise RemoteProtocolError(str(services.rights.refusal(call.peer, CLUSTER_ACTION)))
    slot = channel.open(KEY, size)

    def answer(frame: Sequence[bytes]) -> None:
        channel.answer(slot, frame)

    services.link.receive(channel, call.correlation_id, body, answer)
