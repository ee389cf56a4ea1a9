"""Reads the file of named clusters: `quire --cluster prod ...` instead of addresses.

    # ~/.config/quire/clusters.toml
    [prod]
    bootstrap_server = "q1.example:9092,q2.example:9092"
    admin_token = "..."

`bootstrap_server` is enough; the brokers tell the rest. `admin`, `zookeeper`, `admin_token` and
`admin_ca` are what the options of those names are, for clusters that cannot tell, and
`client_config` is a properties file as for `quire --client-config`.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from client.errors import ConfigError

FILE_VARIABLE: Final = "QUIRE_CLUSTERS_FILE"


class NamedCluster(NamedTuple):
    """What the file says of one cluster; empty: nothing."""

    bootstrap_server: str = ""
    admin: str = ""
    zookeeper: str = ""
    admin_token: str = ""
    admin_ca: str = ""
    client_config: str = ""
    """Properties file of a Kafka client, for brokers that want TLS or a login."""


def file_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Return where the file is, whether it exists or not."""
    if given := environ.get(FILE_VARIABLE):
        return Path(given)
    home = environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "quire" / "clusters.toml"


def read_all(path: Path) -> dict[str, NamedCluster]:
    """Read the file. Raises ConfigError, which says what is wrong where."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    return {name: _cluster(path, name, table) for name, table in tables.items()}


def find(name: str, path: Path) -> NamedCluster:
    """Return the cluster of that name. Raises ConfigError, which names those that there are."""
    known = read_all(path)
    if name not in known:
        there = f"it has {', '.join(sorted(known))}" if known else "it has none"
        raise ConfigError(
            f"there is no cluster {name!r} in {path}; {there}. A table [{name}] with"
            ' bootstrap_server = "HOST:PORT" makes one'
        )
    return known[name]


def _cluster(path: Path, name: str, table: Any) -> NamedCluster:
    if not isinstance(table, dict):
        raise ConfigError(
            f"{path}: {name!r} stands outside of a cluster: write [NAME] above its settings"
        )
    for key, value in table.items():
        if key not in NamedCluster._fields:
            near = difflib.get_close_matches(key, NamedCluster._fields, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there is {_listed()}"
            raise ConfigError(f"{path}: [{name}] has no setting {key!r}; {hint}")
        if not isinstance(value, str):
            raise ConfigError(f"{path}: {key} of [{name}] must be text in quotes")
    found = NamedCluster(**table)
    if not (found.bootstrap_server or found.admin or found.zookeeper):
        raise ConfigError(f"{path}: [{name}] has no address: give it a bootstrap_server")
    return found


def _listed() -> str:
    return ", ".join(NamedCluster._fields)
