"""The generator of requests: the same for the same seed, and no field is left alone."""

from __future__ import annotations

from client.wire.kafka.apis import ApiKey, request_type, schema_versions
from tests.integration.differential.bases import BASES
from tests.integration.differential.conversation import differences
from tests.integration.differential.generator import requests
from tests.integration.differential.known import put_in
from tests.integration.differential.plain_wire import request_frame, shapes

VERSIONS = {int(key): schema_versions(key) for key in BASES}


def test_a_seed_has_its_requests() -> None:
    first, second = (list(map(str, requests(7, 1_500, VERSIONS))) for _ in range(2))
    assert first == second
    assert list(map(str, requests(8, 1_500, VERSIONS))) != first


def test_every_version_is_asked_as_it_should_be() -> None:
    plan = list(requests(1, 1_000, VERSIONS))
    unchanged = {(one.key, one.version) for one in plan if "as it should be" in one.changes}
    wanted = {
        (ApiKey(key), version)
        for key, (low, high) in VERSIONS.items()
        for version in range(low, high + 1)
    }
    assert wanted <= unchanged


def test_every_field_is_changed_sometime_and_every_request_can_be_sent() -> None:
    said: dict[ApiKey, str] = {}
    for one in requests(1, 8_000, VERSIONS):
        said[one.key] = said.get(one.key, "") + one.changes
        assert request_frame(one.key, one.version, 1, put_in(one.fields, {}))
    for key, (_, high) in VERSIONS.items():
        for shape in shapes(request_type(key, high)):
            is_wait = shape.name in ("timeout", "max_wait")
            if shape.tag is None and not is_wait:
                assert shape.name in said[ApiKey(key)], (key, shape.name)


def test_topics_without_an_id_are_compared_wherever_they_stand() -> None:
    def row(topic_id: str | None, code: str) -> dict[str, object]:
        return {"topic_id": topic_id, "partitions": [{"index": 0, "error_code": code}]}

    kafka = [row(None, "unknown_topic_id"), row("a", "none")]
    quire = [row("b", "none"), row(None, "unknown_topic_id"), row("a", "none")]
    assert list(differences(kafka, quire)) == [("[b]", None, quire[0])]
    quire[1] = row(None, "none")
    assert ("[no id].partitions[0].error_code", "unknown_topic_id", "none") in list(
        differences(kafka, quire)
    )
