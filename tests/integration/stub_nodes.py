"""Stand-ins for `python -m bookie` and `python -m broker`: just enough for the supervisor.

A stub registers, or answers Metadata with all brokers that have settings beside its own; it says
in its log when it is told to stop, and fails at the start when its settings directory holds a file
`<name>.refuse`.
"""

import asyncio
import signal
import struct
import sys
import time
import tomllib
from pathlib import Path

from client.ids import BookieId
from client.metadata import paths
from client.metadata.zookeeper import ZooKeeperStore


async def bookie(settings: dict, stop: asyncio.Event) -> None:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", settings["port"])
    store = ZooKeeperStore(settings["zookeeper"], session_timeout_ms=20_000)
    await store.start()
    node = paths.available_bookie(BookieId(f"127.0.0.1:{settings['port']}"))
    gone = asyncio.Event()
    if await store.exists(node, gone.set) is not None:  # of a killed predecessor
        await gone.wait()
    await store.create(node, ephemeral=True)
    print("registered", flush=True)
    await stop.wait()
    await store.close()
    server.close()


async def broker(settings: dict, stop: asyncio.Event) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readexactly(18)
        correlation_id = request[8:12]
        count = len(list(config.parent.glob("broker-*.toml")))
        known = [struct.pack(">ihih", broker, 0, 9092, -1) for broker in range(count)]
        body = struct.pack(">i", count) + b"".join(known)
        writer.write(struct.pack(">i4s", 4 + len(body), correlation_id) + body)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", settings["port"])
    print("serving", flush=True)
    await stop.wait()
    server.close()


async def main(settings: dict) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    program = {"bookie": bookie, "broker": broker}[sys.argv[1]]
    await program(settings, stop)
    print(f"stopped at {time.time():.6f}", flush=True)


config = Path(sys.argv[sys.argv.index("--config") + 1])
if config.with_suffix(".refuse").exists():
    sys.exit(f"{config.stem}: refused")
asyncio.run(main(tomllib.loads(config.read_text())))
