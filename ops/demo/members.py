"""The group of the demonstration, seen from outside: its processes, progress and journals."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ops.demo import journal
from ops.demo.check import Checker

_STOP_TIMEOUT_S: Final = 15.0


class Members:
    """Member processes of one group. Use it as an async context manager: leaving ends them."""

    def __init__(
        self, count: int, *, bootstrap_servers: str, topic: str, group: str, folder: Path
    ) -> None:
        self._members = [
            _Member(f"member {number}", folder / f"member-{number}.journal")
            for number in range(1, count + 1)
        ]
        self._arguments = [bootstrap_servers, topic, group]

    async def __aenter__(self) -> Members:
        for member in self._members:
            await member.start(self._arguments)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(member.stop() for member in self._members))

    @property
    def received(self) -> int:
        """Count of records handed out so far, repetitions included."""
        return sum(member.received for member in self._members)

    @property
    def commit_failures(self) -> int:
        """Count of commits that a rebalance refused."""
        return sum(member.commit_failures for member in self._members)

    def reached(self, end_offsets: dict[int, int]) -> bool:
        """Tell whether the members together have read every partition to its end."""
        return all(
            end == 0 or any(member.positions.get(partition, 0) >= end for member in self._members)
            for partition, end in end_offsets.items()
        )

    def ended(self) -> str | None:
        """Name a member that ended although nobody asked it to, with its last words."""
        for member in self._members:
            if member.returncode is not None:
                return f"{member.name} ended with code {member.returncode}: {member.last_words()}"
        return None

    def judge(self, checker: Checker) -> None:
        """Tell the checker everything that the members received. Call after leaving."""
        for member in self._members:
            for received in member.read_journal():
                if received is None:
                    checker.on_assigned(member.name)
                    continue
                checker.on_received(
                    member.name,
                    received.partition,
                    received.offset,
                    received.name,
                    received.line,
                    received.value,
                )


class _Member:
    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self._path = path
        self._log_path = path.with_suffix(".log")
        self._process: asyncio.subprocess.Process | None = None
        self._reports: asyncio.Task[None] | None = None
        self.received = 0
        self.commit_failures = 0
        self.positions: dict[int, int] = {}

    async def start(self, arguments: list[str]) -> None:
        with self._log_path.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # a folder `ops` of the user's project must not be taken for ours
                "-m",
                "ops.demo.member",
                *arguments,
                str(self._path),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the demonstration, which ends us in order
            )
        self._reports = asyncio.create_task(self._read_reports(self._process))

    async def _read_reports(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            report: dict[str, Any] = json.loads(line)
            self.received = report["received"]
            self.commit_failures = report["commit_failures"]
            self.positions = {int(p): offset for p, offset in report["positions"].items()}

    @property
    def returncode(self) -> int | None:
        return None if self._process is None else self._process.returncode

    def last_words(self) -> str:
        lines = self._log_path.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    async def stop(self) -> None:
        if self._process is None or self._reports is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(_STOP_TIMEOUT_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await self._reports

    def read_journal(self) -> Iterator[journal.Received | None]:
        return journal.unpack(self._path.read_bytes())
