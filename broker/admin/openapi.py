"""The OpenAPI 3.1 document, built from the table that also routes and checks requests."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final

from broker.admin import problems
from broker.admin.operation import Operation
from broker.admin.request import JSON, PREFIX
from broker.admin.schema import Schema

_ALWAYS: Final = (400, 401, 403, 422, 500, 503)
"""Any request can be wrong, not allowed, or reach a broker that cannot answer now."""
_WITH_BODY: Final = (413, 415)
_ELSEWHERE: Final = (502, 504)
"""A request that another broker answers can fail on the way."""
_PROBLEM: Final = {"$ref": "#/components/responses/Problem"}
_ABOUT: Final = (
    "Inspects and controls a Quire cluster. Any broker answers for all of it; a request that only"
    " one broker can answer is forwarded to it. Errors are problem+json documents that say what"
    " to do. Lists come in pages: pass the `next` of one page as the `after` of the following one."
)


def document(
    operations: Sequence[Operation],
    path_parameters: Mapping[str, Schema],
    components: Mapping[str, Schema],
) -> dict[str, Any]:
    """Return the whole document, ready for JSON."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        item = paths.setdefault(PREFIX + operation.path, {})
        item[operation.method.lower()] = _operation(operation, path_parameters)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Quire admin API",
            "version": version("quire"),
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name} for name in dict.fromkeys(one.tag for one in operations)],
        "paths": paths,
        "components": {
            "schemas": {
                **components, "Problem": problems.SCHEMA, "Fault": problems.FAULT_SCHEMA,
            },
            "responses": {
                "Problem": {
                    "description": "What went wrong, and what to do.",
                    "content": {
                        problems.MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}
                    },
                }
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        # Either is fine: a broker without a token asks for none.
        "security": [{"token": []}, {}],
    }  # fmt: skip


def parameters_of(path: str) -> list[str]:
    """Return the names in braces."""
    return re.findall(r"{(\w+)}", path)


def _operation(operation: Operation, path_parameters: Mapping[str, Schema]) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, **_parameter(path_parameters[name])}
        for name in parameters_of(operation.path)
    ]
    parameters += [
        {"name": name, "in": "query", "required": False, **_parameter(schema)}
        for name, schema in operation.query.items()
    ]
    statuses = {*_ALWAYS, *operation.problems}
    if operation.takes:
        statuses |= {*_WITH_BODY}
    if operation.where is not None:
        statuses |= {*_ELSEWHERE}
    described: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": f"Needs role {operation.role.word}.",
        "parameters": parameters,
        "responses": {
            **{str(status): _success(operation) for status in operation.status},
            **{str(status): _PROBLEM for status in sorted(statuses)},
        },
    }
    if operation.takes:
        described["requestBody"] = {"required": True, "content": _content(operation.takes)}
    return described


def _parameter(schema: Schema) -> dict[str, Any]:
    bare = {name: value for name, value in schema.items() if name != "description"}
    return {"description": schema.get("description", ""), "schema": bare}


def _success(operation: Operation) -> dict[str, Any]:
    if not operation.gives:
        return {"description": operation.summary}
    return {"description": operation.summary, "content": _content(operation.gives)}


def _content(media: Mapping[str, Schema]) -> dict[str, Any]:
    return {name: {"schema": schema} for name, schema in media.items()}


__all__ = ["JSON", "document", "parameters_of"]
