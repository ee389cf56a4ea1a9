"""Facts of the machine and of processes, read from /proc."""

import os
from pathlib import Path

import pytest

from client.errors import QuireError
from ops.bench import machine, process_cpu
from ops.bench.figures import Figure, Run, Scale
from ops.bench.load.requests import error_code
from ops.bench.report.summary import Measured
from ops.bench.workloads.records import produce
from ops.bench.workloads.records.fixed_rate import learn, slowest_per_s


def test_the_processor_and_the_memory_are_read_from_proc() -> None:
    assert machine.cpu_model("processor\t: 0\nmodel name\t: Fast CPU @ 3: GHz\n") == (
        "Fast CPU @ 3: GHz"
    )
    assert machine.memory_bytes("MemTotal:       16 kB\nMemFree: 1 kB\n") == 16 * 1024
    assert machine.memory_bytes("") == 0


def test_a_load_above_one_is_not_quiet() -> None:
    assert machine.is_quiet(1.0) and not machine.is_quiet(1.01)


def write_io(proc: Path, pid: int, written: int, cancelled: int) -> None:
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "io").write_text(
        f"rchar: 1\nwchar: 2\nwrite_bytes: {written}\ncancelled_write_bytes: {cancelled}\n"
    )


def test_written_bytes_are_summed_less_what_was_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_cpu, "_PROC", tmp_path)
    write_io(tmp_path, 10, 8192, 4096)
    write_io(tmp_path, 11, 100, 0)
    assert process_cpu.written_bytes([10, 11, 12]) == 4196  # 12 is gone


def test_cpu_time_is_read_behind_a_name_with_blanks_and_brackets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_cpu, "_PROC", tmp_path)
    ticks = os.sysconf("SC_CLK_TCK")
    (tmp_path / "10").mkdir()
    fields = ["S", "1", *["0"] * 9, str(2 * ticks), str(ticks), "0", "0"]
    (tmp_path / "10" / "stat").write_text(f"10 (a) b (c)) {' '.join(fields)}\n")
    assert process_cpu.cpu_s([10, 11]) == 3.0


def test_fixed_rates_are_shares_of_the_slower_system() -> None:
    run = Run(Scale(), {"quire": [900.0, 100.0, 500.0], "kafka, synced": [600.0]})
    assert slowest_per_s(run) == 500.0
    with pytest.raises(QuireError, match="measure it first"):
        slowest_per_s(Run(Scale()))


def test_the_rates_are_learnt_from_what_produce_found_with_one_partition() -> None:
    run = Run(Scale())
    row = produce.label(1024, 1, "16 KiB batches")
    other = produce.label(1024, 16, "16 KiB batches")
    learn(
        run,
        [
            Measured("quire", 1, Figure(row, "records/s", 10.0)),
            Measured("quire", 2, Figure(row, "records/s", 20.0)),
            Measured("quire", 1, Figure(row, "MB/s", 1.0)),
            Measured("quire", 1, Figure(other, "records/s", 99.0)),
        ],
    )
    assert run.maxima_per_s == {"quire": [10.0, 20.0]}


def test_the_error_of_a_produce_answer_is_found_behind_the_topics_name() -> None:
    head = b"\0\0\0\x01" + b"\0\0\0\x01" + b"\0\x03abc" + b"\0\0\0\x01" + b"\0" * 4
    assert error_code(head + b"\0\x06" + b"\0" * 20, "abc") == 6
