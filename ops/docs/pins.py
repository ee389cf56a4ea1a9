"""Writes what a release is installed with: the versions of constraints.txt and the files' hashes.

    python -m ops.docs.pins UV

makes `ops/deploy/requirements/*.txt`, one file for each kind of machine, with every package that
Quire and the extras of that kind need on any system and Python that it runs on. `pip install
--require-hashes -r FILE` takes nothing else. `UV` is the program of that name, which asks the index
that pip uses. What this machine does not need stands in no `constraints.txt`: of such a package the
newest version is taken.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Final

from ops.docs.sbom import ROOT

FOLDER: Final = ROOT / "ops" / "deploy" / "requirements"
KINDS: Final[Mapping[str, Sequence[str]]] = {
    "servers": ("bookie", "secure", "schemas"),
    "spark": ("spark",),
}
"""Name of the file -> extras."""
_OLDEST: Final = "3.11"
_HEAD: Final = "# Made by `make pins`: pip install --require-hashes -r {name}.txt\n"


class PinsFailed(Exception):
    """The versions could not be looked up; the message says why."""


def pin(uv: str, extras: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return the lines for Quire with some extras. Raises PinsFailed."""
    command = [
        *(uv, "pip", "compile", "pyproject.toml", "--quiet", "--universal", "--no-header"),
        *("--no-annotate", "--generate-hashes", "--python-version", _OLDEST),
        *("--constraint", "constraints.txt", *(f"--extra={extra}" for extra in extras)),
    ]
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(  # noqa: S603  (what the Makefile names, with fixed arguments)
            [*command, "--cache-dir", cache], cwd=ROOT, env=dict(environ), capture_output=True,
            text=True, check=False,
        )  # fmt: skip
    if done.returncode:
        raise PinsFailed(f"{uv} could not pin {', '.join(extras)}: {done.stderr.strip()[-1000:]}")
    return done.stdout


def same_index(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with the index that pip is set to, if it is set to one."""
    asked = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False)  # noqa: S603
    index = environ.get("PIP_INDEX_URL") or found.stdout.strip()
    return {**environ, **({"UV_DEFAULT_INDEX": index} if index else {})}


def main(arguments: Sequence[str]) -> int:
    """Write the files; return the exit code."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m ops.docs.pins UV\n")
        return 2
    environ = same_index(os.environ)
    try:
        made = {name: pin(arguments[0], extras, environ) for name, extras in KINDS.items()}
    except (PinsFailed, OSError) as error:
        sys.stderr.write(f"pins: {error}\n")
        return 1
    for name, lines in made.items():
        path = FOLDER / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_HEAD.format(name=name) + lines, encoding="utf-8")
        sys.stdout.write(f"{path.relative_to(ROOT)}: {lines.count('==')} packages\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
