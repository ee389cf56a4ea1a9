"""A Spark cluster of processes on loopback: a master, and workers on hosts of their own.

Spark never runs two attempts of a task on one host, so speculation takes two. Each worker has an
address of its own in 127.0.0.0/8, which is a host to Spark.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType

import pyspark

from tests.integration.cluster import ROOT
from tests.integration.spark.conftest import JVM_OPTIONS

HOSTS = ("127.0.0.2", "127.0.0.3")
_HOME = Path(pyspark.__file__).parent
_DEPLOY = "org.apache.spark.deploy"
_STOP_S_MAX = 30.0
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": JVM_OPTIONS,
    "spark.executor.extraJavaOptions": JVM_OPTIONS,
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executorEnv.PYTHONPATH": str(ROOT),
    "spark.cores.max": str(len(HOSTS)),
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
}


class StandaloneSpark:
    """The processes, for as long as the context lasts; drivers connect to `master`."""

    def __init__(self, port: int, folder: Path) -> None:
        self.master = f"spark://127.0.0.1:{port}"
        self._port = port
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> StandaloneSpark:
        master = ["--host", "127.0.0.1", "--port", str(self._port), "--webui-port", "0"]
        self._start("master.Master", "127.0.0.1", master)
        for host in HOSTS:
            about = ["--host", host, "--webui-port", "0", "--cores", "1", "--memory", "600m"]
            about += ["--work-dir", str(self._folder / host), self.master]
            self._start("worker.Worker", host, about)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait(_STOP_S_MAX)

    def driver(self, module: str, arguments: list[str], **settings: str) -> None:
        """Run a driver to its end. Raises AssertionError if it failed.

        `module` gets the master, then `arguments`; it finds its settings as Spark's defaults.
        """
        said = self._folder / "driver.log"
        defaults = self._folder / "spark-defaults.conf"
        rows = {**_SETTINGS, **settings}
        defaults.write_text("".join(f"{name} {value}\n" for name, value in rows.items()))
        with said.open("wb") as log:
            done = subprocess.run(
                [sys.executable, "-m", module, self.master, *arguments],
                cwd=ROOT, stdout=log, stderr=log, check=False, timeout=240,
                env={
                    **os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT),
                    "SPARK_CONF_DIR": str(self._folder), "SPARK_LOCAL_IP": "127.0.0.1",
                },
            )  # fmt: skip
        assert done.returncode == 0, said.read_text()[-3000:]

    def executors_said(self) -> str:
        """Return the logs of all executors."""
        return "\n".join(path.read_text() for path in self._folder.glob("*/app-*/*/stderr"))

    def _start(self, name: str, host: str, arguments: list[str]) -> None:
        with (self._folder / f"{host}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [str(_HOME / "bin" / "spark-class"), f"{_DEPLOY}.{name}", *arguments],
                    stdout=log, stderr=log,
                    env={
                        **os.environ, "SPARK_HOME": str(_HOME), "SPARK_LOCAL_IP": host,
                        "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": JVM_OPTIONS,
                        "SPARK_CONF_DIR": str(self._folder), "PYTHONPATH": str(ROOT),
                    },
                )
            )  # fmt: skip
