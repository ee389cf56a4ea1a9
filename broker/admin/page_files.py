"""Serves the admin page: plain files, kept in memory, without a build step or third-party hosts.

The page may load nothing but itself and talk only to the broker it came from; a header makes the
browser enforce that.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final, NamedTuple

from aiohttp import web

from broker.admin.problems import Problem

_FOLDER: Final = Path(__file__).with_name("page")
_KINDS: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_INDEX: Final = "index.html"
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class _File(NamedTuple):
    body: bytes
    kind: str
    tag: str


class PageFiles:
    """The page, read once."""

    def __init__(self) -> None:
        self._files = {
            path.relative_to(_FOLDER).as_posix(): _read(path)
            for path in sorted(_FOLDER.rglob("*"))
            if path.suffix in _KINDS
        }

    async def index(self, request: web.Request) -> web.Response:
        """Answer `/`."""
        return self._answer(request, _INDEX)

    async def file(self, request: web.Request) -> web.Response:
        """Answer `/page/{name}`. Raises Problem."""
        return self._answer(request, request.match_info["name"])

    def _answer(self, request: web.Request, name: str) -> web.Response:
        file = self._files.get(name)
        if file is None:
            raise Problem(
                404, "no-such-path", f"there is nothing at {request.path}", "The page is at /."
            )
        headers = {**HEADERS, "ETag": file.tag}
        if request.headers.get("If-None-Match") == file.tag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=file.body, headers={**headers, "Content-Type": file.kind})


def _read(path: Path) -> _File:
    body = path.read_bytes()
    return _File(body, _KINDS[path.suffix], f'"{hashlib.sha256(body).hexdigest()[:16]}"')
