"""Publish and subscribe from asyncio: `Publisher`, `Subscriber`, `TransactionalPublisher`.

Each is imported when it is first named: a command that only wants an error of this package does not
wait for the codecs of all of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from client.pubsub.errors import PubSubError
    from client.pubsub.publisher import Address, Publisher
    from client.pubsub.subscriber import Positions, Record, Subscriber
    from client.pubsub.topics import TopicAdmin
    from client.pubsub.transactional_publisher import TransactionalPublisher, TransactionSettings

__all__ = [
    "Address",
    "Positions",
    "PubSubError",
    "Publisher",
    "Record",
    "Subscriber",
    "TopicAdmin",
    "TransactionSettings",
    "TransactionalPublisher",
]

_MODULES: Final = {
    "Address": "publisher",
    "Positions": "subscriber",
    "PubSubError": "errors",
    "Publisher": "publisher",
    "Record": "subscriber",
    "Subscriber": "subscriber",
    "TopicAdmin": "topics",
    "TransactionSettings": "transactional_publisher",
    "TransactionalPublisher": "transactional_publisher",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
