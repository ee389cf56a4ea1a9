"""Schemathesis holds the admin API to its own OpenAPI document.

It makes requests that follow the document and requests that break it in one place, and judges
every answer: documented status and media type, body as its schema says, wrong requests refused,
right ones not, no server error. Two brokers stand behind the API, so about half of the answers
are passed on. `make admin-api` runs it with many more requests.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, settings

from broker.admin import table
from tests.fakes.admin import AdminCloud
from tests.unit.broker.admin.test_groups import commit, fill, topic

EXAMPLES = int(os.environ.get("QUIRE_ADMIN_API_EXAMPLES", "6"))
KNOWN = {"topic": "t", "partition": 0, "broker_id": 2, "group": "g", "offset": 0}
"""What there is; a random name would mostly lead to 404."""

schema = schemathesis.openapi.from_dict(table.DOCUMENT)
# A request may follow the document and still be impossible: a topic cannot shrink.
schema.config.checks.positive_data_acceptance.expected_statuses += ["413", "422"]
# Other requests move partitions and unload brokers: then leaders are away for a moment.
schema.config.checks.not_a_server_error.expected_statuses += ["502", "503", "504"]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Where a small cluster listens; it runs in a thread, because the client blocks."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> AdminCloud:
        cloud = await AdminCloud(2, topic_partitions_max=4).__aenter__()
        await topic(cloud, 2)
        await fill(cloud, 0, 5, 6, 7)
        await commit(cloud, "g", p0=1)
        return cloud

    cloud = asyncio.run_coroutine_threadsafe(start(), loop).result(30)
    yield cloud.admins[1].url
    asyncio.run_coroutine_threadsafe(cloud.__aexit__(None, None, None), loop).result(30)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
def test_the_api_is_what_its_document_says(case: schemathesis.Case, url: str) -> None:
    for name, value in KNOWN.items():
        given = case.path_parameters.get(name)
        if case.operation.method != "delete" and len(str(given)) % 2:
            case.path_parameters[name] = value
    case.call_and_validate(base_url=url)
