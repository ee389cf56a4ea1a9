"""Bodies that are not what their headers say, and JSON of other types than asked for.

Each HTTP server answers 4xx in its own form, logs no traceback, and goes on.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final, NamedTuple

import aiohttp
import pytest
from yarl import URL

from bookie.admin.cluster import ClusterAdmin
from broker.admin.request import JSON, PREFIX
from broker.admin.table import OPERATIONS
from client.autorecovery.metrics import PROGRAM_TABLE
from client.ids import BookieId
from client.metadata import paths
from client.metadata.bookkeeper import init_bookkeeper
from client.node.exposition import Exposition
from client.pubsub.brokers import Brokers
from ops.autorecovery import AdminServer, AutoRecoveryProgram
from ops.schemas import program
from ops.schemas.config import SchemasConfig
from ops.schemas.core.catalogue import Catalogue
from tests.fakes.admin import AdminCloud
from tests.fakes.bookie_box import FixedClock
from tests.fakes.clock import rng
from tests.unit.bookie.test_bookie import Machine
from tests.unit.ops.schemas.test_rest import MemoryLog

Fields = Mapping[str, Any]


class Place(NamedTuple):
    """Where a server takes a body."""

    method: str
    path: str
    sample: Any
    """A JSON body that it understands."""


class Served(NamedTuple):
    """A server, by what its clients see of it."""

    url: str
    places: list[Place]
    is_own_form: Callable[[aiohttp.ClientResponse, bytes], bool]


SCHEMA: Final = {"schema": '"int"', "schemaType": "AVRO", "references": []}
REGISTRY_PLACES: Final = [
    Place("POST", "/subjects/s", SCHEMA),
    Place("POST", "/subjects/s/versions", SCHEMA | {"id": 1, "version": 1}),
    Place("POST", "/compatibility/subjects/s/versions", SCHEMA),
    Place("POST", "/compatibility/subjects/s/versions/latest", SCHEMA),
    Place("PUT", "/config", {"compatibility": "FULL"}),
    Place("PUT", "/config/s", {"compatibility": "FULL"}),
    Place("PUT", "/mode", {"mode": "READONLY"}),
    Place("PUT", "/mode/s", {"mode": "READONLY"}),
]
BOOKIE_PLACES: Final = [
    Place("PUT", "/api/v1/bookie/state/readonly", {"readOnly": True}),
    Place("PUT", "/api/v1/bookie/gc", {"forceMajor": True, "forceMinor": True}),
    Place("PUT", "/api/v1/bookie/gc/suspend_compaction", {"suspendMajor": True}),
    Place("PUT", "/api/v1/bookie/gc/resume_compaction", {"resumeMajor": True}),
    Place("PUT", "/api/v1/autorecovery/lost_bookie_recovery_delay", {"delay_seconds": 9}),
    Place("PUT", "/api/v1/autorecovery/decommission", {"bookie_src": "b9"}),
    Place("PUT", "/api/v1/autorecovery/bookie", {"bookie_src": ["b9"], "delete_cookie": True}),
]
BROKER_SAMPLES: Final[dict[str, Any]] = {
    "create_topic": {"partition_count": 1, "replication_factor": 1, "settings": {}},
    "change_topic": {"partition_count": 2, "settings": {"retention.ms": "1"}},
    "move_partition": {"broker_id": 1},
    "trim_partition": {"before_offset": 0},
    "publish_to_topic": {"records": [{"key": "k", "value": "v", "value_encoding": "base64"}]},
    "publish_to_partition": {"records": [{"key": None, "value": "v", "headers": []}]},
    "reset_offsets": {"places": [{"topic": "t", "partition": 0, "offset": 0}]},
    "change_group_config": {"settings": {"consumer.session.timeout.ms": "45000"}},
    "replay_dead_letters": {"group": "g", "offset": 0, "limit": 1, "dry_run": True},
    "find_lags": {"places": [{"group": "g", "topic": "t", "partition": 0}]},
}


@pytest.fixture
async def broker() -> AsyncIterator[Served]:
    async with AdminCloud(control_request_bytes_max=1 << 20) as cloud:
        await cloud.ask("PUT", f"{PREFIX}/topics/t", json={"partition_count": 1}, status=201)
        names = {"topic": "t", "partition": "0", "group": "g", "broker_id": "1"}
        places = [
            Place(one.method, PREFIX + one.path.format_map(names), BROKER_SAMPLES[one.name])
            for one in OPERATIONS
            if JSON in one.takes
        ]
        yield Served(
            cloud.admins[1].url,
            places,
            lambda answer, _: answer.content_type == "application/problem+json",
        )


@pytest.fixture
async def bookie() -> AsyncIterator[Served]:
    machine = Machine()
    made = machine.make(admin_host="127.0.0.1", admin_port=0, free_bytes_min=0)
    cluster = ClusterAdmin(
        machine.store, me=BookieId("a"), root=paths.LEDGERS_ROOT, clock=FixedClock(), rng=rng()
    )
    made._admin_routes = cluster.routes()
    await init_bookkeeper(machine.store, rng=machine.rng)
    await made.start()
    yield Served(
        f"http://127.0.0.1:{made.admin_port}",
        BOOKIE_PLACES,
        lambda answer, body: answer.content_type == "text/plain" and body.count(b"\n") <= 1,
    )
    await made.stop()


class _MemoryLog(MemoryLog):
    unreadable_count = 0

    def __init__(self, _brokers: Brokers, _topic: str, catalogue: Catalogue) -> None:
        super().__init__(catalogue)

    async def start(self, _replication_factor: int) -> None:
        pass

    async def close(self) -> None:
        pass


@pytest.fixture
async def registry(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    monkeypatch.setattr(program, "SchemaLog", _MemoryLog)
    config = SchemasConfig(port=0, schema_bytes_max=1 << 20)
    async with program.SchemaServer(config, Brokers("127.0.0.1:1")).running() as port:
        yield Served(
            f"http://127.0.0.1:{port}",
            REGISTRY_PLACES,
            lambda _, body: set(json.loads(body)) == {"error_code", "message"},
        )


@pytest.fixture(params=["broker", "bookie", "registry"])
def served(request: pytest.FixtureRequest) -> Served:
    found: Served = request.getfixturevalue(request.param)
    return found


async def _send(
    session: aiohttp.ClientSession, served: Served, place: Place, body: bytes, fields: Fields
) -> int:
    """Return the status of an answer; fail unless it has the server's own form."""
    headers = {"Content-Type": "application/json", **fields}
    url = URL(served.url + place.path, encoded=True)
    async with session.request(place.method, url, data=body, headers=headers) as answer:
        found = await answer.read()
        if answer.status >= 400:
            assert served.is_own_form(answer, found), (place, fields, answer.status, found[:300])
        return answer.status


