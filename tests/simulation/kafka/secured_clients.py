"""The keeper and the wanderer of secured schedules; see `clusters/secured_load.py`."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

from client.wire.kafka.apis import ApiKey
from client.wire.kafka.batches.records import Record, build_batch
from tests.fakes import sasl_client
from tests.fakes.wire_client import WireClient
from tests.simulation.clusters.access_book import TOPIC_DENIED, Asked
from tests.simulation.clusters.secured_load import ADMIN, WANDERER, SecuredOptions, password_of
from tests.simulation.kafka.connection import (
    EARLIEST,
    MECHANISM,
    PORT,
    Account,
    KafkaLink,
    Refused,
)
from tests.simulation.machine.hosts import SimClock

if TYPE_CHECKING:
    import random
    from collections.abc import Coroutine

    from tests.simulation.clusters.access_book import AccessBook
    from tests.simulation.clusters.world import ClusterWorld
    from tests.simulation.machine.hosts import Host

_SILENCE_S = 2.0
_PAUSE_S = 0.05
_BATCHES_MAX = 20
"""So many the wanderer appends: what it leaves behind has to be read at the end."""
_FOLLOW_S = 3.0
"""How soon every broker follows a change when nothing fails any more but single reads of the store,
after which it waits for half a second."""
_UNKNOWN = 3
_ALLOW, _DENY = 3, 2
_OPERATIONS = {"ALL": 2, "READ": 3, "WRITE": 4, "DESCRIBE": 8}
_TOPIC, _ANY, _LITERAL, _PREFIXED = 2, 1, 3, 4
_TROUBLE = (OSError, asyncio.IncompleteReadError, TimeoutError, Refused)

Change = dict[str, Any]


class SecuredClients:
    """Both, and their last word."""

    def __init__(
        self, world: ClusterWorld, book: AccessBook, options: SecuredOptions, topic: str
    ) -> None:
        self.book = book
        self._world = world
        self._options = options
        self._topic = topic
        self._roles: dict[str, str] = {}
        self._passwords = [password_of(WANDERER)]
        """Of the wanderer, the newest last."""
        self._batches = 0
        self._address = ""
        """The wanderer's."""

    def assign(self, host: Host, role: str) -> None:
        """Decide what a host runs."""
        self._roles[host.name] = role
        if role == "wanderer":
            self._address = host.ip

    def runs_on(self, host: Host) -> bool:
        """Whether one of the two is on a host."""
        return host.name in self._roles

    def main_of(self, host: Host) -> Coroutine[Any, Any, None]:
        """Return the main of a host's next process."""
        return self._keep(host) if self._roles[host.name] == "keeper" else self._wander(host)

    def account(self, user: str, password: str = "") -> Account:
        """Return what a user logs in with."""
        book = self.book
        return Account(
            user, password or password_of(user), book.logged_in, book.unproven, book.overstayed
        )

    def account_of(self, host: Host) -> Account:
        """Return what the clients of a host log in with."""
        return self.account(host.name if host.name[:-1] in _ROLES else ADMIN)

    # ---------------------------------------------------------------- the keeper

    async def _keep(self, host: Host) -> None:
        rng = self._world.fork_rng(f"keeper {host.starts}")
        await self._world.work.topic_exists.wait()
        while not self._world.healed:
            await asyncio.sleep(rng.expovariate(1 / self._options.change_every_s))
            with contextlib.suppress(*_TROUBLE):
                await self._change(rng)
        await self._world.loop.create_future()

    async def _change(self, rng: random.Random) -> None:
        """Give or take something at some broker. Raises OSError, TimeoutError, Refused."""
        which = rng.random()
        if which < 0.1:
            await self._new_password(rng)
        elif which < 0.5:
            await self._at(self._any_host(rng), self._remove(rng.choice((True, False, False))))
        else:
            await self._at(self._any_host(rng), self._add(self._entry(rng)))
        self._world.oracle.count("rights changed")

    def _entry(self, rng: random.Random) -> Change:
        pattern, name = rng.choice(
            ((_LITERAL, self._topic), (_LITERAL, self._topic), (_LITERAL, "*"),
             (_PREFIXED, self._topic[:1]), (_PREFIXED, "u"), (_LITERAL, f"{self._topic}2"))
        )  # fmt: skip
        return {
            "resource_type": _TOPIC, "resource_name": name, "resource_pattern_type": pattern,
            "principal": f"User:{WANDERER}",
            "host": rng.choice(("*", "*", self._address, "10.9.9.9")),
            "operation": _OPERATIONS[rng.choice(list(_OPERATIONS))],
            "permission_type": rng.choice((_ALLOW, _ALLOW, _DENY)),
        }  # fmt: skip

    def _add(self, *rows: Change) -> Change:
        return {"key": ApiKey.CREATE_ACLS, "version": 1, "creations": list(rows)}

    def _remove(self, is_all: bool, permission: int = _DENY) -> Change:
        """All of the wanderer's entries, or those that deny."""
        wanted = {
            "resource_type_filter": _TOPIC, "resource_name_filter": None, "pattern_type_filter": 1,
            "principal_filter": f"User:{WANDERER}", "host_filter": None, "operation": _ANY,
            "permission_type": _ANY if is_all else permission,
        }  # fmt: skip
        return {"key": ApiKey.DELETE_ACLS, "version": 1, "filters": [wanted]}

    async def _new_password(self, rng: random.Random) -> None:
        password = rng.choice((password_of(WANDERER), "second", "third"))
        await self._at(self._any_host(rng), self._with_password(password))

    def _with_password(self, password: str) -> Change:
        """Give the wanderer a password, as kafka-configs does."""
        self._passwords.append(password)
        salt = b"of " + password.encode()
        algorithm = sasl_client.HASHES[MECHANISM]
        row = {
            "name": WANDERER, "mechanism": sasl_client.NUMBERS[MECHANISM], "iterations": 4096,
            "salt": salt, "salted_password": sasl_client.salted(algorithm, password, salt, 4096),
        }  # fmt: skip
        change = {"key": ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "version": 0}
        return {**change, "deletions": [], "upsertions": [row]}

    async def _at(self, host: str, change: Change) -> None:
        """Have a broker change something. Raises OSError, TimeoutError, Refused."""
        async with asyncio.timeout(_SILENCE_S):
            client = await WireClient.connect(PORT, host)
            try:
                await log_in(client, ADMIN)
                fields = {**change}
                client.send(fields.pop("key"), fields.pop("version"), **fields)
                answer = await client.receive(_SILENCE_S)
            finally:
                await client.close()
        rows = next(
            getattr(answer, name) for name in ("results", "filter_results") if hasattr(answer, name)
        )
        for row in rows:
            if row.error_code:
                raise Refused(int(row.error_code), "change of rights")

    def _any_host(self, rng: random.Random) -> str:
        return rng.choice(self._world.brokers).name

    # ---------------------------------------------------------------- the wanderer

    async def _wander(self, host: Host) -> None:
        rng = self._world.fork_rng(f"wanderer {host.starts}")
        await self._world.work.topic_exists.wait()
        while not self._world.healed:
            await asyncio.sleep(rng.expovariate(1 / self._options.visit_every_s))
            visit = rng.choices(
                (self._use, self._guess, self._walk_in), (0.8, 0.1, 0.1)
            )[0]  # fmt: skip
            with contextlib.suppress(*_TROUBLE):
                await visit(self._any_host(rng), rng)
        await self._world.loop.create_future()

    async def _guess(self, host: str, rng: random.Random) -> None:
        """Try a password that was right before, or never was."""
        password = rng.choice(("wrong", *self._passwords[-3:]))
        link = await KafkaLink.connect(host, _SILENCE_S, self.account(WANDERER, password))
        link.close()

    async def _walk_in(self, host: str, rng: random.Random) -> None:
        """Ask without having logged in, or in the middle of it."""
        link = await KafkaLink.connect(host, _SILENCE_S)
        try:
            if rng.random() < 0.5:
                await link.topic(self._topic, _SILENCE_S)
            else:
                account = self.account(WANDERER, "wrong")
                with contextlib.suppress(Refused):
                    await link.log_in(account, _SILENCE_S)
                await link.topic(self._topic, _SILENCE_S)
        except (OSError, asyncio.IncompleteReadError):
            self._world.oracle.count("strangers sent away")
        else:
            self.book.served_without_login(host)
        finally:
            link.close()

    async def _use(self, host: str, rng: random.Random) -> None:
        """Log in and ask for some things. Raises OSError, TimeoutError, Refused."""
        account = self.account(WANDERER, self._passwords[-1])
        link = await KafkaLink.connect(host, _SILENCE_S, account)
        try:
            for _ in range(rng.randint(1, 4)):
                ask = rng.choice((self._describe, self._fetch, self._list, self._produce))
                await ask(link, rng)
                await asyncio.sleep(rng.choice((0.0, 0.02, 0.4)))
        finally:
            link.close()

    async def _describe(self, link: KafkaLink, rng: random.Random) -> int:
        """Ask about the topic, or one that is not there: who may not see it is not told so."""
        name = rng.choice((self._topic, f"{self._topic}2"))
        asked = self._asked("DESCRIBE")._replace(topic=name)
        code, found = await link.topic(name, _SILENCE_S)
        is_told = found or (name != self._topic and code == _UNKNOWN)
        return self._answered(asked, 0 if is_told else code)

    async def _fetch(self, link: KafkaLink, rng: random.Random) -> int:
        asked = self._asked("READ")
        got = await link.fetch(
            self._topic, self._index(rng), 0, -1, max_bytes=500, timeout_s=_SILENCE_S
        )
        if got.code == TOPIC_DENIED and (got.records or got.high_watermark > 0):
            self._world.oracle.fail("A1", f"{link.host} denies, and tells all the same")
        return self._answered(asked, got.code)

    async def _list(self, link: KafkaLink, rng: random.Random) -> int:
        asked, code = self._asked("DESCRIBE"), 0
        try:
            await link.offset(self._topic, self._index(rng), EARLIEST, -1, _SILENCE_S)
        except Refused as refused:
            code = refused.code
        return self._answered(asked, code)

    async def _produce(self, link: KafkaLink, rng: random.Random) -> int:
        """Append a batch as a producer that nobody knows yet."""
        self._batches += 1
        if self._batches > _BATCHES_MAX:
            return 0
        index = self._index(rng)
        admin = await KafkaLink.connect(link.host, _SILENCE_S, self.account(ADMIN))
        try:
            producer_id = await admin.init_producer(_SILENCE_S)
        finally:
            admin.close()
        value = b"%s:%d:%d" % (WANDERER.encode(), index, producer_id)
        batch = build_batch(
            [Record(None, value, SimClock.EPOCH_MS)],
            producer_id=producer_id,  # type: ignore[arg-type]
            producer_epoch=0,
            base_sequence=0,
        )
        asked = self._asked("WRITE")
        link.send_produce(self._topic, index, batch, 2_000)
        code, base = await link.produced(_SILENCE_S)
        if code == 0:
            self._world.oracle.acknowledged(self._world.partition(index), base, [value])
        return self._answered(asked, code)

    def _index(self, rng: random.Random) -> int:
        return rng.randrange(self._world.plan.partitions)

    def _asked(self, operation: str) -> Asked:
        now_s = self._world.loop.time()
        return Asked(WANDERER, self._address, operation, self._topic, now_s)

    def _answered(self, asked: Asked, code: int) -> int:
        self.book.judge(asked, code)
        if code == 0:
            self._world.oracle.count("requests that were allowed")
        elif code == TOPIC_DENIED:
            self._world.oracle.count("requests that were denied")
        return code

    # ---------------------------------------------------------------- the last word

    async def judge(self, host: Host) -> None:
        """Give the wanderer everything, and take it again: every broker follows in time."""
        await asyncio.sleep(self.book.bound_s)
        self.book.bound_s, self.book.all_follow = _FOLLOW_S, True
        self._address = host.ip
        self._batches = 0
        rng = self._world.fork_rng("last word")
        pattern, name = rng.choice(
            ((_LITERAL, self._topic), (_LITERAL, "*"), (_PREFIXED, self._topic))
        )
        everything = [
            {
                "resource_type": _TOPIC, "resource_name": name,
                "resource_pattern_type": pattern, "principal": f"User:{WANDERER}", "host": "*",
                "operation": _OPERATIONS["ALL"], "permission_type": _ALLOW,
            }
        ]  # fmt: skip
        nothing = self._remove(is_all=True)
        for changes, is_allowed in (
            ([self._with_password("last"), nothing, self._add(*everything)], True),
            ([nothing], False),
        ):
            for change in changes:
                await self._surely(partial(self._at_some, rng, change))
            await asyncio.sleep(_FOLLOW_S + _PAUSE_S)
            for broker in self._world.brokers:
                self._world.doing = f"asking {broker.name} for what is allowed: {is_allowed}"
                for ask in (self._describe, self._fetch, self._list, self._produce):
                    await self._surely(partial(self._ask_once, broker.name, ask, rng))

    async def _at_some(self, rng: random.Random, change: Change) -> None:
        await self._at(self._any_host(rng), change)

    async def _ask_once(self, host: str, ask: Any, rng: random.Random) -> None:
        # What the keeper said last may have come after ours.
        password = rng.choice(("last", *self._passwords[-3:]))
        account = self.account(WANDERER, password)
        link = await KafkaLink.connect(host, _SILENCE_S, account)
        try:
            await ask(link, rng)
        finally:
            link.close()

    async def _surely(self, step: Any) -> None:
        """Do it until it works."""
        while True:
            try:
                return await step()
            except _TROUBLE as error:
                self._world.oracle.note("not yet: %r", error)
                await asyncio.sleep(_PAUSE_S)


_ROLES = ("producer", "reader", "member")
"""Hosts whose clients are users of their own; the others log in as the administrator."""


async def log_in(client: WireClient, user: str) -> None:
    """Log in on a test client's connection. Raises OSError."""
    answer = await sasl_client.log_in(client, MECHANISM, user, password_of(user))
    if answer.error_code:
        raise ConnectionRefusedError(f"login of {user}: {answer.error_code.name}")
