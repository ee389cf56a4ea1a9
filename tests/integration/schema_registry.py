"""`quire schemas` as a process, for the tests of those who use it."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request

from confluent_kafka.schema_registry import SchemaRegistryClient

from ops.ports import pick_free
from tests.integration.cluster import ROOT, LocalCluster, wait_until


class RegistryProcess:
    """One `quire schemas`."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        self.port = pick_free(1)[0]
        self.url = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "ops.cli.main", "schemas", "--port", str(self.port)]
        command += ["--topic", topic, "-b", cluster.bootstrap_servers]
        self.process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        wait_until(self._answers, "the registry answers", 60)
        self.client = SchemaRegistryClient({"url": self.url})

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.process.stderr and self.process.stderr.read()
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=2):
                return True
        except OSError:
            return False

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        self.process.communicate(timeout=30)
        return self.process.returncode
