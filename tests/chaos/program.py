"""The frame of the chaos programs: command line, campaign, report, verdict.

A program has a run of its own and says when its report counts as failed; those about one thing each
have a `ClusterRun`.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from tests.chaos.campaign import Campaign, Plan, Unavailable
from tests.chaos.clients import ClientProcesses
from tests.chaos.cluster import ChaosCluster
from tests.chaos.faults import Strike
from tests.chaos.judges.checkers import Anomaly
from tests.chaos.judges.hangs import Hang

Report = dict[str, Any]


class Reporting(Protocol):
    """A run that has been set up."""

    def run(self) -> Report:
        """Let it run; return the report, in which `anomalies` is a list of `Anomaly`."""
        ...


class ClusterRun(ABC):
    """A cluster and its clients under one plan of faults. Use as a context manager."""

    def __init__(self, plan: Plan, cluster: ChaosCluster, clients: ClientProcesses) -> None:
        self._plan = plan
        self._cluster = cluster
        self._clients = clients
        self._began_s = time.monotonic()

    def __enter__(self) -> ClusterRun:
        return self

    def __exit__(self, *error: object) -> None:
        for client in self._clients.all:
            client.node.resume()
            client.node.kill()
        self._cluster.stop()

    @abstractmethod
    def run(self) -> Report:
        """Return the report."""

    @abstractmethod
    def _finish(self, campaign: Campaign) -> Report:
        """Heal, let the clients get to the end, and return figures."""

    def _strike(self, armed: Mapping[str, Callable[[], Strike | None]]) -> Report:
        """Let the campaign and what follows it run; return what every report has, and figures.

        `anomalies` is a list of `Anomaly`, to which the program adds its own.
        """
        campaign = Campaign(
            self._plan,
            dict(armed),
            self._cluster,
            self._clients,
            self._say,  # type: ignore[arg-type]
        )
        figures: Report = {}
        anomalies: list[Anomaly] = []
        try:
            campaign.run()
            figures = self._finish(campaign)
        except (Unavailable, AssertionError) as error:
            anomalies.append(Anomaly("unavailable", str(error)))
            self._clients.say_where()
        hung = self._clients.hung()
        anomalies += unexplained(hung)
        return {
            "seed": self._plan.seed,
            "seconds": round(time.monotonic() - self._began_s, 1),
            "faults": campaign.counts.total(),
            "by_class": dict(sorted(campaign.counts.items())),
            "without_victim": dict(sorted(campaign.missed.items())),
            "clients_restarted": self._clients.restarts,
            "clients_hung": len(hung),
            **figures,
            "anomalies": [*anomalies, *figures.get("anomalies", ())],
        }

    def _say(self, text: str) -> None:
        print(f"{time.monotonic() - self._began_s:7.1f} s  {text}", file=sys.stderr, flush=True)


def unexplained(hung: Iterable[tuple[str, Hang]]) -> list[Anomaly]:
    """Return an anomaly for each call that hung, of a client by name, but for the known defect."""
    return [
        Anomaly("client-hung", f"{name}: {hang.call or 'a call'} did not return")
        for name, hang in hung
        if not hang.is_known
    ]


def options_of(prog: str, about: str | None, minutes: float = 10.0) -> argparse.ArgumentParser:
    """Return a parser of the flags that all programs have; `minutes`: how long by default."""
    parser = argparse.ArgumentParser(prog=prog, description=(about or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=minutes)
    parser.add_argument("--every-s", type=float, default=3.0, help="mean time between faults")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--faults-min", type=int, default=0, help="fail if there were fewer")
    parser.add_argument("--out", type=Path, help="keep logs and notes in this new folder")
    return parser


def shortcomings(report: Report, faults_min: int) -> list[str]:
    """Return, in words, why any run would count as failed; empty: it does not."""
    found = [f"{each['name']}: {each['text']}" for each in report["anomalies"]]
    if report["faults"] < faults_min:
        found.append(f"only {report['faults']} faults, not {faults_min}")
    return found


def show_json(report: Report) -> None:
    """Print a report for programs."""
    print(json.dumps(report, indent=1))


def run_and_judge(
    make: Callable[[Plan, Path], AbstractContextManager[Reporting]],
    options: argparse.Namespace,
    failures: Callable[[Report], list[str]],
    *,
    strikes: int = 0,
    show: Callable[[Report], None] = show_json,
) -> int:
    """Make a run, show its report and what it failed by; return the exit code.

    `strikes`: see `Plan`.
    """
    print(f"chaos: seed {options.seed}", file=sys.stderr)
    folder = options.out or Path(tempfile.mkdtemp(prefix="quire-chaos-"))
    folder.mkdir(parents=True, exist_ok=options.out is None)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # processes and mounts must not stay
    plan = Plan(options.seed, options.every_s, options.minutes * 60, strikes)
    with make(plan, folder) as run:
        report = run.run()
    report["anomalies"] = [anomaly._asdict() for anomaly in report["anomalies"]]
    show(report)
    found = failures(report)
    for failure in found:
        print(f"FAILED {failure}")
    if found:
        print(f"logs and notes are in {folder}")
    elif options.out is None:
        shutil.rmtree(folder)
    return 1 if found else 0
