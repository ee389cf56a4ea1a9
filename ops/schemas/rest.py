"""The REST API, as Confluent's serializers and tools speak it.

    GET    /schemas  /schemas/types  /schemas/ids/ID  .../schema  .../subjects  .../versions
    GET    /subjects  /subjects/S/versions  .../V  .../V/schema  .../V/referencedby
    POST   /subjects/S (look up)  /subjects/S/versions (register)
    DELETE /subjects/S  /subjects/S/versions/V
    POST   /compatibility/subjects/S/versions  .../V
    GET, PUT, DELETE /config  /config/S  /mode  /mode/S
    GET    /contexts  /v1/metadata/id  /v1/metadata/version

Answers are JSON, errors `{"error_code": N, "message": "..."}` with the codes of `core/errors.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from aiohttp import web

from ops.schemas.core import errors
from ops.schemas.core.catalogue import Catalogue, page
from ops.schemas.core.errors import RegistryError
from ops.schemas.core.registry import no_level_of, no_mode_of, parse_number
from ops.schemas.core.schema import Kind, Level, Mode, Schema, Version
from ops.schemas.rest_request import (
    asked_level,
    asked_mode,
    asked_registration,
    asked_schema,
    body,
    flag,
    number,
    schema_guid,
    schema_id,
)
from ops.schemas.service import SchemaService, describe_schema

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_VERSION: Final = "/subjects/{subject}/versions/{version}"


class SchemaRest:
    """Answers requests."""

    def __init__(self, service: SchemaService, catalogue: Catalogue) -> None:
        self._service = service
        self._all = catalogue

    def add_to(self, app: web.Application) -> None:
        """Add all routes."""
        compatibility = "/compatibility/subjects/{subject}/versions"
        app.add_routes(
            [
                web.get("/", self._root),
                web.get("/schemas", self._schemas),
                web.get("/schemas/types", self._types),
                web.get("/schemas/ids/{id}", self._with_id),
                web.get("/schemas/ids/{id}/schema", self._text_with_id),
                web.get("/schemas/ids/{id}/subjects", self._subjects_with_id),
                web.get("/schemas/ids/{id}/versions", self._versions_with_id),
                web.get("/schemas/guids/{guid}", self._with_guid),
                web.get("/subjects", self._subjects),
                web.post("/subjects/{subject}", self._look_up),
                web.delete("/subjects/{subject}", self._delete_subject),
                web.get("/subjects/{subject}/versions", self._versions),
                web.post("/subjects/{subject}/versions", self._register),
                web.get(_VERSION, self._version),
                web.delete(_VERSION, self._delete_version),
                web.get(_VERSION + "/schema", self._version_text),
                web.get(_VERSION + "/referencedby", self._referenced_by),
                web.post(compatibility, self._compare_all),
                web.post(compatibility + "/{version}", self._compare),
                web.get("/contexts", self._contexts),
                web.get("/v1/metadata/id", self._metadata_id),
                web.get("/v1/metadata/version", self._metadata_version),
            ]
        )
        for path in ("/config", "/config/{subject}"):
            app.router.add_get(path, self._level)
            app.router.add_put(path, self._set_level)
            app.router.add_delete(path, self._unset_level)
        for path in ("/mode", "/mode/{subject}"):
            app.router.add_get(path, self._mode)
            app.router.add_put(path, self._set_mode)
            app.router.add_delete(path, self._unset_mode)

    async def _root(self, _request: web.Request) -> web.Response:
        return answer({})

    async def _types(self, _request: web.Request) -> web.Response:
        return answer([one.value for one in Kind])

    async def _contexts(self, _request: web.Request) -> web.Response:
        return answer(["."])

    async def _metadata_id(self, _request: web.Request) -> web.Response:
        clusters = {"schema-registry-cluster": "schema-registry"}
        return answer({"scope": {"path": [], "clusters": clusters}, "id": ""})

    async def _metadata_version(self, _request: web.Request) -> web.Response:
        return answer({"version": "quire", "commitId": ""})

    async def _schemas(self, request: web.Request) -> web.Response:
        prefix, deleted = request.query.get("subjectPrefix", ""), flag(request, "deleted")
        latest = flag(request, "latestOnly")
        found: list[Version] = []
        for name in self._all.subjects(deleted=deleted):
            if name.startswith(prefix):
                versions = self._all.versions(name, deleted=deleted)
                found += versions[-1:] if latest else versions
        part = _page(request, found)
        return answer([self._service.describe(one) for one in part])

    async def _with_id(self, request: web.Request) -> web.Response:
        found = (await self._by_id(request))[0]
        described = describe_schema(found.schema, await self._formatted(request, found.schema))
        if flag(request, "fetchMaxId"):
            described["maxId"] = self._all.last_id
        return answer(described)

    async def _with_guid(self, request: web.Request) -> web.Response:
        found = await self._service.with_guid(schema_guid(request))
        text = await self._formatted(request, found.schema)
        return answer({**describe_schema(found.schema, text), "id": found.id})

    async def _text_with_id(self, request: web.Request) -> web.Response:
        found = (await self._by_id(request))[0]
        return _text(await self._formatted(request, found.schema))

    async def _subjects_with_id(self, request: web.Request) -> web.Response:
        names = sorted({one.subject for one in await self._seen_by_id(request)})
        return answer(list(_page(request, names)))

    async def _versions_with_id(self, request: web.Request) -> web.Response:
        found = _page(request, await self._seen_by_id(request))
        return answer([{"subject": one.subject, "version": one.number} for one in found])

    async def _seen_by_id(self, request: web.Request) -> list[Version]:
        deleted = flag(request, "deleted")
        wanted = request.query.get("subject")
        return [
            one
            for one in await self._service.with_id(schema_id(request))
            if (deleted or not one.is_deleted) and wanted in (None, one.subject)
        ]

    async def _by_id(self, request: web.Request) -> Sequence[Version]:
        """Return the versions with an id, those of the wanted subject first."""
        found = await self._service.with_id(schema_id(request))
        wanted = request.query.get("subject")
        return sorted(found, key=lambda one: one.subject != wanted)

    async def _subjects(self, request: web.Request) -> web.Response:
        deleted, only = flag(request, "deleted"), flag(request, "deletedOnly")
        prefix = request.query.get("subjectPrefix", "")
        names = self._all.subjects(deleted=deleted or only)
        live = frozenset(self._all.subjects()) if only else frozenset()
        found = [one for one in names if one.startswith(prefix) and one not in live]
        return answer(list(_page(request, found)))

    async def _versions(self, request: web.Request) -> web.Response:
        deleted, only = flag(request, "deleted"), flag(request, "deletedOnly")
        found = self._service.registry.live(request.match_info["subject"], deleted=deleted or only)
        numbers = [one.number for one in found if one.is_deleted or not only]
        return answer(list(_page(request, numbers)))

    async def _register(self, request: web.Request) -> web.Response:
        asked = asked_registration(request.match_info["subject"], await body(request))
        version = await self._service.register(asked, normalize=flag(request, "normalize"))
        return answer(self._service.describe(version))

    async def _look_up(self, request: web.Request) -> web.Response:
        schema = asked_schema(await body(request))
        version = await self._service.lookup(
            request.match_info["subject"],
            schema,
            normalize=flag(request, "normalize"),
            deleted=flag(request, "deleted"),
        )
        return answer(self._service.describe(version))

    async def _version(self, request: web.Request) -> web.Response:
        version = await self._asked(request)
        text = await self._formatted(request, version.schema)
        return answer(self._service.describe(version, text))

    async def _version_text(self, request: web.Request) -> web.Response:
        version = await self._asked(request)
        return _text(await self._formatted(request, version.schema))

    async def _referenced_by(self, request: web.Request) -> web.Response:
        found = self._all.referrers(await self._asked(request), deleted=False)
        return answer(list(_page(request, [one.id for one in found])))

    async def _asked(self, request: web.Request) -> Version:
        at = parse_number(request.match_info["version"])
        return await self._service.version(
            request.match_info["subject"], at, deleted=flag(request, "deleted")
        )

    async def _formatted(self, request: web.Request, schema: Schema) -> str:
        name = request.query.get("format", "")
        return await self._service.formatted(schema, name) if name else schema.text

    async def _delete_subject(self, request: web.Request) -> web.Response:
        for_good = flag(request, "permanent")
        subject = request.match_info["subject"]
        return answer(list(await self._service.delete_subject(subject, for_good=for_good)))

    async def _delete_version(self, request: web.Request) -> web.Response:
        at = parse_number(request.match_info["version"])
        for_good = flag(request, "permanent")
        subject = request.match_info["subject"]
        return answer(await self._service.delete_version(subject, at, for_good=for_good))

    async def _compare(self, request: web.Request) -> web.Response:
        schema = asked_schema(await body(request))
        reasons = await self._service.compare(
            request.match_info["subject"],
            parse_number(request.match_info["version"]),
            schema,
            normalize=flag(request, "normalize"),
        )
        return _compared(request, reasons)

    async def _compare_all(self, request: web.Request) -> web.Response:
        schema = asked_schema(await body(request))
        reasons = await self._service.compare_all(
            request.match_info["subject"], schema, normalize=flag(request, "normalize")
        )
        return _compared(request, reasons)

    async def _level(self, request: web.Request) -> web.Response:
        subject = request.match_info.get("subject")
        has_own = subject is None or subject in self._all.levels
        if not has_own and not flag(request, "defaultToGlobal"):
            raise no_level_of(str(subject))
        return answer({"compatibilityLevel": self._service.registry.level(subject).value})

    async def _set_level(self, request: web.Request) -> web.Response:
        level: Level = asked_level(await body(request))
        await self._service.set_level(request.match_info.get("subject"), level)
        return answer({"compatibility": level.value})

    async def _unset_level(self, request: web.Request) -> web.Response:
        before = await self._service.set_level(request.match_info.get("subject"), None)
        return answer({"compatibilityLevel": before.value})

    async def _mode(self, request: web.Request) -> web.Response:
        subject = request.match_info.get("subject")
        has_own = subject is None or subject in self._all.modes
        if not has_own and not flag(request, "defaultToGlobal"):
            raise no_mode_of(str(subject))
        return answer({"mode": self._service.registry.mode(subject).value})

    async def _set_mode(self, request: web.Request) -> web.Response:
        mode: Mode = asked_mode(await body(request))
        subject = request.match_info.get("subject")
        await self._service.set_mode(subject, mode, force=flag(request, "force"))
        return answer({"mode": mode.value})

    async def _unset_mode(self, request: web.Request) -> web.Response:
        before = await self._service.set_mode(request.match_info.get("subject"), None, force=False)
        return answer({"mode": before.value})


def answer(value: Any, status: int = 200) -> web.Response:
    """Return an answer with a JSON value."""
    return web.json_response(value, status=status, content_type=MEDIA_TYPE)


def refusal(error: RegistryError) -> web.Response:
    """Return the answer to a request that was refused."""
    return answer({"error_code": error.code, "message": str(error)}, error.status)


def _page(request: web.Request, items: Sequence[Any]) -> Sequence[Any]:
    return page(items, number(request, "offset", 0), number(request, "limit", -1))


def _compared(request: web.Request, reasons: Sequence[str]) -> web.Response:
    found: dict[str, Any] = {"is_compatible": not reasons}
    if flag(request, "verbose"):
        found["messages"] = list(reasons)
    return answer(found)


def _text(text: str) -> web.Response:
    return web.Response(text=text, content_type=MEDIA_TYPE)


def no_such_path(path: str) -> RegistryError:
    """Say that the API has no such path."""
    return RegistryError(404, f"there is nothing at {path[:200]}")


def wrong_method(method: str, path: str) -> RegistryError:
    """Say that a path does not take a method."""
    return RegistryError(405, f"{path[:200]} does not take {method[:20]}")


def failed(error: BaseException) -> RegistryError:
    """Say that it is our fault."""
    return RegistryError(errors.STORE_FAILED, f"this registry failed: {type(error).__name__}")
