"""The document describes the table, and the table holds what the issue of operators needs."""

from __future__ import annotations

import re

import jsonschema_rs
import pytest

from broker.admin import table
from broker.admin.openapi import parameters_of
from broker.admin.operation import Operation
from broker.admin.request import PREFIX
from tests.fakes.admin import AdminCloud

ROWS = pytest.mark.parametrize("operation", table.OPERATIONS, ids=lambda one: one.name)


async def test_it_is_served_as_it_is() -> None:
    async with AdminCloud() as cloud:
        answer = await cloud.ask("GET", "/openapi.json", status=200)
        assert answer.body == table.DOCUMENT
        assert answer.body["openapi"] == "3.1.0"


def test_names_and_places_are_there_once() -> None:
    names = [one.name for one in table.OPERATIONS]
    places = [(one.method, one.path) for one in table.OPERATIONS]
    assert len(names) == len(dict.fromkeys(names))
    assert len(places) == len(dict.fromkeys(places))


@ROWS
def test_rows_are_complete(operation: Operation) -> None:
    assert operation.summary.endswith(".")
    assert re.fullmatch(r"[a-z_]+", operation.name)
    assert set(parameters_of(operation.path)) <= set(table.PATH)
    described = table.DOCUMENT["paths"][PREFIX + operation.path][operation.method.lower()]
    assert described["operationId"] == operation.name
    # What changes nothing takes no body, and what another broker answers can fail on the way.
    assert operation.method != "GET" or not operation.takes
    assert (operation.where is not None) <= ("502" in described["responses"])


def test_every_component_is_used_and_every_reference_leads_somewhere() -> None:
    text = str(table.DOCUMENT)
    used = set(re.findall(r"#/components/schemas/(\w+)", text))
    assert used == set(table.DOCUMENT["components"]["schemas"])


def test_schemas_are_json_schema() -> None:
    for schema in table.DOCUMENT["components"]["schemas"].values():
        jsonschema_rs.meta.validate(
            {**schema, "$schema": "https://json-schema.org/draft/2020-12/schema"}
        )


def test_a_list_has_pages() -> None:
    for operation in table.OPERATIONS:
        if operation.name.startswith("list_"):
            assert {"limit", "after"} <= set(operation.query), operation.name
