"""Every operation of the admin API with every role, at the broker that is asked and at another."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from broker.admin import server
from broker.admin.table import OPERATIONS
from client.security.admin_access import Role
from tests.fakes.admin import AdminCloud

TOKENS = {Role.LOOK: "a-token-for-looking", Role.OPERATE: "a-token-for-operating"}
ALL = {**TOKENS, Role.ADMINISTER: "a-token-for-all"}

LOSES = {
    "create_topic", "change_topic", "delete_topic", "trim_partition", "delete_group",
}  # fmt: skip
"""What makes, changes or deletes what holds records, or positions in them."""


def settings(folder: Path) -> dict[str, object]:
    """Return settings of brokers with a token of each role."""
    file = folder / "tokens"
    file.write_text("".join(f"{role.word} {role.word} {t}\n" for role, t in TOKENS.items()))
    return {"admin_token": ALL[Role.ADMINISTER], "admin_tokens_file": file}


def test_what_changes_something_is_not_for_looking_and_what_loses_something_for_one_role() -> None:
    for operation in OPERATIONS:
        if operation.name in LOSES:
            assert operation.role is Role.ADMINISTER, operation.name
        elif operation.is_noted or "/records" in operation.path:
            assert operation.role is Role.OPERATE, operation.name


async def test_every_operation_with_every_role(tmp_path: Path) -> None:
    async with AdminCloud(2, **settings(tmp_path)) as cloud:
        await cloud.brokers[1].topics.create("t", 1, 3, {})
        await cloud.led("t")
        for operation in OPERATIONS:
            path = operation.path.replace("{broker_id}", "2").replace("{offset}", "0")
            path = path.replace("{partition}", "0")
            path = "/admin/v1" + re.sub(r"{\w+}", "nothing", path)
            for role, token in (None, None), *ALL.items():
                headers = {} if token is None else {"Authorization": f"Bearer {token}"}
                answer = await cloud.ask(operation.method, path, headers=headers)
                if role is None:
                    assert answer.status == 401, operation.name
                else:
                    may = role >= operation.role
                    assert (answer.status == 403) is not may, (operation.name, role)


async def test_what_was_done_is_logged_with_the_name_of_whoever_asked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with AdminCloud(2, **settings(tmp_path)) as cloud:
        headers = {"Authorization": f"Bearer {ALL[Role.OPERATE]}"}
        # Broker 1 forwards it to broker 2, which says who asked broker 1.
        done = await cloud.ask("PUT", "/admin/v1/brokers/2/unloaded", headers=headers)
        assert done.status == 200, done.body
        forged = {**headers, "Quire-Caller": "somebody else", "Quire-Caller-Address": "10.0.0.9"}
        await cloud.ask("DELETE", "/admin/v1/brokers/1/unloaded", headers=forged)
    lines = [line for line in caplog.messages if line.startswith("admin.done")]
    assert len(lines) == 2
    for line in lines:
        assert "user='operate'" in line and "from=127.0.0.1" in line, line


async def test_nobody_but_a_broker_says_that_somebody_else_asked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with AdminCloud(1, **settings(tmp_path)) as cloud:
        me = f"1/{cloud.brokers[1].incarnation}"
        forged = {
            "Authorization": f"Bearer {ALL[Role.OPERATE]}", "Quire-For": me,
            "Quire-Caller": "alice", "Quire-Caller-Address": "10.9.9.9",
        }  # fmt: skip
        done = await cloud.ask("PUT", "/admin/v1/brokers/1/unloaded", headers=forged)
        assert done.status == 200, done.body
    (line,) = [line for line in caplog.messages if line.startswith("admin.done")]
    assert "user='operate'" in line and "from=127.0.0.1" in line


async def test_who_reads_or_publishes_records_leaves_a_trace(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with AdminCloud(1, **settings(tmp_path)) as cloud:
        await cloud.brokers[1].topics.create("t", 1, 3, {})
        await cloud.led("t")
        headers = {"Authorization": f"Bearer {ALL[Role.OPERATE]}"}
        path = "/admin/v1/topics/t/partitions/0/records"
        assert (await cloud.ask("GET", path, headers=headers)).status == 200
    (line,) = [line for line in caplog.messages if line.startswith("admin.done")]
    assert "operation=peek_records" in line and "user='operate'" in line


async def test_the_document_says_which_role_an_operation_needs() -> None:
    async with AdminCloud() as cloud:
        document = (await cloud.ask("GET", "/openapi.json")).body
    described = document["paths"]["/admin/v1/topics/{topic}"]["delete"]["description"]
    assert described == "Needs role administer."


async def test_everybody_is_told_what_their_role_may_not_do(tmp_path: Path) -> None:
    async with AdminCloud(1, **settings(tmp_path)) as cloud:
        for role, token in ALL.items():
            headers = {"Authorization": f"Bearer {token}"}
            me = await cloud.get("/me", headers=headers)
            assert me["role"] == role.word
            assert me["refused"] == {
                one.name: one.role.word for one in OPERATIONS if one.role > role
            }
    async with AdminCloud(1) as cloud:
        me = await cloud.get("/me")
        assert me == {"name": "anybody", "role": "administer", "refused": {}}


def test_every_button_of_the_page_asks_for_an_operation_that_there_is() -> None:
    named = {
        name
        for script in (Path(server.__file__).with_name("page")).rglob("*.js")
        for name in re.findall(r'(?:button|refusal)\(\s*"(\w+)"', script.read_text())
    }
    known = {one.name for one in OPERATIONS}
    assert named <= known
    changing = {one.name for one in OPERATIONS if one.is_noted}
    no_buttons = {
        "unpin_partition", "compact_partition", "change_group_config", "replay_dead_letters",
    }  # fmt: skip
    assert changing - named == no_buttons
