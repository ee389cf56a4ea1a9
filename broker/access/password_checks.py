"""Checks passwords on a thread: each check is a long computation on purpose.

Password hashing lets go of the interpreter while it works, so on a thread of its own it keeps
nobody waiting but those who log in with a password. The thread is one, so that guessing costs one
processor at most; checks beyond wait in the order in which they came, each with its connection,
whose number and time are limited.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from broker.security.core.sasl import PasswordCheck


class PasswordChecks:
    """The thread. It begins with the first check."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "passwords")

    async def is_right(self, check: PasswordCheck) -> bool:
        """Say whether it is the password; who is cancelled before its turn costs nothing."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, check.is_right)

    def close(self) -> None:
        """Begin no further check."""
        self._thread.shutdown(wait=False, cancel_futures=True)
