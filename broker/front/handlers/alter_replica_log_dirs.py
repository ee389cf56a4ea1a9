"""AlterReplicaLogDirs (34), versions 1-2: move partitions between a broker's directories.

Deviations from Kafka: a broker has no directories. The one that DescribeLogDirs shows stands for
the bookies, and every partition is in it already; any other is answered LOG_DIR_NOT_FOUND.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.faults import Code
from broker.front.handlers.describe_log_dirs import DIRECTORY
from broker.front.services import Call, Services
from broker.security.rights import ALTER_CLUSTER
from client.wire.kafka.apis import ApiKey

KEY: Final = ApiKey.ALTER_REPLICA_LOG_DIRS
VERSIONS: Final = (1, 2)
NEEDS: Final = (ALTER_CLUSTER,)


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Answer for each partition; nothing moves."""
    codes: dict[str, dict[int, int]] = {}
    refusal = services.rights.code(call.peer, ALTER_CLUSTER)
    pace = services.turns.pace()
    for directory in request.dirs:
        for row in directory.topics:
            topic = services.cluster.topics.get(row.name)
            for index in row.partitions:
                await pace.item()
                code = Code.none if directory.path == DIRECTORY else Code.log_dir_not_found
                if topic is None or not 0 <= index < topic.partition_count:
                    code = Code.unknown_topic_or_partition
                codes.setdefault(row.name, {})[index] = refusal or code
    return {
        "results": [
            {
                "topic_name": name,
                "partitions": [
                    {"partition_index": index, "error_code": code} for index, code in rows.items()
                ],
            }
            for name, rows in codes.items()
        ]
    }
