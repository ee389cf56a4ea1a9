"""Checks whether a Spark job that is started from here finds the format `quire`.

Spark looks for data sources in Python processes that it starts itself: with PYSPARK_PYTHON, else
with the `python3` of the PATH, even if the job runs in the Python of a virtual environment.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import Final, NamedTuple

from ops.doctor.findings import Finding, fine, warning

VARIABLE: Final = "PYSPARK_PYTHON"
_DEFAULT: Final = "python3"
_PLUGIN: Final = "pyspark_quire"
_NEEDED: Final = ("pyspark", "numpy", "pyarrow")
_PROBE: Final = f"import importlib.util as u, sys; sys.exit(u.find_spec({_PLUGIN!r}) is None)"
_PROBE_TIMEOUT_S: Final = 10.0


class SparkFacts(NamedTuple):
    """What matters for a job that is started with this Python."""

    own_python: str
    """The Python that runs this."""
    missing: tuple[str, ...]
    """Packages of extra `spark` that it does not have."""
    workers_python: str
    """What Spark starts: a command or a path."""
    workers_have_quire: bool


def look(environ: Mapping[str, str] = os.environ) -> SparkFacts:
    """Gather the facts; starts the Python that Spark would start."""
    missing = tuple(name for name in _NEEDED if importlib.util.find_spec(name) is None)
    workers = environ.get(VARIABLE) or _DEFAULT
    path = shutil.which(workers, path=environ.get("PATH"))
    return SparkFacts(
        own_python=sys.executable,
        missing=missing,
        workers_python=path or workers,
        workers_have_quire=path is not None and _has_quire(path, environ),
    )


def _has_quire(python: str, environ: Mapping[str, str]) -> bool:
    try:
        done = subprocess.run(  # noqa: S603  (the Python that the user has chosen)
            [python, "-c", _PROBE],
            cwd=os.sep,
            env=dict(environ),
            capture_output=True,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def check_spark(facts: SparkFacts) -> list[Finding]:
    """Nothing is wrong where no job can be started: PySpark alone is there for its ZooKeeper."""
    if "pyspark" in facts.missing:
        return []
    if facts.missing:
        return [
            fine(
                "spark",
                f"no Spark job reads topics from here without {' and '.join(facts.missing)}:"
                " for that, `pip install pyspark pyarrow numpy`",
            )
        ]
    if not facts.workers_have_quire:
        return [
            warning(
                "spark",
                f"Spark would start {facts.workers_python}, which does not have Quire: a job fails"
                " with `Failed to find the data source: quire`",
                f"Start jobs with {VARIABLE}={facts.own_python}, or activate its environment.",
            )
        ]
    return [fine("spark", f"Spark starts {facts.workers_python}, which has Quire")]
