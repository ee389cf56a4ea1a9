"""`quire restart`: nodes are stopped and started by a command, or as processes of `quire up`."""

from __future__ import annotations

import os
import shlex

import click
import pytest
from click.testing import CliRunner

from ops.cli.main import quire
from ops.rolling import Node

NODE = Node("bookie", "b1:3181", "b1.storage.example")


@pytest.mark.parametrize(
    "flags", ["", "--data x --broker-command y", '--broker-command "it\'s"', "--only both --data x"]
)
def test_what_makes_no_sense_is_wrong_usage(flags: str) -> None:
    words = ["restart", *(["--broker-command", "it's"] if "it's" in flags else shlex.split(flags))]
    result = CliRunner(env={**os.environ}).invoke(quire, words)
    assert result.exit_code == click.UsageError.exit_code
