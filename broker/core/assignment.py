"""Which broker should lead which partition: a plan that every broker computes alike.

This file is the only home of that plan. Rendezvous hashing ranks the live brokers for each
partition; a partition goes to the best-ranked broker that does not have its share of the topic
yet. So a topic is spread evenly even when it has few partitions, and when a broker comes or goes
most partitions stay where they are. The plan is a wish: fencing and compare-and-set decide.

Operators' wishes come first. A partition pinned to a broker goes there while that broker takes
part, and nothing else moves because of it. A broker that was unloaded takes no part while any
other one does.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final
from uuid import UUID

from broker.core.topology import BrokerInfo
from client.ids import BrokerId

_NO_PINS: Final[Mapping[int, BrokerId]] = MappingProxyType({})


def candidates(brokers: Iterable[BrokerInfo]) -> list[BrokerId]:
    """Return the brokers that take part: those not unloaded, or all if there is no other."""
    live = list(brokers)
    return [broker.id for broker in live if not broker.unloaded] or [broker.id for broker in live]


def wanted_owners(
    topic_id: UUID,
    partition_count: int,
    brokers: Iterable[BrokerId],
    pins: Mapping[int, BrokerId] = _NO_PINS,
) -> tuple[BrokerId, ...]:
    """Return the wanted leader of each partition of a topic; empty without brokers.

    Without pins no broker gets more than its share, ceil(partitions / brokers). The result
    depends on the set of brokers only, not on the order in which they are given.
    """
    live = sorted(set(brokers))
    if not live:
        return ()
    share = -(-partition_count // len(live))
    loads = dict.fromkeys(live, 0)
    owners: list[BrokerId] = []
    for index in range(partition_count):
        ranked = sorted(live, key=lambda broker: _rank(topic_id, index, broker), reverse=True)
        owner = next(broker for broker in ranked if loads[broker] < share)
        loads[owner] += 1
        owners.append(owner)
    for index, broker in pins.items():
        if index < partition_count and broker in loads:
            owners[index] = broker
    return tuple(owners)


def _rank(topic_id: UUID, index: int, broker: BrokerId) -> bytes:
    seed = struct.pack(">16sqq", topic_id.bytes, index, broker)
    return hashlib.blake2b(seed, digest_size=8).digest()
