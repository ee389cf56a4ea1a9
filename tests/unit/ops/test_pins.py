"""What a release is installed with: exact versions, hashes of all, in step with constraints.txt."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ops.docs import pins, sbom

_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
NOT_FROZEN = {"setuptools"}
"""What `pip freeze` does not name."""


def pinned(name: str) -> dict[str, list[Requirement]]:
    """Return the requirements of a file by their names; each has a hash, or this fails."""
    text = (pins.FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    found: dict[str, list[Requirement]] = {}
    lines = text.replace("\\\n", " ").splitlines()
    for line in lines:
        if line.startswith("#") or not line.strip():
            continue
        needed, _, hashes = line.partition(" --hash=")
        assert _HASH.findall("--hash=" + hashes), line
        assert not re.sub(_HASH, "", "--hash=" + hashes).strip(), line
        one = Requirement(needed)
        assert [each.operator for each in one.specifier] == ["=="] and one.url is None, line
        found.setdefault(canonicalize_name(one.name), []).append(one)
    return found


def constraints() -> dict[str, str]:
    lines = (sbom.ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if "==" in line)
    return {canonicalize_name(name): version for name, version in pairs}


@pytest.mark.parametrize("kind", pins.KINDS)
def test_versions_are_those_of_the_constraints(kind: str) -> None:
    known = constraints()
    for name, rows in pinned(kind).items():
        for row in rows:
            (version,) = (each.version for each in row.specifier)
            if name in known:
                assert version == known[name], f"{name}: run `make pins`"
            elif name not in NOT_FROZEN:
                assert row.marker is not None and not row.marker.evaluate(), (
                    f"{name} is needed here, and not in constraints.txt"
                )


@pytest.mark.parametrize("kind", pins.KINDS)
def test_everything_that_is_needed_here_is_there(kind: str) -> None:
    found = pinned(kind)
    for component in sbom.bill(pins.KINDS[kind])["components"]:
        rows = found.get(canonicalize_name(component["name"]), [])
        fitting = [row for row in rows if row.marker is None or row.marker.evaluate()]
        assert len(fitting) == 1, f"{component['name']}: run `make pins`"


@pytest.mark.parametrize("kind", pins.KINDS)
def test_no_index_is_named(kind: str) -> None:
    text = (pins.FOLDER / f"{kind}.txt").read_text(encoding="utf-8")
    assert "://" not in text and "index-url" not in text


def test_a_program_that_fails_changes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pins, "FOLDER", tmp_path / "requirements")

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 2, "", "no route to the index")

    monkeypatch.setattr(pins.subprocess, "run", run)
    assert pins.main(["uv"]) == 1
    assert "no route to the index" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    assert pins.main([]) == 2


def test_pips_index_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        assert command[0] == sys.executable
        return subprocess.CompletedProcess(command, 0, "address of pip\n", "")

    monkeypatch.setattr(pins.subprocess, "run", run)
    assert pins.same_index({})["UV_DEFAULT_INDEX"] == "address of pip"
    assert pins.same_index({"PIP_INDEX_URL": "other"})["UV_DEFAULT_INDEX"] == "other"
