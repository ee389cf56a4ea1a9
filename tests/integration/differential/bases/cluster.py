"""Requests in order about settings, the cluster and rights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from client.wire.kafka.apis import ApiKey
from tests.integration.differential.bases.request import SETTINGS_TOPICS, Base, same
from tests.integration.differential.plain_wire import Tree

K = ApiKey


def _altered(number: int, _version: int) -> Tree:
    rows = [{"name": "retention.ms", "value": "90000", "config_operation": 0},
            {"name": "cleanup.policy", "value": "compact", "config_operation": 0}]  # fmt: skip
    name = f"c-{number % SETTINGS_TOPICS}"
    return {"resources": [{"resource_type": 2, "resource_name": name, "configs": rows}],
            "validate_only": False}  # fmt: skip


def _metrics_altered(number: int, _version: int) -> Tree:
    rows = [{"name": "metrics", "value": "a.b", "config_operation": 0},
            {"name": "interval.ms", "value": "1000", "config_operation": 0}]  # fmt: skip
    return {"resources": [{"resource_type": 16, "resource_name": f"m-{number}", "configs": rows}],
            "validate_only": True}  # fmt: skip


def _described(name: str, *rows: tuple[int, str, list[str] | None]) -> Base:
    return same(name, include_synonyms=False, include_documentation=False, resources=[
        {"resource_type": kind, "resource_name": one, "configuration_keys": keys}
        for kind, one, keys in rows])  # fmt: skip


_ACL = {"resource_type": 2, "resource_name": "t", "resource_pattern_type": 3,
        "principal": "User:anna", "host": "*", "operation": 3, "permission_type": 3}  # fmt: skip
_ACL_FILTER = {"resource_type_filter": 2, "resource_name_filter": "t", "pattern_type_filter": 3,
               "principal_filter": None, "host_filter": None, "operation": 1,
               "permission_type": 1}  # fmt: skip

CLUSTER: Mapping[ApiKey, Sequence[Base]] = {
    K.API_VERSIONS: (same("asked", client_software_name="a-client",
                           client_software_version="1.0"),),
    K.DESCRIBE_CLUSTER: (same("asked", include_cluster_authorized_operations=False,
                               endpoint_type=1, include_fenced_brokers=False),),
    K.DESCRIBE_CONFIGS: (
        _described("a topic", (2, "one", None), (2, "t", ["retention.ms", "cleanup.policy"])),
        _described("a broker", (4, "0", ["log.retention.ms"])),
        _described("metrics", (16, "m", None), (32, "g", ["consumer.session.timeout.ms"])),
    ),
    K.ALTER_CONFIGS: (Base("a topic", _altered), Base("metrics", _metrics_altered)),
    K.INCREMENTAL_ALTER_CONFIGS: (Base("a topic", _altered), Base("metrics", _metrics_altered)),
    K.LIST_CONFIG_RESOURCES: (same("all", resource_types=[]),
                              same("some", resource_types=[2, 16])),
    K.UPDATE_FEATURES: (same("a version", timeout=10_000, validate_only=True, feature_updates=[
        {"feature": "transaction.version", "max_version_level": 1, "allow_downgrade": True,
         "upgrade_type": 2}]),),
    K.UNREGISTER_BROKER: (same("one that is not there", broker_id=77),),
    K.DESCRIBE_CLIENT_QUOTAS: (
        same("of one", strict=False, components=[
            {"entity_type": "user", "match_type": 0, "match": "limited"}]),
        same("of two", strict=True, components=[
            {"entity_type": "user", "match_type": 0, "match": "limited"},
            {"entity_type": "client-id", "match_type": 2, "match": None}]),
    ),
    K.ALTER_CLIENT_QUOTAS: (
        Base("a user", lambda n, _v: {"validate_only": False, "entries": [
            {"entity": [{"entity_type": "user", "entity_name": f"u-{n}"}],
             "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False},
                     {"key": "request_percentage", "value": 50.0, "remove": False}]}]}),
    ),
    K.DESCRIBE_USER_SCRAM_CREDENTIALS: (
        same("two", users=[{"name": "limited"}, {"name": "nobody"}]),
        same("all", users=None),
    ),
    K.ALTER_USER_SCRAM_CREDENTIALS: (
        Base("a password", lambda n, _v: {"deletions": [], "upsertions": [
            {"name": f"u-{n}", "mechanism": 1, "iterations": 4096, "salt": b"s" * 16,
             "salted_password": b"p" * 32}]}),
        Base("nobody's", lambda n, _v: {"upsertions": [], "deletions": [
            {"name": f"u-{n}", "mechanism": 1}]}),
    ),
    K.DESCRIBE_ACLS: (same("some", **_ACL_FILTER),),
    K.CREATE_ACLS: (same("one", creations=[_ACL]),),
    K.DELETE_ACLS: (same("some", filters=[_ACL_FILTER]),),
    K.SASL_HANDSHAKE: (same("a login", mechanism="PLAIN"),),
    K.SASL_AUTHENTICATE: (same("a login", auth_bytes=b"\0anna\0secret"),),
}  # fmt: skip
