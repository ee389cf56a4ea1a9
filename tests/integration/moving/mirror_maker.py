"""MirrorMaker 2 of Apache Kafka, unmodified, in its dedicated mode: a process of its own.

Its settings are those of the handbook's page "Move from Kafka without downtime", read from there:
what the page says is what the tests do. Only what is asked at an interval is asked more often.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ops.child import LEASH
from ops.java import find_java
from tests.integration.cluster import ROOT

LIB: Final = Path(__file__).parent / "lib"
_HANDBOOK: Final = ROOT / "ops" / "handbook" / "MIGRATE.md"
_OFTEN: Final = {
    "emit.checkpoints.interval.seconds": "1",
    "sync.group.offsets.interval.seconds": "1",
    "refresh.topics.interval.seconds": "5",
    "refresh.groups.interval.seconds": "5",
    "sync.topic.configs.interval.seconds": "5",
    "offset.flush.interval.ms": "1000",
    "admin.timeout.ms": "60000",
}
_SOON: Final = {
    "worker.sync.timeout.ms": "30000",
    "worker.unsync.backoff.ms": "1000",
    "kafka.scheduled.rebalance.max.delay.ms": "0",
    "quire.scheduled.rebalance.max.delay.ms": "0",
}
"""A worker that read its configuration too late, or joined again under another name, would else do
nothing for five minutes, so that others could take its work: there is no other one.
"""
_ONE_NODE: Final = dict.fromkeys(
    [
        *("quire->kafka.replication.factor", "checkpoints.topic.replication.factor"),
        *("heartbeats.topic.replication.factor", "offset-syncs.topic.replication.factor"),
        *("offset.storage.replication.factor", "config.storage.replication.factor"),
        "status.storage.replication.factor",
    ],
    "1",
)
"""The Apache Kafka of the tests is a single node."""
_WORDS: Final = 60
_JVM: Final = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def settings_of_the_handbook(addresses: dict[str, str]) -> dict[str, str]:
    """Return the page's properties with the clusters' real addresses, by the clusters' names."""
    block = re.search(r"```properties\n(clusters = .*?)```", _HANDBOOK.read_text(), re.DOTALL)
    assert block, "the handbook has no settings of MirrorMaker"
    lines = [line for line in block[1].splitlines() if line and not line.startswith("#")]
    settings = dict(re.split(r"\s*=\s*", line, maxsplit=1) for line in lines)
    for name, address in addresses.items():
        assert f"{name}.bootstrap.servers" in settings
        settings[f"{name}.bootstrap.servers"] = address
    return settings


def secured_settings_of_the_handbook(login: Mapping[str, str]) -> dict[str, str]:
    """Return what the page adds for a secured Quire and exactly-once, with a real login."""
    block = re.search(r"```properties\n(quire\.security.*?)```", _HANDBOOK.read_text(), re.DOTALL)
    assert block, "the handbook has no settings of a secured MirrorMaker"
    lines = block[1].strip().splitlines()
    settings = dict(re.split(r"\s*=\s*", line, maxsplit=1) for line in lines)
    for name, value in login.items():
        assert f"quire.{name}" in settings, name
        settings[f"quire.{name}"] = value
    return settings


class MirrorMaker:
    """One process that carries records and offsets between two clusters."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        self.log_path = folder / "mirror-maker.log"
        self._file = folder / "mirror-maker.properties"
        self._file.write_text(
            "".join(
                f"{key} = {value}\n"
                for key, value in {**settings, **_OFTEN, **_SOON, **_ONE_NODE}.items()
            )
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._begin = 0

    def start(self) -> None:
        assert LIB.is_dir(), "MirrorMaker is not there: run `make clients`"
        self._begin = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", str(LEASH), str(os.getpid())),
                    *(str(find_java().path), *_JVM, "-cp", f"{LIB}{os.sep}*"),
                    *("org.apache.kafka.connect.mirror.MirrorMaker", str(self._file)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def check_alive(self) -> None:
        """Raise AssertionError if the process has ended by itself."""
        assert self._process is not None
        code = self._process.poll()
        assert code is None, f"MirrorMaker ended with {code}\n{self.last_words()}"

    def last_words(self) -> str:
        """Return the end of its log, and before it what went wrong."""
        lines = self._lines()
        wrong = [line for line in lines if " ERROR " in line or " WARN " in line]
        lines = [line for line in lines if not line.startswith("\t")]  # values of settings
        return "\n".join([*wrong[-_WORDS:], "...", *lines[-_WORDS:]])

    def problems(self) -> list[str]:
        """Return its log's lines of errors, since its last start."""
        return [line for line in self._lines() if " ERROR " in line]

    def _lines(self) -> list[str]:
        if not self.log_path.exists():
            return []
        return self.log_path.read_bytes()[self._begin :].decode(errors="replace").splitlines()
