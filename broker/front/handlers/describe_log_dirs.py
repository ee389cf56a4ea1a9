"""DescribeLogDirs (35), versions 1-5: sizes of the partitions this broker leads.

Deviations from Kafka: a broker has no directories; the one named "ledgers" stands for the
bookies, each byte counted once whatever the number of copies. Total and usable bytes are unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.faults import Code
from broker.front.services import Call, Services
from broker.security.rights import DESCRIBE_CLUSTER
from client.wire.kafka.apis import ApiKey

KEY: Final = ApiKey.DESCRIBE_LOG_DIRS
VERSIONS: Final = (1, 5)
NEEDS: Final = (DESCRIBE_CLUSTER,)

DIRECTORY: Final = "ledgers"


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """List the partitions asked for (null: all) that are led here."""
    if code := services.rights.code(call.peer, DESCRIBE_CLUSTER):
        return {"error_code": code, "results": []}
    asked: dict[tuple[str, int], None] | None = None
    pace = services.turns.pace()
    if request.topics is not None:
        asked = {}
        for row in request.topics:
            for index in row.partitions:
                await pace.item()
                asked[row.topic, index] = None
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for partition in list(services.partitions):
        await pace.item()
        key = (partition.topic.name, partition.index)
        if asked is not None and key not in asked:
            continue
        by_topic.setdefault(key[0], []).append(
            {
                "partition_index": partition.index,
                "partition_size": partition.usage.size_bytes,
                "offset_lag": 0,
                "is_future_key": False,
            }
        )
    topics = [{"name": name, "partitions": rows} for name, rows in sorted(by_topic.items())]
    result = {"error_code": Code.none, "log_dir": DIRECTORY, "topics": topics}
    return {"error_code": Code.none, "results": [result]}
