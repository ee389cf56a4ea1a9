"""A bookie whose Python has no plyvel says in one sentence what to install."""

from __future__ import annotations

import builtins
import importlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import bookie.storage.index.level_db
from bookie import __main__ as program
from client.errors import ConfigError
from ops.local.cluster import LocalCluster, LocalConfig, Programs


@pytest.fixture
def level_db(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module as it is where plyvel cannot be imported."""
    real = builtins.__import__

    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        if name == "plyvel":
            raise ImportError("libleveldb.so.1d: cannot open shared object file")
        return real(name, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr(builtins, "__import__", refuse)
        yield importlib.reload(bookie.storage.index.level_db)
    importlib.reload(bookie.storage.index.level_db)


def test_the_sentence_says_what_to_install(level_db: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        level_db.LevelDb(tmp_path, wipe=True, write_buffer_bytes=1 << 20, block_cache_bytes=0)
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert str(caught.value) == (
        f"a bookie needs LevelDB's package plyvel, which Python {version} here does not have"
        " (libleveldb.so.1d: cannot open shared object file): run `apt-get install g++"
        " python3-dev libleveldb-dev` (macOS: `brew install leveldb`), then `pip install"
        " plyvel`, which compiles it, or take Python 3.11 or 3.12 on Linux with x86-64,"
        " where it need not be compiled"
    )
    assert tmp_path.exists(), "nothing was wiped"


def test_a_bookie_does_not_start_without_it(
    level_db: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["bookie", f"--data-dir={tmp_path / 'data'}"])
    monkeypatch.setattr(program, "check_level_db", level_db.check_level_db)
    monkeypatch.setattr(program.logs, "start", lambda *_, **__: None)
    with caplog.at_level(logging.ERROR):
        assert program.main() == 2
    (said,) = caplog.messages
    assert said.startswith("bookie.cannot_start reason=a bookie needs LevelDB's package plyvel")
    assert not (tmp_path / "data").exists()


async def test_a_local_cluster_says_it_before_it_starts_anything(
    level_db: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ops.local.cluster.check_level_db", level_db.check_level_db)
    reporter: Any = None  # nothing is reported: nothing begins
    cluster = LocalCluster(LocalConfig(data=tmp_path / "data"), reporter, Programs())
    with pytest.raises(ConfigError, match="plyvel"):
        await cluster.start()
    await cluster.stop()
