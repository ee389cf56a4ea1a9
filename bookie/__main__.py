"""`python -m bookie`: one bookie in this process, on a real disk, ZooKeeper and uvloop.

    python -m bookie --data-dir DIR [--config FILE] [--port PORT] [--zookeeper HOST:PORT] ...

SIGTERM and SIGINT stop it gracefully. Exit code 0 after that, 2 when it could not start (one
sentence says why), 1 when the disk failed under it. This file is the only place where the wall
clock, the machine's randomness and the real event loop enter.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import random
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

import uvloop
from prometheus_client import ProcessCollector

from bookie.admin.cluster import ClusterAdmin
from bookie.bookie import Bookie, Environment
from bookie.config import BookieConfig
from bookie.errors import StorageError
from bookie.metrics import BookieMetrics
from bookie.storage.disk import RealDisk
from bookie.storage.index.index import Index
from bookie.storage.index.level_db import LevelDb, check_level_db
from bookie.storage.ledger_directory import Directory
from client.autorecovery.service import running
from client.config import load_program
from client.errors import ConfigError, MetadataError
from client.histogram import Histogram
from client.ids import BookieId
from client.metadata.zookeeper import ZooKeeperStore
from client.node import logs
from client.node.exposition import Exposition, table
from client.node.process import (
    Collector,
    apply_scheduling,
    connections_that_fit,
    keep_freed_memory,
    on_stop_signal,
)
from client.node.process_metrics import (
    ROWS,
    LoopLag,
    provide_metadata_requests,
    provide_process,
)

logger = logging.getLogger("bookie")

_OTHER_FILES: Final = 200
"""Open files that are no client connections: of the admin server, to other bookies."""
_DIRECTORY_FILES: Final = 1_200
"""Of one data directory: LevelDB keeps up to 1,000 open, and the log has its own."""

_HEALING_STOP_S = 1.0
"""For giving locks back; without ZooKeeper they expire, and the bookie has more to do."""


class _WallClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


def main() -> int:
    """Run until told to stop; return the exit code."""
    if not __debug__:
        sys.exit("bookie: do not run with -O, the assertions are part of the program")
    style = logs.asked_style(sys.argv[1:], os.environ.get("QUIRE_BOOKIE_LOG_FORMAT"))
    logs.start("bookie", style=style)
    try:
        resolved = load_program(
            BookieConfig, prog="python -m bookie", env_prefix="QUIRE_BOOKIE_", argv=sys.argv[1:]
        )
        check_level_db()
        keep_freed_memory()
        config = resolved.config
        apply_scheduling(config.cpu_scheduling)
        reserved = _OTHER_FILES + _DIRECTORY_FILES * len(config.data_dirs())
        fitting = connections_that_fit(config.connections_max, reserved=reserved)
        return uvloop.run(_run(dataclasses.replace(config, connections_max=fitting)))
    except (ConfigError, StorageError, MetadataError) as error:
        logger.error("bookie.cannot_start reason=%s", error)
    except OSError as error:
        logger.error("bookie.cannot_start reason=%s", error)
    return 2


def make_index(config: BookieConfig, data_dir: Path, wipe: bool) -> Index:
    """Open the LevelDB index of a data directory."""
    return Index(
        LevelDb(
            data_dir / "index",
            wipe=wipe,
            write_buffer_bytes=config.index_write_buffer_bytes,
            block_cache_bytes=config.index_cache_bytes // len(config.data_dirs()),
        )
    )


def open_directory(
    config: BookieConfig, data_dir: Path, fsync_seconds: Histogram | None = None
) -> Directory:
    """Lock a data directory for this process. Raises ConfigError."""
    disk = RealDisk(
        data_dir,
        preallocate_bytes=config.log_preallocate_bytes,
        free_bytes_min=config.free_bytes_min,
        reader_threads=config.reader_threads,
        fsync_seconds=fsync_seconds,
    )
    return Directory(str(data_dir), disk, partial(make_index, config, data_dir))


async def _run(config: BookieConfig) -> int:
    loop = asyncio.get_running_loop()
    told_to_stop = on_stop_signal(loop)
    loop.set_exception_handler(_on_exception)
    logs.start("bookie", node=config.shown_name(), style=config.log_format, level=config.log_level)
    fsyncs = {str(data_dir): Histogram() for data_dir in config.data_dirs()}
    directories = [open_directory(config, Path(path), each) for path, each in fsyncs.items()]
    store = ZooKeeperStore(
        config.zookeeper, session_timeout_ms=config.session_timeout_ms,
        security=config.cluster_security,
    )  # fmt: skip
    clock, rng = _WallClock(), random.SystemRandom()
    me = BookieId(f"admin of {config.bookie_id or config.client_host()}")
    cluster = ClusterAdmin(
        store, me=me, root=config.ledgers_root, clock=clock, rng=rng,
        security=config.cluster_security,
    )  # fmt: skip
    environment = Environment(store, directories, clock, rng, loop, time.perf_counter)
    bookie = Bookie(config, environment, admin_routes=cluster.routes())
    bookie.metrics.fsync_seconds = fsyncs
    loop_lag = _show_process(bookie.metrics, store)
    healing: asyncio.Task[None] | None = None
    stopping: asyncio.Future[Any] = loop.create_task(told_to_stop.wait())
    starting: asyncio.Future[Any] = loop.create_task(_start(store, bookie))
    collector = Collector()
    collector.start()
    loop_lag.start()
    try:
        ends: list[asyncio.Future[Any]] = [bookie.failed, stopping]
        await asyncio.wait([starting, *ends], return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            logger.info("bookie.serving bookie=%s port=%d", bookie.bookie_id, bookie.port)
            if config.auto_recovery:
                healing = loop.create_task(_heal(config, store, bookie.bookie_id, bookie.metrics))
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        starting.cancel()
        if bookie.failed.done():
            # What is on the disk is unknown, and its threads may never return.
            logger.error("bookie.failed reason=%s", bookie.failed.exception())
            logging.shutdown()
            os._exit(1)
        if healing is not None:
            healing.cancel()
            await asyncio.wait([healing], timeout=_HEALING_STOP_S)
        await bookie.stop()
    finally:
        loop_lag.close()
        collector.close()
        stopping.cancel()
        await store.close()
    logger.info("bookie.stopped bookie=%s", bookie.bookie_id)
    return 0


def _show_process(metrics: BookieMetrics, store: ZooKeeperStore) -> LoopLag:
    """Show what every program does beside the bookie's own metrics."""
    process = Exposition(table(ROWS))
    provide_process(process, "bookie", store)
    provide_metadata_requests(process, store.request_seconds)
    metrics.add_part(process)
    metrics.add_collector(ProcessCollector(registry=None))
    return LoopLag(process, time.perf_counter)


async def _heal(
    config: BookieConfig, store: ZooKeeperStore, me: BookieId, metrics: BookieMetrics
) -> None:
    """Repair the cluster's ledgers beside serving; whatever ends that, the bookie goes on."""
    clock, rng = _WallClock(), random.SystemRandom()
    while True:
        try:
            async with running(
                store,
                me=me,
                clock=clock,
                rng=rng,
                config=config.recovery,
                root=config.ledgers_root,
                now_s=time.perf_counter,
                security=config.cluster_security,
            ) as node:
                shown = node.exposition()
                metrics.add_part(shown)
                metrics.recovery = node.stats
                try:
                    await node.failed()
                finally:
                    metrics.recovery = None
                    metrics.remove_part(shown)
        except Exception:
            logger.exception("autorecovery.ended")
        await asyncio.sleep(config.recovery.retry_max_ms / 1000)


def _on_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if not context.get("is_logged"):
        error = context.get("exception")
        logger.error("bookie.bug message=%s", context.get("message"), exc_info=error)


async def _start(store: ZooKeeperStore, bookie: Bookie) -> None:
    await store.start()
    await bookie.start()


if __name__ == "__main__":
    sys.exit(main())
