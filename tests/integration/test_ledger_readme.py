"""The programs in the ledger client's README run as they stand there, but for the address."""

from __future__ import annotations

import re
import subprocess
import sys

from client.config import settings_of
from client.ledger import LedgerClientConfig
from tests.integration.cluster import ROOT, LocalCluster

README = (ROOT / "client/ledger/README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
PROGRAMS = [text for language, text in BLOCKS if language == "python"]
(SHOWN,) = (text for language, text in BLOCKS if not language)


def run(cluster: LocalCluster, program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program.replace("127.0.0.1:2181", cluster.zookeeper)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_tour(cluster: LocalCluster) -> None:
    (program,) = (text for text in PROGRAMS if "submit" in text)
    assert run(cluster, program).splitlines() == [
        "True 1000 b'first'",
        "998 b'997'",
        "999 b'998'",
        "1000 b'999'",
        "[]",
    ]


def test_the_replicated_write_ahead_log(cluster: LocalCluster) -> None:
    (program,) = (text for text in PROGRAMS if "class Accounts" in text)
    assert run(cluster, program) == SHOWN
    again = run(cluster, program.replace("1 << 62", "3 << 61"))
    assert again == SHOWN, "another log in the same cluster"


def test_every_setting_it_names_exists() -> None:
    known = {entry.key for entry in settings_of(LedgerClientConfig)}
    rows = [line for line in README.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert {"wire_version", "local_rack"} <= named <= known
