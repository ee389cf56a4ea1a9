"""Unit tests start no processes: one that tries to fails, and says where it belongs."""

from __future__ import annotations

import multiprocessing.process
import os
import subprocess
from typing import NoReturn

import pytest

STARTS = (
    (subprocess.Popen, "__init__"),
    (multiprocessing.process.BaseProcess, "start"),
    (os, "fork"),
    (os, "forkpty"),
    (os, "posix_spawn"),
    (os, "posix_spawnp"),
    (os, "system"),
)
"""Every way to a new process; asyncio's goes through the first."""


def refuse(*_: object, **__: object) -> NoReturn:
    """Stand in for whatever starts a process."""
    pytest.fail("a unit test starts a process: move it to tests/integration")


@pytest.fixture(autouse=True)
def _no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name in STARTS:
        monkeypatch.setattr(owner, name, refuse)
