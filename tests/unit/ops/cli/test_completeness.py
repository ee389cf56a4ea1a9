"""Everything that the admin API can do has a command, in words of an operator."""

from __future__ import annotations

from collections.abc import Iterator

import click

from broker.admin.table import OPERATIONS
from ops.cli.main import quire

COMMANDS = {
    "describe_cluster": "cluster describe",
    "list_brokers": "broker list",
    "describe_broker": "broker describe",
    "describe_broker_config": "broker config",
    "unload_broker": "broker unload",
    "load_broker": "broker load",
    "list_topics": "topic list",
    "describe_topic": "topic describe",
    "create_topic": "topic create",
    "change_topic": "topic alter",
    "delete_topic": "topic delete",
    "describe_topic_config": "topic config",
    "list_partitions": "topic partitions",
    "describe_partition": "topic partitions",
    "move_partition": "topic move-leader",
    "unpin_partition": "topic move-leader",
    "roll_partition": "topic roll",
    "trim_partition": "topic trim",
    "describe_offload": "topic offload",
    "describe_compaction": "topic compaction",
    "compact_partition": "topic compact",
    "find_offset": "record find",
    "list_segments": "topic segments",
    "publish_to_topic": "record publish",
    "publish_to_partition": "record publish",
    "peek_records": "record peek",
    "fetch_record": "record fetch",
    "list_groups": "group list",
    "describe_group": "group describe",
    "delete_group": "group delete",
    "describe_group_config": "group config",
    "change_group_config": "group alter",
    "reset_offsets": "group reset",
    "list_dead_letters": "group dead-letters",
    "replay_dead_letters": "group dead-letters",
    "list_transactions": "transaction list",
    "describe_transaction": "transaction describe",
    "abort_transaction": "transaction abort",
    "list_bookies": "bookie list",
    "describe_bookie": "bookie info",
    "list_under_replicated": "autorecovery status",
    "describe_rates": "top",
    "describe_broker_rates": "top",
    "describe_audit": "cluster audit",
    "describe_broker_audit": "cluster audit",
}
OF_THE_PAGE = {"describe_me"}
"""What it greys its buttons by; a command is refused with the same sentence."""
BETWEEN_BROKERS = {
    "list_led_dead_letters",
    "list_led_topics",
    "list_led_partitions",
    "list_coordinated_groups",
    "list_coordinated_transactions",
    "find_lags",
}
"""What brokers ask each other to answer for the whole cluster."""


def names(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[str]:
    yield " ".join(path)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from names(found, (*path, name))


def test_every_operation_has_a_command() -> None:
    operations = {operation.name for operation in OPERATIONS}
    assert operations - BETWEEN_BROKERS - OF_THE_PAGE == set(COMMANDS)
    assert set(COMMANDS.values()) <= set(names(quire))
