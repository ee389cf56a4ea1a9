"""Who has changed what: one event for each change of topics, users, entries and quotas by an API.

What was refused is `request.denied` and `login.refused`. Names are logged, passwords never.
"""

from __future__ import annotations

import logging
from typing import Final

from broker.front.services import Call
from client.node.logs import AT_WILL
from client.wire.kafka.apis import ApiKey

log = logging.getLogger(__name__)

_CHARS_MAX: Final = 249


def note(call: Call, what: str) -> None:
    """Log a change that was made."""
    user, api = call.user[:_CHARS_MAX], ApiKey(call.api_key).name.lower()
    log.info(
        "request.changed user=%r peer=%s api=%s what=%r",
        user, call.peer.host, api, what[:_CHARS_MAX], extra=AT_WILL,
    )  # fmt: skip
