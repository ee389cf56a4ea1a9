"""The reference pages are what the code says: nothing lacks its row, nothing named is missing."""

from __future__ import annotations

import re

import pytest

from broker.cluster.core.topic_config import TOPIC_KEYS
from broker.faults import CODES
from client.config import settings_of
from ops.cli.main import quire
from ops.docs import reference
from ops.docs.error_advice import ADVICE
from ops.docs.port_table import ports
from tests.unit.ops.test_handbook import SETTINGS

PAGES = reference.pages()
KEYS = [one.key for cls, _ in reference.PROGRAMS.values() for one in settings_of(cls)]


def test_no_page_is_left_over() -> None:
    assert {path.name for path in reference.FOLDER.iterdir()} == PAGES.keys()


@pytest.mark.parametrize("name", PAGES)
def test_pages_are_up_to_date(name: str) -> None:
    """`python -m ops.docs.reference` writes them."""
    assert (reference.FOLDER / name).read_text(encoding="utf-8") == PAGES[name]


def test_every_setting_has_its_row() -> None:
    found = re.findall(r"^\| `([a-z0-9_.]+)` \|", PAGES["SETTINGS.md"], re.M)
    assert sorted(found) == sorted(KEYS)
    assert len(found) > 350
    topics = re.findall(r"^\| `([a-z0-9.]+)` \|", PAGES["TOPIC_SETTINGS.md"], re.M)
    assert sorted(topics) == sorted(TOPIC_KEYS)


def test_every_command_has_its_section() -> None:
    known = {path for path, _, _ in reference.walk(quire, "quire")}
    headings = set(re.findall(r"^#{3,4} (quire .+)$", PAGES["COMMANDS.md"], re.M))
    assert headings == known - {"quire"}
    assert len(headings) > 80


def test_every_port_of_a_program_has_its_row() -> None:
    programs = {"Brokers": "broker", "Bookies": "bookie", "Auto recovery": "auto recovery",
                "Schema registries": "schema registry"}  # fmt: skip
    listed = {(one.of, word) for one in ports() for word in re.findall(r"`(\w+)`", one.setting)}
    for title, (cls, _) in reference.PROGRAMS.items():
        for key in (one.key for one in settings_of(cls)):
            if key.rpartition(".")[2] in ("port", "admin_port"):
                assert (programs[title], key) in listed


def test_every_error_has_its_advice() -> None:
    assert ADVICE.keys() == set(CODES.values())
    for advice in ADVICE.values():
        assert advice.endswith("."), advice


@pytest.mark.parametrize(
    "name", ["ERRORS.md", "PORTS.md", "TOPIC_SETTINGS.md", "ACLS.md", "SETTINGS.md"]
)
def test_what_a_page_names_is_there(name: str) -> None:
    words = set(re.findall(r"`([a-z]+(?:\.[a-z]+)?(?:_[a-z0-9]+)+)`", PAGES[name]))
    fields = {"member_id"}  # of a request, which the text names, too
    assert words <= SETTINGS | set(KEYS) | fields
    known = {path for path, _, _ in reference.walk(quire, "quire")}
    for line in re.findall(r"`(quire [a-z][^`]*)`", PAGES[name]):
        words_of = [word for word in line.split() if re.fullmatch(r"[a-z]+", word)]
        assert any(" ".join(words_of[:count]) in known for count in (3, 2)), line
