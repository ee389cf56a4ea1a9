"""Who did what: what the trail keeps of the log, within which bounds, and what the API shows."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from broker.admin.audit_trail import AuditTrail
from client.node.logs import AT_WILL
from tests.fakes.admin import AdminCloud

ENTRIES_MAX = 40
log = logging.getLogger("a.part.of.the.broker")


@pytest.fixture
def trail(caplog: pytest.LogCaptureFixture) -> Iterator[AuditTrail]:
    caplog.set_level("INFO")
    trail = AuditTrail(ENTRIES_MAX)
    trail.start()
    yield trail
    trail.close()


def deny(user: str, what: str = "READ topic 'orders'") -> None:
    log.warning("request.denied user=%r peer=%s what=%s", user, "10.0.0.1", what, extra=AT_WILL)


def test_events_become_rows(trail: AuditTrail) -> None:
    log.info("request.changed user=%r peer=%s api=%s what=%r", "anna", "10.0.0.1", "create_topics",
             "topic orders")  # fmt: skip
    deny("bert")
    log.warning("login.refused peer=%s user=%r mechanism=%s reason=%r", "10.0.0.2", "carl", "PLAIN",
                "wrong password")  # fmt: skip
    log.info("topic.created topic=%s", "orders")
    rows = [(one["event"], one["user"], one["address"], one["what"]) for one in trail.entries()]
    assert sorted(rows) == [
        ("login.refused", "carl", "10.0.0.2", "PLAIN wrong password"),
        ("request.changed", "anna", "10.0.0.1", "create_topics topic orders"),
        ("request.denied", "bert", "10.0.0.1", "READ topic 'orders'"),
    ]


def test_whoever_is_refused_again_and_again_displaces_nobody(trail: AuditTrail) -> None:
    log.info("request.changed user=%r peer=%s api=%s what=%r", "anna", "10.0.0.1", "delete_topics",
             "topic orders")  # fmt: skip
    for _ in range(50):
        deny("bert")
    assert [one["count"] for one in trail.entries() if one["user"] == "bert"] == [50]
    for number in range(3 * ENTRIES_MAX):
        deny(f"user {number}", "x" * 10_000)
    rows = list(trail.entries())
    assert len(rows) == ENTRIES_MAX + 1
    assert sum(one["user"] == "anna" for one in rows) == 1
    assert max(len(one["what"]) for one in rows) < 300


async def test_brokers_tell_who_did_what_by_the_admin_api_and_no_token(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    async with AdminCloud(2, admin_token="s3cret", admin_read_token="peep") as cloud:
        right = {"Authorization": "Bearer s3cret"}
        put = {"partition_count": 1, "replication_factor": 3}
        await cloud.ask("PUT", "/admin/v1/topics/t", headers=right, json=put)
        await cloud.ask("DELETE", "/admin/v1/topics/t", headers={"Authorization": "Bearer peep"})
        await cloud.ask("GET", "/admin/v1/cluster", headers={"Authorization": "Bearer guess"})
        for path in ("/audit", "/brokers/2/audit"):
            found = await cloud.get(path, headers=right)
            assert found["silent"] == {}
            seen = {(one["event"], one["user"], one["what"]) for one in found["items"]}
            assert seen == {
                ("admin.done", "admin_token", "create_topic /admin/v1/topics/t 201"),
                ("admin.refused", "admin_read_token",
                 "read-only-token DELETE /admin/v1/topics/t"),
                ("admin.refused", "", "wrong-token GET /admin/v1/cluster"),
            }  # fmt: skip
            assert {one["address"] for one in found["items"]} == {"127.0.0.1"}
            for secret in ("s3cret", "peep", "guess"):
                assert secret not in str(found)
        assert len((await cloud.get("/audit?limit=2", headers=right))["items"]) == 2
        problem = await cloud.get("/audit", headers={"Authorization": "Bearer peep"}, status=403)
        assert "needs role administer" in problem["detail"]


async def test_a_setting_says_how_many_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with AdminCloud(1, admin_audit_entries_max=3) as cloud:
        for number in range(5):
            put = {"partition_count": 1, "replication_factor": 3}
            await cloud.ask("PUT", f"/admin/v1/topics/t{number}", json=put)
        rows = (await cloud.get("/audit"))["items"]
        topics = [f"/admin/v1/topics/t{number}" for number in (4, 3, 2)]
        assert [row["what"].split()[1] for row in rows if row["event"] == "admin.done"] == topics


def test_who_did_much_displaces_nobody_elses(trail: AuditTrail) -> None:
    changed = "request.changed user=%r peer=%s api=%s what=%r"
    logging.getLogger("x").info(changed, "anna", "10.0.0.1", "delete_topics", "topic t")
    for number in range(50):
        logging.getLogger("x").info(changed, "mallory", "10.0.0.2", "alter_configs", f"t{number}")
    rows = list(trail.entries())
    assert [row["what"] for row in rows if row["user"] == "anna"] == ["delete_topics topic t"]
    assert "alter_configs t49" in [row["what"] for row in rows]
