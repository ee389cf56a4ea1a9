"""`make fuzz`: every parser in turn, guided by coverage.

    python -m tests.fuzz [--seconds 60] [--target NAME ...] [--corpus FOLDER]

Each target runs in a process of its own under atheris (libFuzzer), which keeps inputs that reach
new code. Where atheris is not installed, seeded mutations are tried instead, which is said. The
target `sockets` is a cluster of real processes, see `sockets.py`; nobody guides its mutations. The
exit code is 0 if nothing misbehaved.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.judge import Misbehaved, feed
from tests.fuzz.mutate import mutate
from tests.fuzz.targets import TARGETS, Target

SOCKETS = "sockets"


def run_mutations(target: Target, seconds: float) -> str:
    """Try mutations for a while; return what to tell. Raises Misbehaved."""
    rng = random.Random()
    end_s = time.monotonic() + seconds
    count = 0
    while time.monotonic() < end_s:
        feed(target, mutate(target.seeds, rng))
        count += 1
    return f"{count:,} mutations"


def run_guided(target: Target, seconds: float, corpus: Path) -> None:
    """Become libFuzzer; does not return."""
    import atheris

    corpus.mkdir(parents=True, exist_ok=True)
    for n, seed in enumerate(target.seeds):
        (corpus / f"seed-{n}").write_bytes(seed)
    atheris.instrument_all()
    limits = [f"-max_total_time={seconds:.0f}", "-max_len=16384", "-timeout=10"]
    findings = f"-artifact_prefix={corpus}/finding-"
    atheris.Setup(
        [sys.argv[0], *limits, "-print_final_stats=1", findings, str(corpus)],
        lambda data: feed(target, data) and None,
    )
    atheris.Fuzz()


def fuzz(target: Target, seconds: float, corpus: Path, *, is_guided: bool) -> bool:
    """Fuzz one target and say so; return whether it behaved."""
    if not is_guided:
        try:
            print(f"{target.name:22} {run_mutations(target, seconds)}", flush=True)
        except Misbehaved as error:
            print(f"{target.name:22} {error}", flush=True)
            return False
        return True
    command = [sys.executable, "-m", "tests.fuzz", "--inside", target.name]
    done = subprocess.run(
        [*command, "--seconds", str(seconds), "--corpus", str(corpus / target.name)],
        capture_output=True,
        text=True,
        check=False,
    )
    stats = dict(
        line.removeprefix("stat::").split(":", 1)
        for line in done.stderr.splitlines()
        if line.startswith("stat::")
    )
    runs = int(stats.get("number_of_executed_units", 0))
    print(f"{target.name:22} {runs:>12,} runs", flush=True)
    if done.returncode:
        print((done.stdout + done.stderr)[-3000:], flush=True)
    return done.returncode == 0


def fuzz_sockets(seconds: float) -> bool:
    """Fuzz a cluster over its sockets and say so; return whether it behaved."""
    command = [sys.executable, "-m", "tests.fuzz.sockets", "--seconds", str(seconds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    print(f"{SOCKETS:22} {done.stdout.strip()}", flush=True)
    return done.returncode == 0


def main() -> int:
    """Fuzz all, or those named."""
    parser = argparse.ArgumentParser(prog="make fuzz")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target")
    names = [*(target.name for target in TARGETS), SOCKETS]
    parser.add_argument("--target", action="append", choices=names)
    parser.add_argument("--corpus", type=Path, help="folder that keeps interesting inputs")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        target = next(t for t in TARGETS if t.name == options.inside)
        run_guided(target, options.seconds, options.corpus)
    is_guided = importlib.util.find_spec("atheris") is not None
    if not is_guided:
        print("atheris is not installed: mutations without guidance", file=sys.stderr)
    chosen = [t for t in TARGETS if not options.target or t.name in options.target]
    with tempfile.TemporaryDirectory(prefix="quire-fuzz-") as scratch:
        corpus = options.corpus or Path(scratch)
        good = [fuzz(t, options.seconds, corpus, is_guided=is_guided) for t in chosen]
    if not options.target or SOCKETS in options.target:
        good.append(fuzz_sockets(options.seconds))
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
