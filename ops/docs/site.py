"""Lays out the Markdown of the repository for the generator of its site: `make docs`.

A generator wants its pages in one folder; ours lie beside what they are about, where a code host
shows them. So all of them are copied under their own paths, with the files that their links name
(pictures, examples): a relative link then means the same in both places.
`tests/unit/test_documents.py` checks the links of the same pages, without the generator.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
FOLDERS: Final = ("bookie", "broker", "client", "examples", "ops", "tests")
_INSTALLED: Final = {"node_modules", "lib", "__pycache__"}
"""Folders in which tests install what others wrote."""

_BLOCK: Final = re.compile(r"^ *(`{3,}|~{3,}).*?^ *\1 *$", re.M | re.S)
_CODE: Final = re.compile(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)", re.S)
_LINK: Final = re.compile(
    r"""\]\(<?([^)\s>]+)[^)]*\)|(?:src|srcset|href)="([^"]+)"|^\[[^\]]+\]:\s+(\S+)""", re.M
)
_ELSEWHERE: Final = re.compile(r"[a-z][a-z0-9+.-]*:|//")


def pages(root: Path = ROOT) -> Iterator[Path]:
    """Yield every Markdown page of the repository."""
    yield from sorted(root.glob("*.md"))
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.md")):
            if not _INSTALLED.intersection(path.relative_to(root).parts):
                yield path


def without_blocks(text: str) -> str:
    """Return a page without its code blocks."""
    return _BLOCK.sub("", text)


def links(text: str) -> list[str]:
    """Return what the links and pictures of a page name, unless it is on another host."""
    found = ("".join(groups) for groups in _LINK.findall(_CODE.sub("", without_blocks(text))))
    return [link for link in found if not _ELSEWHERE.match(link)]


def linked_files(page: Path) -> list[Path]:
    """Return the files that the links of a page name, other than pages."""
    names = (link.partition("#")[0] for link in links(page.read_text(encoding="utf-8")))
    paths = ((page.parent / name).resolve() for name in names if name)
    return [path for path in paths if path.suffix != ".md" and path.is_file()]


def lay_out(folder: Path, root: Path = ROOT) -> int:
    """Make the folder anew, with the generator's settings and all pages; return their number."""
    shutil.rmtree(folder, ignore_errors=True)
    found = list(pages(root))
    for path in [*found, *(linked for page in found for linked in linked_files(page))]:
        place = folder / "pages" / path.relative_to(root)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
    shutil.copyfile(Path(__file__).with_name("zensical.toml"), folder / "zensical.toml")
    return len(found)


if __name__ == "__main__":
    sys.stdout.write(f"docs: {lay_out(Path(sys.argv[1]))} pages\n")
