"""`python -m ops.bench.micro.log_copy [OFFSETS [copy]]`: keeping a coordinator's log short.

A group coordinator has all live offsets in memory. It writes them anew once its log has grown to
five times of that, and trims the rest (`broker/coordinator/coordinator_log.py`). What that takes of
a processor is measured here beside a round of compaction of the same log, whose records it would
read twice. Ten million offsets are worked out from it, and said to be. With `copy` nothing but the
copy is measured, of as many offsets as there is memory for: to make the log would take far longer.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

import click

from broker.compaction.core.key_map import SECRET_BYTES, slots_within
from broker.compaction.core.round_messages import (
    BeginGroup,
    BeginRound,
    CleanRun,
    EndGroup,
    EnterKeys,
    Run,
    Source,
)
from broker.compaction.core.round_work import RoundWork
from broker.coordinator.coordinator_log import COPY_GROWTH
from broker.coordinator.core.coordinator_types import LogRecord
from broker.groups.core.consumer_group import Topic
from broker.groups.core.group_shard import GroupShard
from broker.groups.core.group_types import CommittedOffset, GroupConfig
from broker.groups.core.offset_records import offset_record
from client.ids import LeaderEpoch, LedgerId, Offset
from client.wire.kafka.batches.records import Record, build_batch
from client.wire.steps import finish

_OFFSETS: Final = 50_000
_PARTITIONS: Final = 100
"""Of each group."""
_BATCH: Final = 100
_WANTED: Final = 10_000_000
_NOW_MS: Final = 1_800_000_000_000
_MIB: Final = 1 << 20


def main() -> None:
    """Measure, and print."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else _OFFSETS
    copy_s, copy_bytes = _copied(_loaded(count))
    if sys.argv[2:] == ["copy"]:
        click.echo(f"measured, {count:,} live offsets:")
        click.echo(f"  copy and trim  {copy_s:.2f} s of a processor")
        click.echo(f"  written        {copy_bytes / _MIB:,.0f} MiB")
        click.echo(f"  resident       {_resident_bytes() / _MIB:,.0f} MiB")
        return
    log = list(_log(count, COPY_GROWTH + 1))
    clean_s = _compacted(log, count * (COPY_GROWTH + 1))
    click.echo(
        f"measured, {count:,} live offsets, a log of {COPY_GROWTH + 1} times as many commits:"
    )
    click.echo(
        f"  copy and trim  {copy_s:.2f} s of a processor, {copy_bytes / count:.0f} B an offset"
    )
    click.echo(
        f"  compaction     {clean_s:.2f} s, and {2 * sum(map(len, log)) / _MIB:.0f} MiB read"
    )
    times = _WANTED / count
    click.echo(f"worked out from that, {_WANTED:,} offsets in all partitions together:")
    click.echo(
        f"  copy and trim  {copy_s * times:,.0f} s, {copy_bytes * times / _MIB:,.0f} MiB written"
    )
    read = 2 * sum(map(len, log)) * times / _MIB
    click.echo(f"  compaction     {clean_s * times:,.0f} s, {read:,.0f} MiB read")


class _NoTopics:
    """A cluster without topics: nobody joins these groups."""

    version = 0

    def get(self, name: str) -> Topic | None:
        return None

    def name(self, topic_id: UUID) -> str | None:
        return None

    def names(self) -> Iterable[str]:
        return ()


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def _record(number: int, turn: int) -> LogRecord:
    group, partition = divmod(number, _PARTITIONS)
    committed = CommittedOffset(1000 * turn + number, -1, "", _NOW_MS, -1)
    return offset_record(f"group-{group:06d}", "orders", partition, committed)


def _loaded(count: int) -> GroupShard:
    shard = GroupShard(GroupConfig(), lambda prefix: prefix, _NoTopics())
    for number in range(count):
        shard.replay(_record(number, 1))
    return shard


def _copied(shard: GroupShard) -> tuple[float, int]:
    """Build all batches of a copy; return the processor time and the bytes."""
    began_s, size = time.process_time(), 0
    for key in shard.view.ids():
        size += len(build_batch(_records(shard.view.snapshot(key).records)))
    return time.process_time() - began_s, size


def _records(found: Sequence[LogRecord]) -> list[Record]:
    return [Record(one.key, one.value, _NOW_MS) for one in found]


def _log(count: int, turns: int) -> Iterator[bytes]:
    offset = 0
    for turn in range(turns):
        for first in range(0, count, _BATCH):
            numbers = range(first, min(count, first + _BATCH))
            made = _records([_record(number, turn) for number in numbers])
            yield build_batch(made, base_offset=Offset(offset))
            offset += len(made)


def _compacted(log: Sequence[bytes], count: int) -> float:
    """Return the processor time of a round over a log."""
    end = Offset(count)
    began_s = time.process_time()
    work = RoundWork(
        BeginRound(
            slots_within(1 << 62, count), bytes(SECRET_BYTES), Offset(0), end, _NOW_MS, 1, 1 << 30,
            1000,
        )
    )  # fmt: skip
    run = Run(Source(LedgerId(0), Offset(0), end, False), True, True, log, ())
    finish(work.do(EnterKeys(run)))
    finish(work.do(BeginGroup(Offset(0), end, LeaderEpoch(0), end)))
    finish(work.do(CleanRun(run)))
    finish(work.do(EndGroup()))
    return time.process_time() - began_s


if __name__ == "__main__":
    main()
