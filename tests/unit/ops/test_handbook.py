"""The handbook is true: its commands parse, its settings exist, its units and files are there."""

from __future__ import annotations

import re
import shlex

import click
import pytest
from kio.schema.index import api_key_map

from bookie.config import BookieConfig
from broker.config import BrokerConfig
from client.config import settings_of
from ops.cli.main import quire
from ops.cli.named_clusters import NamedCluster
from tests.integration.differential.explained import NOT_SERVED
from tests.unit.ops.deploy.files import DEPLOY, ROOT

HANDBOOK = ROOT / "ops" / "HANDBOOK.md"
PAGES = (HANDBOOK, *sorted((ROOT / "ops" / "handbook").glob("*.md")), DEPLOY / "README.md")
TEXT = "\n".join(page.read_text() for page in PAGES)
SETTINGS = {entry.key for cls in (BrokerConfig, BookieConfig) for entry in settings_of(cls)}
SETTINGS |= {key.rpartition(".")[2] for key in SETTINGS}
SETTINGS |= {*NamedCluster._fields}


def command_lines() -> list[str]:
    """Return every `quire` command line of the text, in blocks and in sentences."""
    blocks = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    lines += re.findall(r"`(quire [^`]+)`", re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL))
    lines = [re.split(r" \|\| | 2> |; do ", line.removeprefix("until "))[0] for line in lines]
    return list(dict.fromkeys(line for line in lines if line.startswith("quire ")))


def parse(command: click.Command, name: str, words: list[str]) -> None:
    """Let click judge a command line without running it. Raises click.UsageError."""
    try:
        context = command.make_context(name, list(words))
    except click.BadParameter as error:
        if "does not exist" not in error.message:  # files of the reader's machine
            raise
        return
    if isinstance(command, click.Group):
        rest = [*context._protected_args, *context.args]
        sub_name, sub, sub_words = command.resolve_command(context, rest)
        assert sub is not None and sub_name is not None
        parse(sub, sub_name, sub_words)


@pytest.mark.parametrize("line", command_lines())
def test_every_command_parses(line: str) -> None:
    parse(quire, "quire", shlex.split(line)[1:])


def test_a_command_that_is_wrong_would_be_found() -> None:
    for line in ("topic rol orders", "broker unload", "group reset audit --to latest", "doctor -x"):
        with pytest.raises((click.UsageError, AssertionError)):
            parse(quire, "quire", line.split())
    assert len(command_lines()) > 40


def test_every_setting_exists() -> None:
    words = set(re.findall(r"`([a-z]+(?:\.[a-z]+)?(?:_[a-z0-9]+)+)(?: = [^`]*)?`", TEXT))
    assert len(words) > 20
    events = {"records.not_compiled"}  # a line of the log, which the text names, too
    assert {word for word in words - SETTINGS - events if not word.startswith("quire_")} == set()


def test_every_metric_exists() -> None:
    named = set(re.findall(r"`(quire_[a-z0-9_]+)`", TEXT))
    known = (ROOT / "ops/monitoring/METRICS.md").read_text()
    assert {name for name in named if f"`{name}`" not in known} == set()


def test_units_targets_and_pages_exist() -> None:
    units = {path.name.removesuffix(".service") for path in (DEPLOY / "systemd").iterdir()}
    for line in re.findall(r"systemctl [^\"\n`]*", TEXT):
        named = [word for word in line.split() if word.startswith("quire-")]
        assert named and set(named) <= units, line
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`make ([a-z-]+)`", TEXT):
        assert f"\n{target}:" in makefile
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert (page.parent / link).exists(), link


def test_every_api_that_is_not_served_is_named() -> None:
    """In the table of them, whose rows are those that the comparison with Kafka knows of."""
    (table,) = re.findall(r"\| not served \| APIs \|.*?\n((?:\|.*\n)+)", TEXT)
    named = [name for row in table.splitlines()[1:] for name in row.split("|")[2].split(",")]
    known = [
        "".join(word.title() for word in api_key_map[key].split("_"))
        for keys in NOT_SERVED
        for key in keys
    ]
    assert sorted(name.strip() for name in named) == sorted(known)
