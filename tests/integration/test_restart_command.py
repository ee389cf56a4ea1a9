"""What `quire restart` runs to restart a node: a command of the operator's, or a signal."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path

import pytest

from client.errors import QuireError
from ops.cli.restart import _Command, _Local
from ops.rolling import Node

pytestmark = pytest.mark.smoke

NODE = Node("bookie", "b1:3181", "b1.storage.example")


async def test_a_command_is_told_which_node(tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = tmp_path / "restart.sh"
    script.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {out}\n')
    script.chmod(0o755)
    await _Command(f"{script} {{id}} {{host}} 'pod {{name}}; exit 1'", 10)(NODE)
    assert out.read_text().splitlines() == ["b1:3181", "b1.storage.example", "pod b1; exit 1"]


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("false", "`false` failed with exit code 1; nothing after bookie b1:3181 was touched"),
        ("/no/such/program {id}", "cannot run `/no/such/program b1:3181`: No such file"),
    ],
)
async def test_a_command_that_fails_is_named(command: str, sentence: str) -> None:
    with pytest.raises(QuireError, match=sentence):
        await _Command(command, 10)(NODE)


async def test_a_command_that_hangs_is_ended() -> None:
    with pytest.raises(QuireError, match=r"`sleep 60` did not end within 0.05 s"):
        await _Command("sleep 60", 0.05)(NODE)


async def test_a_process_of_a_local_cluster_is_ended_and_waited_for(tmp_path: Path) -> None:
    pausing = (sys.executable, "-c", "import signal; signal.pause()")
    process = await asyncio.create_subprocess_exec(*pausing)
    state = {"bookies": [{"id": NODE.id, "pid": process.pid}], "brokers": []}
    (tmp_path / "cluster.json").write_text(json.dumps(state))
    await _Local(tmp_path)(NODE)
    assert await process.wait() == -signal.SIGTERM
    with pytest.raises(QuireError, match="broker 1 is not a node of the `quire up` on"):
        await _Local(tmp_path)(Node("broker", "1", "h"))
    with pytest.raises(QuireError, match="no `quire up` runs on"):
        await _Local(tmp_path / "elsewhere")(NODE)
