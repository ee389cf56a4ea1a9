"""Every view shows what the admin API says of a real cluster."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.integration.cluster import LocalCluster, wait_until
from tests.integration.page.browser import Visit
from tests.integration.page.conftest import READ_TO, RECORDS, Api

Open = Callable[..., Visit]
ROW = 18 + 5
"""Height of a bookie's row in the drawing, with the gap below it."""


def region(page: Page, name: str) -> Locator:
    return page.get_by_role("region", name=name, exact=True)


def row(page: Page, text: str) -> Locator:
    """The table row whose first cell is that text."""
    return page.get_by_role("row").filter(
        has=page.get_by_role("cell", name=text, exact=True)
    )  # fmt: skip


@pytest.mark.smoke
def test_the_cluster_at_a_glance(visit: Open, api: Api) -> None:
    page = visit().open("")
    expect(page).to_have_title("Cluster · Quire")
    cluster = api.get("/cluster")
    tiles = {"Brokers": 2, "Bookies": 4, "Topics": cluster["topics"], "Groups": cluster["groups"]}
    expect(page.locator(".brand")).to_contain_text(cluster["cluster_id"][:8])
    glance = region(page, "At a glance")
    for label, number in tiles.items():
        tile = glance.get_by_role("link", name=re.compile(f"^{label}"))
        expect(tile.locator("b")).to_have_text(str(number))
    for broker in (0, 1):
        led = api.get(f"/brokers/{broker}")["live"]["partitions_led"]
        expect(row(page, f"broker {broker}")).to_contain_text(f"ready {led}", use_inner_text=True)
    expect(row(page, "billing")).to_contain_text(str(RECORDS - READ_TO))
    for bookie in api.items("/bookies"):
        expect(row(page, bookie["bookie_id"])).to_contain_text("writable")
        expect(row(page, bookie["bookie_id"])).to_contain_text("free")
    assert region(page, "Rates of the last minutes").get_by_role("img").count() == 4


def test_topics_can_be_found_and_sorted(visit: Open, api: Api) -> None:
    api.create("sorted.copied.thrice", 2)
    api.create("sorted.copied.twice", 1, replication_factor=2)
    page = visit().open("topics")
    expect(row(page, "orders")).to_contain_text("3 · 2 synced · over 3")
    expect(row(page, "wide")).to_contain_text("2 · 2 synced · over 4")
    names = page.locator("tbody td:first-child a")
    page.get_by_label("Find a topic").fill("sorted")
    expect(names).to_have_text(["sorted.copied.thrice", "sorted.copied.twice"])
    page.get_by_role("button", name="Copies").click()
    expect(page.get_by_role("columnheader", name="Copies")).to_have_attribute(
        "aria-sort", "descending"
    )
    page.get_by_role("button", name="Copies").click()
    expect(names).to_have_text(["sorted.copied.twice", "sorted.copied.thrice"])
    page.get_by_label("Find a topic").fill("nothing like it")
    expect(page.get_by_text("No topic has such a name.")).to_be_visible()
    page.get_by_label("Find a topic").fill("")
    page.get_by_label("the brokers' own too").check()
    expect(row(page, "__consumer_offsets internal")).to_be_visible()


def test_lists_that_are_cut_say_so(visit: Open, api: Api) -> None:
    one = visit()
    first = api.get("/topics?limit=1")
    rows = [{**first["items"][0], "topic": f"t{number:04d}"} for number in range(500)]
    asked: list[str] = []

    def answer(route: Route) -> None:
        asked.append(route.request.url)
        route.fulfill(json={"items": rows, "next": "t0499"})

    one.page.route("**/admin/v1/topics?*", answer)
    page = one.open("topics")
    expect(page.get_by_text("Of the first 2,000; the admin API lists all.")).to_be_visible()
    assert [("after=t0499" in url) for url in asked[:4]] == [False, True, True, True]


def test_a_topic_with_leaders_readers_and_settings(visit: Open, api: Api) -> None:
    page = visit().open("topics/orders")
    rows = region(page, "Partitions").locator("tbody tr")
    for one in api.items("/topics/orders/partitions"):
        shown = rows.nth(one["partition"])
        expect(shown).to_contain_text(f"broker {one['leader']}")
        expect(shown.get_by_role("cell").nth(5)).to_have_text(str(one["high_watermark"]))
    reader = region(page, "Readers").locator("tbody tr")
    expect(reader).to_have_count(1)
    expect(reader).to_contain_text("billing")
    settings = region(page, "Settings").locator("tbody tr")
    expect(settings).to_have_count(1)
    expect(settings).to_contain_text("retention.ms")
    expect(settings).to_contain_text("86400000")
    page.get_by_label(re.compile("defaults too")).check()
    expect(settings).to_have_count(len(api.get("/topics/orders/config")["settings"]))


