"""What a Produce request says about all of its batches, and whether they may be written at all."""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.access.rights import WRITE_TOPIC, WRITE_TRANSACTIONAL_ID
from broker.errors import InvalidRequiredAcks
from broker.front.services import Call, Services

PRODUCE_NEEDS: Final = (WRITE_TOPIC, WRITE_TRANSACTIONAL_ID)


class ProduceTerms(NamedTuple):
    """Of one request."""

    services: Services
    call: Call
    acks: int = -1
    transactional_id: str | None = None

    def check(self, topic: str) -> None:
        """Raise InvalidRequiredAcks, or AuthorizationFailed if the client may not write here."""
        if self.acks not in (-1, 0, 1):
            raise InvalidRequiredAcks(f"acks is {self.acks}")
        rights = self.services.rights
        if rights.is_on:
            if self.transactional_id is not None:
                rights.require(self.call.peer, WRITE_TRANSACTIONAL_ID, self.transactional_id)
            rights.require(self.call.peer, WRITE_TOPIC, topic)
