"""What a registry answers and writes: the rules of subjects, versions and ids.

Each decision looks at the catalogue and returns what to append to the log; nothing changes before
the log says so. What only a schema's language knows (is this text a schema, are two of them
compatible) is asked of the kinds beforehand and handed in.

Source: the REST API that Confluent's clients use; meaning of soft and hard deletes, of modes and
levels as there.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Final, NamedTuple

from ops.schemas.core import errors
from ops.schemas.core.catalogue import SETTING_BYTES, Catalogue, memory_bytes
from ops.schemas.core.errors import RegistryError
from ops.schemas.core.log_records import (
    Change,
    IdsGiven,
    LevelSet,
    ModeSet,
    SchemaGone,
    SchemaStored,
    SubjectDeleted,
)
from ops.schemas.core.schema import Level, Mode, Schema, Version

LEVEL_BY_DEFAULT: Final = Level.BACKWARD
HELD_BYTES_MAX: Final = 256 << 20
ID_MAX: Final = 2**31 - 1
_SUBJECT_CHARACTERS_MAX: Final = 1_024


class Asked(NamedTuple):
    """A registration."""

    subject: str
    schema: Schema
    id: int | None = None
    """Only in mode IMPORT."""
    number: int | None = None
    """The version that it should be: any in mode IMPORT, else the next one. Below 1: any."""


def check_subject(subject: str) -> None:
    """Raises RegistryError for a name that no subject can have."""
    if not subject or len(subject) > _SUBJECT_CHARACTERS_MAX:
        raise RegistryError(
            errors.INVALID_SUBJECT,
            f"a subject's name must have 1 to {_SUBJECT_CHARACTERS_MAX} characters",
        )
    if subject.startswith(":."):
        raise RegistryError(
            errors.INVALID_SUBJECT, "contexts are not supported: a subject may not begin with ':.'"
        )
    if any(ord(character) < 32 or ord(character) == 127 for character in subject):
        raise RegistryError(
            errors.INVALID_SUBJECT, "a subject's name must not have control characters"
        )


class Registry:
    """Decides, from what the catalogue holds."""

    def __init__(
        self,
        catalogue: Catalogue,
        level: Level = LEVEL_BY_DEFAULT,
        held_bytes_max: int = HELD_BYTES_MAX,
    ) -> None:
        """`level` is that of subjects that have none, until one is set for all of them;
        `held_bytes_max`: what would make the catalogue take more memory is refused."""
        self._all = catalogue
        self._level = level
        self._held_bytes_max = held_bytes_max

    def level(self, subject: str | None = None) -> Level:
        """Return the level in effect for a subject, or for those that have none."""
        levels = self._all.levels
        return levels.get(subject) or levels.get(None) or self._level

    def mode(self, subject: str | None = None) -> Mode:
        """Return the mode in effect."""
        modes = self._all.modes
        return modes.get(subject) or modes.get(None) or Mode.READWRITE

    def find(self, subject: str, number: int | None, *, deleted: bool = False) -> Version:
        """Return a version, None for the latest. Raises RegistryError if it is not there."""
        found = self._of(subject, deleted=deleted)
        if number is None:
            return found[-1]
        for one in found:
            if one.number == number:
                return one
        raise _no_version(number)

    def live(self, subject: str, *, deleted: bool = False) -> Sequence[Version]:
        """Return the versions of a subject. Raises RegistryError if there are none."""
        return self._of(subject, deleted=deleted)

    def to_compare(self, subject: str, level: Level) -> Sequence[Version]:
        """Return the versions that a new one must be compatible with."""
        if level is Level.NONE:
            return ()
        found = self._all.versions(subject)
        return found if level.is_transitive else found[-1:]

    def may_register(self, asked: Asked) -> None:
        """Raises RegistryError if the mode does not allow a registration."""
        check_subject(asked.subject)
        mode = self.mode(asked.subject)
        if mode is Mode.READONLY:
            raise _read_only(asked.subject)
        if mode is not Mode.IMPORT and asked.id is not None:
            raise RegistryError(
                errors.NOT_PERMITTED,
                f"an id is accepted only in mode IMPORT; subject {asked.subject!r} is in"
                f" {mode.value}",
            )
        if mode is Mode.IMPORT and asked.id is None:
            raise RegistryError(
                errors.NOT_PERMITTED, f"subject {asked.subject!r} is in mode IMPORT: give an id"
            )

    def register(self, asked: Asked, incompatible: Sequence[str]) -> tuple[Version, list[Change]]:
        """Decide about a schema that the subject does not have.

        `incompatible` says why it must not follow the versions of `to_compare`. Raises
        RegistryError.
        """
        self.may_register(asked)
        if self.mode(asked.subject) is Mode.IMPORT:
            return self._import(asked)
        if incompatible:
            raise RegistryError(
                errors.INCOMPATIBLE,
                f"the schema is incompatible with an earlier one of subject {asked.subject!r}"
                f" ({self.level(asked.subject).value}): {'; '.join(incompatible)}",
            )
        number = self._next(asked.subject)
        if asked.number not in (None, number) and asked.number > 0:
            raise RegistryError(
                errors.INVALID_SCHEMA,
                f"the next version of subject {asked.subject!r} is {number}, not {asked.number}",
            )
        schema_id = self._all.id_of(asked.schema) or self._all.last_id + 1
        if schema_id > ID_MAX:
            raise RegistryError(errors.NOT_PERMITTED, "all ids are taken")
        version = Version(asked.subject, number, schema_id, asked.schema)
        self._check_room(memory_bytes(version))
        return version, [SchemaStored(version)]

    def delete_subject(self, subject: str, *, for_good: bool) -> tuple[list[int], list[Change]]:
        """Decide about deleting all versions: marked first, and for good once they are."""
        self._may_write(subject)
        every = self._of(subject, deleted=True)
        live = [one for one in every if not one.is_deleted]
        if for_good and live:
            raise RegistryError(
                errors.SUBJECT_NOT_SOFT_DELETED,
                f"subject {subject!r} is not deleted yet: delete it without permanent=true first",
            )
        if not for_good and not live:
            raise RegistryError(
                errors.SUBJECT_SOFT_DELETED,
                f"subject {subject!r} is deleted already; permanent=true deletes it for good",
            )
        going = every if for_good else live
        numbers = {(subject, one.number) for one in going}
        for one in going:
            self._not_referenced(one, for_good=for_good, going=numbers)
        changes: list[Change] = []
        if for_good:
            changes += [IdsGiven(self._all.last_id)]
            # The newest first: one may refer to older ones of its subject.
            changes += [SchemaGone(subject, one.number) for one in reversed(going)]
        else:
            changes.append(SubjectDeleted(subject, going[-1].number))
        return [one.number for one in going], [*changes, *self._unset(subject)]

    def _unset(self, subject: str) -> list[Change]:
        """Let a subject have no level and no mode of its own, if it has."""
        changes: list[Change] = []
        if subject in self._all.levels:
            changes.append(LevelSet(subject, None))
        if subject in self._all.modes:
            changes.append(ModeSet(subject, None))
        return changes

    def delete_version(
        self, subject: str, number: int | None, *, for_good: bool
    ) -> tuple[int, list[Change]]:
        """The same for one version, None for the latest."""
        self._may_write(subject)
        if number is None:
            number = self._of(subject, deleted=for_good)[-1].number
        self._of(subject, deleted=True)
        version = self._all.version(subject, number)
        if version is None:
            raise _no_version(number)
        if for_good and not version.is_deleted:
            raise RegistryError(
                errors.VERSION_NOT_SOFT_DELETED,
                f"version {number} of subject {subject!r} is not deleted yet: delete it without"
                " permanent=true first",
            )
        if version.is_deleted and not for_good:
            raise RegistryError(
                errors.VERSION_SOFT_DELETED,
                f"version {number} of subject {subject!r} is deleted already; permanent=true"
                " deletes it for good",
            )
        self._not_referenced(version, for_good=for_good, going={(subject, number)})
        if for_good:
            gone: list[Change] = [IdsGiven(self._all.last_id), SchemaGone(subject, number)]
            is_last = len(self._all.versions(subject, deleted=True)) == 1
            return number, [*gone, *(self._unset(subject) if is_last else [])]
        return number, [SchemaStored(version._replace(is_deleted=True))]

    def set_level(self, subject: str | None, level: Level | None) -> list[Change]:
        """Decide about a level; None unsets it. Raises RegistryError."""
        if subject is not None:
            check_subject(subject)
            if level is None and subject not in self._all.levels:
                raise no_level_of(subject)
        if self.mode(subject) is Mode.READONLY:
            raise _read_only(subject)
        if subject is not None and level is not None and subject not in self._all.levels:
            self._check_room(SETTING_BYTES + len(subject))
        return [LevelSet(subject, level)]

    def set_mode(self, subject: str | None, mode: Mode | None, *, force: bool) -> list[Change]:
        """Decide about a mode; None unsets it. IMPORT wants an empty subject, or `force`."""
        if subject is not None:
            check_subject(subject)
            if mode is None and subject not in self._all.modes:
                raise no_mode_of(subject)
        if mode is Mode.IMPORT and not force:
            held = self._all.subjects() if subject is None else self._all.versions(subject)
            if held:
                raise RegistryError(
                    errors.NOT_PERMITTED,
                    "there are schemas already: mode IMPORT needs force=true",
                )
        if subject is not None and mode is not None and subject not in self._all.modes:
            self._check_room(SETTING_BYTES + len(subject))
        return [ModeSet(subject, mode)]

    def _import(self, asked: Asked) -> tuple[Version, list[Change]]:
        assert asked.id is not None
        if not 0 < asked.id <= ID_MAX:
            raise RegistryError(errors.NOT_PERMITTED, f"an id is between 1 and {ID_MAX}")
        for one in self._all.with_id(asked.id):
            if one.schema != asked.schema:
                raise RegistryError(
                    errors.NOT_PERMITTED,
                    f"id {asked.id} is that of another schema, version {one.number} of subject"
                    f" {one.subject!r}",
                )
        number = self._next(asked.subject) if asked.number is None else asked.number
        if number < 1:
            raise _invalid_version(str(number))
        version = Version(asked.subject, number, asked.id, asked.schema)
        there = self._all.version(asked.subject, number)
        if there is not None and there.schema != asked.schema and not there.is_deleted:
            raise RegistryError(
                errors.NOT_PERMITTED,
                f"version {number} of subject {asked.subject!r} is another schema",
            )
        self._check_room(memory_bytes(version) - (0 if there is None else memory_bytes(there)))
        return version, [SchemaStored(version)]

    def _check_room(self, more_bytes: int) -> None:
        """Raises RegistryError if the catalogue would take more memory than it may."""
        held_bytes = self._all.held_bytes
        if more_bytes > 0 and held_bytes + more_bytes > self._held_bytes_max:
            raise RegistryError(
                errors.NOT_PERMITTED,
                f"all schemas take {held_bytes} bytes of memory, and held_bytes_max is"
                f" {self._held_bytes_max}: delete unused schemas for good, or raise it on every"
                " registry of the topic",
            )

    def _next(self, subject: str) -> int:
        every = self._all.versions(subject, deleted=True)
        return every[-1].number + 1 if every else 1

    def _of(self, subject: str, *, deleted: bool) -> Sequence[Version]:
        found = self._all.versions(subject, deleted=deleted)
        if not found:
            raise RegistryError(errors.SUBJECT_NOT_FOUND, f"there is no subject {subject!r}")
        return found

    def _may_write(self, subject: str) -> None:
        if self.mode(subject) is Mode.READONLY:
            raise _read_only(subject)

    def _not_referenced(
        self, version: Version, *, for_good: bool, going: Set[tuple[str, int]]
    ) -> None:
        """`for_good`: what is only marked as deleted needs it, too, for its records are still
        read; `going`: what goes with it does not."""
        referrers = [
            one
            for one in self._all.referrers(version, deleted=for_good)
            if (one.subject, one.number) not in going
        ]
        if referrers:
            who = ", ".join(f"{one.subject!r} version {one.number}" for one in referrers[:5])
            raise RegistryError(
                errors.IS_REFERENCED,
                f"version {version.number} of subject {version.subject!r} is referred to by {who}",
            )


def parse_number(text: str) -> int | None:
    """Return the version that a path names; None for "latest" and "-1". Raises RegistryError."""
    if text in ("latest", "-1"):
        return None
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:11]) <= ID_MAX:
        raise _invalid_version(text)
    return int(text)


def no_level_of(subject: str) -> RegistryError:
    """Say that a subject has no level of its own."""
    return RegistryError(
        errors.NO_SUBJECT_LEVEL,
        f"subject {subject!r} has no compatibility level of its own; defaultToGlobal=true shows"
        " the one in effect",
    )


def no_mode_of(subject: str) -> RegistryError:
    """Say that a subject has no mode of its own."""
    return RegistryError(
        errors.NO_SUBJECT_MODE,
        f"subject {subject!r} has no mode of its own; defaultToGlobal=true shows the one in effect",
    )


def _invalid_version(text: str) -> RegistryError:
    return RegistryError(
        errors.INVALID_VERSION, f"{text[:40]!r} is not a version: write 1 or more, or latest"
    )


def _no_version(number: int) -> RegistryError:
    return RegistryError(errors.VERSION_NOT_FOUND, f"there is no version {number}")


def _read_only(subject: str | None) -> RegistryError:
    what = "the registry" if subject is None else f"subject {subject!r}"
    return RegistryError(errors.NOT_PERMITTED, f"{what} is in mode READONLY")
