"""Every query of every dashboard and rule has an answer, on a cluster where things broke."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, KafkaException, Producer

from ops.child import LEASH
from ops.monitoring import dashboard_rows
from ops.ports import pick_free
from tests.fakes.scrape import parse
from tests.integration.clients.installed import command
from tests.integration.cluster import ROOT, LocalCluster, wait_until
from tests.integration.monitoring import RULES, Prometheus, fetch, lint, selectors

QUICK = {
    "QUIRE_BOOKIE_AUTO_RECOVERY": "true",
    "QUIRE_BOOKIE_RECOVERY_POLL_MS": "300",
    "QUIRE_BOOKIE_GC_WAIT_MS": "2000",
    "QUIRE_BOOKIE_GROUP_BYTES_MAX": "1000",  # so that some adds wait in line
    "QUIRE_BROKER_LAG_INTERVAL_MS": "500",
    "QUIRE_BROKER_SESSION_TIMEOUT_MS": "2000",
    "QUIRE_BROKER_LOG_FORMAT": "json",
}
TOPIC = "orders"
PARTITIONS = 4
ANSWERED_WITHIN_S = 40.0
WITH_TLS_ONLY = {
    "quire_broker_tls_certificate_expires_seconds",
    "quire_bookie_tls_certificate_expires_seconds",
    "quire_admin_certificate_expires_seconds",
}
"""Series of alerts that a cluster without certificates does not have."""
NOT_IN_EVERY_CLUSTER = {"Schema registries"}
"""Rows of dashboards about programs that the cluster here does not run."""


class Traffic(threading.Thread):
    """Produces all the time; one group keeps up, another stopped reading."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.bootstrap = bootstrap
        self.confirmed = 0
        self.consumed = 0
        self._is_over = threading.Event()

    def run(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5})
        consumer = self._consumer("quick")
        while not self._is_over.wait(0.05):
            for _ in range(20):
                producer.produce(TOPIC, os.urandom(200), on_delivery=self._on_delivery)
            producer.poll(0)
            self.consumed += sum(one.error() is None for one in consumer.consume(500, 0.01))
        producer.flush(10)
        consumer.close()

    def commit_transactions(self) -> None:
        """Commit one transaction after the other."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": "watched"})
        producer.init_transactions(30)
        while not self._is_over.wait(0.2):
            producer.begin_transaction()
            try:
                producer.produce(TOPIC, b"in a transaction")
                producer.commit_transaction(30)
            except KafkaException:  # a broker was killed
                producer.abort_transaction(30)

    def read_a_little(self, group: str) -> None:
        """Let a group read from the beginning of every partition, commit, and stop."""
        consumer = self._consumer(group)
        seen: set[int] = set()
        while len(seen) < PARTITIONS:
            seen |= {one.partition() for one in consumer.consume(50, 0.1) if one.error() is None}
        consumer.commit(asynchronous=False)
        consumer.close()

    def end(self) -> None:
        self._is_over.set()
        self.join()

    def _consumer(self, group: str) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 500,
                "session.timeout.ms": 6000,
            }
        )
        consumer.subscribe([TOPIC])
        return consumer

    def _on_delivery(self, error: Any, message: Any) -> None:
        self.confirmed += error is None


class Watched:
    """A cluster, auto recovery beside it, traffic, and a Prometheus that watches."""

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        self.cluster = cluster
        admin = cluster.ports["--admin-port"]
        self.brokers = [f"127.0.0.1:{admin + i}" for i in range(2)]
        self.bookies = [f"127.0.0.1:{admin + 100 + i}" for i in range(4)]
        self.recovery = f"127.0.0.1:{pick_free(1)[0]}"
        self._log = (folder / "autorecovery.log").open("wb")
        self._autorecovery = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", str(LEASH), str(os.getpid())),
                *(sys.executable, "-m", "ops.autorecovery", "--recovery-poll-ms=300"),
                f"--zookeeper={cluster.zookeeper}",
                f"--admin-port={self.recovery.rpartition(':')[2]}",
            ],
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, cwd=ROOT,
        )  # fmt: skip
        self.prometheus = Prometheus(
            folder / "prometheus",
            {
                "quire-broker": self.brokers,
                "quire-bookie": self.bookies,
                "quire-autorecovery": [self.recovery],
            },
        )
        self.traffic = Traffic(cluster.bootstrap_servers)

    def close(self) -> None:
        self.traffic.end()
        self.prometheus.close()
        self._autorecovery.terminate()
        self._autorecovery.wait()
        self._log.close()


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Traffic and groups, then a broker and a bookie are killed for good."""
    folder = tmp_path_factory.mktemp("watched")
    flags = ("--no-restart",)
    with LocalCluster(folder / "cluster", bookies=4, flags=flags, environ=QUICK) as cluster:
        subprocess.run(
            [sys.executable, "-m", "ops.cli.main", "topic", "create", TOPIC,
             f"--partitions={PARTITIONS}", f"--bootstrap-server={cluster.bootstrap_servers}"],
            check=True, cwd=ROOT, timeout=60,
        )  # fmt: skip
        made = Watched(cluster, folder)
        made.traffic.start()
        threading.Thread(target=made.traffic.commit_transactions, daemon=True).start()
        made.traffic.read_a_little("slow")
        wait_until(lambda: made.traffic.consumed > 500, "records to go through")
        # What grows before the first scrape is no increase.
        wait_until(lambda: made.prometheus.query("count(up == 1)") == [7], "all targets")
        cluster.kill("broker-1")
        cluster.kill("bookie-3")
        before = made.traffic.confirmed
        wait_until(lambda: made.traffic.confirmed > before + 500, "records after the fail-over")
        made.traffic.read_a_little("late")  # of what the new leader has not in memory
        try:
            yield made
        finally:
            made.close()


