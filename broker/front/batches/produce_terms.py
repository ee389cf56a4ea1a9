"""What a Produce request says about all of its batches, and whether they may be written at all."""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.access.rights import WRITE_TOPIC, WRITE_TRANSACTIONAL_ID
from broker.errors import InvalidRequiredAcks, UnknownTopicId
from broker.front.services import Call, Services
from client.fast_tuple import new_tuple
from client.wire.kafka.answer_parts import Topic

PRODUCE_NEEDS: Final = (WRITE_TOPIC, WRITE_TRANSACTIONAL_ID)
_KNOWN_ACKS: Final = (-1, 0, 1)


class ProduceTerms(NamedTuple):
    """Of one request."""

    services: Services
    call: Call
    acks: int
    transactional_id: str | None
    are_checked: bool
    """Whether `check` may find anything; not where everybody may write, and `acks` is known."""

    def name(self, topic: Topic) -> str:
        """Return a topic's name. Raises UnknownTopicId."""
        if isinstance(topic, str):
            return topic
        known = self.services.cluster.topic_by_id.get(topic)
        if known is None:
            raise UnknownTopicId(f"no topic has the id {topic}")
        return known.name

    def check(self, topic: str) -> None:
        """Raise InvalidRequiredAcks, or AuthorizationFailed if the client may not write here."""
        if self.acks not in _KNOWN_ACKS:
            raise InvalidRequiredAcks(f"acks must be -1, 0 or 1, not {self.acks}")
        rights = self.services.rights
        if rights.is_on:
            if self.transactional_id is not None:
                rights.require(self.call.peer, WRITE_TRANSACTIONAL_ID, self.transactional_id)
            rights.require(self.call.peer, WRITE_TOPIC, topic)


def terms_of(
    services: Services, call: Call, acks: int, transactional_id: str | None
) -> ProduceTerms:
    """Return what a request says about all of its batches."""
    are_checked = services.rights.is_on or acks not in _KNOWN_ACKS
    terms: ProduceTerms = new_tuple(
        ProduceTerms, (services, call, acks, transactional_id, are_checked)
    )
    return terms
