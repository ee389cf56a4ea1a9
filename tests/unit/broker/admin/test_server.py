"""The broker's HTTP server: health, guard, checks, and who must answer."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import aiohttp
import pytest

from broker.admin.server import AdminServer
from client.errors import ConfigError
from tests.fakes.admin import AdminCloud, until
from tests.fakes.broker import CONFIG, FakeCloud


async def test_health_readiness_and_metrics() -> None:
    cloud = FakeCloud()
    broker = await cloud.start_broker(1)
    admin = AdminServer(dataclasses.replace(CONFIG, admin_port=0), broker)
    await admin.start()

    async def get(path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.get(admin.url + path) as answer:
            return answer.status, await answer.text()

    assert await get("/healthz") == (200, "ok\n")
    assert await get("/readyz") == (200, "ready\n")
    status, text = await get("/metrics")
    assert status == 200
    assert "quire_broker_connections 0.0" in text
    assert 'quire_groups{state="Stable"} 0.0' in text
    assert "process_resident_memory_bytes" in text
    await cloud.close()
    assert await get("/readyz") == (503, "not ready: starting, or stopping\n")
    assert await get("/healthz") == (200, "ok\n")
    await admin.close()


async def test_a_broker_is_ready_when_its_partitions_are_led() -> None:
    async with AdminCloud() as cloud:
        gate = cloud.cloud.ledgers.gate["create"] = asyncio.Event()
        await cloud.send("PUT", "/topics/t", {"partition_count": 2}, status=201)
        answer = await cloud.ask("GET", "/readyz", status=503)
        assert answer.body == b"not ready: t-0 is not led yet\nnot ready: t-1 is not led yet\n"
        gate.set()
        await cloud.led("t")
        assert (await cloud.ask("GET", "/readyz", status=200)).body == b"ready\n"


async def test_a_broker_without_its_metadata_session_is_not_ready() -> None:
    async with AdminCloud() as cloud:
        cloud.cloud.tree.suspend(cloud.cloud.stores[1])
        answer = await cloud.ask("GET", "/readyz", status=503)
        assert answer.body == b"not ready: the metadata session is lost\n"
        cloud.cloud.tree.resume(cloud.cloud.stores[1])


async def test_it_can_be_switched_off() -> None:
    cloud = FakeCloud()
    admin = AdminServer(CONFIG, await cloud.start_broker(1))
    assert await admin.start() == 0
    assert admin.url == ""
    await admin.close()
    await cloud.close()


async def test_before_the_broker_has_started_it_says_so() -> None:
    async with AdminCloud() as cloud:
        cloud.brokers[1].is_started = False
        problem = await cloud.get("/cluster", status=503)
        assert problem["type"] == "urn:quire:problem:starting"
        assert problem["retriable"] is True
        cloud.brokers[1].is_started = True


# --- the guard ------------------------------------------------------------------------------


async def test_with_a_token_nothing_of_the_api_goes_without_it() -> None:
    async with AdminCloud(2, admin_token="s3cret") as cloud:
        for headers in ({}, {"Authorization": "Basic s3cret"}, {"Authorization": "Bearer wrong"}):
            answer = await cloud.ask("GET", "/admin/v1/cluster", headers=headers, status=401)
            assert answer.headers["WWW-Authenticate"] == "Bearer"
            assert answer.headers["Content-Type"].startswith("application/problem+json")
            assert "admin_token" in answer.body["hint"]
        right = {"Authorization": "Bearer s3cret"}
        # Brokers know the token of each other: this is answered by the other one.
        assert (await cloud.ask("GET", "/admin/v1/brokers/2", headers=right)).status == 200
        for path in ("/healthz", "/readyz", "/openapi.json"):
            assert (await cloud.ask("GET", path)).status == 200
        await cloud.ask("GET", "/metrics", status=401)
        await cloud.ask("GET", "/metrics", headers=right, status=200)


async def test_a_probe_without_a_token_learns_no_names() -> None:
    async with AdminCloud(admin_token="s3cret") as cloud:
        cloud.cloud.ledgers.gate["create"] = asyncio.Event()
        right = {"Authorization": "Bearer s3cret"}
        made = {"partition_count": 2}
        await cloud.ask("PUT", "/admin/v1/topics/t", json=made, status=201, headers=right)
        answer = await cloud.ask("GET", "/readyz", status=503)
        assert answer.body == b"not ready: 2 reasons, which a token of role look is told\n"
        assert b"t-0" in (await cloud.ask("GET", "/readyz", status=503, headers=right)).body
        await cloud.ask("GET", "/readyz", status=401, headers={"Authorization": "Bearer no"})
        cloud.cloud.ledgers.gate["create"].set()
        await cloud.led("t")


async def test_the_other_token_is_for_looking_only() -> None:
    async with AdminCloud(2, admin_token="s3cret", admin_read_token="peep") as cloud:
        headers = {"Authorization": "Bearer peep"}
        for path in ("/brokers/1", "/brokers/2", "/cluster"):
            await cloud.get(path, headers=headers)
        for method, path in (
            ("PUT", "/topics/t"), ("DELETE", "/topics/t"), ("POST", "/topics/t/records"),
            ("PATCH", "/topics/t"), ("PUT", "/brokers/2/unloaded"),
        ):  # fmt: skip
            answer = await cloud.ask(method, "/admin/v1" + path, headers=headers, json={})
            assert (answer.status, answer.body["type"]) == (
                403, "urn:quire:problem:read-only-token",
            )  # fmt: skip
        assert not (await cloud.get("/topics", headers=headers))["items"]


def test_a_token_for_looking_needs_one_for_the_rest() -> None:
    with pytest.raises(ConfigError, match="admin_read_token"):
        dataclasses.replace(CONFIG, admin_read_token="peep")


@pytest.mark.parametrize(("token", "warns"), [("", True), ("s3cret", False)])
async def test_an_open_port_without_a_token_is_warned_of(
    token: str, warns: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Tests listen on loopback only; what counts is what the address is taken for.
    monkeypatch.setattr("client.node.http_guard.is_loopback", lambda host: False)
    async with AdminCloud(admin_token=token):
        assert ("admin.open" in caplog.text) == warns


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "10.0.0.7"])
async def test_on_loopback_only_loopbacks_names_are_answered(host: str) -> None:
    async with AdminCloud() as cloud:
        problem = await cloud.get("/cluster", headers={"Host": host}, status=403)
        assert problem["type"] == "urn:quire:problem:foreign-host"


@pytest.mark.parametrize("host", ["localhost", "localhost:9640", "[::1]:9640", "127.0.0.1"])
async def test_loopbacks_names_are_answered(host: str) -> None:
    async with AdminCloud() as cloud:
        await cloud.get("/cluster", headers={"Host": host})


async def test_pages_of_others_change_nothing() -> None:
    async with AdminCloud() as cloud:
        own = cloud.admins[1].url
        for origin, status in (("http://evil.example", 403), ("null", 403), (own, 201)):
            await cloud.ask(
                "PUT", "/admin/v1/topics/t", json={}, headers={"Origin": origin}, status=status
            )


# --- checks ---------------------------------------------------------------------------------


async def test_every_wrong_field_is_named_at_once() -> None:
    async with AdminCloud() as cloud:
        body = {"partition_count": 0, "replicas": 3, "settings": {"retention.ms": [1]}}
        answer = await cloud.ask("PUT", "/admin/v1/topics/a$b?x=1", json=body, status=400)
        faults = {fault["field"]: fault["message"] for fault in answer.body["faults"]}
        assert faults == {
            "topic": "does not match ^[a-zA-Z0-9._-]+$",
            "x": "is not a parameter of this request, which takes: none",
            "partition_count": "must be at least 1",
            "replicas": "is not known",
            "settings.retention.ms": "must be text or a whole number or true or false",
        }
        assert answer.body["may_have_happened"] is False


@pytest.mark.parametrize(
    ("body", "media_type", "status", "field"),
    [
        (b"", "application/json", 400, "body"),
        (b"{", "application/json", 400, "body"),
        (b"[]", "application/json", 400, "body"),
        (b'{"partition_count": NaN}', "application/json", 400, "body"),
        (b"[" * 40_000, "application/json", 400, "body"),
        (b"[" * 100_000, "application/json", 413, "body"),
        (b"{}", "text/plain", 415, "Content-Type"),
    ],
)
async def test_bodies_that_are_none(body: bytes, media_type: str, status: int, field: str) -> None:
    async with AdminCloud() as cloud:
        headers = {"Content-Type": media_type}
        answer = await cloud.ask(
            "PUT", "/admin/v1/topics/t", data=body, headers=headers, status=status
        )
        assert answer.body["faults"][0]["field"] == field


async def test_a_body_over_the_limit_is_refused() -> None:
    limit = 1 << 20
    async with AdminCloud(control_request_bytes_max=limit) as cloud:
        answer = await cloud.ask("PUT", "/admin/v1/topics/t", data=b" " * (limit + 1), status=413,
                                 headers={"Content-Type": "application/json"})  # fmt: skip
        assert answer.body["type"] == "urn:quire:problem:body-too-large"


async def test_unknown_paths_and_methods_are_problems_too() -> None:
    async with AdminCloud() as cloud:
        missing = await cloud.ask("GET", "/admin/v1/nothing", status=404)
        assert missing.body["type"] == "urn:quire:problem:no-such-path"
        method = await cloud.ask("POST", "/admin/v1/cluster", status=405)
        assert method.body["type"] == "urn:quire:problem:no-such-method"
        assert method.headers["Allow"] == "GET"


async def test_our_bugs_are_reported_without_details(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with AdminCloud() as cloud:
        monkeypatch.setattr(cloud.brokers[1], "unready", lambda: 1 / 0)
        problem = await cloud.get("/cluster", status=500)
        assert problem["detail"] == "the broker failed unexpectedly"
        assert "ZeroDivisionError" in caplog.text


# --- who answers ----------------------------------------------------------------------------


async def test_another_broker_answers_what_only_it_knows() -> None:
    async with AdminCloud(2) as cloud:
        for at in (1, 2):
            for number in (1, 2):
                found = await cloud.get(f"/brokers/{number}", at=at)
                assert found["broker_id"] == number
                assert found["incarnation"] == cloud.brokers[number].incarnation
        problem = await cloud.get("/brokers/9", status=404)
        assert problem["faults"][0]["field"] == "broker_id"
        assert "live: 1, 2" in problem["detail"]


async def test_a_request_for_another_broker_is_refused_and_not_passed_on() -> None:
    async with AdminCloud(2) as cloud:
        for meant in ("2/x", "1/x", f"2/{cloud.brokers[2].incarnation}"):
            headers = {"Quire-For": meant}
            await cloud.get("/brokers/2", headers=headers, status=421)
        me = {"Quire-For": f"1/{cloud.brokers[1].incarnation}"}
        assert (await cloud.get("/brokers/1", headers=me))["broker_id"] == 1


async def test_a_broker_that_cannot_be_asked_is_named() -> None:
    async with AdminCloud(2) as cloud:
        await cloud.start_broker(3, admin_port=-1)
        await until(lambda: 3 in cloud.brokers[1].cluster.brokers)
        await cloud.admins[2].close()
        await until(lambda: 2 in cloud.brokers[1].cluster.brokers)
        for number in (2, 3):
            problem = await cloud.get(f"/brokers/{number}", status=502)
            assert f"broker {number} cannot be reached" in problem["detail"]
        cluster = await cloud.get("/cluster")
        assert sorted(cluster["brokers"]["silent"]) == ["2", "3"]
        assert cluster["brokers"]["live"] == 3


# --- TLS ------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", ["admin_tls_cert", "admin_tls_ca"])
async def test_unreadable_certificates_are_configuration_errors(
    setting: str, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.pem"
    broken.write_text("nothing")
    settings = {setting: broken}
    if setting == "admin_tls_cert":
        settings["admin_tls_key"] = broken
    with pytest.raises(ConfigError, match=setting):
        async with AdminCloud(1, **settings):
            pass
