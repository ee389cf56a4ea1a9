"""Which integration tests stay in one process when two run side by side."""

import subprocess
import sys
from pathlib import Path

from tests.conftest import share_of

ROOT = Path(__file__).parents[2]


def test_a_file_stays_together() -> None:
    one, other = "tests/unit/test_a.py::test_x[a::b]", "tests/unit/test_a.py::test_y"
    assert share_of(one) == share_of(other) == "tests/unit/test_a.py"


def test_folders_with_dear_fixtures_stay_together_and_one_spark_is_enough() -> None:
    assert share_of("tests/integration/spark/test_sink.py::test_x") == "spark"
    assert share_of("tests/integration/test_bench.py::test_x") == "spark"
    assert share_of("tests/integration/page/test_page.py::test_x") == "page"


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
