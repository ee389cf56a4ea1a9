"""Asks a broker for its settings, among them where the rest of its cluster is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, NodeNotReadyError
from aiokafka.protocol.admin import DescribeConfigsRequest

from client.pubsub.brokers import Brokers
from client.pubsub.errors import BrokerUnreachable, translate

ADMIN_URLS: Final = "quire.admin.urls"
"""Setting: the admin APIs of all live brokers, separated by commas. Brokers of Kafka have none."""
ZOOKEEPER: Final = "zookeeper.connect"
"""Setting: the ZooKeeper servers, with the path below which the cluster's metadata is, if any."""

_BROKER_RESOURCE: Final = 4


async def broker_settings(
    bootstrap_servers: str | Brokers,
    names: Sequence[str] | None = None,
    *,
    request_timeout_ms: int = 10_000,
) -> Mapping[str, str]:
    """Return settings of whichever broker answers first: those named, or all.

    A name that the broker does not know is left out. Raises ConfigError for an address that is
    none, BrokerUnreachable, PubSubError.
    """
    brokers = Brokers.of(bootstrap_servers)
    client = AIOKafkaClient(
        **brokers.settings(),
        client_id="quire-settings",
        request_timeout_ms=request_timeout_ms,
    )
    try:
        await client.bootstrap()
        for broker in sorted(one.nodeId for one in client.cluster.brokers()):
            resource = (_BROKER_RESOURCE, str(broker), None if names is None else list(names))
            try:
                response = await client.send(broker, DescribeConfigsRequest([resource]))
            except NodeNotReadyError:
                continue
            return {
                entry["config_names"]: str(entry["config_value"])
                for described in response.to_object()["resources"]
                for entry in described["config_entries"]
            }
    except TimeoutError as error:
        raise BrokerUnreachable("the broker did not answer in time") from error
    except KafkaError as error:
        if not client.cluster.brokers():
            raise BrokerUnreachable(await brokers.why_unreachable()) from error
        raise translate(error, "asking a broker for its settings failed") from error
    finally:
        await client.close()
    raise BrokerUnreachable(await brokers.why_unreachable())
