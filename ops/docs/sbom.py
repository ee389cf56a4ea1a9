"""Writes a software bill of materials: Quire and every package that it needs here, with versions.

    python -m ops.docs.sbom FILE [EXTRA ...]

The format is CycloneDX 1.6, as JSON. What is needed is what `pyproject.toml` says, with extras that
are named; versions are those installed. A package that is needed and not installed is an error:
the list would be wrong.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement

from client.errors import ConfigError

ROOT: Final = Path(__file__).resolve().parents[2]
_ROOT: Final = "quire"
_SEPARATORS: Final = re.compile(r"[-_.]+")


def bill(extras: Sequence[str]) -> dict[str, Any]:
    """Return the document. Raises ConfigError if a package is missing."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"]]
    for extra in extras:
        if extra not in project["optional-dependencies"]:
            raise ConfigError(f"there is no extra {extra}")
        lines += project["optional-dependencies"][extra]
    found: dict[str, metadata.Distribution] = {}
    ahead = list(_requirements(lines, frozenset()))
    needs = {_ROOT: sorted({name for name, _ in ahead})}
    seen: set[tuple[str, frozenset[str]]] = set()
    while ahead:
        name, wanted = ahead.pop()
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError as error:
            raise ConfigError(f"{name} is needed and not installed here") from error
        below = list(_requirements(found[name].requires or (), wanted))
        needs[name] = sorted({*needs.get(name, ()), *(each for each, _ in below)})
        ahead += below
    root = metadata.version(_ROOT)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": _component(_ROOT, root, "application")},
        "components": [_component(name, found[name].version, "library") for name in sorted(found)],
        "dependencies": [
            {"ref": _ref(name), "dependsOn": [_ref(each) for each in needs[name]]}
            for name in sorted(needs)
        ],
    }


def _requirements(
    lines: Iterable[str], extras: frozenset[str]
) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield what a package needs on this machine, with the extras of that."""
    for line in lines:
        needed = Requirement(line)
        marker = needed.marker
        if marker is None or any(marker.evaluate({"extra": each}) for each in ("", *extras)):
            yield _SEPARATORS.sub("-", needed.name).lower(), frozenset(needed.extras)


def _ref(name: str) -> str:
    return f"pkg:pypi/{name}"


def _component(name: str, version: str, kind: str) -> dict[str, Any]:
    return {
        "type": kind,
        "bom-ref": _ref(name),
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{name}@{version}",
    }


def main() -> int:
    """Write the file; return the exit code."""
    if len(sys.argv) < 2:
        sys.stderr.write("usage: python -m ops.docs.sbom FILE [EXTRA ...]\n")
        return 2
    try:
        document = bill(sys.argv[2:])
    except ConfigError as error:
        sys.stderr.write(f"sbom: {error}\n")
        return 1
    path = Path(sys.argv[1])
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"{path}: {len(document['components'])} packages\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
