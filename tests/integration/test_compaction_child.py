"""The process that does the work of compaction: as the broker does it, and no harm if it dies."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.compaction.child_worker import ChildWorker
from broker.compaction.core.key_map import SECRET_BYTES
from broker.compaction.core.round_messages import (
    BeginGroup,
    BeginRound,
    CleanRun,
    EndGroup,
    EnterKeys,
    Request,
    Run,
    Source,
    WorkDone,
    Written,
)
from broker.compaction.worker import LocalWorker, Worker
from broker.errors import CompactionFailed
from client.ids import LeaderEpoch, LedgerId, Offset
from client.node.turns import Turns
from client.wire.kafka.batches.records import Codec, parse_header
from tests.fakes.keyed import keyed

pytestmark = pytest.mark.smoke

_MIB = 1024 * 1024


@pytest.fixture
async def child() -> AsyncIterator[ChildWorker]:
    worker = ChildWorker(memory_bytes_max=256 * _MIB, timeout_ms=30_000)
    yield worker
    await worker.close()
    assert worker.pid == 0


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def begin(slots: int = 1000) -> BeginRound:
    secret = bytes(SECRET_BYTES)
    return BeginRound(slots, secret, Offset(0), Offset(90), 1_800_000_000_000, 1, 4000, 100)


def run(count: int = 30) -> Run:
    """A segment of three records in each batch, four keys."""
    batches = [
        keyed(
            *((f"k{(at + one) % 4}", "v" * 200) for one in range(3)),
            base_offset=3 * at,
            codec=Codec.LZ4 if at % 2 else Codec.NONE,
        )
        for at in range(count)
    ]
    assert parse_header(batches[-1]).next_offset == 3 * count
    return Run(Source(LedgerId(1), Offset(0), Offset(3 * count), False), True, True, batches, [])


def whole() -> list[Request]:
    group = BeginGroup(Offset(0), Offset(90), LeaderEpoch(0), Offset(90))
    return [begin(), EnterKeys(run()), group, CleanRun(run()), EndGroup()]


async def asked(worker: Worker) -> list[WorkDone]:
    found = []
    for request in whole():
        done = await worker.do(request)
        outputs = [
            Written([b"".join(map(bytes, one.payload))]) if isinstance(one, Written) else one
            for one in done.outputs
        ]
        found.append(done._replace(outputs=outputs))
    return found


async def test_it_does_what_the_broker_would_do(child: ChildWorker) -> None:
    assert child.pid == 0
    here = await asked(LocalWorker(Turns()))
    assert await asked(child) == here
    assert here[-1].is_changed
    assert here[-1].removed_records == 86
    pid = child.pid
    assert await asked(child) == here
    assert child.pid == pid, "it is the same for the next round"
    await child.close()
    assert not is_there(pid)


async def test_a_killed_child_fails_the_round_and_the_next_one_has_another(
    child: ChildWorker,
) -> None:
    await child.do(begin())
    pid = child.pid
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(CompactionFailed, match="child process has exited"):
        for _ in range(3):  # the first may still be on its way out when it dies
            await child.do(EnterKeys(run()))
    with pytest.raises(CompactionFailed, match="has exited"):
        await child.do(EnterKeys(run()))
    await asked(child)
    assert child.pid not in (0, pid)


async def test_a_child_that_does_not_answer_is_ended(child: ChildWorker) -> None:
    await child.do(begin())
    pid = child.pid
    os.kill(pid, signal.SIGSTOP)
    child._timeout_s = 0.2
    with pytest.raises(CompactionFailed, match="did not answer"):
        await child.do(EnterKeys(run()))
    await child.close()
    assert not is_there(pid)
    child._timeout_s = 30.0
    await asked(child)


async def test_who_breaks_a_round_off_gets_no_answer_of_it_later(child: ChildWorker) -> None:
    await child.do(begin())
    task = asyncio.get_running_loop().create_task(child.do(EnterKeys(run())))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert child.pid == 0
    assert (await asked(child))[-1].removed_records == 86


async def test_what_is_wrong_with_the_log_is_said(child: ChildWorker) -> None:
    await child.do(begin())
    cut = run()._replace(payloads=run().payloads[1:])
    with pytest.raises(CompactionFailed, match="ledger 1 has a batch at 3, not 0"):
        await child.do(EnterKeys(cut))
    pid = child.pid
    await asked(child)
    assert child.pid == pid


async def test_too_many_keys_for_its_memory_fail_the_round_only(child: ChildWorker) -> None:
    with pytest.raises(CompactionFailed, match="child_memory_bytes_max"):
        await child.do(begin(slots=400 * _MIB // 24))
    await asked(child)


async def test_it_ends_with_whoever_started_it() -> None:
    code = (
        "import asyncio, os\n"
        "from broker.compaction.child_worker import ChildWorker\n"
        "from tests.integration.test_compaction_child import begin\n"
        "async def main():\n"
        "    child = ChildWorker(memory_bytes_max=1 << 28, timeout_ms=30000)\n"
        "    await child.do(begin())\n"
        "    print(child.pid, flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    out, _ = await process.communicate()
    pid = int(out)
    for _ in range(500):
        if not is_there(pid):
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{pid} is still there")
