"""What can be done from the page: each dialog says what will happen, and then it does."""

from __future__ import annotations

import json
import re
import urllib.error
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException, Producer
from playwright.sync_api import Locator, Page, expect

from tests.integration.cluster import LocalCluster
from tests.integration.page.browser import Visit
from tests.integration.page.conftest import Api

Open = Callable[..., Visit]


def ask(page: Page, button: str) -> Locator:
    """Press a button of the view; return the dialog that opens."""
    page.get_by_role("button", name=button, exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    return dialog


def answer(dialog: Locator, button: str) -> None:
    """Press a button of a dialog, and wait until it has closed."""
    dialog.get_by_role("button", name=button, exact=True).click()
    expect(dialog).to_have_count(0)


def told(page: Page) -> Locator:
    """What the page tells after an action."""
    return page.locator("#notices .notice").last


def test_creating_a_topic(visit: Open, api: Api) -> None:
    one = visit()
    one.expected_statuses = {400, 422}
    page = one.open("topics")
    dialog = ask(page, "New topic")
    expect(dialog.get_by_label("Name")).to_be_focused()
    dialog.get_by_label("Name").fill("not a name")
    dialog.get_by_label("Settings").fill("retention.ms=60000\nnonsense=1")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Nothing was done")
    expect(dialog.get_by_label("Name")).to_have_attribute("aria-invalid", "true")
    expect(dialog.get_by_label("Settings")).to_have_attribute("aria-invalid", "true")
    expect(dialog).to_contain_text("nonsense is not known")
    one.shoot("create-refused")
    dialog.get_by_label("Name").fill("made.here")
    dialog.get_by_label("Settings").fill("retention.ms=soon")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_label("Name")).not_to_have_attribute("aria-invalid", "true")
    expect(dialog.locator(".field.wrong")).to_contain_text("retention.ms")
    dialog.get_by_label("Settings").fill("retention.ms=60000")
    dialog.get_by_label("Partitions").fill("2")
    answer(dialog, "Create")
    expect(told(page)).to_have_text("Topic made.here was created.")
    expect(page.get_by_role("link", name="made.here")).to_be_visible()
    topic = api.get("/topics/made.here")
    assert topic["partition_count"] == 2
    settings = {
        row["name"]: row["value"] for row in api.get("/topics/made.here/config")["settings"]
    }
    assert settings["retention.ms"] == "60000"


def test_changing_and_deleting_a_topic(visit: Open, api: Api) -> None:
    api.create("changing", 1, settings={"retention.ms": 60_000})
    page = visit().open("topics/changing")
    dialog = ask(page, "Change")
    expect(dialog.get_by_label("Settings")).to_have_value("retention.ms=60000")
    dialog.get_by_label("Partitions").fill("3")
    dialog.get_by_label("Settings").fill("max.message.bytes=2000")
    answer(dialog, "Change")
    expect(page.get_by_role("heading", name="3 partitions")).to_be_visible()
    own = {
        row["name"]: row["value"]
        for row in api.get("/topics/changing/config")["settings"]
        if row["source"] == "topic"
    }
    assert own == {"max.message.bytes": "2000"}
    dialog = ask(page, "Delete")
    expect(dialog).to_contain_text("All its 0 records")
    delete = dialog.get_by_role("button", name="Delete")
    expect(delete).to_be_disabled()
    dialog.get_by_label("Type changing to continue").fill("chang")
    expect(delete).to_be_disabled()
    dialog.get_by_label("Type changing to continue").fill("changing")
    answer(dialog, "Delete")
    expect(page).to_have_title("Topics · Quire")
    expect(told(page)).to_have_text("Topic changing is deleted.")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        api.get("/topics/changing")


def test_publishing_a_record(visit: Open, api: Api) -> None:
    api.create("letters", 2)
    page = visit().open("topics/letters/1")
    dialog = ask(page, "Publish")
    dialog.get_by_label("Key").fill("käse")
    dialog.get_by_label("Value").fill("first\nsecond line")
    answer(dialog, "Publish")
    expect(told(page)).to_have_text("Stored in partition 1 at offset 0.")
    expect(page.get_by_role("cell", name="käse")).to_be_visible()
    record = api.get("/topics/letters/partitions/1/records/0")
    assert (record["key"], record["value"]) == ("käse", "first\nsecond line")


