"""The demonstration's exit code says what its page says, and evidence is kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ops.cli import demo as module
from ops.demo.cluster import ClusterError
from ops.demo.report import Report
from tests.unit.ops.demo.test_report import GOOD, make_report


def _run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, outcome: Report | Exception, *flags: str
) -> Result:
    async def tell(*_: object) -> Report:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(module, "_tell", tell)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(module.tempfile, "tempdir", str(tmp_path))
    return CliRunner().invoke(module.demo, flags)


def test_success_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = _run(monkeypatch, tmp_path, make_report())
    assert result.exit_code == 0
    assert "exactly once" in result.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("fault", ["lost", "duplicated", "out_of_order", "foreign"])
def test_every_fault_fails_and_keeps_the_evidence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: str
) -> None:
    result = _run(monkeypatch, tmp_path, make_report(replace(GOOD, **{fault: 1})))
    assert result.exit_code == 1
    assert "This is NOT right" in result.stdout
    (kept,) = tmp_path.iterdir()
    assert f"kept in {kept}" in result.stdout.replace("\n", "")


def test_json_goes_to_stdout_and_the_story_to_stderr(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    result = _run(monkeypatch, tmp_path, make_report(), "--json")
    assert json.loads(result.stdout)["good"] is True
    assert "exactly once" in result.stderr


def test_a_cluster_that_does_not_start_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    result = _run(monkeypatch, tmp_path, ClusterError("the cluster did not start: no Java"))
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == "quire: The cluster did not start: no Java."
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_without_python_files_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module.tempfile, "tempdir", str(tmp_path))
    result = CliRunner().invoke(module.demo, ["--source", str(tmp_path)])
    assert result.exit_code == 1
    assert "There are no Python files below" in result.stderr
