"""`python -m ops.bench.load JOB '{"argument": ...}'`: one load process, driven over its stdin."""

from __future__ import annotations

import importlib
import json
import sys
from typing import Final

from ops.bench.load.channel import LoadFailed, tell

JOBS: Final = (
    "produce", "paced", "latency", "read", "failover", "requests", "pauses", "ledgers", "spark",
    "trickle", "transactions",
)  # fmt: skip


def main() -> None:
    """Run the job that the command line names."""
    job, arguments = sys.argv[1], json.loads(sys.argv[2])
    if job not in JOBS:
        raise SystemExit(f"no job is called {job}: there are {', '.join(JOBS)}")
    try:
        importlib.import_module(f"ops.bench.load.{job}").run(**arguments)
    except LoadFailed as error:
        tell("failed", why=str(error))
        raise SystemExit(1) from error


if __name__ == "__main__":
    main()
