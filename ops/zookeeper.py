"""A ZooKeeper server for one machine, as a child process; `ops/zookeeper_jars.py` has its jars.

It listens on loopback, keeps transactions durable (its default), cleans up old snapshots, and
writes to one log file. `QuorumPeerMain` without a quorum runs the same standalone server as
`ZooKeeperServerMain`, plus the task that purges old snapshots.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from pathlib import Path
from typing import Final, NamedTuple

from client.security.cluster_security import ClusterSecurity
from ops.child import Child
from ops.java import Java
from ops.zookeeper_jars import find_jars

_PROBE_TIMEOUT_S: Final = 1.0

_CONFIG: Final = """\
dataDir={data_dir}
{listen}
tickTime=500
minSessionTimeout=1000
maxSessionTimeout=60000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=ruok,srvr,mntr
autopurge.snapRetainCount=3
autopurge.purgeInterval=1
"""

_PLAIN: Final = """\
clientPort={port}
clientPortAddress=127.0.0.1"""

_SECURE: Final = """\
secureClientPort={port}
secureClientPortAddress=127.0.0.1
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
ssl.clientAuth=need
ssl.keyStore.type=PEM
ssl.keyStore.location={keys}
ssl.trustStore.type=PEM
ssl.trustStore.location={ca}"""

LOGGING: Final = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %-5p %c{1} %m%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
"""
"""Settings of the server's log: one line each, to its output."""

_JVM: Final = (
    "-Xms32m",
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+ExitOnOutOfMemoryError",
    "-Dzookeeper.preAllocSize=4096",
    "-Djava.net.preferIPv4Stack=true",
)


class ServerTls(NamedTuple):
    """What a server needs that speaks TLS only, and asks clients for certificates."""

    cert: Path
    key: Path
    ca: Path


def server_tls(security: ClusterSecurity) -> ServerTls:
    """Let a server have the certificate of the cluster's programs, and ask for it."""
    cert, key, ca = security.tls_cert, security.tls_key, security.tls_ca
    assert cert is not None and key is not None and ca is not None, "they were just made"
    return ServerTls(cert, key, ca)


def make_server(
    java: Java, *, folder: Path, log_path: Path, port: int, tls: ServerTls | None = None
) -> Child:
    """Write the server's files into `folder` and return its process, not yet started.

    Raises JarsMissing when the server's jars are not there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "zoo.cfg"
    data_dir = str((folder / "data").resolve()).replace("\\", "\\\\")
    listen = _PLAIN.format(port=port)
    if tls is not None:
        keys = folder / "keys.pem"
        keys.touch(mode=0o600)
        keys.write_bytes(tls.key.read_bytes() + tls.cert.read_bytes())
        listen = _SECURE.format(port=port, keys=keys.resolve(), ca=tls.ca.resolve())
    config.write_text(_CONFIG.format(data_dir=data_dir, listen=listen))
    logging = folder / "log4j2.properties"
    logging.write_text(LOGGING)
    return Child("zookeeper", server_command(java, config, logging), log_path=log_path)


def server_command(java: Java, config: Path, logging: Path) -> list[str]:
    """Return the command line of a server. Raises JarsMissing."""
    return [
        str(java.path),
        *_JVM,
        f"-Dlog4j.configurationFile={logging.resolve()}",
        "-cp",
        os.pathsep.join(map(str, find_jars())),
        "org.apache.zookeeper.server.quorum.QuorumPeerMain",
        str(config.resolve()),
    ]


async def answers(host: str, port: int, context: ssl.SSLContext | None = None) -> bool:
    """Tell whether a ZooKeeper server says that it is well (`ruok`, `imok`)."""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_PROBE_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port, ssl=context)
            try:
                writer.write(b"ruok")
                return await reader.read(4) == b"imok"
            finally:
                writer.close()
    return False
