"""The software bill of materials: everything that is needed, with versions, and nothing missing."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path

import pytest

from client.errors import ConfigError
from ops.docs import sbom


def test_it_names_what_is_needed_and_what_that_needs() -> None:
    found = sbom.bill(["secure"])
    versions = {each["name"]: each["version"] for each in found["components"]}
    for direct in ("kazoo", "aiohttp", "cryptography", "joserfc"):
        assert versions[direct] == metadata.version(direct)
    assert "multidict" in versions, "aiohttp needs it"
    assert "pytest" not in versions and "quire" not in versions
    needs = {row["ref"]: row["dependsOn"] for row in found["dependencies"]}
    assert "pkg:pypi/kazoo" in needs["pkg:pypi/quire"]
    assert "pkg:pypi/multidict" in needs["pkg:pypi/aiohttp"]
    assert set(needs) == {each["bom-ref"] for each in found["components"]} | {"pkg:pypi/quire"}


def test_an_extra_is_left_out_unless_it_is_named() -> None:
    assert not any(each["name"] == "joserfc" for each in sbom.bill([])["components"])


def test_what_is_missing_is_no_silent_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="no extra"):
        sbom.bill(["none"])

    def nothing(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", nothing)
    with pytest.raises(ConfigError, match="is needed and not installed"):
        sbom.bill([])


def test_the_command_writes_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "quire.cdx.json"
    monkeypatch.setattr(sys, "argv", ["sbom", str(path)])
    assert sbom.main() == 0
    assert json.loads(path.read_text())["specVersion"] == "1.6"
    monkeypatch.setattr(sys, "argv", ["sbom"])
    assert sbom.main() == 2
