"""Command lines of a person, run as such, against a cluster of a test."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager
from pathlib import Path

from click.testing import CliRunner

from ops.cli.main import quire
from tests.integration.cluster import ROOT, LocalCluster

_STREAMS = ("produce", "consume")
"""Commands that use the file descriptors of their process."""


class Shell:
    """Runs command lines as a person would, with `quire` on the PATH."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self.folder = folder
        script = folder / "bin" / "quire"
        script.parent.mkdir()
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ops.cli.main "$@"\n')
        script.chmod(0o755)
        self.environ = {
            **os.environ,
            "PATH": f"{script.parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            **environ,
        }

    def run(self, line: str, text: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/bash", "-o", "pipefail", "-c", line],
            cwd=self.folder,
            env=self.environ,
            input=text,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def ok(self, line: str, text: str = "") -> str:
        done = self.run(line, text)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def quick(self, line: str, text: str = "") -> str:
        """Like `ok`, in this process if it is one plain `quire` command: that is much faster."""
        words = line.split()
        if words[0] != "quire" or words[1] in _STREAMS or any(sign in line for sign in "|<>;`$"):
            return self.ok(line, text)
        with chdir(self.folder):
            done = CliRunner(env=self.environ).invoke(quire, shlex.split(line)[1:], input=text)
        assert done.exit_code == 0, f"{line}\n{done.output}\n{done.exception!r}"
        return done.stdout

    def fails(self, line: str, text: str = "") -> str:
        """Run a line that must fail with one sentence; return the sentence."""
        done = self.run(line, text)
        assert done.returncode == 1, f"{line}\n{done.stdout}\n{done.stderr}"
        sentence = done.stderr.strip().splitlines()[-1]
        assert sentence.startswith("quire: ")
        assert "Traceback" not in done.stderr
        return sentence

    @contextmanager
    def start(self, line: str) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(
            ["/bin/bash", "-c", f"exec {line}"],
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # In the background Ctrl-C may be ignored for us, but never for a person's command.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as process:
            try:
                yield process
            finally:
                process.kill()  # a failed test does not wait for it


def shell_for(cluster: LocalCluster, folder: Path) -> Shell:
    """Return a shell whose environment leads to the cluster."""
    admin = ",".join(f"http://127.0.0.1:{node['admin']}" for node in cluster.about["brokers"])
    return Shell(
        folder,
        {
            "QUIRE_BOOTSTRAP": cluster.bootstrap_servers,
            "QUIRE_ZOOKEEPER": cluster.zookeeper,
            "QUIRE_ADMIN": admin,
        },
    )