def test_rolling_and_trimming(visit: Open, api: Api) -> None:
    api.create("long")
    for value in range(9):
        api.publish("long", 0, str(value))
    one = visit()
    page = one.open("topics/long/0")
    cards = page.locator(".segment")
    expect(cards).to_have_count(1)
    (before,) = api.items("/topics/long/partitions/0/segments")
    dialog = ask(page, "Roll")
    expect(dialog).to_contain_text("closed for ever")
    answer(dialog, "Roll")
    expect(cards).to_have_count(2)
    expect(cards.first).to_contain_text("sealed")
    assert api.items("/topics/long/partitions/0/segments")[0]["is_sealed"]
    api.publish("long", 0, "9")
    expect(page.get_by_text("10 records")).to_be_visible()

    dialog = ask(page, "Trim")
    keep = dialog.get_by_label("First offset to keep")
    will = dialog.get_by_role("status")
    expect(will).to_have_text("Nothing lies before that offset.")
    keep.fill("11")
    expect(will).to_have_text("The log ends at 10: no offset above that is possible.")
    keep.fill("4")
    expect(will).to_have_text("4 offsets can be read no more; 0 ledgers (0 B) deleted.")
    keep.fill("9")
    expect(will).to_have_text(
        re.compile(r"^9 offsets can be read no more; 1 ledger \(.+\) deleted")
    )
    one.shoot("trim")
    answer(dialog, "Trim")
    expect(cards).to_have_count(1)
    expect(page.locator(".lead")).to_contain_text("1 record,")
    assert api.get("/topics/long/partitions/0")["log_start_offset"] == 9
    left = api.items("/topics/long/partitions/0/segments")
    assert before["ledger_id"] not in [row["ledger_id"] for row in left]


def test_dropping_all_before_a_ledger(visit: Open, api: Api) -> None:
    api.create("chain")
    for value in range(2):
        api.publish("chain", 0, str(value))
        api.send("POST", "/topics/chain/partitions/0/roll")
    page = visit().open("topics/chain/0")
    cards = page.locator(".segment")
    expect(cards).to_have_count(3)
    cards.nth(1).click()
    dialog = ask(page, "Drop all before it")
    expect(dialog.get_by_label("First offset to keep")).to_have_value("1")
    answer(dialog, "Trim")
    expect(cards).to_have_count(2)
    assert api.get("/topics/chain/partitions/0")["log_start_offset"] == 1


def test_moving_the_leader(visit: Open, api: Api) -> None:
    api.create("moving")
    before = api.get("/topics/moving/partitions/0")
    other = 1 - before["leader"]
    one = visit()
    one.expected_statuses = {503}  # while it moves nobody can read its records
    page = one.open("topics/moving/0")
    dialog = ask(page, "Move leader")
    expect(dialog.get_by_label("Leader")).to_have_value(str(before["leader"]))
    dialog.get_by_label("Leader").select_option(f"broker {other}")
    answer(dialog, "Move")
    expect(page.get_by_text(f"broker {other} writes")).to_be_visible()
    after = api.get("/topics/moving/partitions/0")
    assert (after["leader"], after["pinned_to"]) == (other, other)
    assert after["leader_epoch"] > before["leader_epoch"]
    expect(page.locator(".lead")).to_contain_text("where somebody moved it")
    dialog = ask(page, "Move leader")
    dialog.get_by_label("Leader").select_option("leave it to the brokers")
    answer(dialog, "Move")
    expect(page.locator(".lead")).not_to_contain_text("somebody moved it")
    assert api.get("/topics/moving/partitions/0")["pinned_to"] is None


def test_resetting_and_deleting_a_group(visit: Open, api: Api) -> None:
    api.create("history", 2)
    for index in (0, 1):
        api.publish("history", index, *map(str, range(4 + index)))
    api.send("PUT", "/groups/late/offsets", {"topic": "history", "to": "latest"})
    one = visit()
    page = one.open("groups/late")
    expect(page.locator(".lead")).to_contain_text("It has read everything.")
    dialog = ask(page, "Reset offsets")
    will = dialog.get_by_role("status").get_by_role("listitem")
    expect(will).to_have_text(["partition 0: 4 → 0", "partition 1: 5 → 0"])
    dialog.get_by_label("From").select_option("an offset")
    dialog.get_by_label("Offset").fill("2")
    expect(will).to_have_text(["partition 0: 4 → 2", "partition 1: 5 → 2"])
    one.shoot("reset")
    committed = api.get("/groups/late")["offsets"]
    assert [row["committed_offset"] for row in committed] == [4, 5], "so far it was only shown"
    answer(dialog, "Reset")
    expect(told(page)).to_have_text("2 offsets of late reset.")
    expect(page.locator(".lead")).to_contain_text("5 records and")
    assert [row["committed_offset"] for row in api.get("/groups/late")["offsets"]] == [2, 2]
    dialog = ask(page, "Reset offsets")
    dialog.get_by_label("From").select_option("a time")
    expect(dialog.get_by_role("status")).to_have_count(0)
    dialog.get_by_label("Time").fill("2001-02-03T04:05:06")
    expect(will).to_have_text(["partition 0: 2 → 0", "partition 1: 2 → 0"])
    answer(dialog, "Cancel")
    dialog = ask(page, "Delete")
    expect(dialog).to_contain_text("2 committed offsets go, for good")
    answer(dialog, "Delete")
    expect(page).to_have_title("Groups · Quire")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        api.get("/groups/late")


