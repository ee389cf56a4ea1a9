"""Asks Avro's Java library, which comes with PySpark, what it says about schemas."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ops.java import find_java

_PROGRAM = Path(__file__).with_name("Judge.java")
_JARS = ("avro-1", "jackson-core-2", "jackson-databind-2", "jackson-annotations-2", "slf4j-api-2")


def printed(schemas: Sequence[Any]) -> list[str]:
    """Return each schema as Java prints it, or "!" and what is wrong with it."""
    return _ask([f"print\t{json.dumps(one)}" for one in schemas])


def reads(pairs: Sequence[tuple[Any, Any]]) -> list[str]:
    """Return COMPATIBLE or INCOMPATIBLE for each reader and writer, or "!" and an error."""
    return _ask([f"reads\t{json.dumps(reader)}\t{json.dumps(writer)}" for reader, writer in pairs])


def _ask(questions: Sequence[str]) -> list[str]:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    folder = Path(spec.origin).parent / "jars"
    jars = [str(jar) for prefix in _JARS for jar in sorted(folder.glob(f"{prefix}*.jar"))]
    done = subprocess.run(
        [find_java().path, "-cp", os.pathsep.join(jars), _PROGRAM],
        input="\n".join(questions) + "\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    answers = done.stdout.splitlines()
    assert len(answers) == len(questions), done.stderr
    return answers
