"""Publish and subscribe from asyncio: `Publisher`, `Subscriber`, `TopicAdmin`."""

from client.pubsub.errors import PubSubError
from client.pubsub.publisher import Address, Publisher
from client.pubsub.subscriber import Record, Subscriber
from client.pubsub.topics import TopicAdmin

__all__ = ["Address", "PubSubError", "Publisher", "Record", "Subscriber", "TopicAdmin"]
