"""PushTelemetry (72), version 0: metrics of a client (KIP-714).

Behaviour: they are in the broker's /metrics until the client has been silent for two and a half of
its intervals. A push for what is wanted no longer gets UNKNOWN_SUBSCRIPTION_ID, and the client asks
again; one that is too large TELEMETRY_TOO_LARGE, one that comes too soon
THROTTLING_QUOTA_EXCEEDED. Any broker takes the pushes of any client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from broker.faults import Code
from broker.front.services import Call, Services
from broker.front.telemetry import NOBODY, points, wanted, who
from client.errors import RemoteProtocolError
from client.security.networks import network_of
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.batches.records import Codec, decompress

KEY: Final = ApiKey.PUSH_TELEMETRY
VERSIONS: Final = (0, 0)
NEEDS: Final = ()

_OPENED: Final = 2
"""How much larger a push may be when it is opened."""


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Take what a client pushes."""
    code = await _push(services, call, request)
    return {"throttle_time": 0, "error_code": code}


async def _push(services: Services, call: Call, request: Any) -> int:
    telemetry, instance_id = services.telemetry, request.client_instance_id or NOBODY
    if instance_id == NOBODY:
        return Code.invalid_request
    now_s = asyncio.get_running_loop().time()
    found = wanted(services, call, instance_id)
    if request.subscription_id != found.subscription_id or not found.metrics:
        return Code.unknown_subscription_id
    if request.compression_type not in list(Codec):
        return Code.unsupported_compression_type
    size_max = services.config.telemetry.push_bytes_max
    if len(request.metrics) > size_max:
        return Code.telemetry_too_large
    is_early = telemetry.is_early(instance_id, found.interval_ms, now_s)
    if is_early and not request.terminating:
        return Code.throttling_quota_exceeded
    if not telemetry.admit(
        instance_id,
        who(services, call),
        found.interval_ms,
        now_s,
        network=network_of(call.peer.host),
    ):
        return Code.unknown_subscription_id
    try:
        data = decompress(Codec(request.compression_type), request.metrics, _OPENED * size_max)
        values = await _values(services, data)
    except RemoteProtocolError:
        return Code.invalid_record
    telemetry.push(instance_id, values, now_s)
    return Code.none


async def _values(services: Services, data: Any) -> dict[tuple[str, str], float]:
    """Read the values, a turn of the loop at a time. Raises RemoteProtocolError."""
    pace = services.turns.pace()
    values: dict[tuple[str, str], float] = {}
    for one in points(data):
        await pace.item()
        values[one.metric, one.attributes] = one.value
    return values
