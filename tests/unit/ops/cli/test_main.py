"""The `quire` command finds its subcommands lazily and names mistakes in one sentence."""

import importlib
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from client.errors import ConfigError
from ops.cli import main as main_module
from ops.cli.main import COMMANDS, main, quire


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
