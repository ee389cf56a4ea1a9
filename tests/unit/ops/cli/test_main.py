"""The `quire` command finds its subcommands lazily and names mistakes in one sentence."""

import importlib
import os
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from client.errors import ConfigError
from ops.cli import doctor as doctor_module
from ops.cli import main as main_module
from ops.cli.main import COMMANDS, main, quire

VARIABLES = ("QUIRE_ADMIN", "QUIRE_ZOOKEEPER", "QUIRE_BOOTSTRAP", "QUIRE_CLUSTER")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_row_leads_to_a_command_with_help(name: str) -> None:
    module, _, attribute = COMMANDS[name].target.partition(":")
    command = getattr(importlib.import_module(module), attribute)
    assert isinstance(command, click.Command)
    result = CliRunner().invoke(quire, [name, "--help"])
    assert result.exit_code == 0
    assert f"Usage: quire {name}" in result.output


def test_a_mistyped_command_gets_a_suggestion() -> None:
    result = CliRunner().invoke(quire, ["prodce"])
    assert result.exit_code == 2
    assert "there is no command 'prodce'; did you mean `quire produce`?" in result.output


def test_our_errors_are_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(**_: object) -> None:
        raise ConfigError("port must be a number")

    monkeypatch.setattr(main_module, "quire", fails)
    with pytest.raises(SystemExit) as exited:
        main()
    assert exited.value.code == 1
    assert capsys.readouterr().err == "quire: Port must be a number.\n"


def test_the_version_is_the_package_version() -> None:
    result = CliRunner().invoke(quire, ["--version"])
    assert result.output.startswith("quire ")


def test_every_way_to_give_a_setting_is_config() -> None:
    for group, name in (("topic", "create"), ("topic", "alter"), ("quota", "set")):
        found = quire.get_command(click.Context(quire), group)
        assert isinstance(found, click.Group)
        options = [one for param in found.commands[name].params for one in param.opts]
        assert "--config" in options, (group, name)


@pytest.mark.parametrize("program", ["broker", "bookie"])
def test_a_node_is_run_in_place_of_the_command(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda _path, words: ran.append(words))
    file = tmp_path / "node.toml"
    file.touch()
    words = [program, "run", "--config", str(file), "--port", "0", "--rack=a"]
    assert CliRunner().invoke(quire, words).exit_code == 0
    settings = ["--config", str(file), "--port", "0", "--rack=a"]
    assert ran == [[sys.executable, "-P", "-m", program, *settings]]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--offset", "3"), "--offset needs --partition"),
        (("--partition", "3", "--group", "g"), "exclude each other"),
    ],
)
def test_what_consume_cannot_do_at_once(words: tuple[str, ...], says: str) -> None:
    result = CliRunner().invoke(quire, ["consume", "t", *words])
    assert result.exit_code == 2
    assert says in result.output


def test_the_doctor_finds_no_trouble_where_nothing_was_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor_module, "examine_machine", lambda *_: iter(()))
    monkeypatch.setattr(doctor_module.ports, "is_free", lambda _port: True)
    result = CliRunner().invoke(quire, ["doctor", "--all"], env=dict.fromkeys(VARIABLES))
    assert (result.exit_code, "TROUBLE" in result.output) == (0, False), result.output
    assert "nothing to look at" in result.output
    named = CliRunner().invoke(quire, ["doctor", "--zookeeper", "127.0.0.1:1"])
    assert (named.exit_code, "TROUBLE" in named.output) == (1, True), "what is named must be there"


def test_a_switch_that_is_on_can_be_switched_off() -> None:
    options = CliRunner().invoke(quire, ["schemas", "--help"]).output
    assert "--no-admin-metrics-open" in options
    assert "--config FILE" in options
    assert "[default: ()]" not in options
