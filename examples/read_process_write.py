"""Read orders, write bills: each order billed exactly once, whenever this program dies.

The bills and the group's position in the orders are parts of one transaction, so either both are
there or neither. Start it, kill it, start it again: it goes on where the last transaction ended,
and who reads the bills as committed data never sees half of one.

    python examples/read_process_write.py
"""

import asyncio
import os

from client.pubsub import Publisher, Subscriber, TopicAdmin, TransactionalPublisher
from client.pubsub.errors import TopicExists

BOOTSTRAP_SERVERS = os.environ.get("QUIRE_BOOTSTRAP", "localhost:9092")
ORDERS = os.environ.get("QUIRE_TOPIC", "orders")
BILLS = f"{ORDERS}-bills"


def bill_for(order: bytes) -> bytes:
    """Return what the customer has to pay."""
    customer, amount = order.split(b" ")
    return b"%s owes %d" % (customer, int(amount) * 100)


async def publish_orders() -> None:
    """Make the topics, and something to do."""
    async with TopicAdmin(BOOTSTRAP_SERVERS) as topics:
        for name in (ORDERS, BILLS):
            try:
                await topics.create(name, partition_count=2)
            except TopicExists:
                print(f"topic {name} is there already")
    async with Publisher(BOOTSTRAP_SERVERS) as publisher:
        for number in range(100):
            customer = b"customer-%d" % (number % 7)
            await publisher.enqueue(ORDERS, b"%s %d" % (customer, number), key=customer)


async def bill() -> int:
    """Bill what there is; return how many orders that was."""
    billed = 0
    async with (
        Subscriber(
            ORDERS,
            bootstrap_servers=BOOTSTRAP_SERVERS,
            group="biller",
            isolation_level="read_committed",
        ) as orders,
        TransactionalPublisher("biller-1", BOOTSTRAP_SERVERS) as publisher,
    ):
        while records := await orders.next_batch(timeout_ms=3000):
            async with publisher.transaction():
                for record in records:
                    await publisher.enqueue(BILLS, bill_for(record.value or b""), key=record.key)
                await publisher.send_offsets(orders.positions())
            billed += len(records)
    return billed


async def main() -> None:
    await publish_orders()
    print(f"billed {await bill()} orders")


asyncio.run(main())
