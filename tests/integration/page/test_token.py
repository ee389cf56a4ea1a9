"""A cluster with tokens: the page asks for one, and can do no more than it allows."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.fakes.admin import AdminCloud
from tests.integration.page.browser import Visit

TOKEN, READ_TOKEN = "s3cret-token", "for-looking"


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    """URL of a broker that wants a token; it runs in a thread, because the browser blocks."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> AdminCloud:
        cloud = await AdminCloud(admin_token=TOKEN, admin_read_token=READ_TOKEN).__aenter__()
        await cloud.brokers[1].topics.create("hidden", 1, 3, {})
        await cloud.led("hidden")
        return cloud

    cloud = asyncio.run_coroutine_threadsafe(start(), loop).result(30)
    yield cloud.admins[1].url
    asyncio.run_coroutine_threadsafe(cloud.__aexit__(None, None, None), loop).result(30)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def visit(browser: Browser, guarded: str) -> Iterator[Callable[[], Visit]]:
    visits: list[Visit] = []

    def start() -> Visit:
        visits.append(Visit(browser, guarded))
        visits[-1].expected_statuses = {401, 403}
        return visits[-1]

    yield start
    for one in visits:
        one.close()
        one.check()


def give(page: Page, token: str) -> None:
    page.get_by_label("Token").fill(token)
    page.keyboard.press("Enter")


def test_the_page_asks_for_the_token_and_keeps_it_in_the_tab(visit: Callable[[], Visit]) -> None:
    one = visit()
    page = one.open("topics")
    expect(page.get_by_role("heading", name="This cluster needs a token")).to_be_visible()
    expect(page.get_by_label("Token")).to_be_focused()
    expect(page.get_by_label("Token")).to_have_attribute("type", "password")
    expect(page.get_by_text("hidden")).to_have_count(0)
    one.shoot("token")
    give(page, "wrong")
    expect(page.get_by_role("alert")).to_have_text("The token that you gave is wrong.")
    give(page, TOKEN)
    expect(page.get_by_role("link", name="hidden")).to_be_visible()
    assert TOKEN not in page.url
    assert TOKEN not in page.evaluate("JSON.stringify({...localStorage}) + document.cookie")
    page.reload()
    expect(page.get_by_role("link", name="hidden")).to_be_visible()
    other = one.context.new_page()
    other.goto(f"{one.url}/#/topics")
    expect(other.get_by_label("Token")).to_be_visible()


def test_forgetting_the_token_hides_what_it_showed(visit: Callable[[], Visit]) -> None:
    page = visit().open("topics")
    give(page, TOKEN)
    expect(page.get_by_role("link", name="hidden")).to_be_visible()
    page.get_by_role("button", name="Forget token").click()
    expect(page.get_by_label("Token")).to_be_visible()
    expect(page.get_by_text("hidden")).to_have_count(0)
    assert page.evaluate("sessionStorage.length") == 0


def test_with_the_token_for_looking_nothing_changes(visit: Callable[[], Visit]) -> None:
    page = visit().open("topics")
    give(page, READ_TOKEN)
    page.get_by_role("link", name="hidden").click()
    expect(page.get_by_role("heading", name="hidden")).to_be_visible()
    for name, role in (("Publish", "operate"), ("Change", "administer"), ("Delete", "administer")):
        button = page.get_by_role("button", name=name, exact=True)
        expect(button).to_be_disabled()
        expect(button).to_have_attribute(
            "title", f"This needs role {role}; you are admin_read_token, of role look"
        )
    page.get_by_role("link", name="0", exact=True).click()
    expect(page.get_by_text("Not known now: This needs role operate")).to_be_visible()
    for name in ("Publish", "Move leader", "Roll", "Trim", "Newest", "Go"):
        expect(page.get_by_role("button", name=name, exact=True)).to_be_disabled()
    page.get_by_role("button", name="Forget token").click()
    give(page, TOKEN)
    expect(page.get_by_role("button", name="Publish")).to_be_enabled()


def test_who_did_what_is_for_administrators(visit: Callable[[], Visit]) -> None:
    page = visit().open("audit")
    give(page, READ_TOKEN)
    expect(page.get_by_role("alert")).to_contain_text("this needs role administer")
    page.get_by_role("button", name="Forget token").click()
    give(page, TOKEN)
    row = page.get_by_role("row").filter(has_text="read-only-token GET /admin/v1/audit")
    expect(row.first).to_contain_text("admin_read_token")
    expect(page.get_by_text(TOKEN)).to_have_count(0)
