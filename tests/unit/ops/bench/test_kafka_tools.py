"""What Kafka's own measuring tools say is read, and an answer that is no measurement is refused."""

from __future__ import annotations

import pytest

from ops.bench.figures import Scale
from ops.bench.load.channel import LoadFailed
from ops.bench.load.kafka_tools import Consumed, Produced, consumed, produced
from ops.bench.workloads.records.kafka_tools import DEFAULTS, PRODUCERS

PRODUCED = [
    "250001 records sent, 50000.2 records/sec (47.68 MB/sec), 580.1 ms avg latency, 991.0 ms max.",
    "400000 records sent, 51234.5 records/sec (48.86 MB/sec), 601.22 ms avg latency, 1402.00 ms"
    " max latency, 588 ms 50th, 1012 ms 95th, 1201 ms 99th, 1399 ms 99.9th.",
]
CONSUMED = [
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec,"
    " rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec",
    "2026-01-01 10:00:00:000, 2026-01-01 10:00:05:000, 1000.0, 200.0, 1048576, 209715.2, 3000,"
    " 2000, 500.0, 524288.0",
]


def test_the_line_of_all_records_is_read_and_not_those_of_a_while() -> None:
    assert produced(PRODUCED, 400_000) == Produced(51_234.5, 1_201)


@pytest.mark.parametrize("lines", [[], PRODUCED[:1], ["java.lang.OutOfMemoryError"]])
def test_a_producer_without_a_summary_failed(lines: list[str]) -> None:
    with pytest.raises(LoadFailed):
        produced(lines, 1)


def test_a_record_that_was_refused_voids_the_measurement() -> None:
    with pytest.raises(LoadFailed, match="400001"):
        produced(PRODUCED, 400_001)


def test_a_consumer_is_measured_with_and_without_the_time_to_join() -> None:
    lines = ["a warning", *CONSUMED]
    assert consumed(lines, 1_048_576) == Consumed(200.0 * 2**20, 500.0 * 2**20)


@pytest.mark.parametrize("lines", [[], CONSUMED[:1]])
def test_a_consumer_without_figures_failed(lines: list[str]) -> None:
    with pytest.raises(LoadFailed):
        consumed(lines, 1)


def test_a_consumer_that_got_too_few_records_failed() -> None:
    with pytest.raises(LoadFailed, match="1048576"):
        consumed(CONSUMED, 2_000_000)


@pytest.mark.parametrize("scale", [Scale(), Scale.short()])
def test_each_producer_is_measured_and_what_the_consumer_reads_is_written(scale: Scale) -> None:
    for producer in PRODUCERS:
        assert set(producer.partitions) & set(scale.tool_partitions)
    assert DEFAULTS.partitions[1] in scale.tool_partitions


def test_a_long_run_measures_every_number_of_partitions() -> None:
    wanted = {n for producer in PRODUCERS for n in producer.partitions}
    assert wanted == set(Scale().tool_partitions)
