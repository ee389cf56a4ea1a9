"""`make chaos`: faults every few seconds on a cluster under load, then the verdict.

    python -m tests.chaos [--minutes 30] [--every-s 3] [--seed N] [--per-s 200] [--out FOLDER]
    python -m tests.chaos --only power_loss --strikes 20
    python -m tests.chaos --only full_disk_power_loss --strikes 3

Producers and consumers of three code bases work on a topic of six partitions while a seeded plan
strikes. Operators delete topics and make them anew, and change settings and rights, at all brokers
(`administration.py`), and ZooKeeper servers lag (`lagging_servers.py`). At the end everything is
healed, the log is read back by librdkafka, and the history of all clients is checked. The exit code
is 0 if there is no anomaly, everything was readable in time, and there were as many faults as were
asked for.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.campaign import Plan
from tests.chaos.faults import CLASSES
from tests.chaos.program import Report, options_of, run_and_judge, shortcomings, show_json
from tests.chaos.run import Run

READABLE_S_MAX = 10.0
WHOLE_MINUTES_MAX = 3.0
"""A run this long must be read back as a whole by then; a longer one has more to read: it must
never stall for more than STALL_S_MAX."""
STALL_S_MAX = 5.0
CLASSES_MIN = 8
MADE_ANEW_MIN = 5
"""Topics that operators have deleted and made anew, at least."""


def failures(report: Report, options: argparse.Namespace) -> list[str]:
    """Return why a run has failed; none if it has passed."""
    found = shortcomings(report, options.faults_min)
    if report["classes"] < (1 if options.only else CLASSES_MIN):
        found.append(f"only {report['classes']} classes of faults")
    administration = report.get("administration")
    if administration is not None and administration.get("made anew", 0) < MADE_ANEW_MIN:
        found.append(f"hardly any administration: {administration}")
    if report.get("lags") == 0:
        found.append("no ZooKeeper server ever lagged")
    healing = report["healing"]
    if healing is None:
        return found
    if healing["served_s"] > options.readable_s_max:
        found.append(f"every partition served only after {healing['served_s']} s")
    if options.minutes <= WHOLE_MINUTES_MAX and healing["read_s"] > options.readable_s_max:
        found.append(f"everything was read only after {healing['read_s']} s")
    if healing["stall_s"] > STALL_S_MAX:
        found.append(f"reading stood still for {healing['stall_s']} s")
    return found


def show(report: Report) -> None:
    """Print the report for people."""
    for name, count in report["by_class"].items():
        print(f"  {name:20} {count}")
    for name, why in report["not_armed"].items():
        print(f"  {name:20} not armed: {why}")
    print(
        f"{report['faults']} faults of {report['classes']} classes,"
        f" {len(report['not_armed'])} classes not armed, {report['records']} records,"
        f" {report['seconds']} s, seed {report['seed']}"
    )
    if report["administration"] is not None:
        counts = ", ".join(f"{name} {count}" for name, count in report["administration"].items())
        print(f"administration: {counts}; a ZooKeeper server lagged {report['lags']} times")
    if report["healing"] is not None:
        print(
            "after healing: written everywhere by {written_s} s, every partition served its first,"
            " middle and last record by {served_s} s, all {records} were read by {read_s} s"
            " ({records_per_s} records/s, {mb_per_s} MB/s, longest stall {stall_s} s)".format(
                **report["healing"]
            )
        )
    if report["recoveries_s"]:
        print(
            f"waited {len(report['recoveries_s'])} times for everything to recover,"
            f" at most {max(report['recoveries_s'])} s after the last fault"
        )


def main() -> int:
    """Run and judge."""
    parser = options_of("make chaos", __doc__, minutes=30.0)
    parser.add_argument("--per-s", type=float, default=200.0, help="records/s of each producer")
    parser.add_argument(
        "--secured", action="store_true", help="TLS and logins on all links, renewed meanwhile"
    )
    parser.add_argument("--only", nargs="+", choices=CLASSES, default=[], metavar="CLASS")
    parser.add_argument(
        "--strikes", type=int, default=0, help="so many, each after recovery from the one before"
    )
    parser.add_argument(
        "--readable-s-max", type=float, default=READABLE_S_MAX, help="after healing; see README.md"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    options = parser.parse_args()
    options.faults_min = max(options.faults_min, options.strikes)

    @contextmanager
    def armed_run(plan: Plan, folder: Path) -> Iterator[Run]:
        with Run(plan, options.per_s, options.only, folder, is_secured=options.secured) as run:
            missing = [name for name in options.only if name not in run.armed]
            if missing or len(run.armed) < (1 if options.only else CLASSES_MIN):
                parser.exit(2, f"chaos: cannot be done here: {run.unarmed}\n")
            yield run

    return run_and_judge(
        armed_run,
        options,
        lambda report: failures(report, options),
        strikes=options.strikes,
        show=show_json if options.json else show,
    )


if __name__ == "__main__":
    sys.exit(main())
