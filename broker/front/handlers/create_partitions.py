"""CreatePartitions (37), versions 0-3: raise a topic's number of partitions to a new total.

Deviations from Kafka: brokers hold no data, so a manual assignment says which brokers should lead
the new partitions, the first of each list before the others; the request's timeout is ignored.
Internal topics keep their partition count: keys would move to other partitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from broker.errors import InvalidRequest, PolicyViolation
from broker.faults import Code, code_of, message_of
from broker.front import audit
from broker.front.services import Call, Services
from broker.front.throttling import mutation_ms
from broker.security.rights import ALTER_TOPIC
from client.errors import QuireError
from client.ids import BrokerId
from client.wire.kafka.apis import ApiKey

KEY: Final = ApiKey.CREATE_PARTITIONS
VERSIONS: Final = (0, 3)
_STRICT_FROM: Final = 3
"""Clients know THROTTLING_QUOTA_EXCEEDED (KIP-599); older ones only wait."""
NEEDS: Final = (ALTER_TOPIC,)


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Grow every topic that can grow; one result per topic."""
    counts = Counter(item.name for item in request.topics)
    items = {item.name: item for item in request.topics}
    results = []
    made = 0
    pace = services.turns.pace()
    for name, item in items.items():
        await pace.item()
        code, message = int(Code.none), None
        try:
            if counts[name] > 1:
                raise InvalidRequest(f"the request names topic {name!r} {counts[name]} times")
            services.rights.require(call.peer, ALTER_TOPIC, name)
            topic = services.cluster.topics.get(name)
            if topic is not None and topic.internal:
                raise PolicyViolation(f"topic {name!r} is internal")
            replicas = None  # a list without rows is one, for no partition
            if item.assignments is not None:
                replicas = [tuple(map(BrokerId, row.broker_ids)) for row in item.assignments]
            before = 0 if topic is None else topic.partition_count
            if not request.validate_only:
                services.quotas.require_mutations(call, is_strict=call.version >= _STRICT_FROM)
            await services.topics.grow(
                name, item.count, replicas, validate_only=request.validate_only
            )
            if not request.validate_only:
                made += item.count - before
                audit.note(call, f"topic {name}: {item.count} partitions")
        except QuireError as error:
            code, message = code_of(error), message_of(error)
        results.append({"name": name, "error_code": code, "error_message": message})
    return {"results": results, "throttle_time": mutation_ms(services, call, made)}
