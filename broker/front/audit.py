"""Who has changed what: one event for each change by an API, of whatever is no record.

What was refused is `request.denied` and `login.refused`. Names are logged, passwords never. No
change is left out: each has cost a write of the metadata store, or of a log.
"""

from __future__ import annotations

from typing import Final

from broker.front.services import Call
from client.node.logs import SECURITY
from client.wire.kafka.apis import ApiKey

_log = SECURITY

_CHARS_MAX: Final = 249


def note(call: Call, what: str) -> None:
    """Log a change that was made."""
    user, api = call.user[:_CHARS_MAX], ApiKey(call.api_key).name.lower()
    _log.info(
        "request.changed user=%r peer=%s api=%s what=%r",
        user, call.peer.host, api, what[:_CHARS_MAX],
    )  # fmt: skip