SAMPLE: Final = b'{"schema": "\\"int\\"", "compatibility": "FULL", "mode": "READONLY"}'
GZIP: Final = gzip.compress(SAMPLE)
BAD_ENCODINGS: Final[Mapping[str, tuple[bytes, Fields]]] = {
    "said to be gzip": (SAMPLE, {"Content-Encoding": "gzip"}),
    "half a gzip": (GZIP[:-9], {"Content-Encoding": "gzip"}),
    "gzip with a wrong checksum": (GZIP[:-8] + bytes(8), {"Content-Encoding": "gzip"}),
    "gzip and more": (GZIP + b"more", {"Content-Encoding": "gzip"}),
    "gzip of nothing that is JSON": (gzip.compress(b"{"), {"Content-Encoding": "gzip"}),
    "gzip of much": (gzip.compress(bytes(20 << 20)), {"Content-Encoding": "gzip"}),
    "no bytes as gzip": (b"", {"Content-Encoding": "gzip"}),
    "said to be deflate": (SAMPLE, {"Content-Encoding": "deflate"}),
    "half a deflate": (zlib.compress(SAMPLE)[:-4], {"Content-Encoding": "deflate"}),
    "said to be br": (SAMPLE, {"Content-Encoding": "br"}),
    "said to be zstd": (b"\x28\xb5\x2f\xfd", {"Content-Encoding": "zstd"}),
    "an encoding that nobody knows": (SAMPLE, {"Content-Encoding": "klingon"}),
    "two encodings": (gzip.compress(GZIP), {"Content-Encoding": "gzip, gzip"}),
    "no UTF-8": (b'{"mode": "\xff"}', {}),
    "Latin-1": (
        '{"mode": "\u00e9"}'.encode("latin-1"),
        {"Content-Type": "application/json; charset=latin-1"},
    ),
    "half of UTF-16": ("{}".encode("utf-16")[:-1], {}),
    "a charset that nobody knows": (b"{", {"Content-Type": "application/json; charset=klingon"}),
    "a charset that is no text": (b"{", {"Content-Type": "application/json; charset=zlib"}),
    "no JSON": (b"{", {}),
    "nothing but a NUL": (b"\0", {}),
    "a list": (b"[]", {}),
    "a number": (b"1", {}),
    "null": (b"null", {}),
    "deeply nested": (b'{"mode":' * 100_000, {}),
    "a number of many digits": (b'{"mode": ' + b"9" * 100_000 + b"}", {}),
}


