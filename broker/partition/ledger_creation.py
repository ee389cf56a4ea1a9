"""Creates a partition's ledgers, and labels them with the partition they were created for.

Takeovers and rolls create ledgers. Later on, for example in the sweep of orphans, the custom
metadata of a ledger tells which partition it belongs to.
"""

from __future__ import annotations

import logging
from typing import Final

from broker.cluster.core.topology import TopicInfo
from broker.partition.ledgers import Ledgers, PlannedLedger, Writer
from client.ids import LeaderEpoch, LedgerId

_LOG = logging.getLogger(__name__)

APPLICATION: Final = "application"
APPLICATION_NAME: Final = b"quire"
TOPIC_ID: Final = "quire.topic_id"
PARTITION: Final = "quire.partition"
LEADER_EPOCH: Final = "quire.leader_epoch"


def ledger_labels(topic: TopicInfo, index: int, epoch: LeaderEpoch) -> dict[str, bytes]:
    """Return the custom metadata that says what a ledger is created for."""
    return {
        APPLICATION: APPLICATION_NAME,
        TOPIC_ID: topic.id_text.encode(),
        PARTITION: str(index).encode(),
        LEADER_EPOCH: str(epoch).encode(),
    }


async def create_ledger(
    ledgers: Ledgers, topic: TopicInfo, index: int, epoch: LeaderEpoch
) -> Writer:
    """Create a ledger for a partition, with the topic's quorums.

    If there are too few bookies it has fewer copies, but never fewer than the ack quorum; see
    `under_replicated_roller.py` for what happens then. Raises LedgerError, MetadataError.
    """
    writer = await ledgers.create(
        ensemble_size=topic.ensemble_size,
        write_quorum=topic.write_quorum,
        ack_quorum=topic.ack_quorum,
        write_quorum_min=topic.ack_quorum,
        custom_metadata=ledger_labels(topic, index, epoch),
    )
    warn_if_shrunk(writer, topic, index)
    return writer


async def plan_ledger(
    ledgers: Ledgers,
    topic: TopicInfo,
    index: int,
    epoch: LeaderEpoch,
    ledger_id: LedgerId | None = None,
) -> PlannedLedger:
    """Return such a ledger for the caller to create; `ledger_id`: if it was taken.

    Raises LedgerError, MetadataError.
    """
    return await ledgers.plan(
        ensemble_size=topic.ensemble_size,
        write_quorum=topic.write_quorum,
        ack_quorum=topic.ack_quorum,
        write_quorum_min=topic.ack_quorum,
        ledger_id=ledger_id,
        custom_metadata=ledger_labels(topic, index, epoch),
    )


def warn_if_shrunk(writer: Writer, topic: TopicInfo, index: int) -> None:
    """Log that a new ledger has fewer copies than its topic asks for."""
    copies = writer.metadata.write_quorum
    if copies < topic.write_quorum:
        _LOG.warning(
            "ledger.shrunk topic=%s partition=%d ledger=%d copies=%d wanted=%d",
            topic.name, index, writer.ledger_id, copies, topic.write_quorum,
        )  # fmt: skip
