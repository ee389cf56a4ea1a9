"""JSON schemas as nodes of their documents: which draft they are written in, where a `$ref` leads.

References are resolved by the library `referencing`: base URIs, `$id`, anchors, JSON pointers with
their escapes. A document is known by the name that a reference gives it, by that name relative to
the root's `$id`, and by its own `$id`; meta schemas are there, and nothing is fetched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urljoin

from jsonschema_specifications import REGISTRY
from referencing import Registry, Specification
from referencing import jsonschema as drafts
from referencing._core import Resolver
from referencing.exceptions import Unresolvable

from ops.schemas.core.errors import InvalidSchema


class Dialect(NamedTuple):
    """A draft of JSON Schema."""

    specification: Specification[Any]
    keywords: frozenset[str]
    """Those that restrict something."""
    reads_beside_ref: bool
    """Whether what stands beside a `$ref` counts."""


_DRAFT4_KEYWORDS: Final = frozenset(
    (
        *("type", "enum", "allOf", "anyOf", "oneOf", "not", "$ref"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minLength", "maxLength", "pattern"),
        *("items", "additionalItems", "minItems", "maxItems", "uniqueItems"),
        *("properties", "patternProperties", "additionalProperties", "dependencies"),
        *("minProperties", "maxProperties", "required"),
    )
)
_DRAFT6_KEYWORDS: Final = _DRAFT4_KEYWORDS | {"const", "contains", "propertyNames"}
_DRAFT7_KEYWORDS: Final = _DRAFT6_KEYWORDS | {"if", "then", "else"}
_DRAFT201909_KEYWORDS: Final = _DRAFT7_KEYWORDS - {"dependencies"} | {
    *("dependentRequired", "dependentSchemas", "minContains", "maxContains"),
    *("unevaluatedItems", "unevaluatedProperties", "$recursiveRef"),
}
_DRAFT202012_KEYWORDS: Final = _DRAFT201909_KEYWORDS - {"additionalItems", "$recursiveRef"} | {
    *("prefixItems", "$dynamicRef"),
}

DRAFT7: Final = Dialect(drafts.DRAFT7, _DRAFT7_KEYWORDS, reads_beside_ref=False)
DRAFT202012: Final = Dialect(drafts.DRAFT202012, _DRAFT202012_KEYWORDS, reads_beside_ref=True)
_DIALECTS: Final = {
    one.specification.name: one
    for one in (
        Dialect(drafts.DRAFT4, _DRAFT4_KEYWORDS, reads_beside_ref=False),
        Dialect(drafts.DRAFT6, _DRAFT6_KEYWORDS, reads_beside_ref=False),
        DRAFT7,
        Dialect(drafts.DRAFT201909, _DRAFT201909_KEYWORDS, reads_beside_ref=True),
        DRAFT202012,
    )
}


class Node(NamedTuple):
    """A schema inside its document."""

    value: Any
    dialect: Dialect
    resolver: Resolver[Any] | None = None
    documents: Documents | None = None
    """Both None for what was made here and refers to nothing."""

    def child(self, value: Any) -> Node:
        """Return a schema that stands inside this one."""
        resolver = self.resolver
        if (
            resolver is not None
            and isinstance(value, Mapping)
            and ("$id" in value or "id" in value)
        ):
            resource = self.dialect.specification.create_resource(value)
            if isinstance(resource.id(), str):
                resolver = resolver.in_subresource(resource)
        return self._replace(value=value, resolver=resolver)

    def target(self) -> Node | None:
        """Return what a reference leads to; None: nowhere, or to where nobody can tell."""
        return None if self.documents is None else self.documents.target(self)


class Documents:
    """A schema and those that it refers to, by the name that `$ref` calls them."""

    def __init__(self, root: Any, named: Mapping[str, Any]) -> None:
        self.value = root
        self.named = named
        self._dialects: dict[int, Dialect] = {}
        """Of each object in a document, by its identity."""
        self._dynamic_names: dict[str, int] = {}
        """How often each `$dynamicAnchor` is there, and "" for `$recursiveAnchor`."""
        dialect = self._note(root)
        resource = dialect.specification.create_resource(root)
        base = resource.id() if isinstance(root, Mapping) else None
        registry: Registry[Any] = REGISTRY
        for name, value in named.items():
            one = self._note(value).specification.create_resource(value)
            for uri in (name, urljoin(base or "", name)):
                registry = registry.with_resource(uri, one)
        registry = registry.with_resource(base or "", resource).crawl()
        self.root = Node(root, dialect, registry.resolver(base or ""), self)

    def target(self, node: Node) -> Node | None:
        """Do what `Node.target` does, for a node of these documents."""
        assert node.resolver is not None, "what was made here refers to nothing"
        name = str(node.value.get("$ref", node.value.get("$dynamicRef", "#")))
        if "$ref" not in node.value and self._is_dynamic(node.value):
            return None
        try:
            found = node.resolver.lookup(name)
        except (Unresolvable, ValueError, LookupError):
            return None
        dialect = self._dialects.get(id(found.contents), node.dialect)
        return Node(found.contents, dialect, found.resolver, self)

    def dangling(self) -> Iterator[str]:
        """Yield the references of the root's document that lead nowhere."""
        waiting = [self.root]
        while waiting:
            node = waiting.pop()
            if not isinstance(node.value, Mapping):
                continue
            if isinstance(node.value.get("$ref"), str) and self.target(node) is None:
                yield node.value["$ref"]
            resource = node.dialect.specification.create_resource(node.value)
            waiting += [node.child(one.contents) for one in resource.subresources()]

    def _is_dynamic(self, value: Mapping[str, Any]) -> bool:
        """Whether a dynamic reference may lead to more than one place."""
        if "$recursiveRef" in value:
            return "" in self._dynamic_names
        return self._dynamic_names.get(str(value["$dynamicRef"]).rpartition("#")[2], 0) > 1

    def _note(self, document: Any) -> Dialect:
        named = document.get("$schema") if isinstance(document, Mapping) else None
        specification = drafts.specification_with(str(named), default=drafts.DRAFT7)
        dialect = _DIALECTS.get(specification.name)
        if dialect is None:
            raise InvalidSchema(f"{named}: schemas of this draft are not compared")
        waiting = [document]
        while waiting:
            value = waiting.pop()
            if isinstance(value, Mapping):
                self._dialects[id(value)] = dialect
                if "$recursiveAnchor" in value:
                    self._dynamic_names[""] = 1
                if isinstance(name := value.get("$dynamicAnchor"), str):
                    self._dynamic_names[name] = self._dynamic_names.get(name, 0) + 1
                waiting += value.values()
            elif isinstance(value, list):
                waiting += value
        return dialect
