"""Says whether whoever sent a request may do what it asks for.

Each API's module declares what it needs (`NEEDS`) and asks here before it does anything. Without
authorization everybody may do everything, and asking costs next to nothing; with it, decisions are
remembered until the entries change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from broker.cluster.directory_view import Freshness
from broker.errors import (
    AccessUnknown,
    AuthorizationFailed,
    BrokerError,
    ClusterAuthorizationFailed,
    CoordinatorNotAvailable,
    GroupAuthorizationFailed,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from broker.faults import code_of
from broker.metrics import Metrics
from broker.security.acl_store import AclStore
from broker.security.config import SecurityConfig
from broker.security.core.acls import (
    CLUSTER_NAME,
    SUPPORTED,
    Authorizer,
    Operation,
    ResourceType,
)
from client.metadata.store import MetadataStore
from client.node.logs import AT_WILL, SECURITY
from client.wire.kafka.apis import ApiKey

_log = SECURITY

_ERRORS: Final[Mapping[ResourceType, type[AuthorizationFailed]]] = {
    ResourceType.TOPIC: TopicAuthorizationFailed,
    ResourceType.GROUP: GroupAuthorizationFailed,
    ResourceType.CLUSTER: ClusterAuthorizationFailed,
    ResourceType.TRANSACTIONAL_ID: TransactionalIdAuthorizationFailed,
}

_OF_COORDINATORS: Final = frozenset(
    (
        ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.FIND_COORDINATOR, ApiKey.JOIN_GROUP,
        ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP, ApiKey.SYNC_GROUP, ApiKey.DESCRIBE_GROUPS,
        ApiKey.LIST_GROUPS, ApiKey.DELETE_GROUPS, ApiKey.OFFSET_DELETE,
        ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN,
        ApiKey.TXN_OFFSET_COMMIT, ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS,
    )
)  # fmt: skip

OPERATIONS_NOT_ASKED: Final = -(1 << 31)
"""In the place of authorized operations that nobody asked for."""


class Need(NamedTuple):
    """What a request needs to be allowed, to a resource of a type."""

    operation: Operation
    kind: ResourceType


READ_TOPIC: Final = Need(Operation.READ, ResourceType.TOPIC)
WRITE_TOPIC: Final = Need(Operation.WRITE, ResourceType.TOPIC)
CREATE_TOPIC: Final = Need(Operation.CREATE, ResourceType.TOPIC)
DELETE_TOPIC: Final = Need(Operation.DELETE, ResourceType.TOPIC)
ALTER_TOPIC: Final = Need(Operation.ALTER, ResourceType.TOPIC)
DESCRIBE_TOPIC: Final = Need(Operation.DESCRIBE, ResourceType.TOPIC)
DESCRIBE_CONFIGS_TOPIC: Final = Need(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC)
ALTER_CONFIGS_TOPIC: Final = Need(Operation.ALTER_CONFIGS, ResourceType.TOPIC)
READ_GROUP: Final = Need(Operation.READ, ResourceType.GROUP)
DELETE_GROUP: Final = Need(Operation.DELETE, ResourceType.GROUP)
DESCRIBE_GROUP: Final = Need(Operation.DESCRIBE, ResourceType.GROUP)
ALTER_CONFIGS_GROUP: Final = Need(Operation.ALTER_CONFIGS, ResourceType.GROUP)
DESCRIBE_CONFIGS_GROUP: Final = Need(Operation.DESCRIBE_CONFIGS, ResourceType.GROUP)
WRITE_TRANSACTIONAL_ID: Final = Need(Operation.WRITE, ResourceType.TRANSACTIONAL_ID)
DESCRIBE_TRANSACTIONAL_ID: Final = Need(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
CREATE_CLUSTER: Final = Need(Operation.CREATE, ResourceType.CLUSTER)
ALTER_CLUSTER: Final = Need(Operation.ALTER, ResourceType.CLUSTER)
DESCRIBE_CLUSTER: Final = Need(Operation.DESCRIBE, ResourceType.CLUSTER)
DESCRIBE_CONFIGS_CLUSTER: Final = Need(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
ALTER_CONFIGS_CLUSTER: Final = Need(Operation.ALTER_CONFIGS, ResourceType.CLUSTER)
CLUSTER_ACTION: Final = Need(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
IDEMPOTENT_WRITE: Final = Need(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)


class Subject(Protocol):
    """Who asks: the other end of a connection."""

    @property
    def user(self) -> str:
        """Name of the principal."""
        ...

    @property
    def host(self) -> str:
        """Numeric address."""
        ...


class Rights:
    """One for all requests of a broker."""

    def __init__(
        self,
        config: SecurityConfig,
        store: MetadataStore,
        metrics: Metrics,
        freshness: Freshness | None = None,
    ) -> None:
        """`freshness`: of the entries; None: what is known always counts."""
        self.is_on = config.authorization
        """Whether anything can be refused."""
        self._links_by_listener = config.links_by_listener
        self.denied = 0
        self._freshness = freshness or Freshness()
        self._authorizer = Authorizer(
            config.super_users, allow_if_none=config.allow_everyone_if_no_acl_found
        )
        self.acls = AclStore(store, self._authorizer.replace, config.acls_max, self._freshness)
        """The entries; somebody has to start them."""
        metrics.provide_one("quire_broker_requests_denied", lambda: self.denied)
        metrics.provide_one("quire_broker_acls", lambda: self.acls.count)

    async def start(self) -> None:
        """Read the entries, if they decide anything. Raises MetadataError."""
        if self.is_on:
            await self.acls.start()

    async def close(self) -> None:
        """Stop following changes."""
        await self.acls.close()

    def may(self, who: Subject, need: Need, name: str = CLUSTER_NAME) -> bool:
        """Say whether somebody may do something to one resource."""
        if not self.is_on:
            return True
        return self._authorizer.is_allowed(who.user, who.host, need.operation, need.kind, name)

    def may_somewhere(self, who: Subject, need: Need) -> bool:
        """Say whether there is any resource of the type to which somebody may do something."""
        if not self.is_on:
            return True
        return self._authorizer.is_allowed_somewhere(who.user, who.host, need.operation, need.kind)

    def operations(self, who: Subject, kind: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Return the operations that somebody may do to a resource: bit n is operation n (KIP-430).

        Nothing that is missing counts as denied: it was not tried."""
        return sum(1 << one for one in SUPPORTED[kind] if self.may(who, Need(one, kind), name))

    def require_known(self, who: Subject, api_key: int) -> None:
        """Refuse a request whose sender's rights are not known any more: nobody but super users.

        Raises CoordinatorNotAvailable for what clients ask of a coordinator, because they look
        for another one then and end with most other errors; else AccessUnknown.
        """
        if not self.is_on or self._is_fresh():
            return
        if self._authorizer.is_super(who.user):
            return
        text = self._freshness.refusal("rights")
        raise CoordinatorNotAvailable(text) if api_key in _OF_COORDINATORS else AccessUnknown(text)

    def require_link(self, who: Subject, api_key: int) -> None:
        """Refuse somebody who came by the listener of brokers, and may not act as one.

        Raises AccessUnknown, ClusterAuthorizationFailed.
        """
        if self.is_on and not self._links_by_listener:
            self.require_known(who, api_key)
            self.require(who, CLUSTER_ACTION)

    def _is_fresh(self) -> bool:
        return self._freshness.is_fresh(asyncio.get_running_loop().time())

    def require(self, who: Subject, need: Need, name: str = CLUSTER_NAME) -> None:
        """Raise what `refusal` returns unless it may be done."""
        if self.is_on and not self.may(who, need, name):
            raise self.refusal(who, need, name)

    def code(self, who: Subject, need: Need, name: str = CLUSTER_NAME) -> int:
        """Return the code of what `require` would raise; 0 if it may be done."""
        return 0 if self.may(who, need, name) else code_of(self.refusal(who, need, name))

    def refusal(self, who: Subject, need: Need, name: str = CLUSTER_NAME) -> BrokerError:
        """Return the error of what may not be done, counted and logged; AccessUnknown if it may
        have been allowed meanwhile."""
        if not self._is_fresh():
            return AccessUnknown(self._freshness.refusal("rights"))
        self.denied += 1
        what = f"{need.operation.name} {need.kind.name.lower()} {name[:249]!r}"
        _log.warning(
            "request.denied user=%r peer=%s what=%s", who.user[:249], who.host, what, extra=AT_WILL
        )
        return _ERRORS[need.kind](f"user {who.user[:249]!r} may not {what}")
