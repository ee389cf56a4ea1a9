"""How commands reach bookies and ZooKeeper."""

from __future__ import annotations

from client.security.cluster_security import (
    OPEN_CLUSTER,
    ClusterSecurity,
    read_cluster_security,
)

__all__ = ["OPEN_CLUSTER", "ClusterSecurity", "read_cluster_security"]
