"""The cluster: brokers, leaders, reassignments, pages of topics, subscriptions to metrics."""

from __future__ import annotations

from collections.abc import Sequence

from client.wire.kafka.apis import ApiKey
from tests.integration.differential.conversation import Step
from tests.integration.differential.steps.fields import always
from tests.integration.differential.steps.groups import is_loaded
from tests.integration.differential.steps.settings import (
    AC,
    BROKER,
    CLIENT_METRICS,
    DC,
    altered,
    described,
)

CLUSTER: Sequence[Step] = (
    Step("brokers", ApiKey.DESCRIBE_CLUSTER,
         always(include_cluster_authorized_operations=False, endpoint_type=1,
                include_fenced_brokers=False)),
    Step("what may be done to them", ApiKey.DESCRIBE_CLUSTER,
         always(include_cluster_authorized_operations=True, endpoint_type=1,
                include_fenced_brokers=False)),
    Step("an endpoint that does not exist", ApiKey.DESCRIBE_CLUSTER,
         always(include_cluster_authorized_operations=False, endpoint_type=9), (1, 2)),
    Step("preferred leaders", ApiKey.ELECT_LEADERS, always(
        election_type=0, timeout=10_000,
        topic_partitions=[{"topic": "one", "partitions": [0, 9]},
                          {"topic": "unknown", "partitions": [0]}])),
    Step("unclean leaders", ApiKey.ELECT_LEADERS, always(
        election_type=1, timeout=10_000, topic_partitions=[{"topic": "one", "partitions": [0]}]),
        (1, 2)),
    Step("nothing moves", ApiKey.LIST_PARTITION_REASSIGNMENTS,
         always(timeout=10_000, topics=None)),
    Step("move to itself", ApiKey.ALTER_PARTITION_REASSIGNMENTS, always(
        timeout=10_000, allow_replication_factor_change=True,
        topics=[{"name": "one", "partitions": [{"partition_index": 0, "replicas": [0]}]}])),
    Step("move to nobody", ApiKey.ALTER_PARTITION_REASSIGNMENTS, always(
        timeout=10_000, allow_replication_factor_change=True,
        topics=[{"name": "one", "partitions": [{"partition_index": 0, "replicas": [77]},
                                               {"partition_index": 9, "replicas": [0]}]},
                {"name": "unknown", "partitions": [{"partition_index": 0, "replicas": [0]}]}])),
    Step("stay", ApiKey.ALTER_PARTITION_REASSIGNMENTS, always(
        timeout=10_000, allow_replication_factor_change=True,
        topics=[{"name": "one", "partitions": [{"partition_index": 0, "replicas": None}]}])),
    Step("pages of topics", ApiKey.DESCRIBE_TOPIC_PARTITIONS, always(
        topics=[{"name": "one"}, {"name": "t"}, {"name": "unknown"}],
        response_partition_limit=2, cursor=None)),
    Step("a page of none", ApiKey.DESCRIBE_TOPIC_PARTITIONS, always(
        topics=[{"name": "t"}], response_partition_limit=2,
        cursor={"topic_name": "t", "partition_index": 1})),
    Step("kinds of settings", ApiKey.LIST_CONFIG_RESOURCES, always(resource_types=[99]), (1,)),
    Step("topics with settings", ApiKey.LIST_CONFIG_RESOURCES, always(resource_types=[2]), (1,)),
    Step("a subscription to metrics", AC, altered(CLIENT_METRICS, "m", ("metrics", "a.", 0),
                                                 ("interval.ms", "200", 0))),
    Step("bad subscriptions", AC, altered(CLIENT_METRICS, "m", ("interval.ms", "1", 0))),
    Step("a subscription to nobody", AC, altered(CLIENT_METRICS, "m", ("match", "colour=x", 0))),
    Step("subscriptions", ApiKey.LIST_CONFIG_RESOURCES, always(resource_types=[16])),
    Step("it is described", DC, described(CLIENT_METRICS, "m")),
    Step("a broker's setting", AC, altered(BROKER, "0", ("log.retention.ms", "1000000", 0))),
    Step("a bad value", AC, altered(BROKER, "0", ("log.retention.ms", "soon", 0))),
    Step("no broker", ApiKey.UNREGISTER_BROKER, always(broker_id=77)),
    Step("a producer", ApiKey.INIT_PRODUCER_ID, always(
        transactional_id=None, transaction_timeout=60_000, producer_id=-1, producer_epoch=-1),
        settle=is_loaded),
    Step("a transaction without a name", ApiKey.INIT_PRODUCER_ID, always(
        transactional_id="", transaction_timeout=60_000, producer_id=-1, producer_epoch=-1)),
)  # fmt: skip
