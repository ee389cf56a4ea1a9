"""How a command reaches bookies and ZooKeeper, for the commands, which know this room already."""

from __future__ import annotations

from client.security.cluster_security import (
    OPEN_CLUSTER,
    ClusterSecurity,
    read_cluster_security,
)

__all__ = ["OPEN_CLUSTER", "ClusterSecurity", "read_cluster_security"]
