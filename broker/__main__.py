"""`python -m broker`: one broker in this process, on a real network, ZooKeeper and uvloop.

    python -m broker --node-id 1 [--config FILE] [--port PORT] [--zookeeper HOST:PORT] ...

SIGTERM and SIGINT hand the partitions over and stop. Exit code 0 after that, 2 when it could not
start (one sentence says why), 1 when an essential part of it failed. The wall clock, the machine's
randomness and the real event loop enter here and nowhere else.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import random
import socket
import sys
import time
from functools import partial
from typing import Any, Final

import uvloop

from broker.admin.server import AdminServer
from broker.app import Broker
from broker.compaction.child_worker import ChildWorker
from broker.compaction.config import CompactionConfig
from broker.config import BrokerConfig
from broker.errors import BrokerError
from broker.offload.config import OffloadConfig
from broker.offload.offloader import Objects
from broker.partition.ledger_access import LedgerAccess
from client.config import Resolved, load_program
from client.errors import ConfigError, LedgerError, LogCorrupt, MetadataError
from client.ledger.client import LedgerClient
from client.ledger.metrics import LedgerStats
from client.metadata.zookeeper import ZooKeeperStore
from client.node import logs
from client.node.process import (
    Collector,
    apply_scheduling,
    connections_that_fit,
    keep_freed_memory,
    on_stop_signal,
)
from client.node.process_metrics import provide_metadata_requests
from client.objects.obstore_store import ObstoreStore

log = logging.getLogger("broker")

_OTHER_FILES: Final = 1_000
"""Open files that are no client connections: of the admin server, to bookies and brokers."""

_STOP_MORE_S: Final = 4.0
"""What may come after the partitions: deregistration, connections, the session."""


class _WallClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


def main() -> int:
    """Run until told to stop; return the exit code."""
    if not __debug__:
        sys.exit("broker: do not run with -O, the assertions are part of the program")
    style = logs.asked_style(sys.argv[1:], os.environ.get("QUIRE_BROKER_LOG_FORMAT"))
    logs.start("broker", style=style)
    try:
        resolved = load_program(
            BrokerConfig, prog="python -m broker", env_prefix="QUIRE_BROKER_", argv=sys.argv[1:]
        )
        if resolved.config.hostname is None:
            config = dataclasses.replace(resolved.config, hostname=socket.gethostname())
            resolved = resolved._replace(
                config=config, sources={**resolved.sources, "hostname": "this machine"}
            )
        keep_freed_memory()
        apply_scheduling(resolved.config.cpu_scheduling)
        fitting = connections_that_fit(resolved.config.connections_max, reserved=_OTHER_FILES)
        config = dataclasses.replace(resolved.config, connections_max=fitting)
        return uvloop.run(_run(resolved._replace(config=config)))
    except (ConfigError, MetadataError, LedgerError, LogCorrupt, BrokerError, OSError) as error:
        log.error("broker.cannot_start reason=%s", error or repr(error))
    return 2


async def _run(resolved: Resolved[BrokerConfig]) -> int:
    config = resolved.config
    logs.start("broker", node=str(config.node_id), style=config.log_format, level=config.log_level)
    loop = asyncio.get_running_loop()
    told_to_stop = on_stop_signal(loop, within_s=config.shutdown_timeout_ms / 1000 + _STOP_MORE_S)
    loop.set_exception_handler(_on_exception)
    store = ZooKeeperStore(
        config.zookeeper, session_timeout_ms=config.session_timeout_ms,
        security=config.cluster_security,
    )  # fmt: skip
    await store.start()
    clock, rng = _WallClock(), random.SystemRandom()
    ledger_config = config.ledger
    if ledger_config.local_rack is None:
        ledger_config = dataclasses.replace(ledger_config, local_rack=config.rack)
    client = LedgerClient(
        store,
        rng=rng,
        clock=clock,
        config=ledger_config,
        bookies=config.cluster_security,
        stats=LedgerStats(time.perf_counter),
    )
    try:
        await client.start()
        ledgers = LedgerAccess(client, config.ledger_password.encode())
        broker = Broker(
            config, store=store, ledgers=ledgers, clock=clock, rng=rng, now_s=time.perf_counter,
            worker=_compaction_worker(config.compaction), objects=_objects(config.offload),
        )  # fmt: skip
        broker.server.connections_that_fit = partial(connections_that_fit, reserved=_OTHER_FILES)
        provide_metadata_requests(broker.metrics, store.request_seconds)
        await _serve(broker, AdminServer(config, broker, resolved.sources), told_to_stop)
    finally:
        await client.close()
        await store.close()
    return 0


def _compaction_worker(config: CompactionConfig) -> ChildWorker | None:
    if not config.in_child:
        return None
    return ChildWorker(
        memory_bytes_max=config.child_memory_bytes_max, timeout_ms=config.child_timeout_ms
    )


def _objects(config: OffloadConfig) -> Objects | None:
    """Return the object store, and threads for the work on what goes there and comes back: it is
    checksums and copying of bytes, a few milliseconds for each of the parts, most of it without the
    interpreter's lock. Raises ConfigError."""
    if config.store_url is None:
        return None
    timeout_s = config.request_timeout_ms / 1000
    store = ObstoreStore(config.store_url, endpoint=config.endpoint or "", timeout_s=timeout_s)
    return Objects(store, asyncio.to_thread)


async def _serve(broker: Broker, admin: AdminServer, told_to_stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    stopping: asyncio.Future[Any] = loop.create_task(told_to_stop.wait())
    collector = Collector()
    collector.start()
    try:
        await admin.start()
        starting: asyncio.Future[Any] = loop.create_task(broker.start(admin.url))
        await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            await stopping
        else:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
    finally:
        stopping.cancel()
        collector.close()
        await broker.close()
        await admin.close()


def _on_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if context.get("is_logged"):
        return  # by who began it again
    log.error("broker.bug message=%s", context.get("message"), exc_info=error)
    if context.get("fatal"):
        # Others fence what this broker led; a half-dead leader would only be in their way.
        logging.shutdown()
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
