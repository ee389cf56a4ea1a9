"""What systemd, kubectl and git say of our files, where they are installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from ops.bench import machine
from tests.unit.ops.deploy.files import settings
from tests.unit.ops.deploy.test_containers import KUBERNETES, environ_of
from tests.unit.ops.deploy.test_systemd import UNITS

pytestmark = pytest.mark.smoke


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_understands_every_line(path: Path, tmp_path: Path) -> None:
    checker = shutil.which("systemd-analyze")
    if checker is None:
        return
    unit = tmp_path / path.name
    text = path.read_text().replace("/opt/quire/bin/python3", "/bin/true")
    unit.write_text(text)
    if path.name.endswith("@.service"):
        unit = unit.rename(tmp_path / path.name.replace("@.", "@1."))
    done = subprocess.run(
        [checker, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    complaints = [
        line for line in done.stderr.splitlines() if str(unit) in line or unit.name in line
    ]
    assert complaints == []


def test_kubectl_builds_three_zones_that_differ_where_they_must() -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        return
    built = subprocess.run(
        [kubectl, "kustomize", str(KUBERNETES / "three-zones")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    sets = [one for one in yaml.safe_load_all(built.stdout) if one["kind"] == "StatefulSet"]
    racks = set()
    for each in sets:
        if each["metadata"]["name"] == "zookeeper":
            continue
        container = each["spec"]["template"]["spec"]["containers"][0]
        program = "broker" if "broker" in each["metadata"]["name"] else "bookie"
        found = settings(program, environ_of(container))
        racks.add((program, found.rack))
        assert each["spec"]["serviceName"] == f"quire-{program}", "names of pods stay valid"
        assert container["image"] == "quire:0.1.0"
        if program == "broker":
            assert found.ledger.racks_min == 3
    assert len(racks) == 6


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
        cwd=folder,
        check=True,
        capture_output=True,
    )


def test_writing_results_down_does_not_change_the_commit(tmp_path: Path) -> None:
    assert machine.commit(tmp_path) == "unknown"
    git(tmp_path, "init", "-q")
    (tmp_path / "code.py").write_text("1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "code")
    code = machine.commit(tmp_path)
    results = tmp_path / "ops" / "bench" / "results"
    results.mkdir(parents=True)
    (results / "produce.json").write_text("{}")
    assert machine.commit(tmp_path) == code
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "results")
    assert machine.commit(tmp_path) == code
    (tmp_path / "code.py").write_text("2")
    assert machine.commit(tmp_path) == f"{code}-dirty"
