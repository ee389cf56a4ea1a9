"""The `quire` command finds its subcommands lazily and names mistakes in one sentence."""

import importlib

import click
import pytest
from click.testing import CliRunner

from client.errors import ConfigError
from ops.cli import main as main_module
from ops.cli.main import COMMANDS, main, quire


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
