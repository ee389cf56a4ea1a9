"""The page about three secured machines, every command as it shows them, on loopback addresses."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cluster import ROOT

PAGE = ROOT / "ops" / "handbook" / "THREE_MACHINES.md"
TIMEOUT_S = 280


def script() -> str:
    """Return all commands of the page, in order, of which none may fail."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert len(blocks) >= 9
    return "set -Eeo pipefail\ntrap 'echo failed: $BASH_COMMAND' ERR\n" + "\n".join(blocks)


def logs(home: Path) -> str:
    """Return the ends of what the nodes logged."""
    paths = sorted(home.rglob("b*.log"))
    return "".join(
        f"--- {path.name} of {path.parent.name}\n{path.read_text()[-3000:]}\n" for path in paths
    )


@pytest.mark.timeout(TIMEOUT_S + 60)
def test_a_reader_sets_up_three_secured_machines(tmp_path: Path) -> None:
    commands = Path(sys.executable).parent
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith("QUIRE_")
    } | {"HOME": str(tmp_path), "PATH": f"{commands}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        ["bash", "-c", script()], cwd=ROOT, env=environ, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, said[-6000:] + logs(tmp_path)
    assert said.count("\nhello, secured world\n") == 2, said[-6000:]
    assert "\nrefused: no right to read\n" in said
    assert "\nrefused: no right to the group\n" in said
