"""A crowd fills what can be filled: every gauge stays below its limit, every node below its sum."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.integration import memory_crowd
from tests.integration.cluster import LocalCluster

CONNECTIONS = 200


@pytest.mark.timeout(180)
async def test_a_crowd_fills_no_node_beyond_its_limits(
    start_cluster: Callable[..., LocalCluster],
) -> None:
    cluster = start_cluster(brokers=1, environ=memory_crowd.environ(CONNECTIONS))
    pids = cluster.pids()
    seen = await memory_crowd.fill(cluster, CONNECTIONS)
    print(memory_crowd.shown(seen))
    assert [one for one in seen if not one.is_within] == []
    assert cluster.pids() == pids, "nobody ended"
    gauges = {one.what for one in seen} - {"resident"}
    filled = {gauge for _, gauge in (*memory_crowd.FILLED, memory_crowd.IN_FLIGHT)}
    assert gauges == filled | memory_crowd.HARDLY_FILLED.keys(), "each is filled, or says why not"
    most = {(one.node, one.what): one for one in seen}
    for which in (*memory_crowd.FILLED, memory_crowd.IN_FLIGHT):
        one = most[which]
        assert one.most > one.limit / 4, f"hardly filled: {one}"
