"""`quire restart`: nodes are stopped and started by a command, or as processes of `quire up`."""

from __future__ import annotations

import os
import shlex

import click
import pytest
from click.testing import CliRunner

from client.errors import QuireError
from ops.cli.main import quire
from ops.cli.restart import _filled
from ops.rolling import Node

NODE = Node("bookie", "b1:3181", "b1.storage.example")


@pytest.mark.parametrize(
    "flags", ["", "--data x --broker-command y", '--broker-command "it\'s"', "--only both --data x"]
)
def test_what_makes_no_sense_is_wrong_usage(flags: str) -> None:
    words = ["restart", *(["--broker-command", "it's"] if "it's" in flags else shlex.split(flags))]
    result = CliRunner(env={**os.environ}).invoke(quire, words)
    assert result.exit_code == click.UsageError.exit_code


@pytest.mark.parametrize(
    "node",
    [
        Node("broker", "1", "-oProxyCommand=touch x"),
        Node("broker", "1", "b1 -oProxyCommand=x"),
        Node("broker", "1", "b1;touch x"),
        Node("broker", "1", ""),
        Node("broker", "1", "-F.example.org"),
        Node("bookie", "--help", "b1"),
        Node("bookie", "b1\n", "b1"),
    ],
)
def test_what_a_node_calls_itself_is_no_option_of_the_command(node: Node) -> None:
    with pytest.raises(QuireError, match="is no name for a command line"):
        [_filled(word, node) for word in ("{id}", "{host}", "{name}")]


@pytest.mark.parametrize("host", ["b1", "b_1.x.org", "10.0.0.1", "::1", "fe80::1%eth0", "[::1]"])
def test_what_nodes_are_called(host: str) -> None:
    assert _filled("root@{host}", Node("broker", "1", host)) == f"root@{host}"


def test_what_the_command_does_not_ask_for_may_be_anything() -> None:
    assert _filled("{id}", Node("broker", "1", "-odd")) == "1"
