"""Every bookie and every broker restarted, one after the other, under load: nobody is hurt.

The short form of `make rolling-restart`, which has three brokers, three kinds of producers, and
reports the figures. What a record waited at most is in the report of this test, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration import rolling_restart
from tests.integration.cluster import LocalCluster

PATIENCE = {"QUIRE_BOOKIE_RECOVERY_RETRY_MAX_MS": "1000"}
"""Ledgers in use are looked at again soon, so that a bookie's turn takes seconds."""


@pytest.mark.timeout(300)
def test_a_rolling_restart_loses_nothing_and_repeats_nothing(
    start_cluster: Callable[..., LocalCluster],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = start_cluster(brokers=2, environ={**rolling_restart.ENVIRON, **PATIENCE})
    outcome = rolling_restart.run(
        cluster, tmp_path, per_s=200, kinds=("confluent", "aiokafka"), group_kinds=("confluent",)
    )
    for name, value in outcome.report().items():
        record_property(name, value)
    with capsys.disabled():
        print(f"\nlongest wait for an acknowledgement, ms: {json.dumps(outcome.longest_wait_ms)}")
    restarted = [(each["kind"], each["id"]) for each in outcome.restarts]
    bookies = [("bookie", node["id"]) for node in cluster.about["bookies"]]
    assert restarted == [*bookies, ("broker", "0"), ("broker", "1")]
    slow = [each for each in outcome.restarts if each["restart_s"] >= rolling_restart.EXIT_S_MAX]
    assert not slow, "SIGTERM to exit"
    for kind, _ in restarted:
        assert "Traceback" not in cluster.node_log(f"{kind}-0")
