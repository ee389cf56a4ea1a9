"""Measures how long a broker serves nobody while it is sent requests that are costly on purpose.

    python -m tests.hostile.stalls

starts a cluster of one broker, sends every request of `costly.py` and `costly_admin.py`, and asks
meanwhile, every two milliseconds and on another connection, for the table of APIs, which costs next
to nothing. The longest answer is the longest stall, and what a machine with few cores adds to it:
so beside it stands the most that the broker's event loop has worked during one such answer.
"""

from __future__ import annotations

import asyncio
import struct
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from client.node.process_metrics import LOOP_STALL_CPU_SECONDS, LOOP_STALL_SECONDS
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.batches.records import Record, build_batch
from client.wire.kafka.requests import request_frame
from tests.fakes.wire_client import WireClient
from tests.hostile.costly import COMPACTED, PLAIN, Attack
from tests.hostile.costly_admin import ALL
from tests.integration.cluster import LocalCluster
from tests.unit.broker.front.handlers.requests import produce

_ASK: Final = request_frame(ApiKey.API_VERSIONS, 0, 1, "honest", b"")
_ASK_EVERY_S: Final = 0.002
_ANSWER_S_MAX: Final = 120.0


class Outcome(NamedTuple):
    """What one attack did."""

    took_s: float
    longest_s: float
    """The longest that somebody else waited."""
    worked_s: float
    """The most that the event loop had of a processor while somebody else waited once."""
    answer_bytes: int
    was_closed: bool


async def prepare(port: int, now_ms: int) -> None:
    """Make the topics, and wait until they are led."""
    client = await WireClient.connect(port)
    for name, policy in ((COMPACTED, "compact"), (PLAIN, "delete")):
        configs = [
            {"name": "cleanup.policy", "value": policy},
            {"name": "max.message.bytes", "value": "2000000"},
        ]
        topic = {
            "name": name, "num_partitions": 2, "replication_factor": -1, "assignments": [],
            "configs": configs,
        }  # fmt: skip
        await client.call(
            ApiKey.CREATE_TOPICS, 5, topics=[topic], timeout=10_000, validate_only=False
        )
        data = build_batch([Record(b"k", b"first", now_ms)])
        async with asyncio.timeout(60):
            while True:
                if not (await produce(client, data, topic=name)).error_code:
                    break
                await asyncio.sleep(0.1)
    while True:
        found = await client.call(
            ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["hostile", "g"]
        )
        if not any(one.error_code for one in found.coordinators):
            break
        await asyncio.sleep(0.1)
    await client.close()


async def send(port: int, frames: Sequence[bytes]) -> tuple[int, bool]:
    """Send one attack and read its answers; return their bytes, and whether we were cut off."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    size = 0
    try:
        async with asyncio.timeout(_ANSWER_S_MAX):
            for each in frames:
                writer.write(each)
                await writer.drain()
                (length,) = struct.unpack(">i", await reader.readexactly(4))
                await reader.readexactly(length)
                size += length
    except (asyncio.IncompleteReadError, ConnectionError):
        return size, True
    finally:
        writer.close()
    return size, False


def loop_cpu_s(pid: int) -> float:
    """Return what the first thread of a process, its event loop, has had of a processor."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


async def measure(port: int, pid: int, attack: Attack) -> Outcome:
    """Send one attack; ask meanwhile."""
    frames = attack.frames(int(time.time() * 1000))
    attacking = asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(send(port, frames))))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    began_s = time.perf_counter()
    longest_s = worked_s = 0.0
    while not attacking.done():
        asked_s, asked_cpu_s = time.perf_counter(), loop_cpu_s(pid)
        writer.write(_ASK)
        (length,) = struct.unpack(">i", await reader.readexactly(4))
        await reader.readexactly(length)
        waited_s = time.perf_counter() - asked_s
        longest_s = max(longest_s, waited_s)
        worked_s = max(worked_s, min(waited_s, loop_cpu_s(pid) - asked_cpu_s))
        await asyncio.sleep(_ASK_EVERY_S)
    writer.close()
    size, was_closed = await attacking
    return Outcome(time.perf_counter() - began_s, longest_s, worked_s, size, was_closed)


def shown_stall(admin_port: int) -> str:
    """Return what a node itself says of its longest stall, and how much of one it worked."""
    shown = {}
    with urllib.request.urlopen(f"http://127.0.0.1:{admin_port}/metrics") as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith("quire_loop_stall"):
                name, value = line.split()
                shown[name] = float(value) * 1000
    longest_ms, worked_ms = shown[LOOP_STALL_SECONDS], shown[LOOP_STALL_CPU_SECONDS]
    return f"{longest_ms:.0f} ms; what it worked in one: {worked_ms:.0f} ms at most"


async def _all(port: int, pid: int, admin_port: int, wanted: Sequence[str]) -> None:
    await prepare(port, int(time.time() * 1000))
    print(
        "| request | took, s | longest stall, ms | of one, worked | answer, bytes | |\n"
        "|---|---|---|---|---|---|"
    )
    for attack in ALL:
        if not all(word in attack.name for word in wanted):
            continue
        found = await measure(port, pid, attack)
        end = "closed" if found.was_closed else ""
        print(
            f"| {attack.name} | {found.took_s:.2f} | {found.longest_s * 1000:.0f} |"
            f" {found.worked_s * 1000:.0f} | {found.answer_bytes} | {end} |",
            flush=True,
        )
    print(f"\nThe broker's own measure: {shown_stall(admin_port)}")


def main() -> None:
    """Run all of them, or those whose names hold the words given."""
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(Path(folder), brokers=1) as cluster,
    ):
        port = int(cluster.bootstrap_servers.rpartition(":")[2])
        broker = cluster.about["brokers"][0]
        asyncio.run(_all(port, broker["pid"], int(broker["admin"]), sys.argv[1:]))


if __name__ == "__main__":
    main()
