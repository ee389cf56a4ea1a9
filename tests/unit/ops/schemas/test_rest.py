"""The REST API over a log in memory: paths, answers, codes, and what is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from ops.schemas.core.catalogue import Catalogue
from ops.schemas.core.errors import RegistryError
from ops.schemas.core.log_records import decode, encode
from ops.schemas.core.registry import Registry
from ops.schemas.core.schema import Kind, Schema
from ops.schemas.rest import SchemaRest, refusal
from ops.schemas.service import SchemaService

INT, LONG, STRING = '"int"', '"long"', '"string"'


class MemoryLog:
    """Stands in for the topic; what another registry wrote arrives with `catch_up`."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._turn = asyncio.Lock()
        self.others: list[Any] = []

    async def catch_up(self) -> None:
        for one in self.others:
            self._catalogue.apply(one)
        self.others.clear()

    async def write(self, decide: Any) -> Any:
        async with self._turn:
            await self.catch_up()
            answer, changes = await decide()
            for one in changes:
                change = decode(*encode(one))
                assert change is not None
                self._catalogue.apply(change)
            return answer


@web.middleware
async def refused(request: web.Request, handler: Any) -> web.StreamResponse:
    try:
        return await handler(request)
    except RegistryError as error:
        return refusal(error)


class Api:
    def __init__(self, client: TestClient, log: MemoryLog) -> None:
        self._client = client
        self.log = log

    async def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        async with self._client.request(method, path, json=body) as response:
            assert response.content_type == "application/vnd.schemaregistry.v1+json"
            found = json.loads(await response.read())
            if response.status != 200:
                assert isinstance(found["message"], str) and found["message"]
                found = found["error_code"]
            return response.status, found

    async def ok(self, method: str, path: str, body: Any = None) -> Any:
        status, found = await self(method, path, body)
        assert status == 200, found
        return found


def with_guid(text: str, **more: Any) -> dict[str, Any]:
    """What answers say of an Avro schema, whose guid clients put into headers."""
    return {**more, "schema": text, "guid": str(Schema(Kind.AVRO, text).guid)}


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    catalogue = Catalogue()
    log = MemoryLog(catalogue)
    service = SchemaService(log, catalogue, Registry(catalogue), 10_000)  # type: ignore[arg-type]
    app = web.Application(middlewares=[refused])
    SchemaRest(service, catalogue).add_to(app)
    async with TestClient(TestServer(app)) as client:
        yield Api(client, log)


async def test_register_look_up_and_read(api: Api) -> None:
    registered = await api.ok("POST", "/subjects/s/versions", {"schema": INT})
    assert registered == with_guid(INT, subject="s", version=1, id=1)
    assert await api.ok("POST", "/subjects/s/versions", {"schema": " " + INT}) == registered
    assert await api.ok("POST", "/subjects/s", {"schema": INT}) == registered
    assert (await api.ok("POST", "/subjects/s/versions", {"schema": LONG}))["version"] == 2
    assert await api.ok("GET", "/subjects") == ["s"]
    assert await api.ok("GET", "/subjects/s/versions") == [1, 2]
    assert (await api.ok("GET", "/subjects/s/versions/latest"))["schema"] == LONG
    assert await api.ok("GET", "/subjects/s/versions/1/schema") == "int"
    assert await api.ok("GET", "/schemas/ids/2") == with_guid(LONG)
    assert await api.ok("GET", "/schemas/ids/1?fetchMaxId=true") == with_guid(INT, maxId=2)
    guid = registered["guid"]
    assert await api.ok("GET", f"/schemas/guids/{guid}") == with_guid(INT, id=1)
    assert await api.ok("GET", "/schemas/ids/1/schema") == "int"
    assert await api.ok("GET", "/schemas/ids/1/subjects") == ["s"]
    assert await api.ok("GET", "/schemas/ids/1/versions") == [{"subject": "s", "version": 1}]
    assert [one["version"] for one in await api.ok("GET", "/schemas?latestOnly=true")] == [2]
    assert await api.ok("GET", "/schemas/types") == ["AVRO", "JSON", "PROTOBUF"]


async def test_other_languages_are_named(api: Api) -> None:
    body = {"schema": '{"type": "string"}', "schemaType": "JSON"}
    found = await api.ok("POST", "/subjects/s/versions", body)
    assert found["schemaType"] == "JSON"
    assert (await api.ok("GET", "/schemas/ids/1"))["schemaType"] == "JSON"
    assert await api("POST", "/subjects/s/versions", {"schema": INT}) == (409, 409)
    assert await api("POST", "/subjects/s/versions", {**body, "schemaType": "XML"}) == (422, 422)


async def test_normalized_it_is_the_same_schema(api: Api) -> None:
    one = '{"type":"fixed","name":"f","size":4}'
    other = '{"size":4,"name":"f","type":"fixed"}'
    first = await api.ok("POST", "/subjects/s/versions?normalize=true", {"schema": one})
    again = await api.ok("POST", "/subjects/s/versions?normalize=true", {"schema": other})
    assert first == again


async def test_compatibility(api: Api) -> None:
    compare = "/compatibility/subjects/s/versions"
    assert await api.ok("POST", compare, {"schema": INT}) == {"is_compatible": True}
    await api.ok("POST", "/subjects/s/versions", {"schema": LONG})
    found = await api.ok("POST", compare + "/latest?verbose=true", {"schema": INT})
    assert found["is_compatible"] is False and "long" in found["messages"][0]
    assert await api.ok("POST", compare, {"schema": INT}) == {"is_compatible": False}
    assert await api("POST", "/subjects/s/versions", {"schema": INT}) == (409, 409)
    assert await api.ok("PUT", "/config/s", {"compatibility": "forward"}) == {
        "compatibility": "FORWARD"
    }
    await api.ok("POST", "/subjects/s/versions", {"schema": INT})
    assert await api("POST", compare + "/7", {"schema": INT}) == (404, 40402)
    assert await api("POST", "/compatibility/subjects/t/versions/1", {"schema": INT}) == (
        404,
        40401,
    )


