"""The files that a package's README names are there."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from tests.unit.test_house import PACKAGES, ROOT, relative

READMES = [page for package in PACKAGES for page in sorted((ROOT / package).rglob("README.md"))]


def named(text: str) -> list[str]:
    """Return the modules that a page names in backticks, and those that its trees list."""
    blocks = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
    prose = blocks.sub("", text)
    trees = [body for language, body in blocks.findall(text) if not language]
    trees += re.findall(r"^    .*$", prose, re.M)
    listed = [name for tree in trees for name in re.findall(r"[\w./-]+\.py\b", tree)]
    return [*re.findall(r"`([\w./-]+\.py)`", prose), *listed]


def is_there(name: str, folder: Path) -> bool:
    """Tell whether a name is a path from the root, or the end of one below the README's folder."""
    file = name.rpartition("/")[2]
    below = (f"/{found.relative_to(folder).as_posix()}" for found in folder.rglob(file))
    return (ROOT / name).is_file() or any(path.endswith(f"/{name}") for path in below)


def missing(text: str, folder: Path) -> list[str]:
    return [name for name in dict.fromkeys(named(text)) if not is_there(name, folder)]


@pytest.mark.parametrize("page", READMES, ids=relative)
def test_every_module_that_a_readme_names_exists(page: Path) -> None:
    assert missing(page.read_text(encoding="utf-8"), page.parent) == []


def test_a_name_without_a_file_would_be_found() -> None:
    text = (
        "`segments.py` `log/segments.py` `client/log/segments.py` `gone.py` `spark/segments.py`\n"
        "```\nids.py  lost.py  what they are\n```\n\n    wire/frames.py wire/lost.py\n\n"
        "```python\nimport mine  # my_own.py\n```\nplain prose.py\n"
    )
    wrong = ["gone.py", "spark/segments.py", "lost.py", "wire/lost.py"]
    assert missing(text, ROOT / "client") == wrong


NAMED_FILE = re.compile(r"`([\w./-]*?[\w-]+\.(?:py|md|tla|sh))`")

NOT_OURS = {
    "client/pubsub/publisher.py": {"message_accumulator.py", "producer/sender.py"},
}
"""Files of other projects that are named as sources."""
NOT_READ = ("/results/", "/node_modules/", Path(__file__).name)


def strangers(texts: Mapping[str, str], known: Collection[str]) -> dict[str, set[str]]:
    """Return the files that texts name in backticks and that are not in the repository."""
    endings = {"/".join(parts[at:]) for parts in map(_parts, known) for at in range(len(parts))}
    found = {name: set(NAMED_FILE.findall(text)) - endings for name, text in texts.items()}
    return {name: missing for name, missing in found.items() if missing}


def _parts(name: str) -> list[str]:
    return name.split("/")


def test_files_that_documents_and_comments_name_exist() -> None:
    folders = (*PACKAGES, "tests", "examples")
    known = [relative(path) for folder in folders for path in (ROOT / folder).rglob("*.*")]
    known += [relative(page) for page in ROOT.glob("*.md")]
    texts = {
        name: (ROOT / name).read_text(encoding="utf-8")
        for name in known
        if name.endswith((".py", ".md")) and not any(part in name for part in NOT_READ)
    }
    assert strangers(texts, known) == NOT_OURS


def test_a_file_that_is_gone_would_be_noticed() -> None:
    texts = {"a/b.py": "see `c.py`, `a/d.py`, `x/c.py` and `e.py`"}
    assert strangers(texts, ["a/c.py", "a/d.py"]) == {"a/b.py": {"x/c.py", "e.py"}}


MAPS = ("bookie", "broker", "client", "client/pubsub", "client/spark", "ops")
"""Packages and rooms whose README lists all that is in them."""


def unlisted(text: str, folder: Path) -> list[str]:
    """Return the modules and rooms directly in a folder that its README does not name."""
    files = [path.name for path in folder.glob("*.py") if not path.name.startswith("__")]
    rooms = [f"{path.parent.name}/" for path in folder.glob("*/__init__.py")]
    return sorted(name for name in (*files, *rooms) if not re.search(rf"`[\w./]*{name}", text))


@pytest.mark.parametrize("folder", MAPS)
def test_a_map_leaves_nothing_out(folder: str) -> None:
    text = (ROOT / folder / "README.md").read_text(encoding="utf-8")
    assert unlisted(text, ROOT / folder) == []


def test_what_a_map_leaves_out_would_be_noticed() -> None:
    text = (ROOT / "client/README.md").read_text(encoding="utf-8")
    text = text.replace("`ids.py`", "").replace("`autorecovery/`", "")
    assert unlisted(text, ROOT / "client") == ["autorecovery/", "ids.py"]


def tree_of(text: str) -> dict[str, str]:
    """Return the classes of a drawn tree, each with the one that it stands below."""
    found: dict[str, str] = {}
    above: list[str] = []
    for branch, name in re.findall(r"^    ([│├└─ ]*)(\w+)", text, re.M):
        depth = len(branch) // 4
        del above[depth:]
        if above:
            found[name] = above[-1]
        above.append(name)
    return found


def test_the_tree_of_errors_is_that_of_the_classes() -> None:
    tree = ast.parse((ROOT / "client/errors.py").read_text(encoding="utf-8"))
    classes = {
        node.name: ast.unparse(node.bases[0])
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name not in ("Outcome", "QuireError")
    }
    drawn = (ast.get_docstring(tree, clean=False) or "").partition("`bookie.errors`")[0]
    assert tree_of(drawn) == classes
