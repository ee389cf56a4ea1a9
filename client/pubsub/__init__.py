"""Publish and subscribe from asyncio: `Publisher`, `Subscriber`, `TransactionalPublisher`."""

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
