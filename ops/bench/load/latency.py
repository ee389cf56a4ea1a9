"""Reads what `paced` produces and says how late each record arrived."""

from __future__ import annotations

import time
from typing import Final

from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from ops.bench.load.arrivals import arrived
from ops.bench.load.channel import LoadFailed, tell
from ops.bench.load.paced import DUE
from ops.bench.spread import percentile

_POLL_S: Final = 0.2
_PROBES_MS: Final = {"p50": 0.5, "p99": 0.99, "p99_9": 0.999}


def latencies_ms(
    arrivals: list[tuple[float, float]], begin_s: float, end_s: float
) -> dict[str, float]:
    """Return percentiles, in ms, of the records due in a span. `arrivals`: (due s, latency ms)."""
    chosen = sorted(late for due_s, late in arrivals if begin_s <= due_s < end_s)
    if not chosen:
        raise LoadFailed("no record arrived in the measured span")
    return {name: percentile(chosen, share) for name, share in _PROBES_MS.items()}


def tail_figures(
    arrivals: list[tuple[float, float]], before_s: float, begin_s: float, end_s: float
) -> dict[str, float]:
    """Return a tail reader's p99 before something, from `before_s` on, and while it went on."""
    before = latencies_ms(arrivals, before_s, begin_s)["p99"]
    during = latencies_ms(arrivals, begin_s, end_s)["p99"]
    return {
        "tail p99 before ms": before,
        "tail p99 during ms": during,
        "tail p99 during / before": during / before,
    }


def run(servers: str, topic: str) -> None:
    """Events: ready; when the last record has come, arrived (arrivals: due s, latency ms)."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"latency-{topic}",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
    arrived(consumer, _POLL_S)
    tell("ready")
    arrivals: list[tuple[float, float]] = []
    while True:
        messages = arrived(consumer, _POLL_S)
        now_ns = time.monotonic_ns()
        for message in messages:
            value = message.value()
            if not value:
                consumer.close()
                tell("arrived", arrivals=arrivals)
                return
            (due_ns,) = DUE.unpack_from(value)
            arrivals.append((round(due_ns / 1e9, 6), round((now_ns - due_ns) / 1e6, 3)))
