"""Requests of a session keep different numbers, whatever connection they leave by."""

from __future__ import annotations

from typing import Any

import pytest
from kazoo.protocol.serialization import Exists

from client.metadata.zookeeper import ZooKeeperStore
from client.security.cluster_security import OPEN_CLUSTER, ClusterSecurity

SASL = ClusterSecurity(zookeeper_user="quire", zookeeper_password="secret", zookeeper_scheme="sasl")


@pytest.mark.parametrize("security", [OPEN_CLUSTER, SASL])
def test_a_new_connection_goes_on_counting(
    security: ClusterSecurity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kazoo sets the number to 0 for each connection, and sends a request with the next one."""
    client = ZooKeeperStore("127.0.0.1:1", security=security)._client
    connection: Any = client._connection
    sent: list[int] = []
    monkeypatch.setattr(connection, "_submit", lambda request, timeout, xid: sent.append(xid))
    connection._read_sock = connection._write_sock = _Wake()
    for _ in range(2):
        connection._xid = 0
        for _ in range(2):
            client._queue.append((Exists("/a", None), client.handler.async_result()))
            connection._send_request(1.0, 1.0)
    assert sent == [1, 2, 3, 4]


class _Wake:
    def recv(self, size: int) -> bytes:
        return bytes(size)
