"""Says when a file that holds a secret can be read by every user of its machine.

It is a warning and no error: files come from orchestrators and volumes whose modes their owner
cannot always choose. Its group may read it, because that is how a service's user gets files that
root writes.
"""

from __future__ import annotations

import logging
import stat
from pathlib import Path

log = logging.getLogger(__name__)


def warn_of_readers(path: Path | None) -> None:
    """Log a file that others may read; one that is missing is another matter's."""
    if path is None:
        return
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return
    if mode & stat.S_IROTH:
        log.warning(
            "secret.readable path=%s mode=%s hint=%s", path, f"{mode:04o}",
            "every user of this machine can read it; chmod o-rwx",
        )  # fmt: skip
