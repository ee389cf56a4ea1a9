"""What the tests of the deployment files share: where they are, and how settings are checked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from bookie.config import BookieConfig
from broker.config import BrokerConfig
from client.config import load
from ops.autorecovery import AutoRecoveryProgram

ROOT = Path(__file__).resolve().parents[4]
DEPLOY = ROOT / "ops" / "deploy"

PROGRAMS: dict[str, tuple[type, str]] = {
    "broker": (BrokerConfig, "QUIRE_BROKER_"),
    "bookie": (BookieConfig, "QUIRE_BOOKIE_"),
    "ops.autorecovery": (AutoRecoveryProgram, "QUIRE_AUTORECOVERY_"),
}
"""By `python -m` name: its settings and the prefix of their variables."""

PROBES = {
    "broker": {"/healthz", "/readyz"},
    "bookie": {"/heartbeat", "/api/v1/bookie/is_ready"},
}
"""What may be asked without a token; `test_probes_exist` holds it to the servers."""


def settings(program: str, environ: Mapping[str, str], toml_path: Path | None = None) -> Any:
    """Load settings as the program does. Raises ConfigError."""
    cls, prefix = PROGRAMS[program]
    return load(cls, toml_path=toml_path, env_prefix=prefix, environ=environ)


def documents(path: Path) -> list[dict[str, Any]]:
    """Return the documents of a YAML file."""
    return [one for one in yaml.safe_load_all(path.read_text()) if one is not None]


def env_file(path: Path) -> dict[str, str]:
    """Return what systemd reads from an EnvironmentFile."""
    lines = path.read_text().splitlines()
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name: value for name, _, value in pairs}