async def test_levels_and_modes(api: Api) -> None:
    assert await api.ok("GET", "/config") == {"compatibilityLevel": "BACKWARD"}
    assert await api("GET", "/config/s") == (404, 40408)
    assert await api.ok("GET", "/config/s?defaultToGlobal=true") == {
        "compatibilityLevel": "BACKWARD"
    }
    await api.ok("PUT", "/config", {"compatibility": "NONE"})
    assert await api.ok("DELETE", "/config") == {"compatibilityLevel": "NONE"}
    assert await api("PUT", "/config", {"compatibility": "SOME"}) == (422, 42203)
    assert await api("PUT", "/config", {"compatibility": "NONE", "alias": "t"}) == (422, 422)
    assert await api.ok("GET", "/mode") == {"mode": "READWRITE"}
    assert await api("GET", "/mode/s") == (404, 40409)
    assert await api.ok("PUT", "/mode/s", {"mode": "READONLY"}) == {"mode": "READONLY"}
    assert await api("POST", "/subjects/s/versions", {"schema": INT}) == (422, 42205)
    assert await api.ok("DELETE", "/mode/s") == {"mode": "READONLY"}
    assert await api("PUT", "/mode", {"mode": "X"}) == (422, 42204)


async def test_deletes(api: Api) -> None:
    await api.ok("POST", "/subjects/s/versions", {"schema": INT})
    await api.ok("POST", "/subjects/s/versions", {"schema": LONG})
    assert await api.ok("DELETE", "/subjects/s/versions/latest") == 2
    assert await api.ok("GET", "/subjects/s/versions?deletedOnly=true") == [2]
    assert (await api.ok("GET", "/subjects/s/versions/2?deleted=true"))["schema"] == LONG
    assert await api("GET", "/subjects/s/versions/2") == (404, 40402)
    assert await api.ok("DELETE", "/subjects/s") == [1]
    assert await api("GET", "/subjects/s/versions") == (404, 40401)
    assert await api.ok("GET", "/subjects?deleted=true") == ["s"]
    assert await api.ok("GET", "/subjects?deletedOnly=true") == ["s"]
    assert await api.ok("GET", "/schemas/ids/1") == with_guid(INT)
    assert await api.ok("GET", "/schemas/ids/1/subjects") == []
    assert await api.ok("DELETE", "/subjects/s?permanent=true") == [1, 2]
    assert await api("GET", "/schemas/ids/1") == (404, 40403)


async def test_references(api: Api) -> None:
    user = '{"type":"record","name":"U","fields":[]}'
    await api.ok("POST", "/subjects/u/versions", {"schema": user})
    references = [{"name": "U", "subject": "u", "version": 1}]
    body = {"schema": '{"type":"array","items":"U"}', "references": references}
    found = await api.ok("POST", "/subjects/t/versions", body)
    assert found["references"] == references
    assert await api.ok("GET", "/subjects/u/versions/1/referencedby") == [found["id"]]
    resolved = await api.ok("GET", f"/schemas/ids/{found['id']}?format=resolved")
    assert json.loads(resolved["schema"])["items"]["name"] == "U"
    body["references"] = [{"name": "U", "subject": "u", "version": 2}]
    assert await api("POST", "/subjects/t/versions", body) == (422, 42201)


async def test_what_another_registry_wrote_is_found(api: Api) -> None:
    record = (
        b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
        b'{"subject":"s","version":1,"id":5,"schema":"\\"int\\"","deleted":false}',
    )
    api.log.others = [decode(*record)]
    assert await api.ok("GET", "/schemas/ids/5") == with_guid(INT)


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("POST", "/subjects/s/versions", {"schema": "{"}, 42201),
        ("POST", "/subjects/s/versions", {}, 42201),
        ("POST", "/subjects/s/versions", [], 422),
        ("POST", "/subjects/s/versions", {"schema": INT, "references": 5}, 422),
        ("POST", "/subjects/s/versions", {"schema": INT, "references": [{}]}, 422),
        ("POST", "/subjects/s/versions", {"schema": INT, "id": "x"}, 422),
        ("POST", "/subjects/s/versions", {"schema": INT, "id": 5}, 42205),
        ("POST", "/subjects/s/versions", {"schema": INT, "ruleSet": {"x": 1}}, 422),
        ("POST", "/subjects/s/versions", {"schema": '"' + "x" * 10_000 + '"'}, 42201),
        ("POST", "/subjects/s/versions?normalize=maybe", {"schema": INT}, 422),
        ("POST", "/subjects/:.c:s/versions", {"schema": INT}, 42208),
        ("POST", "/subjects/s", {"schema": INT}, 40401),
        ("GET", "/subjects/s/versions/0", None, 42202),
        ("GET", "/subjects/s/versions/x", None, 42202),
        ("GET", "/schemas/ids/99999", None, 40403),
        ("GET", "/schemas/ids/x", None, 40403),
        ("GET", "/schemas/guids/x", None, 40403),
        ("GET", "/schemas/guids/00000000-0000-0000-0000-000000000001", None, 40403),
        ("GET", "/subjects?limit=x", None, 422),
        ("DELETE", "/config/s", None, 40408),
    ],
)
async def test_refusals(api: Api, method: str, path: str, body: Any, code: int) -> None:
    status, found = await api(method, path, body)
    assert found == code and status == (code if code < 1000 else code // 100)
