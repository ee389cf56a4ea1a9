"""The settings files that a local cluster writes for its bookies and brokers.

Only what differs from the programs' defaults is written; the environment (`QUIRE_BOOKIE_...`,
`QUIRE_BROKER_...`) reaches the programs too and wins over the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ops.secret_files import open_secret

Value = str | int | float | bool | list[str]


def bookie_settings(
    *, port: int, admin_port: int, data_dir: Path, zookeeper: Sequence[str], auto_recovery: bool
) -> dict[str, Value]:
    """Return the settings of one bookie of a local cluster.

    The session is short so that a cluster that was killed starts again soon: a bookie waits
    until the registration of its former life has expired. All bookies share one disk with whatever
    else is on the machine, so they fill it further than they would a disk of their own. What a lost
    bookie held is copied only after the time that a bookie needs to be started again.
    """
    return {
        "host": "127.0.0.1",
        "port": port,
        "admin_port": admin_port,
        "session_timeout_ms": 6_000,
        "disk_usage_threshold": 0.99,
        "disk_usage_warn_threshold": 0.98,
        "data_dir": str(data_dir.resolve()),
        "zookeeper": list(zookeeper),
        "auto_recovery": auto_recovery,
        "recovery.lost_bookie_delay_ms": 20_000,
    }


def broker_settings(
    *, node_id: int, port: int, admin_port: int, zookeeper: Sequence[str], bookie_count: int
) -> dict[str, Value]:
    """Return the settings of one broker of a local cluster.

    With fewer than three bookies, new topics have as many copies as there are bookies. Few
    offsets partitions and a short wait for further group members make a first consumer start soon.
    """
    return {
        "node_id": node_id,
        "port": port,
        "admin_port": admin_port,
        "zookeeper": list(zookeeper),
        "default_replication_factor": min(3, bookie_count),
        "default_min_insync_replicas": min(2, bookie_count),
        "offsets_topic_partitions": 8,
        "group_initial_rebalance_delay_ms": 100,
    }


AT_ONCE: Final[dict[str, Value]] = {
    "group_initial_rebalance_delay_ms": 0,
    "internal_topics_at_start": True,
}
"""What `quire up` sets beside that: whoever tries a first consumer there waits for nothing."""


def write_toml(path: Path, settings: Mapping[str, Value]) -> None:
    """Write a TOML file; JSON's strings, lists and truth values are TOML's too."""
    lines = ["# Written by `quire up` at every start."]
    lines += [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    with open_secret(path) as file:  # there may be passwords
        file.write("\n".join(lines) + "\n")
