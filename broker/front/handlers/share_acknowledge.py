"""ShareAcknowledge (79), versions 1-2: settle, release or renew records of a share group, without
fetching others (KIP-932).

Behaviour: durable before the answer; one partition's acknowledgements take effect together or not
at all. Epoch -1 ends the session: what its member still holds is released. It cannot begin one.

Versions: 2+ renewal of locks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from broker.errors import InvalidShareSessionEpoch
from broker.front.core.share_sessions import FINAL, INITIAL
from broker.front.services import Call, Services
from broker.front.shares import share_requests
from broker.security.rights import READ_GROUP, READ_TOPIC
from client.errors import QuireError
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.codec import field

KEY: Final = ApiKey.SHARE_ACKNOWLEDGE
VERSIONS: Final = (1, 2)
NEEDS: Final = (READ_GROUP, READ_TOPIC)


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Return an outcome for each partition."""
    try:
        return await _acknowledge(services, call, request)
    except QuireError as error:
        return share_requests.refusal(error)


async def _acknowledge(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Raises BrokerError."""
    group_id, member_id = share_requests.names(services, call, request)
    asked = share_requests.acknowledgements(request.topics)
    epoch = request.share_session_epoch
    if epoch == INITIAL:
        raise InvalidShareSessionEpoch("a share session begins with ShareFetch")
    now_s = asyncio.get_running_loop().time()
    session = services.shares.sessions.next(group_id, member_id, epoch, call.connection, now_s)
    settings = services.shares.configs.settings(group_id)
    is_renewal = bool(field(request, "is_renew_ack", False))
    outcomes = await share_requests.acknowledge(
        services,
        call,
        session,
        asked,
        settings.terms,
        may_renew=is_renewal and settings.may_renew,
    )
    if epoch == FINAL:
        share_requests.end_session(services, session)
    rows = {
        key: {
            **share_requests.problem(error),
            "partition_index": key[1],
            "current_leader": share_requests.leader_hint(error),
        }
        for key, error in outcomes.items()
    }
    leaders = {row["current_leader"]["leader_id"] for row in rows.values()} - {-1}
    return {
        **share_requests.problem(None),
        "acquisition_lock_timeout": int(settings.terms.lock_s * 1000),
        "responses": share_requests.by_topic(rows),
        "node_endpoints": share_requests.endpoints(services, call, leaders),
    }