def drawn(card: Locator) -> Counter[int]:
    """Return how many cells each row of a ledger's drawing has."""
    tops = card.locator("rect.cell").evaluate_all("cells => cells.map(one => one.y.baseVal.value)")
    return Counter(round(top / ROW) for top in tops)


def stored(segment: dict[str, Any], bookies: list[str]) -> Counter[int]:
    """Return how many entries of a ledger each bookie holds, by the protocol's striping."""
    found: Counter[int] = Counter()
    for fragment in segment["fragments"]:
        ensemble = fragment["bookies"]
        for entry in range(fragment["first_entry"], fragment["last_entry"] + 1):
            for copy in range(segment["write_quorum"]):
                found[bookies.index(ensemble[(entry + copy) % len(ensemble)])] += 1
    return found


def test_a_partition_as_a_chain_of_ledgers(visit: Open, api: Api) -> None:
    one = visit()
    page = one.open("topics/orders/0")
    segments = api.items("/topics/orders/partitions/0/segments")
    assert len(segments) >= 3
    cards = region(page, "Ledgers").get_by_role("button", pressed=False)
    expect(cards).to_have_count(len(segments))
    bookies = page.locator(".chain > .rows > .bookie").all_inner_texts()
    for card, segment in zip(cards.all(), segments, strict=True):
        label = card.get_attribute("aria-label") or ""
        assert label.startswith(f"Ledger {segment['ledger_id']}, ")
        assert ("sealed" if segment["is_sealed"] else "open") in label
        is_empty = segment["last_offset"] < segment["base_offset"]
        range_ = "no records" if is_empty else f"{segment['base_offset']} to "
        assert f"offsets {range_}" in label
        (fragment,) = segment["fragments"]
        assert all(bookie in label for bookie in fragment["bookies"])
        # As many members as copies: one block on each bookie that has the ledger.
        assert drawn(card) == Counter(bookies.index(bookie) for bookie in fragment["bookies"])
    leader = api.get("/topics/orders/partitions/0")["leader"]
    expect(page.get_by_text(f"broker {leader} writes")).to_be_visible()
    # The newest ledger is in sight.
    expect(cards.last).to_be_in_viewport()
    cards.nth(1).click()
    picked = page.get_by_role("article", name=f"Ledger {segments[1]['ledger_id']}")
    expect(picked).to_contain_text("closed, sealed for ever")
    expect(picked).to_contain_text(f"in {segments[1]['last_entry'] + 1} entries")
    expect(picked).to_contain_text("3 of each entry, 2 synced before an acknowledgement")
    one.shoot("picked")


def test_a_striped_ledger_shows_each_entry_where_it_is(visit: Open, api: Api) -> None:
    page = visit().open("topics/wide/0")
    segments = api.items("/topics/wide/partitions/0/segments")
    bookies = page.locator(".chain > .rows > .bookie").all_inner_texts()
    assert len(bookies) == 4
    cards = region(page, "Ledgers").get_by_role("button", pressed=False).all()
    sealed = [pair for pair in zip(cards, segments, strict=True) if pair[1]["is_sealed"]]
    assert len(sealed) >= 2
    for card, segment in sealed:
        assert segment["last_entry"] < 24, "so few that each is drawn"
        assert drawn(card) == stored(segment, bookies)
    expect(page.locator(".legend")).to_contain_text("stripes")


def test_records_of_a_partition(visit: Open, api: Api) -> None:
    page = visit().open("topics/orders/0")
    records = region(page, "Records")
    first = records.locator("tbody tr").first
    expect(first).to_contain_text(f"k{RECORDS - 1}")
    records.get_by_label("Show records from this offset on").fill("7")
    records.get_by_role("button", name="Go").click()
    expect(first).to_contain_text("k7")
    expect(records.get_by_role("heading")).to_have_text("Records from offset 7")
    records.get_by_role("button", name="Newer").click()
    expect(first).to_contain_text("k17")
    records.get_by_role("button", name="Older").click()
    expect(first).to_contain_text("k7")
    records.get_by_role("button", name="Newest").click()
    expect(first).to_contain_text(f"k{RECORDS - 1}")


