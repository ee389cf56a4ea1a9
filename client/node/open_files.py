"""How many files a server may have open, and so how many connections it can take.

A connection is an open file. A server that takes more than the system grants cannot open its own
files any more, a bookie's log for one; so the limit of connections gives way.
"""

from __future__ import annotations

import logging
import resource
from typing import Final

log = logging.getLogger(__name__)

_RESERVED_PART: Final = 4
"""Of few files a quarter is the server's own."""
_KERNEL_FILES_MIN: Final = 10_240
"""What macOS grants a process (OPEN_MAX) whose stated limit is "unlimited"."""


def connections_that_fit(wanted: int, *, reserved: int) -> int:
    """Raise this process's limit of open files as far as needed and allowed.

    Returns `wanted`, or how many connections fit beside `reserved` files of other kinds; logs that.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + reserved
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = _raised(soft, needed if hard == resource.RLIM_INFINITY else min(needed, hard), hard)
    fitting = fit(wanted, reserved, None if soft == resource.RLIM_INFINITY else soft)
    if fitting < wanted:
        log.warning("connections.limited fitting=%d wanted=%d files=%d", fitting, wanted, soft)
    return fitting


def _raised(soft: int, asked: int, hard: int) -> int:
    """Raise the limit to `asked`, or as far as the system lets us; return what it is then."""
    for limit in (asked, _KERNEL_FILES_MIN):
        if limit > soft:
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            except (OSError, ValueError):
                continue  # macOS: the kernel's own limit is lower than the one it states
            return limit
    return soft


def fit(wanted: int, reserved: int, files: int | None) -> int:
    """Return how many connections fit into this many open files; None: there is no limit."""
    if files is None:
        return wanted
    return max(1, min(wanted, files - min(reserved, files // _RESERVED_PART)))
