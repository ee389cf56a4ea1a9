"""The settings of bookies' clients, brokers and auto recovery in a whole-cluster schedule.

Some limits are lower than they may be set, so that small logs and short schedules meet them.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from broker.compaction.config import CompactionConfig
from broker.config import BrokerConfig
from broker.leadership.config import RACK_AWARE_SELECTOR, FollowerSettings
from broker.partition.core.log_limits import LogLimits
from broker.security.config import SecurityConfig
from broker.transactions.config import TransactionSettings
from client.autorecovery.config import AutoRecoveryConfig
from client.config import setting
from client.ledger.config import LedgerClientConfig
from tests.simulation.clusters import admin_load, offload_load, secured_load
from tests.simulation.clusters.transaction_load import SWEEP_S
from tests.simulation.kafka.connection import PORT

if TYPE_CHECKING:
    from client.ids import BrokerId
    from tests.simulation.clusters.swarm import ClusterSwarm


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class VariedConfig(BrokerConfig):
    """A broker's settings, with sizes that no setting of a broker tells."""

    snapshot_interval_bytes: int = setting(1 << 22, "See LogLimits.", at_least=1)
    page_entries: int = setting(256, "See LogLimits.", at_least=2)
    aborted_block_entries: int = setting(1_000, "See LogLimits.", at_least=1)
    room_bytes: int = setting(0, "LogLimits.in_flight_bytes_max; 0: its default.", at_least=0)

    def log_limits(self) -> LogLimits:
        """Return the limits of partition logs: small ones, so that small logs meet them."""
        return LogLimits(
            in_flight_bytes_max=self.room_bytes or self.log_in_flight_bytes_max,
            segment_page_entries=self.page_entries,
            snapshot_interval_bytes=self.snapshot_interval_bytes,
            snapshot_interval_entries=min(64, max(3, self.snapshot_interval_bytes // 100)),
            shared_entry_bytes_max=min(1 << 16, 2 * self.snapshot_interval_bytes),
            shared_entry_batches_max=min(128, 1 + self.snapshot_interval_bytes // 150),
            entries_before_sharing=1 if self.snapshot_interval_bytes < 1000 else 2,
            index_interval_bytes=500,
            search_span_entries=2,
            read_entries_max=8,
            readers_max=2,
            aborted_block_entries=self.aborted_block_entries,
        )


def ledger_client_config(plan: ClusterSwarm) -> LedgerClientConfig:
    """Return the settings of ledger clients."""
    options = plan.common
    timeout_ms = int(options.request_timeout_s * 1000)
    names = ("writer_in_flight_bytes_max", "bookie_in_flight_bytes_max")
    narrow = dict.fromkeys(names, plan.room_bytes // 2) if plan.room_bytes else {}
    if plan.load is not None:
        narrow["writer_unanswered_bytes_max"] = plan.load.unanswered_bytes_max
    return LedgerClientConfig(
        request_timeout_ms=timeout_ms,
        connect_timeout_ms=timeout_ms,
        reconnect_delay_min_ms=10,
        reconnect_delay_max_ms=100,
        metadata_retry_delay_ms=20,
        recovery_window_entries=options.recovery_window,
        quarantine_interval_ms=500,
        quarantine_ms=1000,
        **{**options.client, **narrow},
    )


def auto_recovery_config() -> AutoRecoveryConfig:
    """Return the settings of auto recovery: quick ones."""
    return AutoRecoveryConfig(
        poll_ms=500,
        start_grace_ms=1_000,
        open_ledger_grace_ms=2_000,
        retry_min_ms=300,
        retry_max_ms=2_000,
        batch_entries=2,
    )


def broker_config(plan: ClusterSwarm) -> VariedConfig:
    """Return what the settings of all brokers have in common."""
    ensemble_size, copies, acks = plan.quorums
    return VariedConfig(
        snapshot_interval_bytes=plan.snapshot_interval_bytes,
        page_entries=plan.page_entries,
        segment_pages_max=2,
        room_bytes=plan.room_bytes,
        admin_port=-1,
        listen_host="0.0.0.0",
        port=PORT,
        session_timeout_ms=int(plan.broker_session_s * 1000),
        offsets_topic_partitions=1,
        default_replication_factor=copies,
        default_min_insync_replicas=acks,
        default_ensemble_size=ensemble_size,
        group_initial_rebalance_delay_ms=100,
        group_session_timeout_min_ms=500,
        group_log_copy_bytes=3_000,
        tail_cache_bytes_max=plan.tail_cache_bytes,
        shutdown_timeout_ms=1000,
        transactions=_transaction_settings(plan),
        security=_open_security(plan),
        compaction=_compaction_settings(plan),
        offload=offload_load.config_of(plan.offload),
        aborted_block_entries=plan.transactions.block_entries if plan.transactions else 1_000,
        follower=_follower_settings(plan),
        **_consumer_settings(plan),
        **(plan.shares.settings() if plan.shares is not None else {}),
    )


def _consumer_settings(plan: ClusterSwarm) -> dict[str, int]:
    """Return the settings of groups of the consumer protocol, where there is one."""
    load = plan.consumers
    if load is None:
        return {}
    return {
        "group_consumer_session_timeout_ms": int(load.consumer.session_s * 1000),
        "group_consumer_heartbeat_interval_ms": load.heartbeat_ms,
        "group_consumer_assignment_interval_ms": load.assignment_interval_ms,
    }


def _open_security(plan: ClusterSwarm) -> SecurityConfig:
    """Return settings with which everybody may do everything, quotas included.

    Where operators change rights there is authorization, or they could not.
    """
    if plan.admin is None:
        return secured_load.security(None, "")
    return SecurityConfig(authorization=True, super_users=(admin_load.ANYBODY,))


def config_on(
    host_name: str, node_id: BrokerId, shared: VariedConfig, plan: ClusterSwarm
) -> BrokerConfig:
    """Return the settings of the broker on a host; some limits lower than they may be set."""
    config: BrokerConfig = dataclasses.replace(
        shared, node_id=node_id, advertised_host=host_name, rack=host_name
    )
    if plan.secured is not None:
        config = dataclasses.replace(
            config,
            listen_host="127.0.0.1",
            advertised_host=None,
            security=secured_load.security(plan.secured, host_name, config.session_timeout_ms),
        )
    lower = {} if plan.compaction is None else {"retention_check_interval_ms": 300}
    if plan.shares is not None:
        lower = {"group_share_partition_max_record_locks": plan.shares.window_max}
    load = plan.load
    if load is not None:
        lower = {
            "in_flight_bytes_max": load.broker_bytes_max,
            "connection_in_flight_bytes_max": load.broker_bytes_max // 2,
            "connection_requests_max": load.connection_requests_max,
            "send_buffer_bytes_max": load.unsent_bytes_max,
            "fetch_bytes_max": load.unsent_bytes_max,
            "unread_bytes_max": 8 * load.unsent_bytes_max,
            "unfinished_bytes_max": 20_000,
            "frame_timeout_ms": 1_000,
            "retention_check_interval_ms": 300,
        }
    for name, value in lower.items():
        object.__setattr__(config, name, value)
    return config


def _compaction_settings(plan: ClusterSwarm) -> CompactionConfig:
    """Return the settings of compaction: quick ones where there is any."""
    options = plan.compaction
    if options is None:
        return CompactionConfig()
    return CompactionConfig(
        check_interval_ms=options.check_interval_ms,
        bytes_per_s=options.bytes_per_s,
        key_bytes_max=options.key_bytes_max,
        grace_ms=options.grace_ms,
    )


def _follower_settings(plan: ClusterSwarm) -> FollowerSettings:
    nearby = plan.nearby
    if nearby is None:
        return FollowerSettings()
    return FollowerSettings(
        selector=RACK_AWARE_SELECTOR,
        behind_bytes_min=nearby.behind_bytes_min,
        list_age_ms=nearby.list_age_ms,
        partitions_max=nearby.partitions_max,
    )


def _transaction_settings(plan: ClusterSwarm) -> TransactionSettings:
    """Return the settings of transactions: quick ones where there are any."""
    options = plan.transactions
    if options is None and plan.shares is not None:
        return TransactionSettings(topic_partitions=1, timeout_interval_ms=int(SWEEP_S * 1000))
    if options is None:
        return TransactionSettings()
    return TransactionSettings(
        enabled=True,
        topic_partitions=options.coordinators,
        timeout_interval_ms=int(SWEEP_S * 1000),
        log_copy_bytes=options.log_copy_bytes,
        request_markers_max=2,
    )
