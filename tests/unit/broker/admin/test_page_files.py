"""The page's files as they are served, and what they may hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from broker.admin import server
from tests.fakes.admin import AdminCloud

FOLDER = Path(server.__file__).with_name("page")
FILES = sorted(path for path in FOLDER.rglob("*") if path.is_file())
SCRIPTS = [path for path in FILES if path.suffix == ".js"]


def name_of(path: Path) -> str:
    return path.relative_to(FOLDER).as_posix()


EACH = pytest.mark.parametrize("path", FILES, ids=name_of)
EACH_SCRIPT = pytest.mark.parametrize("path", SCRIPTS, ids=name_of)
SVG_NAMESPACE = "http://www.w3.org/2000/svg"


async def test_the_page_needs_no_token_and_says_what_it_may_load() -> None:
    async with AdminCloud(admin_token="s3cret") as cloud:
        answer = await cloud.ask("GET", "/", status=200)
        assert b"<title>Quire</title>" in answer.body
        policy = dict(
            rule.strip().split(" ", 1)
            for rule in answer.headers["Content-Security-Policy"].split(";")
        )
        assert policy["default-src"] == "'none'"
        for kind in ("script-src", "style-src", "img-src", "connect-src"):
            assert policy[kind] == "'self'"
        for kind in ("base-uri", "form-action", "frame-ancestors", "trusted-types"):
            assert policy[kind] == "'none'"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"


@EACH
async def test_every_file_is_served_as_what_it_is(path: Path) -> None:
    kinds = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml",
             ".html": "text/html"}  # fmt: skip
    body = path.read_bytes()  # noqa: ASYNC240
    async with AdminCloud() as cloud:
        url = f"/page/{name_of(path)}"
        answer = await cloud.ask("GET", url, status=200)
        assert answer.body == body
        assert answer.headers["Content-Type"].split(";")[0] == kinds[path.suffix]
        tag = {"If-None-Match": answer.headers["ETag"]}
        again = await cloud.ask("GET", url, headers=tag, status=304)
        assert again.body == b""
        await cloud.ask("GET", url, headers={"If-None-Match": '"other"'}, status=200)


@pytest.mark.parametrize("name", ["nothing.js", "../server.py", "%2e%2e/server.py", "views"])
async def test_nothing_else_is_served(name: str) -> None:
    async with AdminCloud() as cloud:
        answer = await cloud.ask("GET", f"/page/{name}", status=404)
        assert answer.body["type"] == "urn:quire:problem:no-such-path"


@EACH
def test_no_other_host_is_named(path: Path) -> None:
    text = path.read_text().replace(SVG_NAMESPACE, "")
    assert not re.findall(r"(?:https?:)?//\w[\w.-]*\.\w", text)
    assert "@import" not in text


@EACH_SCRIPT
def test_scripts_make_no_markup_of_text_and_their_imports_are_there(path: Path) -> None:
    text = path.read_text()
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert word not in text
    for name in re.findall(r'from "([^"]+)"', text):
        target = (path.parent / name).resolve()
        assert target.is_file(), name
        exported = set(re.findall(r"^export (?:async )?(?:function|const|class) (\w+)",
                                  target.read_text(), re.M))  # fmt: skip
        wanted = re.search(r'import \{([^}]*)\} from "' + re.escape(name) + '"', text)
        assert wanted is not None
        assert {word.strip() for word in wanted[1].split(",")} <= exported, name


@EACH_SCRIPT
def test_what_is_imported_is_used(path: Path) -> None:
    text = path.read_text()
    body = re.sub(r"^import .*$", "", text, flags=re.M)
    for names in re.findall(r"^import \{([^}]*)\}", text, re.M):
        for name in names.split(","):
            assert re.search(rf"\b{name.strip()}\b", body), name
