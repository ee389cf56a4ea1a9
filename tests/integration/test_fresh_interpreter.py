"""What only a fresh interpreter shows: what it imports, how it ends, its memory, its terminal."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from ops.cli import console
from ops.cli.main import COMMANDS
from tests.integration.cluster import ROOT

pytestmark = pytest.mark.smoke

ROUNDS, BLOCKS, BLOCK_BYTES = 20, 6, 2 << 20


def test_help_lists_every_command_without_importing_it() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from ops.cli.main import quire\n"
        "result = CliRunner().invoke(quire, ['--help']); print(result.output)\n"
        "heavy = {'aiokafka', 'kio', 'aiohttp', 'kazoo', 'pyspark'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy - {'aiokafka'} else result.exit_code)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name, row in COMMANDS.items():
        assert name in done.stdout
        assert row.help in done.stdout


def test_a_reader_that_goes_away_is_no_error() -> None:
    code = """
from ops.cli import console
async def work():
    while True:
        print("x" * 1000)
console.run(work())
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(20) == console.EXIT_BROKEN_PIPE
        assert process.stderr.read() == b""


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """A pseudo-terminal: our end and the program's end."""
    ours, theirs = os.openpty()
    yield ours, theirs
    os.close(ours)


def test_tables_on_a_terminal_fit_its_width(terminal: tuple[int, int]) -> None:
    ours, theirs = terminal
    code = "from ops.cli import console; console.print_table(['A', 'B'], [['x' * 60, 7]])"
    subprocess.run(
        [sys.executable, "-c", code],
        stdout=theirs,
        check=True,
        env={**os.environ, "COLUMNS": "40", "TERM": "xterm"},
    )
    os.close(theirs)
    shown = re.sub(r"\x1b\[[0-9;]*m|\r", "", os.read(ours, 10_000).decode())
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 40
    assert "".join(lines).count("x") == 60


ENDING = """
import asyncio
from client.spark.ledgers import ledger_access

async def work():
    while True:
        await asyncio.sleep(0)

access = ledger_access.shared("127.0.0.1:1", 200)
access.begin(work())
access.call(asyncio.sleep(0.01))
"""


def test_a_process_ends_quietly_whatever_its_thread_does() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDING],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=50,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


PROGRAM = f"""
import resource
from client.node.process import keep_freed_memory

assert keep_freed_memory()
for _ in range({ROUNDS}):
    blocks = [b"x" * {BLOCK_BYTES} for _ in range({BLOCKS})]
    del blocks
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


def faults() -> int:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT, capture_output=True, check=True, timeout=100,
    )  # fmt: skip
    return int(done.stdout)


def test_freed_memory_is_not_fetched_again() -> None:
    pages = BLOCKS * BLOCK_BYTES // 4096
    assert faults() < 4 * pages  # left alone, each round costs as many


SCHEDULED = """
import os, threading
from client.node.process import apply_scheduling

apply_scheduling("batch")
threads = []
thread = threading.Thread(target=lambda: threads.append(os.sched_getscheduler(0)))
thread.start()
thread.join()
print(os.sched_getscheduler(0) == threads[0] == os.SCHED_BATCH)
"""


def test_threads_that_start_later_are_scheduled_as_batch_too() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCHEDULED], cwd=ROOT, capture_output=True, check=True, timeout=100
    )
    assert done.stdout == b"True\n"
