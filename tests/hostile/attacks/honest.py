"""An honest producer in a process of its own, and what it waited and was told meanwhile.

    python -m tests.hostile.attacks.honest SETTINGS TOPIC JOURNAL

publishes a small record every few milliseconds, without retries, until its standard input ends.
Each outcome is a line of the journal: when the record was given away, when the broker answered
(seconds of the clock that all processes of a machine share), and the error, if there was one.
"""

from __future__ import annotations

import itertools
import json
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from ops.bench.spread import percentile
from tests.integration.cluster import ROOT, wait_until

EVERY_S: Final = 0.005
_START_S: Final = 30.0


class Outcome(NamedTuple):
    """What became of one record."""

    sent_s: float
    told_s: float
    error: str


class Seen(NamedTuple):
    """What the producer saw during some time."""

    records: int
    longest_s: float
    """The longest time for which nothing was confirmed, or one record was not."""
    p99_s: float
    """Of the times that single records waited."""
    errors: list[str]


class HonestProducer:
    """The process, and its journal."""

    def __init__(self, settings: Mapping[str, Any], topic: str, journal: Path) -> None:
        self._journal = journal
        self._process = subprocess.Popen(
            [
                sys.executable, "-m", "tests.hostile.attacks.honest",
                json.dumps(dict(settings)), topic, str(journal),
            ],
            cwd=ROOT, stdin=subprocess.PIPE,
        )  # fmt: skip
        wait_until(lambda: len(self._lines()) > 20, "the honest producer's records", _START_S)

    def close(self) -> None:
        """End it, and wait until it has heard of all its records."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(120)

    def seen(self, from_s: float, until_s: float) -> Seen:
        """Return what it saw of records that were under way between two moments."""
        rows = [Outcome(*json.loads(line)) for line in self._lines()]
        mine = [row for row in rows if row.told_s >= from_s and row.sent_s <= until_s]
        told = [from_s, *sorted(row.told_s for row in mine if not row.error)]
        pauses = [min(b, until_s) - a for a, b in itertools.pairwise([*told, until_s])]
        waits = [row.told_s - max(row.sent_s, from_s) for row in mine]
        errors = sorted({row.error for row in mine if row.error})
        p99_s = percentile(sorted(waits), 0.99) if waits else 0.0
        return Seen(len(mine), max([0.0, *pauses, *waits]), p99_s, errors)

    def has_heard(self, at_s: float) -> bool:
        """Say whether a record that was given away after a moment was answered."""
        lines = self._lines()
        return bool(lines) and json.loads(lines[-1])[0] > at_s

    def _lines(self) -> list[str]:
        if not self._journal.exists():
            return []
        whole, _, _ = self._journal.read_text().rpartition("\n")
        return whole.splitlines()


def publish(settings: Mapping[str, Any], topic: str, journal: IO[str]) -> None:
    """Publish until standard input ends."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "acks": "all", "linger.ms": 0, "message.send.max.retries": 0,
            "enable.idempotence": False, "log_level": 0, **settings,
        }
    )  # fmt: skip

    def note(sent_s: float, error: object) -> None:
        text = "" if error is None else str(error)
        journal.write(json.dumps([sent_s, time.monotonic(), text]) + "\n")
        journal.flush()

    number = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        sent_s = time.monotonic()
        producer.produce(
            topic, b"%d" % number, partition=0,
            on_delivery=lambda error, _, sent_s=sent_s: note(sent_s, error),
        )  # fmt: skip
        number += 1
        producer.poll(EVERY_S)
    producer.flush(60)


def main() -> None:
    """Publish as the command line says."""
    settings, topic, journal = sys.argv[1:]
    with Path(journal).open("a") as lines:
        publish(json.loads(settings), topic, lines)


if __name__ == "__main__":
    main()
