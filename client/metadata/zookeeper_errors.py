"""What kazoo's errors mean to us."""

from __future__ import annotations

from typing import Final

import kazoo.exceptions as zk

from client.errors import (
    AuthFailed,
    ConnectionLoss,
    MetadataError,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    VersionConflict,
)

_NO_RIGHT: Final = (
    "ZooKeeper refuses it: the node is another user's (cluster_security.zookeeper_user and"
    " zookeeper_password, zookeeper_scheme)"
)
_NO_OWNER: Final = (
    "ZooKeeper knows no owners of nodes such as cluster_security.zookeeper_user: for"
    " zookeeper_scheme sasl, its zoo.cfg needs"
    " authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
)
_LOGIN_WANTED: Final = (
    "ZooKeeper serves only who has logged in: set cluster_security.zookeeper_user,"
    " zookeeper_password, and zookeeper_scheme to what its enforce.auth.schemes has"
)

_ERRORS: Final[dict[type[Exception], type[MetadataError]]] = {
    zk.NoNodeError: NoNode,
    zk.NodeExistsError: NodeExists,
    zk.NotEmptyError: NotEmpty,
    zk.BadVersionError: VersionConflict,
    zk.SessionExpiredError: SessionExpired,
    zk.SessionMovedError: ConnectionLoss,
    zk.ConnectionLoss: ConnectionLoss,
    zk.ConnectionClosedError: ConnectionLoss,
    zk.OperationTimeoutError: ConnectionLoss,
}


def translate(error: Exception, path: str) -> MetadataError:
    """Return our error for one that a request about `path` met."""
    for kind, ours in _ERRORS.items():
        if isinstance(error, kind):
            return ours(path)
    if isinstance(error, zk.SessionClosedRequireSaslError):
        return AuthFailed(f"{path}: {_LOGIN_WANTED}")
    if isinstance(error, zk.InvalidACLError):
        return MetadataError(f"{path}: {_NO_OWNER}")
    if isinstance(error, zk.NoAuthError | zk.AuthFailedError):
        return MetadataError(f"{path}: {_NO_RIGHT}")
    return MetadataError(f"{path}: {type(error).__name__}")
