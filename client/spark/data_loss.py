"""What to do when records are missing, or when the topic is another one: `failOnDataLoss`."""

from __future__ import annotations

import logging

from client.spark.errors import DataLost, TopicReplaced

log = logging.getLogger(__name__)


def report_loss(message: str, *, fail: bool) -> None:
    """Raise DataLost if `fail`, otherwise log a warning and let the caller go on."""
    if fail:
        raise DataLost(f"{message}; with failOnDataLoss=false the query goes on with what is there")
    log.warning("%s; going on without, as failOnDataLoss is false", message)


def check_topic_id(topic: str, wanted: str, found: str) -> None:
    """Raise TopicReplaced if two known ids differ."""
    if wanted and found and wanted != found:
        raise TopicReplaced(
            f"topic {topic} was deleted and created again (its id was {wanted} and is {found}): the"
            " offsets of this query mean nothing in it; start with a new checkpoint, or set"
            " failOnDataLoss=false to go on with the new topic from its beginning"
        )
