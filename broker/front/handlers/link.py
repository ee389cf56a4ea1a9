"""The link between brokers (an API of our own, not advertised), version 1.

Behaviour: the first request of a connection is a hello; the others go to the services of
`broker/link`, and are answered in their order. Frames are in `broker/link/core/link_frames.py`.

Who may open a link is asked here, and nowhere else: whoever reaches the listener of brokers, which
TLS with certificates can close to others, may act for the cluster where there are ACLs, and knows
the incarnations of two brokers. If that listener is the brokers' alone and asks nobody who they
are, coming by it is the right (`SecurityConfig.links_by_listener`): to give it to ANONYMOUS instead
would give it to every client of the other listeners too.

A broker that is cut off from the metadata store does not hear that a right was taken away, so it
refuses other brokers too once it knows too little of rights (`security.access_age_max_ms`), super
users, and those whose listener is their right, excepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.errors import AccessUnknown, ClusterAuthorizationFailed
from broker.faults import message_of
from broker.front.dispatch import Channel
from broker.front.services import Call, Services
from broker.link.core.link_frames import LINK_VERSION, refusal_frame
from broker.security.rights import CLUSTER_ACTION
from client.errors import RemoteProtocolError
from client.wire.kafka.apis import LINK_API_KEY

KEY: Final = LINK_API_KEY
VERSIONS: Final = (LINK_VERSION, LINK_VERSION)
NEEDS: Final = (CLUSTER_ACTION,)


def start(services: Services, call: Call, body: memoryview, channel: Channel, size: int) -> None:
    """Answer one request. Raises RemoteProtocolError."""
    if call.peer.listener != services.config.security.inter_broker_name:
        raise RemoteProtocolError(
            f"links between brokers are not accepted at listener {call.peer.listener}"
        )
    try:
        services.rights.require_link(call.peer, KEY)
    except AccessUnknown as error:  # the other side may try again, and is told why
        refused = refusal_frame(call.correlation_id, message_of(error))
        channel.answer(channel.open(KEY, size), refused)
        return
    except ClusterAuthorizationFailed as error:
        raise RemoteProtocolError(str(error)) from error
    slot = channel.open(KEY, size)

    def answer(frame: Sequence[bytes]) -> None:
        channel.answer(slot, frame)

    services.link.receive(channel, call.correlation_id, body, answer)
