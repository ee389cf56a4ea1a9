"""WriteTxnMarkers (27), versions 1-2: an operator ends transactions that nobody else ends.

Behaviour: brokers have their own way to each other (`broker/link`), so what comes here is a tool's
(`kafka-transactions abort`). Each marker is written by whoever leads the partition, by the rules of
the classic protocol: it ends an open transaction of its own epoch or an older one. Every use is
logged. A marker whose transaction is not open is answered as done.

Deviations from Kafka: `transaction_version` of version 2 is not looked at, because an operator ends
what is there; and a marker that cannot be confirmed in time is answered REQUEST_TIMED_OUT, whether
or not it will be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from broker.errors import RequestTimedOut
from broker.faults import code_of
from broker.front.services import Call, Services
from broker.security.rights import ALTER_CLUSTER, CLUSTER_ACTION
from client.errors import QuireError
from client.ids import ProducerId
from client.node.logs import SECURITY
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.batches.control_batch import Marker
from client.wire.steps import STEP_ITEMS

_LOG = SECURITY

KEY: Final = ApiKey.WRITE_TXN_MARKERS
VERSIONS: Final = (1, 2)
NEEDS: Final = (ALTER_CLUSTER, CLUSTER_ACTION)

_WAIT_S_MAX: Final = 30.0


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Return an error code for each partition of each marker."""
    if refusal := _refusal(services, call):
        return _refused(request, refusal)
    pace = services.turns.pace()
    answered = []
    for one in request.markers:
        await pace.item()
        marker = Marker(
            ProducerId(one.producer_id),
            one.producer_epoch,
            one.transaction_result,
            one.coordinator_epoch,
        )
        _LOG.warning(
            "marker.by_operator producer=%d producer_epoch=%d commit=%s coordinator_epoch=%d"
            " partitions=%d client=%r from=%s",
            *marker, sum(len(topic.partition_indexes) for topic in one.topics), call.client_id,
            call.peer.host,
        )  # fmt: skip
        topics = []
        for topic in one.topics:
            indexes = list(topic.partition_indexes)
            codes: list[int] = []
            for begin in range(0, len(indexes), STEP_ITEMS):
                some = indexes[begin : begin + STEP_ITEMS]
                codes += await asyncio.gather(
                    *(_write(services, topic.name, index, marker) for index in some)
                )
            rows = [
                {"partition_index": index, "error_code": code}
                for index, code in zip(indexes, codes, strict=True)
            ]
            topics.append({"name": topic.name, "partitions": rows})
        answered.append({"producer_id": one.producer_id, "topics": topics})
    return {"markers": answered}


def _refusal(services: Services, call: Call) -> int:
    """Return the code of whoever may neither alter the cluster nor act for it; 0 for others."""
    if services.rights.may(call.peer, ALTER_CLUSTER):
        return 0
    return services.rights.code(call.peer, CLUSTER_ACTION)


def _refused(request: Any, code: int) -> Mapping[str, Any]:
    answered = [
        {
            "producer_id": one.producer_id,
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        {"partition_index": index, "error_code": code}
                        for index in topic.partition_indexes
                    ],
                }
                for topic in one.topics
            ],
        }
        for one in request.markers
    ]
    return {"markers": answered}


async def _write(services: Services, topic: str, index: int, marker: Marker) -> int:
    try:
        async with asyncio.timeout(_WAIT_S_MAX):
            await services.markers.write(topic, index, marker)
    except TimeoutError:
        return code_of(RequestTimedOut("not confirmed yet"))
    except QuireError as error:
        return code_of(error)
    return 0
