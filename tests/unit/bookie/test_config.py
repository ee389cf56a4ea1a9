"""Settings: defaults hold, relations are checked, the advertised host is found."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from bookie.access_config import AccessConfig
from bookie.config import BookieConfig
from client.config import load_program, reference
from client.errors import ConfigError


def test_only_the_data_directory_is_required(tmp_path: Path) -> None:
    config = BookieConfig(data_dir=tmp_path)
    assert (config.port, config.admin_port, config.zookeeper) == (3181, None, ("127.0.0.1:2181",))
    with pytest.raises(ConfigError, match="data_dir"):
        load_program(BookieConfig, prog="bookie", env_prefix="X_", argv=[], environ={})


def test_flags_reach_the_fields(tmp_path: Path) -> None:
    argv = ["--data-dir", str(tmp_path), "--port", "0", "--zookeeper", "a:1,b:2"]
    resolved = load_program(
        BookieConfig, prog="bookie", env_prefix="X_", argv=argv, environ={"X_ADMIN_PORT": "8080"}
    )
    config = resolved.config
    assert (config.data_dir, config.port, config.admin_port) == (tmp_path, 0, 8080)
    assert config.zookeeper == ("a:1", "b:2")


@pytest.mark.parametrize(
    ("host", "advertised", "expected"),
    [
        ("0.0.0.0", None, "127.0.0.1"),
        ("10.0.0.7", None, "10.0.0.7"),
        ("0.0.0.0", "bookie-1.example", "bookie-1.example"),
    ],
)
def test_client_host(tmp_path: Path, host: str, advertised: str | None, expected: str) -> None:
    config = BookieConfig(data_dir=tmp_path, host=host, advertised_host=advertised)
    assert config.client_host() == expected


def test_nobody_else_reaches_a_bookie_unless_it_is_told_so(tmp_path: Path) -> None:
    assert BookieConfig(data_dir=tmp_path).host == "127.0.0.1"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "set access.tls"),
        ({"tls": "offered"}, "set access.tls"),
        ({"tls": "required"}, "tls_client_auth"),
        ({"tls": "required", "tls_client_auth": "required"}, ""),
    ],
)
def test_a_port_that_asks_nobody_says_so(settings: dict[str, Any], says: str) -> None:
    found = AccessConfig(**settings).open_reason()
    assert says in found
    assert bool(found) is bool(says)


@pytest.mark.parametrize(
    "wrong",
    [
        {"port": 65536},
        {"admin_port": -1},
        {"frame_bytes_max": 1 << 30},
        {"pending_bytes_max": 1 << 30},
        {"reader_threads": 0},
    ],
)
def test_impossible_values_are_refused(tmp_path: Path, wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        BookieConfig(data_dir=tmp_path, **wrong)


def test_every_setting_is_explained() -> None:
    for row in reference(BookieConfig, env_prefix="QUIRE_BOOKIE_").splitlines()[2:]:
        assert re.split(r"(?<!\\)\|", row)[5].strip().endswith("."), row
