"""Drives one `Group` the way a shell does, with time by hand and a log that can be slow."""

from __future__ import annotations

from broker.coordinator.core.coordinator_types import Now, Reply, Ticket, Token
from broker.errors import BrokerError, GroupError
from broker.groups.core.group import Group
from broker.groups.core.group_members import MemberBytes
from broker.groups.core.group_types import (
    Commit,
    Event,
    GroupConfig,
    GroupEffects,
    GroupMetadata,
    Heartbeat,
    Join,
    JoinReply,
    Leaving,
    Store,
    Sync,
    SyncReply,
)

PARKED = object()
RANGE = (("range", b"subscription"),)
SESSION_MS = 10_000
REBALANCE_MS = 60_000


class GroupDriver:
    """`slow_log` holds Stores back until `finish_stores` or `fail_stores`."""

    def __init__(self, **config: int) -> None:
        config.setdefault("initial_rebalance_delay_ms", 0)
        self.now = Now(1000.0, 5_000_000)
        self.log: list[GroupMetadata] = []
        self.events: list[Event] = []
        self.slow_log = False
        self.held: list[Store] = []
        self._replies: dict[Token, object] = {}
        self._last_token = 0
        self._last_ticket = 0
        self._last_member = 0
        self._config = GroupConfig(**config)
        self.group = self._new_group()

    def _new_group(self) -> Group:
        return Group(
            "g", self._config, new_member_id=self._new_member_id, new_ticket=self._new_ticket,
            member_bytes=MemberBytes(),
        )  # fmt: skip

    def _new_member_id(self, prefix: str) -> str:
        self._last_member += 1
        return f"{prefix}-{self._last_member}"

    def _new_ticket(self) -> Ticket:
        self._last_ticket += 1
        return Ticket(self._last_ticket)

    def _token(self) -> Token:
        self._last_token += 1
        return Token(self._last_token)

    # --- requests -----------------------------------------------------------------------------

    def join(
        self,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = RANGE,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        v4: bool = False,
        v9: bool = False,
    ) -> Token:
        """Send a JoinGroup; errors are recorded as replies."""
        token = self._token()
        request = Join(
            group_id="g",
            member_id=member_id,
            instance_id=instance_id,
            client_id="client",
            client_host="/127.0.0.1",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type=protocol_type,
            protocols=protocols,
            requires_member_id=v4,
            can_skip_assignment=v9,
        )
        try:
            self._perform(self.group.join(request, token, self.now))
        except GroupError as error:
            self._replies[token] = error
        self._run_due()
        return token

    def sync(
        self,
        member_id: str,
        generation: int | None = None,
        assignments: dict[str, bytes] | None = None,
        *,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> Token:
        """Send a SyncGroup."""
        token = self._token()
        request = Sync(
            "g",
            member_id,
            instance_id,
            self.group.generation if generation is None else generation,
            protocol_type,
            protocol_name,
            tuple((assignments or {}).items()),
        )
        try:
            self._perform(self.group.sync(request, token, self.now))
        except GroupError as error:
            self._replies[token] = error
        self._run_due()
        return token

    def heartbeat(
        self, member_id: str, generation: int | None = None, *, instance_id: str | None = None
    ) -> type[GroupError] | None:
        """Send a Heartbeat; returns the class of the error, None for success."""
        generation = self.group.generation if generation is None else generation
        try:
            error = self.group.heartbeat(
                Heartbeat("g", member_id, instance_id, generation), self.now
            )
        except GroupError as raised:
            error = raised
        return None if error is None else type(error)

    def commit(
        self,
        member_id: str = "",
        generation: int | None = None,
        *,
        instance_id: str | None = None,
    ) -> type[GroupError] | None:
        """Ask whether a commit is allowed; returns the class of the error, None for yes."""
        generation = self.group.generation if generation is None else generation
        try:
            self.group.check_commit(Commit("g", member_id, instance_id, generation), self.now)
        except GroupError as error:
            return type(error)
        return None

    def leave(self, *members: str | tuple[str, str | None]) -> list[type[GroupError] | None]:
        """Send a LeaveGroup; returns the class of each error, None for success."""
        leaving = [Leaving(one, None) if isinstance(one, str) else Leaving(*one) for one in members]
        outcomes, effects = self.group.leave(leaving, self.now)
        self._perform(effects)
        self._run_due()
        return [None if one is None else type(one) for one in outcomes]

    # --- time and log -------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        """Let time pass, deadline by deadline."""
        end_s = self.now.s + seconds
        while (at_s := self.group.next_deadline()) is not None and at_s <= end_s:
            self._move_to(max(at_s, self.now.s))
            self._perform(self.group.on_deadline(self.now))
        self._move_to(end_s)

    def finish_stores(self) -> None:
        """Make everything durable that the log holds back."""
        held, self.held = self.held, []
        for store in held:
            self._finish(store)

    def fail_stores(self, error: BrokerError) -> None:
        """Refuse everything that the log holds back."""
        held, self.held = self.held, []
        for store in held:
            self._perform(self.group.on_store_failed(store.ticket, error, self.now))

    def fail_over(self) -> None:
        """Go on with a second coordinator that replays the same log."""
        self.held.clear()
        self.group = self._new_group()
        for metadata in self.log:
            self.group.replay(metadata)
        self._perform(self.group.restore(self.now))

    # --- answers ------------------------------------------------------------------------------

    def reply(self, token: Token) -> object:
        """Return the answer to a request, PARKED if there is none yet."""
        return self._replies.get(token, PARKED)

    def joined(self, token: Token) -> JoinReply:
        """Return a successful join answer."""
        reply = self.reply(token)
        assert isinstance(reply, JoinReply), reply
        return reply

    def synced(self, token: Token) -> SyncReply:
        """Return a successful sync answer."""
        reply = self.reply(token)
        assert isinstance(reply, SyncReply), reply
        return reply

    def error(self, token: Token) -> type[BrokerError]:
        """Return the class of the error that a request got."""
        reply = self.reply(token)
        assert isinstance(reply, BrokerError), reply
        return type(reply)

    def stable(self, *names: str, **join: object) -> list[str]:
        """Bring a group of that many members to Stable; returns ids, the leader's first.

        Each name becomes the member's assignment too.
        """
        tokens = [self.join(**join) for _ in names]  # type: ignore[arg-type]
        self.advance(0)
        ids = [self.joined(token).member_id for token in tokens]
        leader = self.joined(tokens[0]).leader
        assert leader == ids[0]
        followers = [self.sync(one) for one in ids[1:]]
        assignment = {one: name.encode() for one, name in zip(ids, names, strict=True)}
        first = self.sync(leader, assignments=assignment)
        for token, name in zip([first, *followers], names, strict=True):
            assert self.synced(token).assignment == name.encode()
        return ids

    # --- inside -------------------------------------------------------------------------------

    def _run_due(self) -> None:
        self.group.check()

    def _move_to(self, at_s: float) -> None:
        passed_ms = round((at_s - self.now.s) * 1000)
        self.now = Now(at_s, self.now.ms + passed_ms)

    def _perform(self, effects: GroupEffects) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                assert effect.token not in self._replies, "answered twice"
                self._replies[effect.token] = effect.result
            elif isinstance(effect, Event):
                self.events.append(effect)
            elif self.slow_log:
                self.held.append(effect)
            else:
                self._finish(effect)
        self.group.check()

    def _finish(self, store: Store) -> None:
        self.log.append(store.metadata)
        self.group.replay(store.metadata)
        self._perform(self.group.on_stored(store.ticket, self.now))
