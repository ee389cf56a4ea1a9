"""`quire metadata backup`: what it writes holds passwords, so nobody else may read it."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from client.metadata import paths
from client.metadata.bookkeeper import init_bookkeeper, init_quire
from client.metadata.memory import MemoryCluster, MemoryStore
from ops.cli import metadata
from ops.cli.main import quire


@asynccontextmanager
async def a_cluster(_: str) -> AsyncIterator[MemoryStore]:
    store = MemoryCluster().session()
    await init_bookkeeper(store, rng=random.Random(1))
    await init_quire(store, rng=random.Random(1))
    await store.create(f"{paths.TOPICS}/orders", b"secret")
    yield store


def test_a_backup_is_its_owners_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "open_store", a_cluster)
    file = tmp_path / "cluster.backup"
    stale = tmp_path / "cluster.backup.new"
    stale.touch()  # of a run that was ended, and readable by all
    stale.chmod(0o644)
    before = os.umask(0)
    try:
        done = CliRunner().invoke(quire, ["metadata", "backup", str(file), "--zookeeper", "z:1"])
    finally:
        os.umask(before)
    assert done.exit_code == 0, done.output
    assert file.stat().st_mode & 0o777 == 0o600
    assert "orders" in file.read_text()
    assert not stale.exists()
