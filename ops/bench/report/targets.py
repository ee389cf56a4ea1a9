"""What Quire promises in figures: the bound of each row that has one.

A target is on the ratio of Quire to a peer, or on Quire's own value. The first rule that fits a
row holds for it; rows that no rule fits are shown without a target.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Final, NamedTuple

SYNCED: Final = "kafka, synced"
DEFAULTS: Final = "kafka, defaults"
BOOKKEEPER: Final = "bookkeeper"
ALONE: Final = ""
"""The peer of rows in which Quire stands alone."""
SPARK_SLOTS: Final = 2
"""Task slots of the Spark that reads."""

_OPERATORS: Final[dict[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
}


class Target(NamedTuple):
    """A bound, like "ratio >= 2"."""

    on: str
    """"ratio" or "value"."""
    operator: str
    bound: float

    def __str__(self) -> str:
        return f"{self.on} {self.operator} {self.bound:g}"

    def met(self, value: float, ratio: float | None) -> bool | None:
        """Tell whether it is met; None when there is no ratio to judge."""
        judged = value if self.on == "value" else ratio
        return None if judged is None else _OPERATORS[self.operator](judged, self.bound)


class Rule(NamedTuple):
    """Which rows a target is for: how the workload begins, the measure, and the peers."""

    workload: str
    measure: str
    peers: tuple[str, ...]
    target: Target


EVERY: Final = (SYNCED, DEFAULTS, ALONE)


def _of_spark(topic: str) -> tuple[Rule, ...]:
    """Return the rules for reading one topic into Spark."""
    official = f"{topic}, as part of spark-sql-kafka"
    ledgers = f"{topic}, ledger mode"
    return (
        Rule(f"{topic}, one task", "rows/s", (SYNCED, DEFAULTS), Target("ratio", ">=", 1.5)),
        Rule(official, "rows/s", (ALONE,), Target("value", ">=", 1.5)),
        Rule(ledgers, "tasks", (ALONE,), Target("value", ">=", SPARK_SLOTS)),
        Rule(ledgers, "rows/s as part of broker mode's", (ALONE,), Target("value", ">=", 1)),
        Rule(ledgers, "brokers' CPU in cores", (ALONE,), Target("value", "<=", 0.05)),
    )


RULES: Final = (
    Rule("produce", "MB/s", (SYNCED,), Target("ratio", ">=", 2)),
    Rule("produce", "MB/s", (DEFAULTS,), Target("ratio", ">=", 1)),
    Rule("produce", "CPU s per GB", (SYNCED,), Target("ratio", "<=", 0.5)),
    # At 100 bytes the records' own framing is a tenth of the payload already.
    Rule("produce 1024 B", "disk bytes per byte and replica", EVERY, Target("value", "<=", 1.1)),
    Rule("kafka-producer-perf-test 100 B", "MB/s", (DEFAULTS,), Target("ratio", ">=", 1.5)),
    Rule("kafka-producer-perf-test 1000 B", "CPU s per GB", EVERY, Target("value", "<=", 10)),
    Rule("kafka-consumer-perf-test", "MB/s fetching", (SYNCED, DEFAULTS), Target("ratio", ">=", 1)),
    Rule(
        "latency at 50% of the slower maximum, linger.ms=1", "p99 ms", EVERY,
        Target("value", "<=", 5),
    ),
    Rule(
        "latency at 50% of the slower maximum, linger.ms=0", "p99 ms", EVERY,
        Target("value", "<=", 5),
    ),
    Rule("latency at 50%", "p99 ms", (SYNCED, DEFAULTS), Target("ratio", "<=", 1)),
    Rule("unbatched requests", "requests per CPU s", (SYNCED,), Target("ratio", ">=", 1)),
    Rule("unbatched requests", "requests per broker CPU s", EVERY, Target("value", ">=", 10_000)),
    Rule("TLS and SASL", "CPU s per GB, times plaintext's", (ALONE,), Target("value", "<=", 1.6)),
    Rule(
        "TLS and SASL", "CPU µs per request, times plaintext's", (ALONE,),
        Target("value", "<=", 1.3),
    ),
    Rule("transactions of", "commits per CPU s", (SYNCED,), Target("ratio", ">=", 1.5)),
    Rule("transactions of", "commit p99 ms", (SYNCED,), Target("ratio", "<=", 1)),
    Rule(
        "the same", "records/s inside as part of that", EVERY, Target("value", ">=", 0.9)
    ),
    Rule("registry: newest version", "p99 ms", EVERY, Target("value", "<=", 20)),
    Rule("registry: new Protobuf schema compared", "p99 ms", EVERY, Target("value", "<=", 20)),
    Rule("catch-up read,", "MB/s", (SYNCED, DEFAULTS), Target("ratio", ">=", 1)),
    Rule(
        "catch-up read beside", "tail p99 during / before", EVERY, Target("value", "<=", 2)
    ),
    Rule(
        "compaction of 1 KiB records", "MB per CPU s", (SYNCED, DEFAULTS), Target("ratio", ">=", 1)
    ),
    Rule(
        "compaction beside a tail", "tail p99 during / before", EVERY, Target("value", "<=", 1.5)
    ),
    *(rule for value_bytes in (100, 1024) for rule in _of_spark(f"spark {value_bytes} B")),
    Rule("spark trigger", "addBatch ms", EVERY, Target("value", "<=", 60)),
    Rule("spark trigger", "largest Python worker MB", EVERY, Target("value", "<=", 250)),
    Rule("kill -9 of the leader, 1 partition", "p99 ms", EVERY, Target("value", "<=", 500)),
    Rule(
        "kill -9 of the leader, 1,000 partitions", "all served ms", EVERY,
        Target("value", "<=", 1_000),
    ),
    Rule(
        "partitions, 10,000", "start until all take records s", EVERY, Target("value", "<=", 20)
    ),
    Rule("pause: planned hand-over", "longest pause ms", EVERY, Target("value", "<=", 200)),
    Rule(
        "ledgers, 1 KiB entries, Java client", "MB per bookie CPU s", (BOOKKEEPER,),
        Target("ratio", ">=", 1),
    ),
    Rule(
        "ledgers, 64 KiB entries, Java client", "MB per bookie CPU s", (BOOKKEEPER,),
        Target("ratio", ">=", 1),
    ),
    Rule(
        "ledgers, 64 KiB entries, own client", "MB/s", (BOOKKEEPER,), Target("ratio", ">=", 1)
    ),
    Rule(
        "growth, 20 GB", "MB/s as part of that at first", (BOOKKEEPER, ALONE),
        Target("value", ">=", 0.95),
    ),
)  # fmt: skip


def target_of(workload: str, measure: str, peer: str) -> Target | None:
    """Return the target of a row."""
    for rule in RULES:
        if workload.startswith(rule.workload) and measure == rule.measure and peer in rule.peers:
            return rule.target
    return None
