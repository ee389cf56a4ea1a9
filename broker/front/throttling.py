"""Counts what a request has used for its client's quotas; the answer says how long it has to wait.

The connection begins no further request before that (`Slot.throttle_ms`, `pause.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.front.services import REQUEST_BYTES, Call, Services
from broker.security.core.quota_limits import QuotaKey
from client.wire.kafka.connection import Slot

if TYPE_CHECKING:
    from broker.front.dispatch import Channel


def throttled_ms(services: Services, call: Call, slot: Slot, key: QuotaKey, amount: float) -> int:
    """Count an amount of something; return the wait for that and for the time it took."""
    if services.quotas.is_on:
        slot.throttle_ms = services.quotas.throttle_ms(call, ((key, amount),))
    return slot.throttle_ms


def mutation_ms(services: Services, call: Call, partitions: int) -> int:
    """Count partitions that a request has made or deleted; return the wait."""
    if not services.quotas.is_on:
        return 0
    used = (QuotaKey.CONTROLLER_MUTATION_RATE, float(partitions))
    return services.quotas.throttle_ms(call, (used,))


def begin_produce(services: Services, call: Call, slot: Slot, channel: Channel) -> None:
    """Count the bytes of a Produce request that begins. If they are more than its client has left,
    begin nothing behind it until it is answered and its wait is over, as Kafka does with every
    request: a client that does not wait for answers would be through with all of it before."""
    size = slot.request_size - REQUEST_BYTES
    if services.quotas.is_used_up(call, QuotaKey.PRODUCER_BYTE_RATE, size):
        channel.pause.hold(slot)


def produced_ms(services: Services, call: Call, slot: Slot) -> int:
    """Return the wait for the bytes of Produce requests that have begun."""
    return throttled_ms(services, call, slot, QuotaKey.PRODUCER_BYTE_RATE, 0)


def fetched_ms(services: Services, call: Call, slot: Slot, size: int) -> int:
    """Count bytes that a consumer gets; return the wait."""
    return throttled_ms(services, call, slot, QuotaKey.CONSUMER_BYTE_RATE, size)
