"""The README's commands and its Python example work as they stand, but for ports and paths."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.integration.clients import installed
from tests.integration.cluster import ROOT, LocalCluster

DEFAULT = "127.0.0.1:9092"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def command_lines() -> list[str]:
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    return [line for line in lines if line and not line.startswith("make ")]


def test_the_commands_work(cluster: LocalCluster, tmp_path: Path) -> None:
    installed.command("kcat")
    quire = f"{shlex.quote(sys.executable)} -m ops.cli.main"
    outputs = []
    for line in command_lines():
        line = line.replace(DEFAULT, cluster.bootstrap_servers).replace(".venv/bin/quire", quire)
        done = subprocess.run(
            ["/bin/bash", "-o", "pipefail", "-c", line],
            cwd=ROOT,
            env={"PATH": "/usr/bin:/bin", "QUIRE_BOOTSTRAP": cluster.bootstrap_servers},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        outputs.append(done.stdout)
    assert "hello, world\n" in outputs
    assert any("hello from kcat\n" in output for output in outputs)


def test_the_python_example_works(cluster: LocalCluster) -> None:
    for example in blocks("python"):
        done = subprocess.run(
            [sys.executable, "-c", example.replace(DEFAULT, cluster.bootstrap_servers)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "b'python' b'hello from Python'" in done.stdout
