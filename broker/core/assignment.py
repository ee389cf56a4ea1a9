"""Which broker should lead which partition: a plan that every broker computes alike.

This file is the only home of that plan. Rendezvous hashing ranks the live brokers for each
partition; a partition goes to the best-ranked broker that does not have its share of the topic
yet. So a topic is spread evenly even when it has few partitions, and when a broker comes or goes
most partitions stay where they are. The plan is a wish: fencing and compare-and-set decide.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from uuid import UUID

from client.ids import BrokerId


def wanted_owners(
    topic_id: UUID, partition_count: int, brokers: Iterable[BrokerId]
) -> tuple[BrokerId, ...]:
    """Return the wanted leader of each partition of a topic; empty without brokers.

    No broker gets more than its share, ceil(partitions / brokers). The result depends on the
    set of brokers only, not on the order in which they are given.
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
    return tuple(owners)


def _rank(topic_id: UUID, index: int, broker: BrokerId) -> bytes:
    seed = struct.pack(">16sqq", topic_id.bytes, index, broker)
    return hashlib.blake2b(seed, digest_size=8).digest()
