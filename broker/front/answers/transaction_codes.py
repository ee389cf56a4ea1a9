"""What the handlers of transactions have in common: error codes, and who asks."""

from __future__ import annotations

from broker.errors import BrokerError, OldConnection
from broker.faults import code_of
from broker.front.services import Call
from broker.transactions.core.transaction_types import Client
from broker.transactions.old_versions import for_version
from client.errors import QuireError
from client.ids import ProducerId
from client.wire.kafka.apis import ApiKey


def client_of(call: Call) -> Client:
    """Return who asks, for operators."""
    return Client(call.client_id or "", call.peer.host)


def transaction_code(error: QuireError, call: Call, producer_id: ProducerId) -> int:
    """Return the code to answer a call of a transactional producer with.

    Raises OldConnection again: that has no code, the connection is closed.
    """
    if isinstance(error, OldConnection):
        raise error
    if isinstance(error, BrokerError):
        error = for_version(error, ApiKey(call.api_key), call.version, producer_id)
    return code_of(error)
