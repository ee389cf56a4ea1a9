"""Certificates and keys, read when a broker starts and again when they change."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from pathlib import Path

import pytest

from broker.security.config import SecurityConfig
from broker.security.listener_security import TlsFiles
from client.errors import ConfigError
from tests.fakes import certificates
from tests.fakes.broker import until
from tests.fakes.clock import FakeClock


def config_of(folder: Path) -> SecurityConfig:
    return SecurityConfig(
        listeners=("SSL://127.0.0.1:0",),
        tls_cert=folder / "cert.pem",
        tls_key=folder / "cert.key",
        tls_reload_interval_ms=100,
    )


def install(folder: Path, name: str, kinds: tuple[str, ...] = ("pem", "key")) -> None:
    for kind in kinds:
        fresh = folder / "fresh"
        shutil.copy(folder / f"{name}.{kind}", fresh)
        os.replace(fresh, folder / f"cert.{kind}")


@pytest.mark.parametrize("missing", ["cert.pem", "cert.key"])
def test_files_that_are_not_there_are_named(tmp_path: Path, missing: str) -> None:
    install(certificates.write(tmp_path), "broker")
    (tmp_path / missing).unlink()
    with pytest.raises(ConfigError, match=r"security.tls_cert .*cert.pem"):
        TlsFiles(config_of(tmp_path), FakeClock()).load()


def test_a_foreign_key_is_refused(tmp_path: Path) -> None:
    install(certificates.write(tmp_path), "broker")
    install(tmp_path, "renewed", ("key",))
    with pytest.raises(ConfigError, match="values mismatch"):
        TlsFiles(config_of(tmp_path), FakeClock()).load()


async def test_a_change_is_noticed_once_the_files_fit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    install(certificates.write(tmp_path), "broker")
    files = TlsFiles(config_of(tmp_path), FakeClock())
    files.load()
    first = files.server_context(asks_client=True)
    files.start()
    try:
        with caplog.at_level(logging.INFO):
            install(tmp_path, "renewed", ("pem",))
            await until(lambda: "tls.not_reloaded" in caplog.text)
            assert files.server_context(asks_client=True) is first
            install(tmp_path, "renewed", ("key",))
            await until(lambda: "tls.reloaded" in caplog.text)
            assert files.server_context(asks_client=True) is not first
    finally:
        await files.close()


async def test_nothing_happens_while_nothing_changes(tmp_path: Path) -> None:
    install(certificates.write(tmp_path), "broker")
    files = TlsFiles(config_of(tmp_path), FakeClock())
    files.load()
    first = files.server_context(asks_client=True)
    files.start()
    await asyncio.sleep(0.25)
    assert files.server_context(asks_client=True) is first
    await files.close()


def test_an_expiry_that_is_near_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    install(certificates.write(tmp_path), "expired")
    files = TlsFiles(config_of(tmp_path), FakeClock())
    with caplog.at_level(logging.WARNING):
        files.load()
    assert "tls.expires_soon" in caplog.text
    assert files.expires_s == 1_609_459_200
