"""Log levels are shown and set over the wire, each broker's by itself."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from client.wire.kafka.apis import ApiKey
from tests.fakes.wire_client import WireClient

BROKER_LOGGER = 8
NAME = "broker.front.server"
SET, DELETE, APPEND = 0, 1, 2


@pytest.fixture(autouse=True)
def levels() -> Iterator[None]:
    """Whatever a test sets is as before afterwards."""
    loggers = [logging.getLogger(name) for name in (None, NAME, "broker.front")]
    before = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


async def describe(client: WireClient, *names: str) -> dict[str, Any]:
    resource = {
        "resource_type": BROKER_LOGGER,
        "resource_name": "1",
        "configuration_keys": list(names) or None,
    }
    answer = await client.call(
        ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource],
        include_synonyms=False, include_documentation=False,
    )  # fmt: skip
    (result,) = answer.results
    assert result.error_code is ErrorCode.none
    return {row.name: row for row in result.configs}


async def alter(
    client: WireClient,
    *changes: tuple[str, int, str | None],
    broker: str = "1",
    validate_only: bool = False,
) -> ErrorCode:
    rows = [
        {"name": name, "config_operation": operation, "value": value}
        for name, operation, value in changes
    ]
    resource = {"resource_type": BROKER_LOGGER, "resource_name": broker, "configs": rows}
    answer = await client.call(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=validate_only
    )
    code: ErrorCode = answer.responses[0].error_code
    return code


async def test_a_level_is_set_shown_and_reset(client: WireClient) -> None:
    logging.getLogger().setLevel(logging.INFO)
    before = await describe(client)
    assert before["root"].value == before[NAME].value == "INFO"
    assert before[NAME].config_source == 6
    assert not before[NAME].read_only
    assert "kazoo.client" not in before
    assert await alter(client, (NAME, SET, "TRACE")) is ErrorCode.none
    assert logging.getLogger(NAME).isEnabledFor(logging.DEBUG)
    assert (await describe(client, NAME))[NAME].value == "TRACE"
    assert await alter(client, (NAME, DELETE, None)) is ErrorCode.none
    assert (await describe(client, NAME))[NAME].value == "INFO"


async def test_a_package_stands_for_all_below_it(client: WireClient) -> None:
    assert await alter(client, ("broker.front", SET, "ERROR")) is ErrorCode.none
    assert (await describe(client, NAME))[NAME].value == "ERROR"


async def test_trying_a_change_changes_nothing(client: WireClient) -> None:
    level = logging.getLogger(NAME).level
    assert await alter(client, (NAME, SET, "FATAL"), validate_only=True) is ErrorCode.none
    assert logging.getLogger(NAME).level == level


@pytest.mark.parametrize(
    ("changes", "asked", "code"),
    [
        ([("nobody", SET, "INFO")], "1", ErrorCode.invalid_config),
        ([(NAME, SET, "LOUD")], "1", ErrorCode.invalid_config),
        ([(NAME, SET, None)], "1", ErrorCode.invalid_request),
        ([(NAME, APPEND, "INFO")], "1", ErrorCode.invalid_request),
        ([("root", DELETE, None)], "1", ErrorCode.invalid_request),
        ([(NAME, SET, "INFO"), (NAME, SET, "WARN")], "1", ErrorCode.invalid_request),
        ([(NAME, SET, "DEBUG")], "2", ErrorCode.invalid_request),
        ([(NAME, SET, "DEBUG"), ("nobody", SET, "INFO")], "1", ErrorCode.invalid_config),
    ],
)
async def test_bad_changes_are_refused_whole(
    client: WireClient,
    changes: list[tuple[str, int, str | None]],
    asked: str,
    code: ErrorCode,
) -> None:
    level = logging.getLogger(NAME).level
    assert await alter(client, *changes, broker=asked) is code
    assert logging.getLogger(NAME).level == level


async def test_levels_are_not_replaced_as_a_whole(client: WireClient) -> None:
    resource = {
        "resource_type": BROKER_LOGGER,
        "resource_name": "1",
        "configs": [{"name": NAME, "value": "DEBUG"}],
    }
    answer = await client.call(ApiKey.ALTER_CONFIGS, 2, resources=[resource], validate_only=False)
    assert answer.responses[0].error_code is ErrorCode.invalid_request
