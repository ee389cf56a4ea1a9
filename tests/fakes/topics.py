"""A topic's description for tests that care about little of it."""

from __future__ import annotations

from uuid import UUID

from broker.cluster.core.topic_config import TopicConfig
from broker.cluster.core.topology import TopicInfo


def topic_info(partition_count: int) -> TopicInfo:
    """Return topic `t`."""
    return TopicInfo(
        name="t",
        topic_id=UUID(int=7),
        partition_count=partition_count,
        replication_factor=3,
        config=TopicConfig(),
        internal=False,
    )
