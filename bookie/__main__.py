"""`python -m bookie`: one bookie in this process, on a real disk, ZooKeeper and uvloop.

    python -m bookie --data-dir DIR [--config FILE] [--port PORT] [--zookeeper HOST:PORT] ...

SIGTERM and SIGINT stop it gracefully. Exit code 0 after that, 2 when it could not start (one
sentence says why), 1 when the disk failed under it. This file is the only place where the wall
clock, the machine's randomness and the real event loop enter.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from bookie.bookie import Bookie
from bookie.config import BookieConfig
from bookie.disk import RealDisk
from bookie.errors import StorageError
from bookie.index import Index
from bookie.level_db import LevelDb
from bookie.shelf import Directory
from client.config import load_program
from client.errors import ConfigError, MetadataError
from client.ids import BookieId
from client.ledger.autorecovery.service import running
from client.metadata.zookeeper import ZooKeeperStore

logger = logging.getLogger("bookie")


class _WallClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


def main() -> int:
    """Run until told to stop; return the exit code."""
    if not __debug__:
        sys.exit("bookie: do not run with -O, the assertions are part of the program")
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    try:
        resolved = load_program(
            BookieConfig, prog="python -m bookie", env_prefix="QUIRE_BOOKIE_", argv=sys.argv[1:]
        )
        return uvloop.run(_run(resolved.config))
    except (ConfigError, StorageError, MetadataError) as error:
        logger.error("bookie.cannot_start %s", error)
    except OSError as error:
        logger.error("bookie.cannot_start %s", error)
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


def open_directory(config: BookieConfig, data_dir: Path) -> Directory:
    """Lock a data directory for this process. Raises ConfigError."""
    disk = RealDisk(
        data_dir,
        preallocate_bytes=config.log_preallocate_bytes,
        free_bytes_min=config.free_bytes_min,
        reader_threads=config.reader_threads,
    )
    return Directory(str(data_dir), disk, partial(make_index, config, data_dir))


async def _run(config: BookieConfig) -> int:
    loop = asyncio.get_running_loop()
    told_to_stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told_to_stop.set)
    directories = [open_directory(config, data_dir) for data_dir in config.data_dirs()]
    store = ZooKeeperStore(config.zookeeper, session_timeout_ms=config.session_timeout_ms)
    bookie = Bookie(
        config,
        store=store,
        directories=directories,
        clock=_WallClock(),
        rng=random.SystemRandom(),
        loop=loop,
    )
    healing: asyncio.Task[None] | None = None
    stopping: asyncio.Future[Any] = loop.create_task(told_to_stop.wait())
    starting: asyncio.Future[Any] = loop.create_task(_start(store, bookie))
    try:
        ends: list[asyncio.Future[Any]] = [bookie.failed, stopping]
        await asyncio.wait([starting, *ends], return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            logger.info("bookie.serving id=%s port=%d", bookie.bookie_id, bookie.port)
            if config.auto_recovery:
                healing = loop.create_task(_heal(config, store, bookie.bookie_id))
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        starting.cancel()
        if bookie.failed.done():
            # What is on the disk is unknown, and its threads may never return.
            logger.error("bookie.failed %s", bookie.failed.exception())
            logging.shutdown()
            os._exit(1)
        if healing is not None:
            healing.cancel()
            await asyncio.wait([healing])
        await bookie.stop()
    finally:
        stopping.cancel()
        await store.close()
    logger.info("bookie.stopped id=%s", bookie.bookie_id)
    return 0


async def _heal(config: BookieConfig, store: ZooKeeperStore, me: BookieId) -> None:
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
            ) as node:
                await node.failed()
        except Exception:
            logger.exception("autorecovery.failed")
        await asyncio.sleep(config.recovery.retry_max_ms / 1000)


async def _start(store: ZooKeeperStore, bookie: Bookie) -> None:
    await store.start()
    await bookie.start()


if __name__ == "__main__":
    sys.exit(main())
