"""GetTelemetrySubscriptions (71), version 0: which metrics a client should push (KIP-714).

Behaviour: a client that has no id gets one. Where nothing is wanted of it, or there is no room for
it, it is told no metrics, and asks again after the interval. Counters are wanted as totals since
the client began. Nobody needs a right for it, as in Kafka.

Deviations from Kafka: who asks too often is answered; only pushes are paced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from broker.faults import Code
from broker.front.services import Call, Services
from broker.front.telemetry import NOBODY, wanted, who
from client.security.networks import network_of
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.batches.records import Codec

KEY: Final = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS
VERSIONS: Final = (0, 0)
NEEDS: Final = ()

_ACCEPTED: Final = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
"""The ones that are preferred first."""


def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Say what is wanted."""
    instance_id = request.client_instance_id or NOBODY
    if instance_id == NOBODY:
        instance_id = UUID(int=services.rng.getrandbits(128), version=4)
    found = wanted(services, call, instance_id)
    now_s = asyncio.get_running_loop().time()
    metrics = found.metrics
    if metrics and not services.telemetry.admit(
        instance_id,
        who(services, call),
        found.interval_ms,
        now_s,
        network=network_of(call.peer.host),
    ):
        metrics = ()
    return {
        "throttle_time": 0,
        "error_code": Code.none,
        "client_instance_id": instance_id,
        "subscription_id": found.subscription_id,
        "accepted_compression_types": list(map(int, _ACCEPTED)),
        "push_interval": found.interval_ms,
        "telemetry_max_bytes": services.config.telemetry.push_bytes_max,
        "delta_temporality": False,
        "requested_metrics": list(metrics),
    }
