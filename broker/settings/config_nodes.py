"""Settings of named resources of one kind in the metadata store, watched by every broker.

One node for each resource that has any, `@` and the name, percent-encoded:

    {"version": 1, "configs": {"log.retention.ms": "60000"}}

Whoever changes settings sees the change at once on the same broker; others follow within moments.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import quote, unquote

from broker.cluster.editable_directory import EditableDirectory
from broker.errors import InvalidRequest
from client.errors import LogCorrupt
from client.metadata.json_node import read_object
from client.metadata.store import MetadataStore

_FORMAT: Final = 1
_PREFIX: Final = "@"
_VALUES_MAX: Final = 1_000
"""Of one resource."""

Configs = Mapping[str, str]


class ConfigNodes:
    """Resource -> its settings."""

    def __init__(
        self,
        store: MetadataStore,
        path: str,
        on_change: Callable[[], None],
        resources_max: int,
    ) -> None:
        """`path`: the directory. `resources_max`: how many may have settings."""
        self._resources_max = resources_max
        self._nodes: EditableDirectory[Configs] = EditableDirectory(store, path, _decode, on_change)

    async def start(self) -> None:
        """Read all of them, then follow changes. Raises MetadataError."""
        await self._nodes.start()

    async def close(self) -> None:
        """Stop following."""
        await self._nodes.close()

    def names(self) -> list[str]:
        """Return the resources that have settings, sorted."""
        return sorted(map(_resource, self._nodes.values))

    def of(self, name: str) -> Configs:
        """Return what was set for a resource."""
        return self._nodes.values.get(_node(name), {})

    async def edit(self, name: str, change: Callable[[Configs], Configs]) -> None:
        """Replace a resource's settings by what `change` makes of them; it may be called again.

        Raises what `change` does, InvalidRequest (too many), RequestTimedOut, MetadataError (it may
        have happened), LogCorrupt (what is there is not readable).
        """
        node_name = _node(name)

        def changed(data: bytes | None) -> bytes | None:
            before = {} if data is None else _decode(node_name, data)
            after = dict(change(before))
            self._check_size(name, after, is_new=data is None)
            if after == before:
                return data
            return _encode(after) if after else None

        subject = f"the settings of {name!r}"
        await self._nodes.edit(node_name, changed, subject=subject, is_repeatable=True)

    def _check_size(self, name: str, after: Configs, *, is_new: bool) -> None:
        if len(after) > _VALUES_MAX:
            raise InvalidRequest(f"more than {_VALUES_MAX} settings of {name!r}")
        if is_new and after and len(self._nodes.values) >= self._resources_max:
            raise InvalidRequest(
                f"at most {self._resources_max} resources of this type can have settings"
            )


def _node(name: str) -> str:
    return _PREFIX + quote(name, safe="")


def _resource(node_name: str) -> str:
    return unquote(node_name[len(_PREFIX) :])


def _encode(configs: Configs) -> bytes:
    return json.dumps({"version": _FORMAT, "configs": dict(configs)}, sort_keys=True).encode()


def _decode(node_name: str, data: bytes) -> Configs:
    """Read a node. Raises LogCorrupt."""
    try:
        fields = read_object(data)
        if fields["version"] == _FORMAT:
            return {str(key): str(value) for key, value in fields["configs"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LogCorrupt(f"settings {node_name} are not readable: {error!r}") from error
    raise LogCorrupt(f"settings {node_name} have format {fields['version']}")
