"""What the README shows is run here, as it stands there but for addresses and names."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.cluster import ROOT, LocalCluster

pytestmark = pytest.mark.smoke

Runner = Callable[[str, str], str]

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def block(language: str, mark: str) -> str:
    """Return the one block in a language that contains a text."""
    found = [text for kind, text in BLOCKS if kind == language and mark in text]
    assert len(found) == 1, f"{len(found)} blocks of {language} with {mark!r}"
    return found[0]


@pytest.fixture
def run(cluster: LocalCluster, tmp_path: Path) -> Runner:
    """Run a block against the shared cluster; return what it prints."""

    def run(language: str, text: str) -> str:
        text = text.replace("127.0.0.1:9092", cluster.bootstrap_servers)
        text = text.replace("127.0.0.1:9640", f"127.0.0.1:{cluster.about['brokers'][0]['admin']}")
        text = text.replace(".venv/bin/quire", f"{sys.executable} -m ops.cli.main")
        command = ["sh", "-euc", text] if language == "sh" else [sys.executable, "-c", text]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "QUIRE_BOOTSTRAP": cluster.bootstrap_servers},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_first_steps(run: Runner) -> None:
    """In the order of the README, on one topic: each step sees the records of those before."""
    assert run("sh", block("sh", "quire produce")) == "hello, world\n"
    assert run("sh", block("sh", "kcat")).splitlines() == ["hello, world", "hello from kcat"]
    assert run("python", block("python", "KafkaProducer")).splitlines() == [
        "0 0 None b'hello, world'",
        "0 1 None b'hello from kcat'",
        "0 2 b'python' b'hello from Python'",
    ]
    assert run("sh", block("sh", "curl")) == "hello from curl"
    assert run("sh", block("sh", "curl")) == "hello from curl", "in any order, any number of times"


def test_every_command_it_names_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", README, re.MULTILINE))
    assert {"up", "test", "demo"} <= named <= targets
    for path in re.findall(r"`((?:client|bookie|broker|ops)/[\w/.]+\.(?:md|py))`", README):
        assert (ROOT / path).exists(), path
