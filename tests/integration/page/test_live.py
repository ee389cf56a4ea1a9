"""The page follows the cluster by itself, and says so when it cannot."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Route, expect

from tests.integration.page.browser import Visit
from tests.integration.page.conftest import Api

Open = Callable[..., Visit]


def test_what_is_published_shows_by_itself(visit: Open, api: Api) -> None:
    api.create("ticker")
    api.send("PUT", "/groups/slow/offsets", {"topic": "ticker", "to": "earliest"})
    partition = visit().open("topics/ticker/0")
    topic, group = visit().open("topics/ticker"), visit().open("groups/slow")
    expect(partition.get_by_text("There are no records.")).to_be_visible()
    api.publish("ticker", 0, "a", "b", "c")
    expect(partition.locator(".lead")).to_contain_text("3 records")
    expect(partition.get_by_role("cell", name="kc")).to_be_visible()
    expect(partition.locator(".segment .range")).to_have_text("0 to 2")
    expect(topic.locator("tbody tr").first).to_contain_text("3")
    expect(group.locator(".lead")).to_contain_text("3 records and")
    api.send("PUT", "/groups/slow/offsets", {"topic": "ticker", "to": "latest"})
    expect(group.locator(".lead")).to_contain_text("It has read everything.")


def test_rates_show_what_moves(visit: Open, api: Api) -> None:
    api.create("moving.much")
    page = visit().open("")
    chart = page.get_by_role("img", name="Records in")
    api.publish("moving.much", 0, *map(str, range(500)))
    # The highest of the last minutes stays, however late we look.
    most = page.get_by_role("figure").filter(has_text="Records in").locator("small")
    expect(most).not_to_have_text("most 0/s")
    expect(chart.locator("polyline")).to_have_count(1)


def test_updates_leave_alone_what_a_reader_does(visit: Open, api: Api) -> None:
    api.create("calm")
    page = visit().open("topics/calm/0")
    field = page.get_by_label("Show records from this offset on")
    field.fill("12")
    field.focus()
    chosen = page.locator(".segment").first
    chosen.click()
    field.focus()
    api.publish("calm", 0, "a")
    expect(page.locator(".lead")).to_contain_text("1 record,")
    expect(field).to_be_focused()
    expect(field).to_have_value("12")
    expect(chosen).to_have_attribute("aria-pressed", "true")


def test_nothing_is_asked_while_a_dialog_is_open(visit: Open, api: Api) -> None:
    api.create("still")
    page = visit().open("topics/still")
    page.get_by_role("button", name="Publish").click()
    value = page.get_by_role("dialog").get_by_label("Value")
    value.fill("half a thou")
    api.publish("still", 0, "a")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(page.locator(".lead")).to_contain_text("1 record,")
    expect(value).to_have_value("half a thou")


def test_a_broker_that_is_gone_leaves_what_was_known(visit: Open) -> None:
    one = visit()
    page = one.open("topics")
    expect(page.locator(".pulse")).to_have_text("live")

    def fail(route: Route) -> None:
        route.abort()

    page.route("**/admin/v1/**", fail)
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("The broker is gone.")
    expect(alert).to_contain_text("What is shown below is from")
    expect(page.locator(".pulse")).to_have_text("no answer")
    expect(page.get_by_role("link", name="orders")).to_be_visible()
    one.shoot("gone")
    page.unroute("**/admin/v1/**", fail)
    expect(alert).to_have_count(0)
    expect(page.locator(".pulse")).to_have_text("live")
    one.wrong = [text for text in one.wrong if "net::ERR_FAILED" not in text]


def test_answers_that_take_long_are_not_called_live(visit: Open) -> None:
    page = visit().open("topics")
    expect(page.locator(".pulse")).to_have_text("live")
    held: list[Route] = []
    page.route("**/admin/v1/topics*", lambda route: held.append(route), times=1)
    expect(page.locator(".pulse")).to_have_text("waiting for an answer")
    expect(page.get_by_role("link", name="orders")).to_be_visible()
    (asked,) = held
    asked.continue_()
    expect(page.locator(".pulse")).to_have_text("live")


def test_what_is_deleted_does_not_stay_on_the_screen(visit: Open, api: Api) -> None:
    api.create("fading")
    one = visit()
    one.expected_statuses = {404}
    page = one.open("topics/fading")
    expect(page.get_by_role("heading", name="fading")).to_be_visible()
    api.send("DELETE", "/topics/fading")
    expect(page.get_by_role("alert")).to_have_text("there is no topic 'fading'")
    expect(page.get_by_role("heading", name="fading")).to_have_count(0)
    expect(page.locator(".pulse")).to_have_text("live")


def test_a_part_that_cannot_be_asked_hides_nothing_else(visit: Open) -> None:
    one = visit()
    one.expected_statuses = {503}
    problem = {"detail": "the group topic is being opened", "hint": "Try again in a moment."}
    one.page.route("**/admin/v1/groups*", lambda route: route.fulfill(status=503, json=problem))
    page = one.open("")
    groups = page.get_by_role("region", name="Groups", exact=True)
    expect(groups).to_contain_text("Not known now: the group topic is being opened")
    expect(page.get_by_role("region", name="Leaders")).to_contain_text("broker 0")
    expect(page.get_by_role("alert")).to_have_count(0)


def test_trouble_is_said_first(visit: Open, api: Api) -> None:
    one = visit()
    cluster = api.get("/cluster")
    cluster["bookies"] |= {"writable": 2, "read_only": 1, "down": 1}
    cluster["brokers"] |= {"not_ready": [1], "silent": {"0": "it does not answer"}}
    cluster["partitions"]["led"] = cluster["partitions"]["count"] - 2
    one.page.route("**/admin/v1/cluster", lambda route: route.fulfill(json=cluster))
    page = one.open("")
    said = page.get_by_role("list", name="Needs attention").get_by_role("listitem")
    expect(said).to_contain_text(
        [
            "Broker 0 cannot be reached: it does not answer",
            "Broker 1 does not serve everything it should.",
            "2 partitions without a leader that answers.",
            "1 bookie down.",
            "1 bookie read-only.",
        ]
    )
    one.shoot("trouble")
    said.filter(has_text="bookie down").get_by_role("link").click()
    expect(page).to_have_title("Bookies · Quire")