def test_unloading_a_broker_and_loading_it_again(visit: Open, api: Api) -> None:
    page = visit().open("brokers")
    card = page.get_by_role("article").filter(has_text="Broker 1")
    card.get_by_role("button", name="Unload").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("go to the other brokers")
    answer(dialog, "Unload")
    expect(card).to_contain_text("unloaded")
    nothing = card.get_by_text("0 partitions", exact=True)
    expect(nothing).to_be_visible()
    assert api.get("/cluster")["brokers"]["unloaded"] == [1]
    card.get_by_role("button", name="Load again").click()
    answer(page.get_by_role("dialog"), "Load")
    expect(card).not_to_contain_text("unloaded")
    expect(nothing).to_have_count(0)
    assert api.get("/cluster")["brokers"]["unloaded"] == []


def test_what_the_broker_refuses_is_said_in_the_dialog(visit: Open, api: Api) -> None:
    api.create("small", settings={"max.message.bytes": 1000})
    one = visit()
    one.expected_statuses = {413}
    page = one.open("topics/small")
    dialog = ask(page, "Publish")
    dialog.get_by_label("Value").fill("v" * 2000)
    dialog.get_by_role("button", name="Publish").click()
    expect(dialog.get_by_role("alert")).to_contain_text("raise the topic's max.message.bytes")
    expect(dialog.get_by_role("button", name="Publish")).to_be_enabled()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


def test_a_dialog_goes_with_its_view(visit: Open) -> None:
    page = visit().open("topics")
    page.get_by_role("link", name="orders").click()
    expect(page).to_have_title("orders · Quire")
    dialog = ask(page, "Change")
    page.go_back()
    expect(page).to_have_title("Topics · Quire")
    expect(dialog).to_have_count(0)


def test_an_action_is_answered_once_however_impatient_the_reader(visit: Open, api: Api) -> None:
    api.create("once")
    page = visit().open("topics/once/0")
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.post_data or ""))
    held = []
    page.route("**/records", lambda route: held.append(route))
    dialog = ask(page, "Publish")
    dialog.get_by_label("Value").fill("v")
    dialog.get_by_role("button", name="Publish").click()
    button = dialog.get_by_role("button", name="Working…")
    expect(button).to_be_disabled()
    dialog.get_by_label("Value").press("Control+Enter")
    held[0].continue_()
    expect(told(page)).to_contain_text("offset 0")
    bodies = [json.loads(body) for body in sent if body]
    assert [body["records"][0]["value"] for body in bodies] == ["v"]


def test_a_transaction_that_hangs_is_aborted(
    visit: Open, api: Api, small_cluster: LocalCluster
) -> None:
    api.create("ledgers.of.money")
    servers = small_cluster.bootstrap_servers
    made = Producer({"bootstrap.servers": servers, "transactional.id": "payments-1"})
    made.init_transactions(30)
    made.begin_transaction()
    made.produce("ledgers.of.money", b"1")
    assert made.flush(30) == 0
    page = visit().open("transactions")
    expect(page.get_by_role("row").filter(has_text="payments-1")).to_contain_text("open")
    page.get_by_label("Find a transactional id").fill("nothing like it")
    expect(page.get_by_text("No transactional id has such a name.")).to_be_visible()
    page.get_by_label("Find a transactional id").fill("payments")
    page.get_by_role("link", name="payments-1").click()
    expect(page).to_have_title("payments-1 · Quire")
    expect(page.get_by_role("link", name="ledgers.of.money-0")).to_be_visible()
    dialog = ask(page, "Abort")
    expect(dialog).to_contain_text("Its producer is fenced")
    answer(dialog, "Abort")
    expect(told(page)).to_have_text("The transaction of payments-1 is aborted.")
    expect(page.get_by_text("aborted", exact=True)).to_be_visible()
    assert api.get("/transactions/payments-1")["state"] == "CompleteAbort"
    with pytest.raises(KafkaException):
        made.commit_transaction(30)