def until_answered(prometheus: Prometheus, exprs: list[str]) -> None:
    """Ask until every query has an answer that is a number."""
    silent = list(dict.fromkeys(exprs))
    deadline = time.monotonic() + ANSWERED_WITHIN_S
    while silent and time.monotonic() < deadline:
        silent = [expr for expr in silent if not prometheus.query(expr)]
        time.sleep(0.2)
    assert not silent, "no data for:\n" + "\n".join(silent)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("dashboard", dashboard_rows.DASHBOARDS, ids=lambda one: one.uid)
def test_every_query_of_a_dashboard_has_data(
    watched: Watched, dashboard: dashboard_rows.Dashboard
) -> None:
    queries = [
        query.expr
        for row in dashboard.rows
        if row.title not in NOT_IN_EVERY_CLUSTER
        for panel in row.panels
        for query in panel.queries
    ]
    variables = [
        query.removeprefix("label_values(").partition(",")[0]
        for query in dashboard.variables.values()
    ]
    until_answered(watched.prometheus, [*queries, *variables])


def rules(name: str) -> list[dict[str, Any]]:
    groups = yaml.safe_load((RULES / name).read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_every_recording_rule_has_data(watched: Watched) -> None:
    until_answered(watched.prometheus, [rule["record"] for rule in rules("recording.yml")])


def test_every_alert_asks_for_series_that_are_there(watched: Watched) -> None:
    asked = [selector for rule in rules("alerts.yml") for selector in selectors(rule["expr"])]
    there = [selector for selector in asked if selector not in WITH_TLS_ONLY]
    assert len(there) == len(asked) - len(WITH_TLS_ONLY)
    until_answered(watched.prometheus, [f"count({selector})" for selector in there])


def test_alerts_notice_what_broke_and_nothing_else(watched: Watched) -> None:
    wanted = {"QuireBrokerDown", "QuireBookieDown", "QuireBookiesLost"}
    wait_until(lambda: wanted <= watched.prometheus.alerts().keys(), "the alerts")
    bugs = {"QuireRequestsFail", "QuireBookieDamaged", "QuireBookieReadErrors", "QuireNoAuditor",
            "QuireBrokersUnseen", "QuireAutoRecoveryUnseen", "QuireBookieUnregistered"}  # fmt: skip
    assert not bugs & watched.prometheus.alerts().keys()


def test_latencies_are_the_sums_of_their_parts(watched: Watched) -> None:
    found = parse(fetch(watched.brokers[0], "metrics"))
    prefix = "quire_broker_request_seconds_sum{"
    apis = [name.removeprefix(prefix) for name in found if name.startswith(prefix)]
    assert {'api="produce"}', 'api="fetch"}', 'api="join_group"}'} <= set(apis)
    for api in apis:
        stages = f"quire_broker_request_stage_seconds_sum{{{api[:-1]},stage="
        parts = [value for name, value in found.items() if name.startswith(stages)]
        assert sum(parts) == pytest.approx(found[prefix + api]), api
    found = parse(fetch(watched.bookies[0], "metrics"))
    parts = [found[f"quire_bookie_{name}_seconds_sum"] for name in ("group_wait", "sync")]
    assert sum(parts) == pytest.approx(found["quire_bookie_group_seconds_sum"])
    fsyncs = [value for name, value in found.items() if name.startswith("quire_bookie_fsync_sec")
              and "_sum" in name]  # fmt: skip
    assert 0 < sum(fsyncs) < parts[1]


def test_promtool_has_nothing_against_names_and_rules(watched: Watched) -> None:
    for address in (watched.brokers[0], watched.bookies[0], watched.recovery):
        assert lint(fetch(address, "metrics")) == ""
    promtool = command("promtool")
    for arguments in (
        ["check", "rules", "recording.yml", "alerts.yml"],
        ["test", "rules", "alerts.test.yml"],
        ["check", "config", "prometheus.yml"],
    ):
        ran = subprocess.run([promtool, *arguments], cwd=RULES, capture_output=True, text=True,
                             check=False, timeout=120)  # fmt: skip
        assert ran.returncode == 0, ran.stdout + ran.stderr


def test_auto_recovery_alone_answers_probes(watched: Watched) -> None:
    assert fetch(watched.recovery, "heartbeat") == "OK\n"
    assert fetch(watched.recovery, "readyz") == "ready\n"
    assert 'program="autorecovery"' in fetch(watched.recovery, "metrics")


def test_logs_are_json_when_asked_for(watched: Watched) -> None:
    lines = [json.loads(line) for line in watched.cluster.node_log("broker-0").splitlines()]
    serving = next(line for line in lines if line["event"] == "broker.serving")
    assert (serving["component"], serving["node"], serving["broker"]) == ("broker", "0", 0)
    taken = [line for line in lines if line["event"] == "takeover.leading"]
    assert {line["partition"] for line in taken if line["topic"] == TOPIC} == {0, 1, 2, 3}
    gone = next(line for line in lines if line["event"] == "peer.gone")
    assert gone["level"] == "warning"
