"""Finds the ledgers of a cluster: one Kafka address is enough, its brokers know the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from client.errors import ConfigError
from client.security.cluster_security import read_cluster_security
from client.spark.brokers import kafka_cluster
from client.spark.ledgers.ledger_access import LedgerAccess, shared
from client.spark.options import Options

_ZOOKEEPER: Final = "zookeeper.connect"
"""The brokers' setting that says where the metadata store is."""

_told: dict[object, str] = {}
"""What brokers have told this process."""


def metadata_service_uri(options: Options) -> str:
    """Return where the metadata store is: what the option says, or what the brokers do.

    Brokers are asked once in a process. Raises ConfigError if they do not know, RequestRefused,
    BrokersUnreachable.
    """
    if options.metadata_service_uri:
        return options.metadata_service_uri
    brokers = options.bootstrap_servers
    if brokers not in _told:
        found = kafka_cluster.shared(brokers, options.fetch_timeout_ms).setting(_ZOOKEEPER)
        if not found:
            raise ConfigError(
                f"readMode={options.read_mode}: the brokers do not say where their metadata store"
                " is: either they are not Quire's, or option metadataServiceUri has to name the"
                " ZooKeeper servers, host:port"
            )
        if options.ledger_security_file:
            security = read_cluster_security(Path(options.ledger_security_file))
            security.check_told(found, "option metadataServiceUri")
        _told[brokers] = found
    return _told[brokers]


def access(options: Options) -> LedgerAccess:
    """Return this process's access to the cluster's ledgers. Raises as above."""
    return shared(
        metadata_service_uri(options), options.ledger_speculative_ms, options.ledger_security_file
    )
