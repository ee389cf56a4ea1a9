"""ShareFetch (78), versions 1-2: acknowledge records of a share group, and get others (KIP-932).

Behaviour: what is acknowledged is durable before the answer, and one partition's acknowledgements
take effect together or not at all. Records are lent to one member at a time; whole batches come
byte for byte, and the answer says which records of them the member has. Sessions:
`broker/front/core/share_sessions.py`; records: `broker/partition/core/shares/share_partition.py`.
An answer leaves as soon as it has records; `min_bytes` and `batch_size` are not looked at.

Deviations from Kafka: who begins a session must be a member of the group. Markers of transactions,
and offsets that hold no record, are archived without being named to a member.

Versions: 2+ an exact number of records instead of whole batches, and renewal of locks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from broker.errors import InvalidRequest, ShareSessionNotFound
from broker.front.core.share_sessions import FINAL, INITIAL, Key, ShareSession
from broker.front.services import Call, Services
from broker.front.shares import share_requests
from broker.front.shares.share_reading import Asked, Lent, ShareReading
from broker.security.core.quota_limits import QuotaKey
from broker.security.rights import READ_GROUP, READ_TOPIC
from client.errors import QuireError
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.codec import field

KEY: Final = ApiKey.SHARE_FETCH
VERSIONS: Final = (1, 2)
NEEDS: Final = (READ_GROUP, READ_TOPIC)

_STRICT: Final = 1


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Acknowledge, then read."""
    try:
        return await _fetch(services, call, request)
    except QuireError as error:
        return share_requests.refusal(error)


async def _fetch(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Raises BrokerError."""
    asked = _asked(services, request)
    acknowledgements = share_requests.acknowledgements(request.topics)
    is_renewal = bool(field(request, "is_renew_ack", False))
    is_first = request.share_session_epoch == INITIAL
    if is_first and acknowledgements:
        raise InvalidRequest("the first request of a share session acknowledges nothing")
    session = await _session(services, call, request)
    settings = services.shares.configs.settings(session.group_id)
    outcomes = await share_requests.acknowledge(
        services,
        call,
        session,
        acknowledgements,
        settings.terms,
        may_renew=is_renewal and settings.may_renew,
    )
    found: Mapping[Key, Lent] = {}
    size = 0
    if request.share_session_epoch == FINAL:
        share_requests.end_session(services, session)
    elif not is_renewal and asked.records_max > 0:
        reading = ShareReading(services, call, session, asked, settings)
        try:
            await reading.run()
        finally:
            reading.close()
        found, size = reading.found, reading.size
    told = {**dict.fromkeys(outcomes), **dict.fromkeys(found)}
    if is_first:
        told = {**dict.fromkeys(session.partitions), **told}
    rows = {key: _row(key, found.get(key, Lent()), outcomes.get(key)) for key in told}
    leaders = {row["current_leader"]["leader_id"] for row in rows.values()} - {-1}
    return {
        **share_requests.problem(None),
        "throttle_time": _throttle_ms(services, call, size),
        "acquisition_lock_timeout": int(settings.terms.lock_s * 1000),
        "responses": share_requests.by_topic(rows),
        "node_endpoints": share_requests.endpoints(services, call, leaders),
    }


def _asked(services: Services, request: Any) -> Asked:
    """Return how much is wanted. Raises InvalidRequest."""
    wait_ms = field(request, "max_wait")
    bytes_max, records_max = request.max_bytes, request.max_records
    if field(request, "is_renew_ack", False) and any(
        (wait_ms, request.min_bytes, bytes_max, records_max)
    ):
        raise InvalidRequest("a request that renews locks fetches nothing")
    if request.share_session_epoch == FINAL:
        records_max = 0
    is_strict = field(request, "share_acquire_mode", 0) == _STRICT
    bytes_max = max(0, min(bytes_max, services.config.fetch_bytes_max))
    return Asked(max(0, wait_ms) / 1000, bytes_max, records_max, is_strict)


async def _session(services: Services, call: Call, request: Any) -> ShareSession:
    """Return the session that the request begins, goes on with or ends. Raises BrokerError."""
    group_id, member_id = share_requests.names(services, call, request)
    sessions, named = services.shares.sessions, share_requests.keys(request.topics)
    epoch, now_s = request.share_session_epoch, asyncio.get_running_loop().time()
    if epoch == INITIAL:
        session = sessions.begin(group_id, member_id, call.connection, named, now_s)
        try:
            session.incarnation = await services.shares.members.incarnation(group_id, member_id)
        except BaseException:
            sessions.end(session)
            raise
        if session.is_over:
            raise ShareSessionNotFound("the connection is gone, or began another session")
        return session
    forgotten = [
        (topic.topic_id, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]
    return sessions.next(group_id, member_id, epoch, call.connection, now_s, named, forgotten)


def _row(key: Key, lent: Lent, acknowledged: QuireError | None) -> dict[str, Any]:
    refused = share_requests.problem(acknowledged)
    return {
        **share_requests.problem(lent.error),
        "partition_index": key[1],
        "acknowledge_error_code": refused["error_code"],
        "acknowledge_error_message": refused["error_message"],
        "current_leader": share_requests.leader_hint(lent.error or acknowledged),
        "records": lent.records,
        "acquired_records": [
            {
                "first_offset": one.first,
                "last_offset": one.last,
                "delivery_count": one.deliveries,
            }
            for one in lent.acquired
        ],
    }


def _throttle_ms(services: Services, call: Call, size: int) -> int:
    if not services.quotas.is_on or not size:
        return 0
    return services.quotas.throttle_ms(call, ((QuotaKey.CONSUMER_BYTE_RATE, float(size)),))
