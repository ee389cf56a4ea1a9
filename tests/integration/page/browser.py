"""A headless Chromium that watches the admin page as strictly as its readers would like.

`Visit.check` fails a test for anything the page should never do: an error on the console, an
exception, a request to another host than its broker.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Playwright,
    Request,
    expect,
)

PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")
_FLAGS: Final = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
_REFUSED: Final = re.compile(r"Failed to load resource.*status of (\d+)")
_TIMEOUT_MS: Final = 30_000
DESKTOP: Final = (1280, 860)
PHONE: Final = (360, 780)
SHOTS: Final = os.environ.get("QUIRE_PAGE_SHOTS")
"""A folder that gets a screenshot of every view; none are taken without it."""


def launch(playwright: Playwright) -> Browser:
    """Start the machine's Chromium."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    assert program, (
        "no Chromium here: run tests/integration/clients/install.sh, or apt-get install chromium"
    )
    return playwright.chromium.launch(executable_path=program, args=_FLAGS)


class Visit:
    """One reader with one tab, nothing remembered from before."""

    def __init__(
        self, browser: Browser, url: str, size: tuple[int, int] = DESKTOP, scheme: str = "light"
    ) -> None:
        self.url = url
        self.expected_statuses: set[int] = set()
        """Refusals that the test provokes; the browser logs each on the console."""
        self.wrong: list[str] = []
        width, height = size
        self.context: BrowserContext = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if scheme == "dark" else "light",
            reduced_motion="reduce",
        )
        self.context.set_default_timeout(_TIMEOUT_MS)
        expect.set_options(timeout=_TIMEOUT_MS)
        self.page: Page = self.context.new_page()
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.wrong.append(f"exception: {error}"))
        self.page.on("request", self._on_request)

    def open(self, view: str) -> Page:
        """Go to a view, as by its address, and wait until its data is there."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.url}/#/{view}")
        expect(self.page.locator("#view")).to_have_attribute("aria-busy", "false")
        return self.page

    def shoot(self, name: str) -> None:
        """Take a screenshot, if anybody wants them."""
        if SHOTS:
            Path(SHOTS).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=Path(SHOTS) / f"{name}.png", full_page=True)

    def check(self) -> None:
        """Fail if the page did what it never should."""
        assert not self.wrong, "\n".join(self.wrong)

    def close(self) -> None:
        """Close the tab."""
        self.context.close()

    def _on_console(self, message: ConsoleMessage) -> None:
        refused = _REFUSED.search(message.text)
        if refused and int(refused[1]) in self.expected_statuses:
            return
        if message.type in ("error", "warning"):
            self.wrong.append(f"console: {message.text}")

    def _on_request(self, request: Request) -> None:
        if urlsplit(request.url).netloc != urlsplit(self.url).netloc:
            self.wrong.append(f"another host: {request.url}")
