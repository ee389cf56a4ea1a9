"""Prometheus's scrape configuration of a local cluster, which `quire up` writes at every start.

It has the ports that this cluster really uses, and with TLS the authority of their certificates.
Written as JSON, which is YAML too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

_RULES: Final = Path(__file__).resolve().parent.parent / "monitoring" / "prometheus"
_INTERVAL: Final = "15s"


def write_prometheus(path: Path, jobs: Mapping[str, Sequence[int]], ca: Path | None) -> None:
    """Write the file. `jobs`: name of a job -> admin ports; `ca`: of their certificates, if they
    speak TLS. Raises OSError."""
    tls = {} if ca is None else {"scheme": "https", "tls_config": {"ca_file": str(ca)}}
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
