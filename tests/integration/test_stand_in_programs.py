"""What Quire asks other programs of the machine, with stand-ins for them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ops import ports
from ops.doctor import disk
from ops.doctor.findings import Level
from ops.doctor.spark import look

pytestmark = pytest.mark.smoke


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """Stand-ins for Pythons; `code` is how the probe for our plugin ends."""

    def make(name: str, code: int) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\nexit {code}\n")
        (tmp_path / name).chmod(0o755)

    make("python3", 1)
    make("python-with", 0)
    return tmp_path


def test_the_variable_comes_before_the_path(python: Path) -> None:
    path = f"{python}{os.pathsep}/bin"
    bare = look({"PATH": path})
    assert bare.workers_python == str(python / "python3")
    assert not bare.workers_have_quire
    assert bare.own_python == sys.executable
    told = look({"PATH": path, "PYSPARK_PYTHON": str(python / "python-with")})
    assert told.workers_python == str(python / "python-with")
    assert told.workers_have_quire


def test_this_environment_has_the_plugin() -> None:
    environ = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    environ.pop("PYTHONPATH", None)
    assert look(environ).workers_have_quire


def program(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_without_proc_lsof_names_the_taker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_PROC", tmp_path / "absent")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin")
    program(tmp_path, "lsof", '[ "$*" = "-nP -t -iTCP:9092 -sTCP:LISTEN" ] && echo 4711 && echo 9')
    program(tmp_path, "ps", "echo /opt/quire/bin/python3 -m broker --config /etc/x.toml")
    assert ports.listener(9092) == "python3 -m broker (pid 4711)"
    assert ports.listener(9093) is None


def test_without_proc_mount_says_what_is_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "mount"
    program.write_text(
        "#!/bin/sh\n"
        "echo '/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)'\n"
        "echo '/dev/disk3s5 on /System/Volumes/Data (apfs, local, journaled)'\n"
        "echo '//ann@nas/my share on /Volumes/my share (smbfs, nodev, nosuid)'\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(disk, "MOUNTS", tmp_path / "absent")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    mounts = disk.read_mounts()
    assert disk.check_file_system(Path("/System/Volumes/Data/q"), mounts).what.endswith("on apfs")
    assert disk.check_file_system(Path("/Volumes/my share/q"), mounts).level is Level.WARNING
    monkeypatch.setenv("PATH", str(tmp_path / "absent"))
    assert disk.read_mounts() == ""
    assert "unknown file system" in disk.check_file_system(Path("/q"), "").what