def test_how_clean_a_partition_of_a_compacted_topic_is(visit: Open, api: Api) -> None:
    api.create("compacted.view", 1, settings={"cleanup.policy": "compact"})
    for number in range(5):
        api.publish("compacted.view", 0, str(number))
        api.send("POST", "/topics/compacted.view/partitions/0/roll")
    path = "/topics/compacted.view/partitions/0"
    api.send("POST", f"{path}/compact")
    wait_until(lambda: api.get(f"{path}/compaction")["cleaned_ms"] is not None, "a round")
    one = api.get(f"{path}/compaction")
    page = visit().open("topics/compacted.view/0")
    shown = region(page, "Compaction").locator("tbody tr")
    expect(shown).to_contain_text(one["state"])
    expect(shown).to_contain_text(f"{one['dirty_percent']} %")
    expect(shown).to_contain_text("ago")
    page = visit().open("topics/orders/0")
    expect(region(page, "Records")).to_be_visible()
    expect(region(page, "Compaction")).to_have_count(0)


def test_groups_with_lag_and_members(
    visit: Open, api: Api, reader: Callable[[str, str], None]
) -> None:
    reader("orders", "analytics")
    page = visit().open("groups")
    expect(row(page, "billing")).to_contain_text("no members")
    expect(row(page, "billing")).to_contain_text(str(RECORDS - READ_TO))
    expect(row(page, "analytics")).to_contain_text("stable")
    page.get_by_role("link", name="billing").click()
    expect(page).to_have_title("billing · Quire")
    offsets = region(page, "Offsets").locator("tbody tr")
    expect(offsets).to_have_count(1)
    cells = offsets.get_by_role("cell")
    expect(cells.nth(0)).to_have_text("orders-0")
    expect(cells.nth(1)).to_have_text(str(READ_TO))
    expect(cells.nth(2)).to_have_text(str(RECORDS))
    expect(cells.nth(3)).to_have_text(str(RECORDS - READ_TO))
    expect(region(page, "Members")).to_contain_text("Nobody reads in this group now")
    page.goto(f"{api.url}/#/groups/analytics")
    member = region(page, "Members").get_by_role("article")
    expect(member).to_contain_text("analytics-app")
    expect(member.get_by_role("link")).to_have_text(["orders-0", "orders-1", "orders-2"])
    # A group with members decides itself where it reads.
    expect(page.get_by_role("button", name="Reset offsets")).to_be_disabled()


def test_brokers_and_what_they_are_set_to(
    visit: Open, api: Api, small_cluster: LocalCluster
) -> None:
    page = visit().open("brokers")
    for number in (0, 1):
        card = page.get_by_role("article").filter(has_text=f"Broker {number}")
        port = small_cluster.about["brokers"][number]["kafka"]
        expect(card).to_contain_text(f"127.0.0.1:{port}")
        expect(card).to_contain_text("ready")
    page.get_by_role("link", name="Broker 1").click()
    expect(page.get_by_role("heading", name="Broker 1")).to_be_visible()
    expect(page.get_by_text(version("quire"))).to_be_visible()
    settings = region(page, "Settings").locator("tbody tr")
    port = settings.filter(has=page.get_by_role("cell", name=re.compile("^port TCP")))
    expect(port).to_contain_text(str(small_cluster.about["brokers"][1]["kafka"]))
    expect(port).to_contain_text("broker-1.toml")
    own = settings.count()
    page.get_by_label(re.compile("defaults too")).check()
    everything = api.get("/brokers/1/config")["settings"]
    expect(settings).to_have_count(len(everything))
    assert own < len(everything)
    page.get_by_label("Find a setting").fill("admin_token")
    token = settings.filter(has=page.get_by_text("admin_token", exact=True))
    expect(token).to_contain_text("Bearer token")


def test_bookies(visit: Open, api: Api) -> None:
    page = visit().open("bookies")
    bookies = api.items("/bookies")
    cards = page.get_by_role("article")
    expect(cards).to_have_count(4)
    for card, bookie in zip(cards.all(), bookies, strict=True):
        expect(card).to_contain_text(bookie["bookie_id"])
        expect(card).to_contain_text("writable")
        expect(card).to_contain_text("free")


def test_what_is_not_there(visit: Open) -> None:
    one = visit()
    one.expected_statuses = {404}
    page = one.open("topics/nothing")
    expect(page.get_by_role("alert")).to_have_text("there is no topic 'nothing'")
    page.get_by_role("link", name="Groups").click()
    expect(page.get_by_role("heading", name="Groups")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)
    page.goto(f"{one.url}/#/no/such/view")
    expect(page.get_by_role("heading", name="Cluster")).to_be_visible()
