"""The `quire` command against a real cluster: every help text, every example in it, and errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import click
import pytest

from ops.cli.main import COMMANDS, quire
from ops.ports import pick_free
from tests.integration.cluster import ROOT, LocalCluster

NOT_HERE = {"up", "demo"}
"""Commands that start a cluster of their own; they have tests of their own."""

FOR_DEAD_BOOKIES = {"bookie", "bookie decommission", "bookie recover"}
"""Commands that need a bookie which is gone; tests/unit/ops/cli/test_autorecovery.py has one."""


class Shell:
    """Runs command lines as a person would, with `quire` on the PATH."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self.folder = folder
        script = folder / "bin" / "quire"
        script.parent.mkdir()
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ops.cli.main "$@"\n')
        script.chmod(0o755)
        self.environ = {
            **os.environ,
            "PATH": f"{script.parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            **environ,
        }

    def run(self, line: str, text: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/bash", "-o", "pipefail", "-c", line],
            cwd=self.folder,
            env=self.environ,
            input=text,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def ok(self, line: str, text: str = "") -> str:
        done = self.run(line, text)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def fails(self, line: str, text: str = "") -> str:
        """Run a line that must fail with one sentence; return the sentence."""
        done = self.run(line, text)
        assert done.returncode == 1, f"{line}\n{done.stdout}\n{done.stderr}"
        sentence = done.stderr.strip().splitlines()[-1]
        assert sentence.startswith("quire: ")
        assert "Traceback" not in done.stderr
        return sentence

    @contextmanager
    def start(self, line: str) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(
            ["/bin/bash", "-c", f"exec {line}"],
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # In the background Ctrl-C may be ignored for us, but never for a person's command.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as process:
            try:
                yield process
            finally:
                process.kill()  # a failed test does not wait for it


@pytest.fixture
def shell(cluster: LocalCluster, tmp_path: Path) -> Shell:
    return Shell(
        tmp_path,
        {"QUIRE_BOOTSTRAP": cluster.bootstrap_servers, "QUIRE_ZOOKEEPER": cluster.zookeeper},
    )


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Yield every command with its full name: "topic", "topic create", ..."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield " ".join([*path, name]), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


ALL = dict(commands(quire))


def examples(name: str) -> list[str]:
    """Return the command lines that a command's help shows, continuation lines joined."""
    text = (ALL[name].help or "").replace("\b", "").replace("\\\n", " ")
    lines = (" ".join(line.split()) for line in text.splitlines())
    return [line for line in lines if line.startswith(("quire ", "echo "))]


@pytest.mark.parametrize("name", ALL)
def test_every_command_has_help_with_an_example(name: str, tmp_path: Path) -> None:
    shell = Shell(tmp_path, {"COLUMNS": "80"})
    text = shell.ok(f"quire {name} --help")
    assert text.startswith(f"Usage: quire {name} ")
    assert all(len(line) <= 80 for line in text.splitlines())
    if name not in NOT_HERE:
        assert examples(name), "the help shows no example"


def test_the_table_of_commands_is_complete(tmp_path: Path) -> None:
    text = Shell(tmp_path, {}).ok("quire --help")
    for name, row in COMMANDS.items():
        assert name in text
        assert row.help in text


def test_the_examples_of_all_help_texts_work(shell: Shell) -> None:
    (shell.folder / "passwd.txt").write_text("".join(f"user{n}:secret{n}\n" for n in range(12)))
    order = [
        "topic create",
        "produce",
        "consume",
        "topic list",
        "topic describe",
        "topic",
        "ledger",
        "ledger list",
        "ledger describe",
        "topic delete",
        "autorecovery disable",
        "autorecovery enable",
        "autorecovery trigger",
        "autorecovery status",
        "autorecovery",
    ]
    assert {name for name in ALL if name not in NOT_HERE | FOR_DEAD_BOOKIES} == set(order)
    shell.ok("quire topic create orders --partitions 3")
    for name in order:
        for example in examples(name):
            example = example.replace("greetings", "cli-greetings")
            if example.startswith("quire topic create orders"):
                example += " --if-not-exists"
            if "quire consume" in example:
                example += " --timeout 5"
            if "quire topic delete" in example:
                example += " --yes"
            if "quire ledger describe" in example:
                example = f"quire ledger describe {_some_ledger(shell, 'orders')}"
            shell.ok(example)


def _some_ledger(shell: Shell, topic: str) -> int:
    ledgers = json.loads(shell.ok(f"quire ledger list --topic {topic} --json"))
    return int(ledgers[0]["ledger"])


def test_topics_from_birth_to_death(shell: Shell) -> None:
    name = "cli-life"
    assert shell.ok(f"quire topic create {name} --partitions 3") == (
        f"Topic {name} is ready with 3 partitions.\n"
    )
    assert "exists already" in shell.fails(f"quire topic create {name}")
    assert name in shell.ok("quire topic list")
    shell.ok(f"quire produce {name} --partition 1", "one\ntwo\n")
    described = json.loads(shell.ok(f"quire topic describe {name} --json"))
    assert [p["log_end_offset"] for p in described["partitions"]] == [0, 2, 0]
    assert all(p["leader"] in (0, 1) for p in described["partitions"])
    rows = shell.ok(f"quire topic describe {name}").splitlines()
    assert rows[0].split() == ["PARTITION", "LEADER", "START", "END", "RECORDS"]
    assert rows[2].split()[2:] == ["0", "2", "2"]
    assert "add --yes" in shell.fails(f"quire topic delete {name}")
    shell.ok(f"quire topic delete {name} --yes")
    assert "there is no topic" in shell.fails(f"quire topic describe {name}").lower()
    assert name not in shell.ok("quire topic list")


def test_lines_go_in_and_come_out_unchanged(shell: Shell) -> None:
    name = "cli-lines"
    shell.ok(f"quire topic create {name} --partitions 1")
    content = b"plain\n\nwith:colons:in\r\n\xff\xfe not UTF-8\nno line feed at the end"
    (shell.folder / "input").write_bytes(content)
    summary = json.loads(shell.ok(f"quire produce {name} input --json"))
    assert summary["records"] == 5
    assert summary["offsets"] == {"0": {"first": 0, "last": 4}}
    shell.ok(f"quire consume {name} --from-beginning --max 5 > output")
    assert (shell.folder / "output").read_bytes() == content + b"\n"
    records = [
        json.loads(line)
        for line in shell.ok(f"quire consume {name} --from-beginning --max 5 --json").splitlines()
    ]
    assert [r["offset"] for r in records] == [0, 1, 2, 3, 4]
    assert records[0]["value"] == "plain"
    assert records[3]["value"] == {"base64": "//4gbm90IFVURi04"}


def test_a_group_goes_on_where_it_stopped(shell: Shell) -> None:
    name = "cli-group"
    shell.ok(f"quire topic create {name} --partitions 2")
    shell.ok(f"quire produce {name} --key-separator :", "".join(f"k{n}:v{n}\n" for n in range(20)))
    read = f"quire consume {name} --group g --from-beginning --key-separator :"
    first = shell.ok(f"{read} --max 8").splitlines()
    rest = shell.ok(f"{read} --timeout 4").splitlines()
    assert len(first) == 8
    assert sorted(first + rest) == sorted(f"k{n}:v{n}" for n in range(20))
    assert shell.fails(f"{read} --max 1 --timeout 1").startswith("quire: Only 0 of 1 records came")


def test_ledgers(shell: Shell) -> None:
    name = "cli-ledgers"
    shell.ok(f"quire topic create {name} --partitions 1")
    shell.ok(f"quire produce {name}", "x\n")
    ledger_id = _some_ledger(shell, name)
    described = json.loads(shell.ok(f"quire ledger describe {ledger_id} --json"))
    assert described["state"] == "OPEN"
    assert described["partition"]["topic"] == name
    assert described["last_entry"] is not None
    assert set(described["bookies"].values()) == {"up"}
    text = shell.ok(f"quire ledger describe {ledger_id}")
    assert f"topic {name}, partition 0, segment 1 of 1" in text
    assert "there is no ledger" in shell.fails("quire ledger describe 999999").lower()


def test_errors_are_one_sentence_that_says_what_to_do(shell: Shell) -> None:
    port = pick_free(1)[0]
    nobody = f"--bootstrap-server localhost:{port}"
    for line in (
        f"quire topic list {nobody}",
        f"quire produce t {nobody}",
        f"quire consume t {nobody}",
    ):
        assert shell.fails(line) == (
            f"quire: Nothing listens at localhost:{port}. Start a cluster with `quire up`, "
            "or give its address with --bootstrap-server HOST:PORT."
        )
    assert shell.fails(f"quire ledger list --zookeeper localhost:{port}") == (
        f"quire: No ZooKeeper server answers at localhost:{port} (waited 5 s). Start a cluster "
        "with `quire up`, or give the address with --zookeeper HOST:PORT."
    )
    assert "`quire topic create`" in shell.fails("quire consume cli-no-such-topic")
    (shell.folder / "large").write_bytes(bytes(1_048_000))
    assert shell.fails("quire produce cli-errors large") == (
        "quire: A record of 1,048,000 bytes is larger than the limit of 1,047,552 bytes."
    )
    assert "host:port" in shell.fails("quire topic list --bootstrap-server localhost:x")
    sentence = shell.fails("quire produce cli-errors --key-separator :", "a:1\nb2\n")
    assert "line 2" in sentence
    assert "stored before it: 1 record" in sentence
    assert shell.run("quire produce").returncode == 2
    assert shell.run("quire produce t /no/such/file").returncode == 2


def test_a_broken_pipe_and_ctrl_c_are_quiet(shell: Shell) -> None:
    name = "cli-quiet"
    shell.ok(f"quire topic create {name} --partitions 1")
    shell.ok(f"seq 200000 | quire produce {name}")
    done = shell.run(f"quire consume {name} --from-beginning | head -n 1")
    assert (done.returncode, done.stdout, done.stderr) == (141, "1\n", "")

    with shell.start(f"quire consume {name} --from-beginning") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "1\n"
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(20) == 130
        assert process.stderr.read() == ""


def test_typed_lines_are_published_at_once(shell: Shell, cluster: LocalCluster) -> None:
    name = "cli-typed"
    shell.ok(f"quire topic create {name} --partitions 1")
    with shell.start(f"quire produce {name}") as process:
        assert process.stdin is not None
        process.stdin.write("early\n")
        process.stdin.flush()
        assert shell.ok(f"quire consume {name} --from-beginning --max 1") == "early\n"
        process.stdin.close()
        assert process.wait(20) == 0


@pytest.mark.timeout(300)
def test_the_demonstration_loses_nothing(tmp_path: Path) -> None:
    """The same run as `quire demo`, on a part of the standard library."""
    source = Path(os.__file__).parent / "asyncio"
    shell = Shell(tmp_path, {"TMPDIR": str(tmp_path)})
    with shell.start(f"quire demo --json --source {source}") as process:
        out, shown = process.communicate(timeout=240)
    assert process.returncode == 0, shown
    report = json.loads(out)
    assert report["good"] is True
    verdict = report["verdict"]
    assert verdict["published"] == verdict["acknowledged"] == verdict["received"] > 10_000
    assert verdict["files_identical"] == verdict["files"] > 20
    assert report["led_by_killed"]
    assert "kill -9 bookie" in shown
    assert not list(tmp_path.glob("quire-demo*")), "the scratch folder is not removed"
