"""Finds the clients that are not Python packages; says how to install one that is missing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

HERE = Path(__file__).parent
INSTALL = "run `make clients` (or tests/integration/clients/install.sh) to install it"


def command(name: str) -> str:
    """Return the path of a program; fail with a clear message if it is not there."""
    path = shutil.which(name)
    if path is None:
        pytest.fail(f"{name} is not installed: {INSTALL}")
    return path


def folder(relative: str) -> Path:
    """Return a folder that install.sh fills; fail with a clear message if it did not."""
    path = HERE / relative
    if not path.is_dir():
        pytest.fail(f"{path} is not there: {INSTALL}")
    return path
