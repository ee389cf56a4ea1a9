"""Where the kernel sends no signal at a parent's death, a watcher does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ops.child import LEASH

ELSEWHERE = (
    f"import runpy, sys; sys.platform = 'darwin'; sys.argv[0] = {str(LEASH)!r};"
    f" runpy.run_path({str(LEASH)!r}, run_name='__main__')"
)
SLEEP_S = 60
SLEEP = f"import time; print('up', flush=True); time.sleep({SLEEP_S})"


def on_a_leash(parent_pid: int | str, *command: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", ELSEWHERE, str(parent_pid), *command]


def test_the_command_dies_with_its_supervisor(tmp_path: Path) -> None:
    supervisor = (
        "import os, subprocess, sys; subprocess.run([*sys.argv[1:5], sys.argv[5],"
        " str(os.getpid()), *sys.argv[6:]])"
    )
    command = on_a_leash("", sys.executable, "-c", SLEEP)
    command.remove("")
    with subprocess.Popen(
        [sys.executable, "-c", supervisor, *command], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.kill()
        process.wait()
        began_s = time.monotonic()
        # Who has the other end of the pipe has ended when it ends: the command, and the watcher.
        assert process.stdout.read() == ""
        assert time.monotonic() - began_s < SLEEP_S / 2, "the command ran to its end"


def test_the_watcher_goes_with_the_command(tmp_path: Path) -> None:
    pid_file = tmp_path / "watcher"
    code = (
        "import pathlib, subprocess, sys, os;"
        "found = subprocess.run(['ps', '-o', 'pid=', '--ppid', str(os.getpid())],"
        " capture_output=True, text=True).stdout.split();"
        f"pathlib.Path({str(pid_file)!r}).write_text(found[0])"
    )
    done = subprocess.run(
        on_a_leash(os.getpid(), sys.executable, "-c", code),
        capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    watcher = int(pid_file.read_text())
    deadline_s = time.monotonic() + 20
    while _runs(watcher):
        assert time.monotonic() < deadline_s, "the watcher is still there"
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    """A process that nobody has waited for yet has ended all the same."""
    done = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return done.stdout.strip() not in ("", "Z")


def test_signals_and_exit_codes_are_the_commands_own() -> None:
    with subprocess.Popen(
        on_a_leash(os.getpid(), sys.executable, "-c", SLEEP), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == -signal.SIGTERM


@pytest.mark.parametrize("parent_pid", [1, 2**22 - 1])
def test_a_supervisor_that_is_gone_already_starts_nothing(parent_pid: int) -> None:
    done = subprocess.run(on_a_leash(parent_pid, "echo", "ran"), capture_output=True, text=True)
    assert done.stdout == ""
    assert done.returncode in (1, -signal.SIGKILL)
