"""The files that a package's README names are there."""

from __future__ import annotations

import re
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