@pytest.mark.parametrize("name", BAD_ENCODINGS)
async def test_a_body_that_is_not_its_encoding_is_the_clients_mistake(
    served: Served, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    body, fields = BAD_ENCODINGS[name]
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        for place in served.places:
            status = await _send(session, served, place, body, fields)
            assert 400 <= status < 500, (name, place)
    _check_log(caplog)


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "GZIP", "deflate", "bare", "identity"])
async def test_a_body_that_is_its_encoding_is_read(registry: Served, encoding: str) -> None:
    bare = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    made = {
        "deflate": zlib.compress(SAMPLE),
        "bare": bare.compress(SAMPLE) + bare.flush(),
        "identity": SAMPLE,
    }.get(encoding, GZIP)
    fields = {"Content-Encoding": "deflate" if encoding == "bare" else encoding}
    async with aiohttp.ClientSession() as session:
        for place in registry.places[1:2]:
            assert await _send(session, registry, place, made, fields) == 200


async def test_bodies_that_end_too_early_leave_no_traceback(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    url = URL(served.url)
    assert url.host is not None and url.port is not None
    for framing in (
        b"Content-Length: 100\r\n\r\n{",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\n{",
        b"Content-Encoding: gzip\r\nContent-Length: 100\r\n\r\n" + GZIP[:20],
    ):
        for place in served.places:
            reader, writer = await asyncio.open_connection(url.host, url.port)
            head = f"{place.method} {place.path} HTTP/1.1\r\nHost: {url.host}:{url.port}\r\n"
            writer.write(head.encode() + b"Content-Type: application/json\r\n" + framing)
            await writer.drain()
            writer.write_eof()
            await reader.read()
            writer.close()
    _check_log(caplog)


ODD: Final = (
    None, True, 0, -1, 1.5, 1e308, 10**30, "", "x", "\0", "\ud800", "9" * 50, [], [None], [[]], {},
    {"": None}, {"name": 1}, [{"name": "n", "subject": "s", "version": 10**400}],
    '{"type": "record"', '[]', '{"type": "\ud800"}', "PROTOBUF", "JSON", {"\ud800": "\ud800"},
)  # fmt: skip


def _changed(value: Any, random_: random.Random) -> Any:
    """Return a JSON value of which a part is another type than it was."""
    if isinstance(value, dict) and value and random_.random() < 0.9:
        name = random_.choice(sorted(value))
        return {**value, name: _changed(value[name], random_)}
    if isinstance(value, list) and value and random_.random() < 0.6:
        return [_changed(value[0], random_), *value[1:]]
    return random_.choice(ODD)


@pytest.mark.parametrize("seed", range(4))
async def test_json_of_other_types_is_the_clients_mistake(
    served: Served, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    random_ = random.Random(seed)
    async with aiohttp.ClientSession() as session:
        for place in served.places:
            for _ in range(25):
                value = place.sample
                for _ in range(random_.randint(1, 3)):
                    value = _changed(value, random_)
                text = json.dumps(value).replace("1e+308", "1e999")
                status = await _send(session, served, place, text.encode(), {})
                assert status < 500, (place, text[:500])
    _check_log(caplog)


async def test_probes_ignore_bodies(caplog: pytest.LogCaptureFixture) -> None:
    """The port of auto recovery takes no bodies: what is sent to it changes nothing."""
    settings = AutoRecoveryProgram(admin_port=0)
    admin = AdminServer(Exposition(PROGRAM_TABLE), settings, settings.admin_host)
    port = await admin.start(0)
    served = Served(f"http://127.0.0.1:{port}", [], lambda _answer, _body: True)
    place = Place("GET", "/heartbeat", None)
    async with aiohttp.ClientSession() as session:
        for body, fields in BAD_ENCODINGS.values():
            assert await _send(session, served, place, body, fields) == 200
    await admin.close()
    _check_log(caplog)


def _check_log(caplog: pytest.LogCaptureFixture) -> None:
    bad = [one for one in caplog.records if one.exc_info]
    assert not bad, bad[0].getMessage()
