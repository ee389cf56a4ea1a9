"""Settings of a registry that make no sense."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from client.errors import ConfigError
from ops.schemas.config import SchemasConfig
from ops.schemas.core.schema import Level


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"compatibility": "SOME"}, "FULL_TRANSITIVE"),
        ({"admin_tls_key": Path("key.pem")}, "must be set together"),
        ({"port": 70_000}, "port"),
        ({"schema_bytes_max": 1}, "schema_bytes_max"),
    ],
)
def test_mistakes_are_named(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        SchemasConfig(**settings)


def test_the_level() -> None:
    assert SchemasConfig().level is Level.BACKWARD
