"""A file with a secret that everybody may read is told of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from client.config import load_program, setting
from client.file_modes import warn_of_readers


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Settings of a program."""

    port: int = setting(1, "A port.")
    token: str = setting("", "A token.", secret=True)


@pytest.mark.parametrize(("mode", "is_told"), [(0o600, 0), (0o640, 0), (0o644, 1), (0o604, 1)])
def test_only_what_others_can_read(
    mode: int, is_told: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "key.pem"
    path.touch()
    path.chmod(mode)
    warn_of_readers(path)
    assert len(caplog.records) == is_told
    assert not is_told or f"mode={mode:04o}" in caplog.text


def test_a_file_that_is_missing_is_another_matter(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_readers(tmp_path / "gone")
    warn_of_readers(None)
    assert not caplog.records


@pytest.mark.parametrize(("line", "is_told"), [("port = 2", 0), ('token = "t"', 1)])
def test_settings_count_if_a_secret_is_among_them(
    line: str, is_told: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "program.toml"
    path.write_text(line + "\n")
    path.chmod(0o644)
    argv = ["--config", str(path)]
    load_program(Program, prog="p", env_prefix="P_", argv=argv, environ={})
    assert len(caplog.records) == is_told
