"""What of an answer is compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from client.wire.kafka.apis import ApiKey

K = ApiKey
NEVER_TWO_ALIKE = frozenset(
    ("throttle_time", "host", "port", "cluster_id", "log_append_time", "commit_timestamp", "rack",
     "transaction_start_time", "last_timestamp", "log_dir", "partition_size", "total_bytes",
     "usable_bytes", "api_keys", "supported_features", "finalized_features",
     "finalized_features_epoch")
)  # fmt: skip
"""Times, places and sizes; versions and features have tests of their own."""
OFFSETS = ("base_offset", "log_start_offset", "low_watermark")
WRITING = (K.PRODUCE, K.DELETE_RECORDS)
"""APIs in whose answers only the presence of `OFFSETS` is compared: a batch that one of both
refuses should not be found again in all that follow."""
STABLE_TOPICS = ("t", "one", "compacted")
STABLE = frozenset(
    (*STABLE_TOPICS, "g", "tx", "limited", "__consumer_offsets", "__transaction_state")
)
"""What no request changes."""
WHOLE_LISTS: Mapping[ApiKey, Sequence[str]] = {
    K.METADATA: ("name",),
    K.DESCRIBE_LOG_DIRS: ("name",),
    K.ELECT_LEADERS: ("topic",),
    K.LIST_PARTITION_REASSIGNMENTS: ("name",),
    K.LIST_GROUPS: ("group_id",),
    K.LIST_TRANSACTIONS: ("transactional_id",),
    K.LIST_CONFIG_RESOURCES: ("resource_name",),
    K.DESCRIBE_USER_SCRAM_CREDENTIALS: ("user",),
    K.DESCRIBE_CLIENT_QUOTAS: (),
}
"""APIs that may be asked for all there is: rows of other things than `STABLE` and what the request
names are left out, by these of their fields."""
