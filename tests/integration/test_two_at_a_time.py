"""Two test processes side by side get whole files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.integration.cluster import ROOT


def test_pytest_divides_tests_so(tmp_path: Path) -> None:
    """The hook is xdist's: a new version of either may stop asking it, and nobody would notice."""
    names = ("tests/unit/ops/test_ports.py", "tests/unit/test_shares.py")
    run = (*(sys.executable, "-m", "pytest"), *("-n", "2", "--dist", "loadscope", "-v"))
    chosen = ("-k", "ports or stays_together", f"--basetemp={tmp_path / 'base'}", *names)
    done = subprocess.run([*run, *chosen], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    by_file: dict[str, set[str]] = {}
    for line in done.stdout.splitlines():
        if line.startswith("[gw"):
            worker, _, test = line.partition("]")
            by_file.setdefault(test.split("PASSED ")[1].split("::")[0], set()).add(worker)
    assert set(by_file) == set(names)
    assert all(len(workers) == 1 for workers in by_file.values()), by_file
