"""One Apache Kafka broker, of the jars that the benchmark fetches, to compare Quire with."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from ops.bench.peers.kafka import LIB, is_installed
from ops.child import LEASH
from ops.java import find_java
from ops.ports import pick_free
from tests.integration.cluster import wait_until
from tests.integration.differential.conversation import answers

_JVM = ("-Xmx512M", "-Xms512M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class KafkaNode:
    """A broker that is its own controller; topics have one replica."""

    def __init__(self, folder: Path, more: Mapping[str, str] = MappingProxyType({})) -> None:
        """`more`: further settings."""
        assert is_installed(), "Apache Kafka is not there: run `make clients`"
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.port, controller = pick_free(2)
        self._process: subprocess.Popen[bytes] | None = None
        self._settings = folder / "node.properties"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "0",
            "controller.quorum.voters": f"0@127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str((folder / "data").resolve()),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "4",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **more,
        }
        self._settings.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def start(self) -> KafkaNode:
        log_path = self._folder / "node.log"
        with log_path.open("ab") as log:
            subprocess.run(
                [
                    *self._java("kafka.tools.StorageTool"), "format",
                    "--cluster-id=AAAAAAAAAAAAAAAAAAAAAA", "--config", str(self._settings),
                ],
                stdout=log, stderr=log, check=True, timeout=120,
            )  # fmt: skip
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", str(LEASH), str(os.getpid())),
                    *self._java("kafka.Kafka"), str(self._settings),
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        wait_until(lambda: answers(self.port), f"Apache Kafka, see {log_path}", 120.0)
        return self

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _java(self, main: str) -> list[str]:
        log = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        return [str(find_java().path), *_JVM, log, "-cp", f"{LIB}/*", main]
