"""`python -m ops.autorecovery`: auto recovery alone, without a bookie in its process.

    python -m ops.autorecovery [--zookeeper HOST:PORT] [--config FILE] ...

SIGTERM and SIGINT stop it. Exit code 0 after that, 2 when it could not start (one sentence says
why), 1 when a part of it ended that should not.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import socket
import sys
from dataclasses import dataclass, field
from typing import Any

import uvloop

from client.config import check_ranges, load_program, setting
from client.errors import ConfigError, LedgerError, MetadataError
from client.ids import BookieId
from client.ledger.autorecovery.config import AutoRecoveryConfig
from client.ledger.autorecovery.service import running
from client.ledger.standalone import WallClock
from client.metadata.paths import LEDGERS_ROOT
from client.metadata.zookeeper import ZooKeeperStore

log = logging.getLogger("autorecovery")


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoRecoveryProgram:
    """Settings of the program."""

    name: str | None = setting(
        None, "Name in votes and locks; by default this machine's, with the process id."
    )
    zookeeper: tuple[str, ...] = setting(("127.0.0.1:2181",), "ZooKeeper servers, host:port.")
    ledgers_root: str = setting(LEDGERS_ROOT, "Root of BookKeeper's tree in ZooKeeper.")
    session_timeout_ms: int = setting(
        10_000, "ZooKeeper session timeout: how long others wait for a dead node.", at_least=1000
    )
    recovery: AutoRecoveryConfig = field(default_factory=AutoRecoveryConfig)

    def __post_init__(self) -> None:
        check_ranges(self)


def main() -> int:
    """Run until told to stop; return the exit code."""
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    try:
        resolved = load_program(
            AutoRecoveryProgram,
            prog="python -m ops.autorecovery",
            env_prefix="QUIRE_AUTORECOVERY_",
            argv=sys.argv[1:],
        )
        return uvloop.run(_run(resolved.config))
    except (ConfigError, MetadataError, LedgerError) as error:
        log.error("autorecovery.cannot_start %s", error or repr(error))
    return 2


async def _run(config: AutoRecoveryProgram) -> int:
    loop = asyncio.get_running_loop()
    told_to_stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told_to_stop.set)
    me = BookieId(config.name or f"{socket.gethostname()}-{os.getpid()}")
    store = ZooKeeperStore(config.zookeeper, session_timeout_ms=config.session_timeout_ms)
    await store.start()
    try:
        async with running(
            store,
            me=me,
            clock=WallClock(),
            rng=random.SystemRandom(),
            config=config.recovery,
            root=config.ledgers_root,
        ) as node:
            log.info("autorecovery.running name=%s", me)
            stopping: asyncio.Future[Any] = loop.create_task(told_to_stop.wait())
            failing: asyncio.Future[Any] = loop.create_task(node.failed())
            await asyncio.wait([stopping, failing], return_when=asyncio.FIRST_COMPLETED)
            if failing.done():
                log.error("autorecovery.failed", exc_info=failing.exception())
                return 1
            failing.cancel()
    finally:
        await store.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
