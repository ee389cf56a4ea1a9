"""The demonstration's own cluster: `quire up` in a process of its own, on free ports."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from client.errors import QuireError
from ops.child import LEASH
from ops.ports import pick_free_runs

BROKER_COUNT: Final = 2
BOOKIE_COUNT: Final = 3
_START_TIMEOUT_S: Final = 120.0
_STOP_TIMEOUT_S: Final = 60.0
_ADMIN_PORT_COUNT: Final = 100 + BOOKIE_COUNT


class ClusterError(QuireError):
    """The cluster did not start."""


class OwnCluster:
    """A cluster that lives as long as this context manager."""

    def __init__(self, folder: Path) -> None:
        """`folder` gets the cluster's data and the log of `quire up`."""
        self._folder = folder
        self._log_path = folder / "up.log"
        self._process: asyncio.subprocess.Process | None = None
        self.bootstrap_servers = ""
        self.zookeeper = ""
        self.brokers: dict[int, int] = {}
        self.bookies: dict[str, int] = {}

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stop()

    async def _start(self) -> None:
        with self._log_path.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(LEASH), str(os.getpid())),
                *(sys.executable, "-P", "-m", "ops.cli.main", "up", "--json", *self._arguments()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the demonstration, which stops us in order
            )
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                line = await self._process.stdout.readline()
        except TimeoutError as error:
            raise ClusterError(
                f"the cluster did not start within {_START_TIMEOUT_S:g} s"
            ) from error
        if not line:
            raise ClusterError(self._last_words())
        about = json.loads(line)
        self.bootstrap_servers = about["bootstrap_servers"]
        self.zookeeper = about["zookeeper"]
        self.brokers = {broker["id"]: broker["pid"] for broker in about["brokers"]}
        self.bookies = {bookie["id"]: bookie["pid"] for bookie in about["bookies"]}

    def _arguments(self) -> Sequence[str]:
        kafka, bookie, admin, zookeeper = pick_free_runs(
            BROKER_COUNT, BOOKIE_COUNT, _ADMIN_PORT_COUNT, 1
        )
        flags = {
            "--data": self._folder / "cluster",
            "--bookies": BOOKIE_COUNT,
            "--brokers": BROKER_COUNT,
            "--kafka-port": kafka,
            "--bookie-port": bookie,
            "--admin-port": admin,
            "--zookeeper-port": zookeeper,
        }
        return [text for flag, value in flags.items() for text in (flag, str(value))]

    def _last_words(self) -> str:
        lines = self._log_path.read_text(errors="replace").strip().splitlines()
        words = lines[-1] if lines else "it said nothing"
        return f"the cluster did not start: {words.removeprefix('quire: ')}"

    async def _stop(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(_STOP_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            process.kill()  # everything it has started is on a leash and ends with it
            await process.wait()
