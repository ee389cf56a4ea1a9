"""Object stores through obstore: a directory of this machine, and whatever speaks S3.

    file:///var/lib/quire/objects                 a directory, on a disk or mounted
    s3://bucket/folder                            Amazon S3, or what `endpoint` names

Credentials are found where users of a cloud keep them: the variables AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION and AWS_ENDPOINT_URL, the identity of a pod or
of a machine. The only file that imports obstore, which is an extra: without it nothing but
offloading is missed.

obstore works on threads of its own; what it is given and gives back stays below `PART_BYTES`, or
the event loop would stand still while it is copied. It repeats what is safe to repeat.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Awaitable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from client.errors import (
    ConfigError,
    NoObject,
    ObjectExists,
    ObjectStoreError,
    StoreRefuses,
    StoreUnavailable,
)
from client.objects.store import KINDS, PART_BYTES, ObjectInfo, Tail

T = TypeVar("T")

_PARTS_AT_ONCE: Final = 2
"""Of one upload: so that it holds three parts at most, the one being filled included."""
_SETTLE_S: Final = 0.05
_TEXT_CHARS: Final = 300


class ObstoreStore:
    """Implements `ObjectStore`."""

    def __init__(self, url: str, *, endpoint: str = "", timeout_s: float = 30.0) -> None:
        """`endpoint`: of a store that speaks S3 and is not Amazon's. `timeout_s`: for one request,
        and about as long for all its repetitions. Raises ConfigError."""
        try:
            import obstore
            from obstore import exceptions, store
        except ImportError as error:
            raise ConfigError(
                "offload.store_url needs the extra `offload`: install Quire's wheel with [offload]"
            ) from error
        self.place = url
        self.requests: Counter[str] = Counter(dict.fromkeys(KINDS, 0))
        self._api: Any = obstore
        self._errors: Any = exceptions
        self._root: Path | None = None
        parts = urlsplit(url)
        try:
            if parts.scheme == "file":
                self._root = Path(parts.path)
                self._store: Any = store.LocalStore(parts.path, mkdir=True)
            elif parts.scheme == "s3" and parts.netloc:
                self._store = _s3(store, parts.netloc, parts.path, endpoint, timeout_s)
            else:
                raise ConfigError(
                    f"{url!r} is no place for objects: file:///DIRECTORY or s3://BUCKET/FOLDER"
                )
        except (exceptions.BaseError, ValueError, OSError) as error:
            raise ConfigError(f"offload.store_url {url}: {_first_line(error)}") from error

    async def put(self, name: str, parts: AsyncIterable[bytes]) -> None:
        """See `ObjectStore`. One part is sent on condition that the name is new."""
        walk = aiter(parts)
        first = await anext(walk, b"")
        second = await anext(walk, None)
        if second is None:
            sending = self._api.put_async(self._store, name, first, mode="create")
        else:
            sending = self._api.put_async(
                self._store,
                name,
                _chained(first, second, walk),
                use_multipart=True,
                chunk_size=PART_BYTES,
                max_concurrency=_PARTS_AT_ONCE,
            )
        await self._do("put", name, sending)
        if self._root is not None:
            await asyncio.to_thread(_sync, self._root, self._root / name)

    async def read(self, name: str, start: int, end: int) -> bytes:
        """See `ObjectStore`."""
        asked = self._api.get_range_async(self._store, name, start=start, end=end)
        return bytes(await self._do("read", name, asked))

    async def tail(self, name: str, size: int) -> Tail:
        """See `ObjectStore`."""
        asked = self._api.get_async(self._store, name, options={"range": {"suffix": size}})
        found = await self._do("read", name, asked)
        data = await self._do("", name, found.bytes_async())
        return Tail(bytes(data), int(found.meta["size"]))

    async def head(self, name: str) -> ObjectInfo:
        """See `ObjectStore`."""
        return _info(await self._do("head", name, self._api.head_async(self._store, name)))

    async def delete(self, name: str) -> None:
        """See `ObjectStore`."""
        try:
            await self._do("delete", name, self._api.delete_async(self._store, name))
        except NoObject:
            return

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """See `ObjectStore`."""
        pages = aiter(self._api.list(self._store, prefix=f"{prefix}/"))
        while (page := await self._do("list", prefix, _next(pages))) is not None:
            for item in page:
                yield _info(item)

    async def close(self) -> None:
        """See `ObjectStore`: its threads must be done with our objects before we are gone."""
        await asyncio.sleep(_SETTLE_S)

    async def _do(self, kind: str, name: str, asked: Awaitable[T]) -> T:
        """Wait for an answer. Raises ObjectStoreError."""
        if kind:
            self.requests[kind] += 1
        try:
            return await asked
        except (self._errors.BaseError, OSError, ValueError) as error:
            raise self._as_ours(kind, name, error) from error

    def _as_ours(self, kind: str, name: str, error: Exception) -> ObjectStoreError:
        text = f"{self.place}: {name}: {_first_line(error)}"
        known = self._errors
        whole = str(error)
        is_missing = isinstance(error, FileNotFoundError)
        if "NoSuchBucket" in whole or (is_missing and kind == "put"):
            return StoreRefuses(
                f"{self.place}: there is no such bucket: create it, or correct offload.store_url"
                f" ({_first_line(error)})"
            )
        if is_missing:
            return NoObject(text)
        if isinstance(error, known.AlreadyExistsError | known.PreconditionError):
            return ObjectExists(text)
        refusals = (known.PermissionDeniedError, known.UnauthenticatedError, PermissionError,
                    known.UnknownConfigurationKeyError)  # fmt: skip
        if isinstance(error, refusals) or "InvalidAccessKeyId" in whole:
            return StoreRefuses(f"{self.place} refuses our credentials: {_first_line(error)}")
        return StoreUnavailable(text)


def _s3(store: Any, bucket: str, folder: str, endpoint: str, timeout_s: float) -> Any:
    options: dict[str, Any] = {}
    if endpoint:
        options["endpoint"] = endpoint
    elif "AWS_ENDPOINT_URL" in os.environ:
        options["endpoint"] = endpoint = os.environ["AWS_ENDPOINT_URL"]
    if "AWS_REGION" not in os.environ and "AWS_DEFAULT_REGION" not in os.environ:
        options["region"] = "us-east-1"
    seconds = f"{timeout_s:g}s"
    return store.S3Store(
        bucket,
        prefix=folder.strip("/") or None,
        client_options={
            "timeout": seconds, "connect_timeout": seconds,
            "allow_http": endpoint.startswith("http://"),
        },
        retry_config={"max_retries": 3, "retry_timeout": timedelta(seconds=timeout_s)},
        **options,
    )  # fmt: skip


async def _chained(first: bytes, second: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    yield second
    async for part in rest:
        yield part


async def _next(pages: Any) -> Any:
    return await anext(pages, None)


def _sync(root: Path, path: Path) -> None:
    """Have a file on stable storage, with the directories that name it."""
    while True:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        if path == root:
            return
        path = path.parent


def _info(meta: Any) -> ObjectInfo:
    return ObjectInfo(meta["path"], meta["size"], int(meta["last_modified"].timestamp() * 1000))


def _first_line(error: Exception) -> str:
    """What obstore says without its debugging output."""
    return " ".join(str(error).split("Debug source:")[0].split())[:_TEXT_CHARS]
