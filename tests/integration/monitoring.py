"""A real Prometheus for tests: its configuration, its process, and questions to it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import Any

import yaml

from ops.child import LEASH
from ops.ports import pick_free
from tests.integration.clients.installed import command
from tests.integration.cluster import wait_until

RULES = Path(__file__).parent.parent.parent / "ops/monitoring/prometheus"
_VARIABLES = {"$__rate_interval": "2m", "$instance": ".*", "$topic": ".*", "$group": ".*"}


class Prometheus:
    """Scrapes and evaluates every second, until `close`."""

    def __init__(self, folder: Path, targets: Mapping[str, Sequence[str]]) -> None:
        """`targets`: job -> addresses."""
        self.folder = folder
        self.port = pick_free(1)[0]
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES / name) for name in ("recording.yml", "alerts.yml")],
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": list(addresses)}]}
                for job, addresses in targets.items()
            ],
        }
        folder.mkdir()
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._log = (folder / "prometheus.log").open("wb")
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", str(LEASH), str(os.getpid())),
                command("prometheus"),
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        wait_until(self._is_ready, f"Prometheus, see {folder / 'prometheus.log'}")

    def close(self) -> None:
        """Stop it."""
        self._process.terminate()
        self._process.wait()
        self._log.close()

    def query(self, expr: str) -> list[float]:
        """Return the values of an instant query, those that are no number left out."""
        for name, value in _VARIABLES.items():
            expr = expr.replace(name, value)
        result = self._get("query", query=expr)["result"]
        values = [float(row["value"][1]) for row in result]
        return [value for value in values if not isnan(value)]

    def alerts(self) -> dict[str, str]:
        """Return the alerts that are pending or firing: name -> state."""
        found = self._get("alerts")["alerts"]
        return {one["labels"]["alertname"]: one["state"] for one in found}

    def _get(self, what: str, **query: str) -> Any:
        url = f"http://127.0.0.1:{self.port}/api/v1/{what}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{query}: {error.read().decode()}") from error

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, f"Prometheus ended, see {self.folder}/prometheus.log"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=1):
                return True
        except OSError:
            return False


def selectors(expr: str) -> list[str]:
    """Return every selector in a query, without its range."""
    name = r"(?:[a-z]\w*:)?\b(?:quire|process)_\w+(?::\w+)?"
    found = re.findall(rf"{name}(?:\{{[^}}]*\}})?|\bup\{{[^}}]*\}}", expr)
    assert found, expr
    return list(found)


def fetch(address: str, path: str) -> str:
    """Return what a program's HTTP server answers."""
    with urllib.request.urlopen(f"http://{address}/{path}", timeout=5) as answer:
        text: str = answer.read().decode()
        return text


def lint(exposition: str) -> str:
    """Return what promtool has against metrics; Apache BookKeeper's names are left out."""
    ours = re.compile(r"(# (HELP|TYPE) )?(quire|process)_")
    lines = [line for line in exposition.splitlines(keepends=True) if ours.match(line)]
    assert lines
    checked = subprocess.run(
        [command("promtool"), "check", "metrics"],
        input="".join(lines),
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    return checked.stdout + checked.stderr
