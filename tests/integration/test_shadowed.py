"""A user's project may have packages called as ours: our programs are not misled."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cluster import ROOT

PACKAGES = ("broker", "bookie", "client", "ops")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with packages of our names, each of which says that it was taken."""
    for name in PACKAGES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise SystemExit('taken: {name}')\n")
    return tmp_path


def run(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {name: word for name, word in os.environ.items() if not name.startswith("QUIRE_")}
    environ |= {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *words], cwd=project, env=environ, capture_output=True, text=True,
        timeout=100, check=False,
    )  # fmt: skip


def test_the_project_would_be_taken_by_a_bare_interpreter(project: Path) -> None:
    assert "taken: ops" in run(project, "-m", "ops.cli.main", "--version").stderr


@pytest.mark.parametrize(
    ("program", "wrong", "says"),
    [
        ("broker", ("--node-id", "-5"), "--node-id must be at least 0"),
        ("bookie", ("--data-dir", "x", "--port", "-5"), "--port must be at least 0"),
    ],
)
def test_nodes_are_ours(project: Path, program: str, wrong: tuple[str, ...], says: str) -> None:
    done = run(project, "-P", "-m", "ops.cli.main", program, "run", *wrong)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr


def test_every_process_that_we_start_leaves_the_current_folder_out() -> None:
    """`-P`, or `-I`; pip is no program of ours, and measurements are made in a checkout."""
    started = re.compile(r'sys\.executable,([^\]]*?)"-m",\s+"(?!pip)')
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            if "bench" not in path.parts:
                for flags in started.findall(path.read_text(encoding="utf-8")):
                    assert '"-P"' in flags, path
