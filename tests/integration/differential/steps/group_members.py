"""What is asked about groups with members: whole lives of them, in all versions of the APIs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from client.wire.kafka.apis import ApiKey
from tests.integration.differential.conversation import Fields, Seen, Step
from tests.integration.differential.steps.fields import always

JOIN, SYNC, BEAT, LEAVE = (
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
)
COMMIT = ApiKey.OFFSET_COMMIT

LIVES: Sequence[tuple[int, int, int, int, int]] = (
    # of JoinGroup, SyncGroup, Heartbeat, LeaveGroup, OffsetCommit
    (0, 0, 0, 0, 2),
    (1, 0, 0, 0, 2),
    (2, 1, 1, 1, 3),
    (3, 2, 2, 2, 4),
    (4, 2, 2, 2, 5),
    (5, 3, 3, 3, 7),
    (6, 4, 4, 4, 8),
    (7, 5, 4, 4, 8),
    (8, 5, 4, 5, 9),
    (9, 5, 4, 5, 9),
)
_ID_REQUIRED_FROM = 4
_STATIC_FROM = 5


class Life:
    """One group with one member after the other."""

    def __init__(self, versions: tuple[int, int, int, int, int]) -> None:
        self.join_in, self.sync_in, self.beat_in, self.leave_in, self.commit_in = versions
        self.name = f"members {self.join_in}"

    def _member(self, seen: Seen) -> str:
        return str(seen.values.get(self.name, ""))

    def _step(
        self,
        what: str,
        key: ApiKey,
        version: int,
        fields: Callable[[Seen], Fields],
        note: Callable[[Seen, Any], None] | None = None,
    ) -> Step:
        return Step(
            f"{self.name}: {what}", key, lambda seen, _: fields(seen), (version,), note, _is_ready
        )

    def join(self, what: str, **more: Any) -> Step:
        def fields(seen: Seen) -> Fields:
            return {
                "group_id": self.name,
                "session_timeout": 30_000,
                "rebalance_timeout": 30_000,
                "member_id": more.get("member", self._member(seen)),
                "group_instance_id": more.get("instance"),
                "protocol_type": more.get("kind", "consumer"),
                "protocols": [
                    {"name": name, "metadata": b"\x00\x00\x00\x00\x00\x00"}
                    for name in more.get("protocols", ("range", "roundrobin"))
                ],
                "reason": "why not",
            }

        def note(seen: Seen, answer: Any) -> None:
            if answer.error_code.name in ("none", "member_id_required"):
                seen.values[self.name] = answer.member_id
                seen.members[answer.member_id] = f"the member of {self.name}"

        return self._step(what, JOIN, self.join_in, fields, note)

    def sync(self, what: str, generation: int, **more: Any) -> Step:
        def fields(seen: Seen) -> Fields:
            member = more.get("member", self._member(seen))
            return {
                "group_id": self.name, "generation_id": generation, "member_id": member,
                "group_instance_id": more.get("instance"),
                "protocol_type": "consumer", "protocol_name": more.get("protocol", "range"),
                "assignments": [{"member_id": member, "assignment": b"mine"}],
            }  # fmt: skip

        return self._step(what, SYNC, self.sync_in, fields)

    def beat(self, what: str, generation: int, **more: Any) -> Step:
        def fields(seen: Seen) -> Fields:
            return {"group_id": self.name, "generation_id": generation,
                    "member_id": more.get("member", self._member(seen)),
                    "group_instance_id": more.get("instance")}  # fmt: skip

        return self._step(what, BEAT, self.beat_in, fields)

    def commit(self, what: str, generation: int, **more: Any) -> Step:
        def fields(seen: Seen) -> Fields:
            row = {"partition_index": 0, "committed_offset": 4, "committed_leader_epoch": -1,
                   "committed_metadata": None}  # fmt: skip
            return {
                "group_id": self.name, "generation_id_or_member_epoch": generation,
                "member_id": more.get("member", self._member(seen)),
                "group_instance_id": more.get("instance"), "retention_time": -1,
                "topics": [{"name": "t", "partitions": [row]}],
            }  # fmt: skip

        return self._step(what, COMMIT, self.commit_in, fields)

    def leave(self, what: str, **more: Any) -> Step:
        def fields(seen: Seen) -> Fields:
            member = more.get("member", self._member(seen))
            one = {"member_id": member, "group_instance_id": more.get("instance"), "reason": None}
            return {"group_id": self.name, "member_id": member, "members": [one]}

        return self._step(what, LEAVE, self.leave_in, fields)

    def describe(self, what: str) -> Step:
        fields = always(groups=[self.name], include_authorized_operations=False)
        return Step(f"{self.name}: {what}", ApiKey.DESCRIBE_GROUPS, fields)

    def steps(self) -> Iterator[Step]:
        """Yield everything that happens to the group, in order."""
        yield Step(f"{self.name}: coordinator", ApiKey.FIND_COORDINATOR,
                   always(key=self.name, key_type=0), (3,), None, _is_ready)  # fmt: skip
        yield self.join("join")
        if self.join_in >= _ID_REQUIRED_FROM:
            yield self.join("join with the id")
        yield self.describe("before its assignment")
        yield self.beat("beat before the assignment", 1)
        yield self.commit("commit before the assignment", 1)
        yield self.sync("sync of an older generation", 0)
        yield self.sync("sync of nobody", 1, member="nobody")
        yield self.sync("sync", 1)
        yield self.sync("sync again", 1)
        yield self.describe("stable")
        yield self.beat("beat", 1)
        yield self.beat("beat of another generation", 2)
        yield self.beat("beat of nobody", 1, member="nobody")
        yield self.commit("commit", 1)
        yield self.commit("commit of another generation", 5)
        yield self.commit("commit of nobody", 1, member="nobody")
        yield self.commit("commit of no member", -1, member="")
        yield self.join("join of another kind", member="", kind="connect")
        yield self.join("join without a common protocol", member="", protocols=("sticky",))
        yield self.join("the leader joins again")
        yield self.sync("sync of the second generation", 2)
        yield Step(f"{self.name}: delete", ApiKey.DELETE_GROUPS, always(groups_names=[self.name]),
                   (2,))  # fmt: skip
        yield self.leave("leaving of nobody", member="nobody")
        yield self.leave("leaving")
        yield self.leave("leaving again")
        yield self.describe("empty")
        if self.join_in >= _STATIC_FROM:
            yield self.join("static join", member="", instance="one")
            yield self.sync("static sync", 4, instance="one")
            yield self.beat("static beat", 4, instance="one")
            yield self.beat("beat of a fenced member", 4, instance="one", member="older")
            yield self.commit("commit of a fenced member", 4, instance="one", member="older")
            yield self.leave("static leaving", member="", instance="one")


def _is_ready(answer: Any) -> bool:
    busy = ("coordinator_load_in_progress", "not_coordinator", "coordinator_not_available")
    return not any(name in str(answer) for name in busy)


GROUPS_WITH_MEMBERS: Sequence[Step] = [step for one in LIVES for step in Life(one).steps()]
