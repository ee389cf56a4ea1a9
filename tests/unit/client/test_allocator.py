"""Large blocks are used again instead of being fetched from the kernel each time."""

import subprocess
import sys
from pathlib import Path

ROUNDS, BLOCKS, BLOCK_BYTES = 20, 6, 2 << 20

PROGRAM = f"""
import resource
from client.allocator import keep_freed_memory

assert keep_freed_memory()
for _ in range({ROUNDS}):
    blocks = [b"x" * {BLOCK_BYTES} for _ in range({BLOCKS})]
    del blocks
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


def faults() -> int:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=Path(__file__).parents[3], capture_output=True, check=True, timeout=100,
    )  # fmt: skip
    return int(done.stdout)


def test_freed_memory_is_not_fetched_again() -> None:
    pages = BLOCKS * BLOCK_BYTES // 4096
    assert faults() < 4 * pages  # left alone, each round costs as many
