"""A whole Quire cluster on one machine: ZooKeeper, bookies and brokers under one supervisor.

Covers `quire up`'s behaviour; `ops/cli/up.py` only parses and prints.

Start: claim the data directory, look at disk, ports and Java, start ZooKeeper, make both trees,
start the bookies until all are registered, start the brokers until all answer ApiVersions.
Run: a process that dies is reported with its last lines and started again, sooner at first, later
if it keeps dying. Stop: brokers hand over and go first, then bookies, then ZooKeeper, each within
its time. If the supervisor itself is killed, the leash (`ops/leash.py`) takes all others along.

Everything lies in the data directory: `cluster.json` (what runs now), `prometheus.yml` (what
scrapes it), one `<name>.toml` and one `<name>.log` per process, and its data in the folder of that
name.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from bookie.storage.index.level_db import check_level_db
from client.config import check_ranges, setting
from client.errors import NoNode
from client.ids import BookieId, BrokerId
from client.metadata import paths
from client.metadata.bookkeeper import init_bookkeeper, init_quire
from client.metadata.zookeeper import ZooKeeperStore
from client.security.cluster_security import OPEN_CLUSTER
from ops import probes, zookeeper
from ops.child import Child
from ops.java import find_java
from ops.local.node_files import AT_ONCE, Value, bookie_settings, broker_settings, write_toml
from ops.local.preflight import CannotStart, DataLock, PortUse, check_disk, check_ports
from ops.local.prometheus_file import write_prometheus

if TYPE_CHECKING:
    from ops.local.local_security import LocalSecurity

START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 12.0
"""Bookies and brokers end within 8 s of SIGTERM (`client/node/process.py`)."""
RESTART_DELAYS_S: Final = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
STABLE_AFTER_S: Final = 30.0
"""A process that lived this long starts again with the first delay."""
_HOST: Final = "127.0.0.1"
_POLL_S: Final = 0.05
_BOOKIE_ADMIN_STEP: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalConfig:
    """Settings of a local cluster."""

    data: Path = setting(Path("data"), "Directory for all data, settings and logs.")
    bookies: int = setting(3, "How many bookies (storage nodes).", at_least=1, at_most=99)
    brokers: int = setting(1, "How many brokers.", at_least=1, at_most=99)
    kafka_port: int = setting(9092, "Kafka port of the first broker; broker i takes this plus i.")
    bookie_port: int = setting(3181, "Port of the first bookie; bookie i takes this plus i.")
    admin_port: int = setting(
        9640,
        "HTTP port of the first broker; broker i takes this plus i, bookie i this plus 100 + i.",
    )
    zookeeper_port: int = setting(2181, "Port of the ZooKeeper server that is started.")
    zookeeper: str | None = setting(
        None, "HOST:PORT[,...] of ZooKeeper servers that run already; then none is started."
    )
    no_auto_recovery: bool = setting(
        False, "Do not copy the ledgers of a lost bookie to the others once it is gone for good."
    )
    secure: bool = setting(
        False,
        "TLS, users and access control lists for brokers, TLS and certificates for bookies and"
        " ZooKeeper, TLS and tokens for all admin ports: created once, in DATA, with settings for"
        " clients.",
    )
    no_restart: bool = setting(False, "Report a process that dies, but do not start it again.")

    def __post_init__(self) -> None:
        check_ranges(self)

    def port_uses(self) -> list[PortUse]:
        """Return every port that this cluster will listen on."""
        uses = []
        if self.zookeeper is None:
            uses.append(PortUse(self.zookeeper_port, "ZooKeeper", "--zookeeper-port"))
        for i in range(self.bookies):
            uses.append(PortUse(self.bookie_port + i, f"bookie-{i}", "--bookie-port"))
            admin_port = self.admin_port + _BOOKIE_ADMIN_STEP + i
            uses.append(PortUse(admin_port, f"the admin server of bookie-{i}", "--admin-port"))
        for i in range(self.brokers):
            uses.append(PortUse(self.kafka_port + i, f"broker-{i}", "--kafka-port"))
            uses.append(
                PortUse(self.admin_port + i, f"the admin server of broker-{i}", "--admin-port")
            )
        return uses


class Programs(NamedTuple):
    """How a bookie and a broker are run; `--config FILE` is appended."""

    bookie: tuple[str, ...] = (sys.executable, "-P", "-m", "bookie")
    broker: tuple[str, ...] = (sys.executable, "-P", "-m", "broker")


class Reporter(Protocol):
    """Where progress and bad news go."""

    def begin(self, what: str) -> None:
        """A step starts: "starting ZooKeeper"."""

    def done(self, what: str) -> None:
        """The step is over: "ZooKeeper answers at 127.0.0.1:2181 (1.3 s)"."""

    def warn(self, text: str, lines: Sequence[str] = ()) -> None:
        """Something went wrong; `lines` are the last that the process wrote."""


class LocalCluster:
    """The supervisor. `start`, then leave it running, then `stop`; stop also after a failure."""

    def __init__(
        self,
        config: LocalConfig,
        reporter: Reporter,
        programs: Programs,
        make_security: Callable[[LocalConfig], LocalSecurity] | None = None,
    ) -> None:
        """`make_security`: another one than that of `--secure`."""
        self._config = config
        self._reporter = reporter
        self._programs = programs
        self._make_security = make_security or secure
        self._lock = DataLock(config.data)
        self.security: LocalSecurity | None = None
        self._zookeeper_hosts = config.zookeeper or f"{_HOST}:{config.zookeeper_port}"
        self._zookeeper: list[Child] = []
        self._bookies: list[Child] = []
        self._brokers: list[Child] = []
        self._watchers: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start everything; return when the cluster serves. Raises CannotStart and others of
        QuireError; then `stop` cleans up."""
        config = self._config
        self._lock.acquire()
        check_level_db()
        check_disk(config.data)
        check_ports(config.port_uses())
        if config.secure:
            self.security = self._make_security(config)
        await self._start_zookeeper()
        security = OPEN_CLUSTER if self.security is None else self.security.cluster_security()
        store = ZooKeeperStore(self._zookeeper_hosts, security=security)
        await store.start()
        try:
            rng = random.SystemRandom()
            await init_bookkeeper(store, rng=rng)
            await init_quire(store, rng=rng)
            await self._forget_the_dead(store)
            await self._start_bookies(store)
        finally:
            await store.close()
        await self._start_brokers()
        self._write_state()
        write_prometheus(
            config.data / "prometheus.yml",
            {
                "quire-broker": [config.admin_port + i for i in range(config.brokers)],
                "quire-bookie": [
                    config.admin_port + _BOOKIE_ADMIN_STEP + i for i in range(config.bookies)
                ],
            },
            self.security,
        )
        self._watchers = [
            asyncio.create_task(self._keep(child), name=f"keep-{child.name}")
            for child in self._children()
        ]

    async def stop(self) -> None:
        """Stop brokers, then bookies, then ZooKeeper; nothing of ours runs afterwards."""
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        for what, group in (
            ("brokers", self._brokers),
            ("bookies", self._bookies),
            ("ZooKeeper", self._zookeeper),
        ):
            if any(child.running for child in group):
                self._reporter.begin(f"stopping {what}")
                ends = await asyncio.gather(*(child.stop(STOP_TIMEOUT_S) for child in group))
                for child, in_time in zip(group, ends, strict=True):
                    if not in_time:
                        self._reporter.warn(f"{child.name} did not stop in time and was killed")
        if self._lock.held:
            self._state_path.unlink(missing_ok=True)
            self._lock.release()

    def kill(self) -> None:
        """Kill everything at once: what an impatient second Ctrl-C asks for."""
        for child in self._children():
            child.send(signal.SIGKILL)

    def describe(self) -> dict[str, object]:
        """Return the endpoints and process ids, as `quire up --json` prints them."""
        config = self._config
        return {
            "bootstrap_servers": ",".join(
                f"{_HOST}:{config.kafka_port + i}" for i in range(config.brokers)
            ),
            "zookeeper": self._zookeeper_hosts,
            "brokers": [
                {
                    "id": i,
                    "pid": child.pid,
                    "kafka": config.kafka_port + i,
                    "admin": config.admin_port + i,
                }
                for i, child in enumerate(self._brokers)
            ],
            "bookies": [
                {
                    "id": self._bookie_id(i),
                    "pid": child.pid,
                    "port": config.bookie_port + i,
                    "admin": config.admin_port + _BOOKIE_ADMIN_STEP + i,
                }
                for i, child in enumerate(self._bookies)
            ],
            "zookeeper_pid": self._zookeeper[0].pid if self._zookeeper else None,
            "pid": os.getpid(),
            "data": str(config.data.resolve()),
            "client_config": str(self.security.client_config) if self.security else None,
            "cluster_config": str(self.security.cluster_config) if self.security else None,
        }

    @property
    def _state_path(self) -> Path:
        return self._config.data / "cluster.json"

    def _write_state(self) -> None:
        scratch = self._state_path.with_suffix(".new")
        scratch.write_text(json.dumps(self.describe()) + "\n")
        scratch.replace(self._state_path)

    def _children(self) -> list[Child]:
        return [*self._zookeeper, *self._bookies, *self._brokers]

    def _bookie_id(self, i: int) -> BookieId:
        return BookieId(f"{_HOST}:{self._config.bookie_port + i}")

    async def _start_zookeeper(self) -> None:
        config = self._config
        if config.zookeeper is not None:
            self._reporter.begin(f"looking for ZooKeeper at {config.zookeeper}")
            return
        self._reporter.begin("starting ZooKeeper")
        began_s = time.monotonic()
        tls, context = None, None
        if self.security is not None:
            security = self.security.cluster_security()
            if security.zookeeper_tls:
                tls, context = zookeeper.server_tls(security), security.contexts().get()
        server = zookeeper.make_server(
            find_java(),
            folder=config.data / "zookeeper",
            log_path=config.data / "zookeeper.log",
            port=config.zookeeper_port,
            tls=tls,
        )
        self._zookeeper.append(server)
        await server.start()
        await self._until(server, lambda: zookeeper.answers(_HOST, config.zookeeper_port, context))
        took_s = time.monotonic() - began_s
        self._reporter.done(f"ZooKeeper answers at {self._zookeeper_hosts} ({took_s:.1f} s)")

    async def _forget_the_dead(self, store: ZooKeeperStore) -> None:
        """Delete the registrations of a cluster that was killed: their sessions need not expire.

        The lock and the free ports say that none of these processes lives. In a ZooKeeper that
        is not ours, others may use the same names.
        """
        if self._config.zookeeper is not None:
            return
        stale = [paths.broker(BrokerId(i)) for i in range(self._config.brokers)]
        for i in range(self._config.bookies):
            bookie_id = self._bookie_id(i)
            stale += [paths.available_bookie(bookie_id), paths.readonly_bookie(bookie_id)]
        for path in stale:
            with contextlib.suppress(NoNode):
                await store.delete(path)

    async def _start_bookies(self, store: ZooKeeperStore) -> None:
        config = self._config
        self._reporter.begin(f"starting {_count(config.bookies, 'bookie')}")
        began_s = time.monotonic()
        stale = [await self._registration(store, i) for i in range(config.bookies)]
        for i in range(config.bookies):
            settings = bookie_settings(
                port=config.bookie_port + i,
                admin_port=config.admin_port + _BOOKIE_ADMIN_STEP + i,
                data_dir=config.data / f"bookie-{i}",
                zookeeper=self._zookeeper_hosts.split(","),
                auto_recovery=not config.no_auto_recovery,
            )
            if self.security is not None:
                settings |= self.security.bookie_settings()
            self._bookies.append(self._node(f"bookie-{i}", self._programs.bookie, settings))
        for child in self._bookies:
            await child.start()

        async def is_registered(i: int) -> bool:
            # A registration left by a crash is not ours: it has the owner seen before the start.
            owner = await self._registration(store, i)
            return owner not in (0, stale[i]) and await probes.accepts(
                _HOST, config.bookie_port + i
            )

        for i, child in enumerate(self._bookies):
            await self._until(child, partial(is_registered, i))
        took_s = time.monotonic() - began_s
        self._reporter.done(f"{_count(config.bookies, 'bookie')} registered ({took_s:.1f} s)")

    async def _registration(self, store: ZooKeeperStore, i: int) -> int:
        """Return the session that registered a bookie, writable or not; 0 if none did."""
        bookie_id = self._bookie_id(i)
        for path in (paths.available_bookie(bookie_id), paths.readonly_bookie(bookie_id)):
            node = await store.exists(path)
            if node is not None:
                return node.ephemeral_owner
        return 0

    async def _start_brokers(self) -> None:
        config = self._config
        self._reporter.begin(f"starting {_count(config.brokers, 'broker')}")
        began_s = time.monotonic()
        for i in range(config.brokers):
            settings = (
                broker_settings(
                    node_id=i,
                    port=config.kafka_port + i,
                    admin_port=config.admin_port + i,
                    zookeeper=self._zookeeper_hosts.split(","),
                    bookie_count=config.bookies,
                )
                | AT_ONCE
            )
            if self.security is not None:
                del settings["port"]
                settings |= self.security.broker_settings(config.kafka_port + i)
            self._brokers.append(self._node(f"broker-{i}", self._programs.broker, settings))
        for child in self._brokers:
            await child.start()

        async def sees_all(i: int) -> bool:
            # Each learns of the others by a watch; a client may ask any of them.
            port = config.kafka_port + i
            if self.security is None:
                known = await probes.kafka_brokers(_HOST, port)
            else:
                known = await asyncio.to_thread(self.security.known_brokers, _HOST, port)
            return known.issuperset(range(config.brokers))

        for i, child in enumerate(self._brokers):
            await self._until(child, partial(sees_all, i))
        if self.security is not None:
            await asyncio.to_thread(self.security.make_users, _HOST, config.kafka_port)
        took_s = time.monotonic() - began_s
        self._reporter.done(f"{_count(config.brokers, 'broker')} serving ({took_s:.1f} s)")

    def _node(self, name: str, program: tuple[str, ...], settings: dict[str, Value]) -> Child:
        file = self._config.data / f"{name}.toml"
        write_toml(file, settings)
        root = str(Path(__file__).resolve().parents[2])
        known = os.environ.get("PYTHONPATH")
        return Child(
            name,
            [*program, "--config", str(file.resolve())],
            log_path=self._config.data / f"{name}.log",
            environ={
                **os.environ,
                "PYTHONPATH": f"{root}{os.pathsep}{known}" if known else root,
                # A folder `client` or `broker` of the user's project must not be taken for ours.
                "PYTHONSAFEPATH": "1",
            },
        )

    async def _until(self, child: Child, ready: Callable[[], Awaitable[bool]]) -> None:
        """Poll until a starting process serves. Raises CannotStart when it ends or takes ages."""
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not await ready():
            if not child.running:
                how = await child.wait()
                self._reporter.warn(f"{child.name} said:", child.last_lines())
                raise CannotStart(
                    f"{child.name} ended while it started ({how}): its log is {child.log_path}"
                )
            if time.monotonic() > deadline_s:
                raise CannotStart(
                    f"{child.name} did not get ready within {START_TIMEOUT_S:g} s:"
                    f" see {child.log_path}"
                )
            await asyncio.sleep(_POLL_S)

    async def _keep(self, child: Child) -> None:
        """Report every death of a process; start it again, later each time if it keeps dying."""
        deaths = 0
        while True:
            began_s = time.monotonic()
            pid, how = child.pid, await child.wait()
            self._reporter.warn(
                f"{child.name} (pid {pid}) died: {how}; its last lines in {child.log_path}:",
                child.last_lines(),
            )
            if self._config.no_restart:
                return
            deaths = 0 if time.monotonic() - began_s > STABLE_AFTER_S else deaths
            delay_s = RESTART_DELAYS_S[min(deaths, len(RESTART_DELAYS_S) - 1)]
            deaths += 1
            await asyncio.sleep(delay_s)
            await child.start()
            self._write_state()
            self._reporter.done(f"{child.name} started again (pid {child.pid})")


def secure(config: LocalConfig) -> LocalSecurity:
    """Make what `--secure` needs, or read it. Raises ConfigError."""
    from ops.local.local_security import LocalSecurity  # needs a package of an extra

    made = LocalSecurity(config.data, has_zookeeper=config.zookeeper is None)
    made.prepare()
    return made


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
