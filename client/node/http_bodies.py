"""Reads the body of an HTTP request: undoes its Content-Encoding, parses JSON.

aiohttp would decompress bodies while they arrive; what is not in the encoding that it claims then
ends in an exception that its users take for a fault of theirs, and an encoding whose library is
missing in an answer of aiohttp's own. So runners are made to leave bodies as they were sent
(`make_runner`), and here each of these is a 4xx that the server words in its API's form.
"""

from __future__ import annotations

import json
import zlib
from typing import Any, Final

from aiohttp import web
from aiohttp.web_protocol import RequestPayloadError

_BODY: Final = web.RequestKey("quire.body", bytes)
_ZLIB_OR_GZIP: Final = zlib.MAX_WBITS | 32
_ENCODINGS: Final = "gzip, deflate"
_COMPRESSED: Final = ("gzip", "x-gzip", "deflate")


def make_runner(app: web.Application, **options: Any) -> web.AppRunner:
    """Return a runner whose requests `read_body` reads; `options`: further ones of aiohttp."""
    return web.AppRunner(app, access_log=None, auto_decompress=False, **options)


async def read_body(request: web.Request) -> bytes:
    """Return the body of a request, without its Content-Encoding.

    Raises web.HTTPBadRequest if it is not what its headers say, web.HTTPUnsupportedMediaType if
    the encoding is unknown, web.HTTPRequestEntityTooLarge if it is too large with or without it.
    """
    if _BODY not in request:
        try:
            sent = await request.read()
        except (RequestPayloadError, ConnectionError) as error:
            raise _not_as_told("is not what its headers say") from error
        request[_BODY] = _decode(request, sent)
    return request[_BODY]


def _decode(request: web.Request, sent: bytes) -> bytes:
    name = request.headers.get("Content-Encoding", "identity").strip().lower()
    if name in ("", "identity"):
        return sent
    if name in _COMPRESSED:
        return _inflate(sent, name, request.client_max_size)
    raise web.HTTPUnsupportedMediaType(
        text=f"Content-Encoding {name[:40]!r}: use one of {_ENCODINGS}, or none\n",
        headers={"Accept-Encoding": _ENCODINGS},
    )


def _inflate(sent: bytes, name: str, size_max: int) -> bytes:
    """Return what was compressed; some clients send deflate without zlib's header."""
    is_bare = name == "deflate" and sent[:1] != b"" and sent[0] & 0x0F != zlib.DEFLATED
    stream = zlib.decompressobj(-zlib.MAX_WBITS if is_bare else _ZLIB_OR_GZIP)
    try:
        found = stream.decompress(sent, size_max + 1)
    except zlib.error as error:
        raise _not_as_told(f"is not {name}: {error}") from error
    if len(found) > size_max:
        raise web.HTTPRequestEntityTooLarge(size_max, len(found))
    if not stream.eof or stream.unused_data:
        raise _not_as_told(f"is not {name}: it does not end where it should")
    return found


def parse_json(body: bytes, *, checks_text: bool = True) -> Any:
    """Return the JSON value that a body has, in UTF-8, as JSON is sent.

    Raises ValueError if it is none and, with `checks_text`, if there is half a surrogate in it,
    which is text that can be neither stored nor sent.
    """
    text = body.decode("utf-8-sig")
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
        if checks_text and "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _not_as_told(message: str) -> web.HTTPBadRequest:
    return web.HTTPBadRequest(text=f"the body {message}\n")
