"""A ZooKeeper server for one machine, out of PySpark's jars, as a child process.

It listens on loopback, keeps transactions durable (its default), cleans up old snapshots, and
writes to one log file. `QuorumPeerMain` without a quorum runs the same standalone server as
`ZooKeeperServerMain`, plus the task that purges old snapshots.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Final

from ops.child import Child
from ops.java import Java, zookeeper_class_path

_PROBE_TIMEOUT_S: Final = 1.0

_CONFIG: Final = """\
dataDir={data_dir}
clientPort={port}
clientPortAddress=127.0.0.1
tickTime=500
minSessionTimeout=1000
maxSessionTimeout=60000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=ruok,srvr,mntr
autopurge.snapRetainCount=3
autopurge.purgeInterval=1
"""

_LOGGING: Final = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %-5p %c{1} %m%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
"""

_JVM: Final = (
    "-Xms32m",
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+ExitOnOutOfMemoryError",
    "-Dzookeeper.preAllocSize=4096",
    "-Djava.net.preferIPv4Stack=true",
)


def make_server(java: Java, *, folder: Path, log_path: Path, port: int) -> Child:
    """Write the server's files into `folder` and return its process, not yet started.

    Raises JavaMissing when the server's jars are not there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "zoo.cfg"
    data_dir = str((folder / "data").resolve()).replace("\\", "\\\\")
    config.write_text(_CONFIG.format(data_dir=data_dir, port=port))
    logging = folder / "log4j2.properties"
    logging.write_text(_LOGGING)
    return Child(
        "zookeeper",
        [
            str(java.path),
            *_JVM,
            f"-Dlog4j.configurationFile={logging.resolve()}",
            "-cp",
            zookeeper_class_path(),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(config.resolve()),
        ],
        log_path=log_path,
    )


async def answers(host: str, port: int) -> bool:
    """Tell whether a ZooKeeper server says that it is well (`ruok`, `imok`)."""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_PROBE_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(b"ruok")
                return await reader.read(4) == b"imok"
            finally:
                writer.close()
    return False
