"""Every view on a desk and on a phone, by day and by night, with eyes, ears or keyboard only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest
from playwright.sync_api import Page, expect

from tests.integration.page.browser import DESKTOP, PHONE, Visit
from tests.integration.page.conftest import Api

Open = Callable[..., Visit]
VIEWS: Final = (
    "", "topics", "topics/orders", "topics/orders/0", "topics/wide/0", "groups", "groups/billing",
    "brokers", "brokers/0", "bookies",
)  # fmt: skip
CONTRAST_MIN: Final = 4.5
"""WCAG 2.2, success criterion 1.4.3, level AA."""

_CONTRASTS: Final = """
() => {
  // The computed style says colours in several notations: let the browser paint them.
  const brush = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const channels = (colour) => {
    brush.clearRect(0, 0, 1, 1);
    brush.fillStyle = colour;
    brush.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = brush.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const light = ([r, g, b]) => [r, g, b]
    .map((value) => value / 255)
    .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4))
    .reduce((sum, value, index) => sum + value * [0.2126, 0.7152, 0.0722][index], 0);
  const behind = (element) => {
    for (let at = element; at !== null; at = at.parentElement) {
      const colour = channels(getComputedStyle(at).backgroundColor);
      if (colour[3] === 1) return colour;
    }
    return [255, 255, 255, 1];
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const isText = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    const isOff = element.closest(":disabled, svg, #skip, .unseen") !== null;
    if (!isText || isOff || !element.checkVisibility()) continue;
    const one = light(channels(getComputedStyle(element).color));
    const other = light(behind(element));
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    const what = element.className || element.tagName;
    found.push([ratio, `${what}: ${element.textContent.slice(0, 40)}`]);
  }
  return found;
}
"""
_NAMELESS: Final = """
() => [...document.querySelectorAll("a, button, input, select, textarea, [role=img]")]
  .filter((element) => element.checkVisibility())
  .filter((element) => !(
    element.getAttribute("aria-label") || element.textContent.trim() || element.labels?.length
  ))
  .map((element) => element.outerHTML)
"""


def settle(page: Page) -> None:
    """Wait until everything that a view asks for is there."""
    expect(page.locator("#view .waiting")).to_have_count(0)
    expect(page.locator("#view h1")).to_be_visible()


def check_names(page: Page) -> None:
    """Whoever does not see the page is told what everything on it is."""
    assert page.evaluate(_NAMELESS) == []
    assert page.get_by_role("heading", level=1).count() == 1
    assert page.get_by_role("main").count() == page.get_by_role("banner").count() == 1
    sections = page.get_by_role("navigation", name="Sections")
    assert sections.locator("[aria-current=page]").count() == 1
    for table in page.get_by_role("table").all():
        assert table.get_by_role("columnheader").count() > 0
    assert page.locator("html").get_attribute("lang") == "en"


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_fits_and_can_be_read(visit: Open, view: str) -> None:
    one = visit()
    page = one.open(view)
    settle(page)
    check_names(page)
    for kind, (width, height) in (("desktop", DESKTOP), ("phone", PHONE)):
        page.set_viewport_size({"width": width, "height": height})
        found = page.evaluate("document.documentElement.scrollWidth")
        assert found <= width, f"{found} wide on a {kind}"
        tables = page.locator(".scroll").evaluate_all(
            "all => all.map((one) => one.scrollWidth - one.clientWidth)"
        )
        assert max(tables, default=0) <= 0, f"a table is too wide on a {kind}"
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            ratios = page.evaluate(_CONTRASTS)
            assert ratios
            poor = [text for ratio, text in ratios if ratio < CONTRAST_MIN]
            assert not poor, f"{kind}, {scheme}: {poor}"
            one.shoot(f"{view.replace('/', '-') or 'cluster'}-{kind}-{scheme}")


def test_the_longest_names_fit_on_every_width(visit: Open, api: Api) -> None:
    name = ("a-name-without-end." * 14)[:249]
    api.create(name)
    api.publish(name, 0, "v" * 2_000)
    reset = {"topic": name, "to": "earliest"}
    api.send("PUT", f"/groups/{name}/offsets", reset)
    one = visit()
    for view in ("", "topics", f"topics/{name}", f"topics/{name}/0", "groups", f"groups/{name}"):
        page = one.open(view)
        settle(page)
        for width in (PHONE[0], 800, DESKTOP[0]):
            page.set_viewport_size({"width": width, "height": 780})
            found = page.evaluate("document.documentElement.scrollWidth")
            assert found <= width, f"#/{view}: {found} wide on {width}"
            one.shoot(f"long-{view[:7].replace('/', '-')}-{width}")
    api.send("DELETE", f"/groups/{name}")
    api.send("DELETE", f"/topics/{name}")


def test_dialogs_fit_on_a_phone(visit: Open) -> None:
    page = visit(size=PHONE, scheme="dark").open("topics")
    page.get_by_role("button", name="New topic").click()
    box = page.get_by_role("dialog").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= PHONE[0]
    assert box["y"] + box["height"] <= PHONE[1]


def paper(page: Page) -> str:
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


def test_the_theme_follows_the_system_unless_it_is_chosen(visit: Open) -> None:
    one = visit(scheme="light")
    page = one.open("")
    light = paper(page)
    page.emulate_media(color_scheme="dark")
    dark = paper(page)
    assert light != dark
    button = page.get_by_role("button", name="Theme")
    expect(button).to_have_accessible_name("Theme: auto")
    button.click()
    expect(button).to_have_accessible_name("Theme: light")
    assert paper(page) == light
    page.reload()
    expect(button).to_have_accessible_name("Theme: light")
    assert paper(page) == light
    button.click()
    page.emulate_media(color_scheme="light")
    assert paper(page) == dark


def test_a_keyboard_is_enough(visit: Open, api: Api) -> None:
    one = visit()
    page = one.open("topics")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    page.get_by_role("link", name="orders").focus()
    page.keyboard.press("Enter")
    expect(page).to_have_title("orders · Quire")
    expect(page.get_by_role("main")).to_be_focused()

    ledgers = "/topics/orders/partitions/0/segments"
    before = len(api.items(ledgers))
    page = one.open("topics/orders/0")
    cards = page.locator(".segment")
    cards.last.focus()
    page.keyboard.press("ArrowLeft")
    expect(cards.nth(-2)).to_be_focused()
    page.keyboard.press("Enter")
    expect(cards.nth(-2)).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("ArrowRight")
    expect(cards.last).to_be_focused()

    roll = page.get_by_role("button", name="Roll")
    roll.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Begin a new ledger?")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(roll).to_be_focused()
    assert len(api.items(ledgers)) == before
