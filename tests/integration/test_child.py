"""A child runs on its leash, logs to its file and stops in bounded time."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ops import child as child_module
from ops.child import LEASH, Child, describe_exit

pytestmark = pytest.mark.smoke


def python(tmp_path: Path, code: str) -> Child:
    return Child("probe", [sys.executable, "-c", code], log_path=tmp_path / "probe.log")


async def test_output_goes_to_the_log_and_the_end_is_described(tmp_path: Path) -> None:
    child = python(tmp_path, "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")
    assert (child.pid, child.running, child.last_lines()) == (0, False, [])
    await child.start()
    assert child.running
    assert await child.wait() == "exit code 3"
    assert not child.running
    assert sorted(child.last_lines()) == ["err", "out"]


async def test_last_lines_are_those_of_the_latest_process(tmp_path: Path) -> None:
    child = python(tmp_path, "for n in range(20): print(n)")
    for _ in range(2):
        await child.start()
        await child.wait()
    assert child.last_lines(3) == ["17", "18", "19"]
    assert len(child.last_lines(100)) == 20


async def test_a_large_log_is_set_aside(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(child_module, "LOG_BYTES_MAX", 3)
    child = python(tmp_path, "print('fresh')")
    child.log_path.write_text("old lines")
    await child.start()
    await child.wait()
    assert child.log_path.read_text() == "fresh\n"
    assert (tmp_path / "probe.log.1").read_text() == "old lines"


async def test_stopping_is_polite_first(tmp_path: Path) -> None:
    code = (
        "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(print('bye')));"
        "print('up', flush=True); signal.pause()"
    )
    child = python(tmp_path, code)
    assert await child.stop(1)  # never started: nothing to do
    await child.start()
    await _lines(child, 1)
    assert await child.stop(20)
    assert child.last_lines() == ["up", "bye"]


async def test_stopping_insists(tmp_path: Path) -> None:
    code = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "print('up', flush=True); signal.pause()"
    )
    child = python(tmp_path, code)
    await child.start()
    await _lines(child, 1)
    assert not await child.stop(0.05)
    assert await child.wait() == "SIGKILL"


async def test_a_child_is_out_of_reach_of_ctrl_c(tmp_path: Path) -> None:
    child = python(tmp_path, "import os; print(os.getpgid(0))")
    await child.start()
    await child.wait()
    assert child.last_lines() == [str(child.pid)]
    assert os.getpgid(0) != child.pid


def test_the_leash_refuses_when_the_parent_is_gone_already() -> None:
    done = subprocess.run([sys.executable, "-I", "-S", LEASH, "1", "echo", "ran"], text=True,
                          capture_output=True)  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")


def test_ends_in_words() -> None:
    assert describe_exit(0) == "exit code 0"
    assert describe_exit(-signal.SIGSEGV) == "SIGSEGV"


async def _lines(child: Child, count: int) -> None:
    async with asyncio.timeout(20):
        while len(child.last_lines()) < count:  # noqa: ASYNC110  (a file has no event)
            await asyncio.sleep(0.01)
