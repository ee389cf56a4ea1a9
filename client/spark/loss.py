"""What happens when records are missing: `failOnDataLoss`.

This file is the only home of that option's two meanings and of the sentence that tells people
what they can do.
"""

from __future__ import annotations

import logging

from client.spark.errors import DataLost

log = logging.getLogger(__name__)


def report_loss(message: str, *, fail: bool) -> None:
    """Raise DataLost if `fail`, otherwise log a warning and let the caller go on."""
    if fail:
        raise DataLost(f"{message}; with failOnDataLoss=false the query goes on with what is there")
    log.warning("%s; going on without, as failOnDataLoss is false", message)
