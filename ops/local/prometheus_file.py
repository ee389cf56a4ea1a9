"""Prometheus's scrape configuration of a local cluster, which `quire up` writes at every start.

It has the ports that this cluster really uses, and with TLS the authority of their certificates.
Written as JSON, which is YAML too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ops.local.local_security import LocalSecurity  # needs a package of an extra

_RULES: Final = Path(__file__).resolve().parent.parent / "monitoring" / "prometheus"
_INTERVAL: Final = "15s"


def write_prometheus(
    path: Path, jobs: Mapping[str, Sequence[int]], security: LocalSecurity | None
) -> None:
    """Write the file. `jobs`: name of a job -> admin ports; `security`: of a secured cluster, whose
    ports speak TLS and want a token. Raises OSError."""
    tls: dict[str, Any] = {}
    if security is not None:
        tls = {
            "scheme": "https",
            "tls_config": {"ca_file": str(security.ca)},
            "authorization": {"credentials_file": str(security.metrics_token_file)},
        }
    config: dict[str, Any] = {
        "global": {"scrape_interval": _INTERVAL, "evaluation_interval": _INTERVAL},
        "rule_files": [
            str(file)
            for name in ("recording.yml", "alerts.yml")
            if (file := _RULES / name).exists()
        ],
        "scrape_configs": [
            {
                "job_name": job,
                **tls,
                "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in ports]}],
            }
            for job, ports in jobs.items()
        ],
    }
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
