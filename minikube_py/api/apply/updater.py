"""Updates and applies: the resulting object, its owners, and which managers conflict.

`Managers` maps names to owned fields, each in terms of one version; `convert` gives an object in another version, or
None if that no longer exists.

Source: structured-merge-diff `merge/{update,conflict}.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from minikube_py.api.apply import typed
from minikube_py.api.apply.path_set import Path, PathSet, shown
from minikube_py.api.apply.types import Ref
from minikube_py.api.errors import go_quote


class Owned(NamedTuple):
    """One manager's fields, in terms of one version; `applied`: by apply, not plain writes."""

    fields: PathSet
    version: str
    applied: bool


Managers = dict[str, Owned]


class Typed(NamedTuple):
    value: Any
    type: Ref


Convert = Callable[[Typed, str], Typed | None]


def as_it_is(value: Typed, version: str) -> Typed | None:
    """The conversion of a kind that has one version."""
    return value


class Conflict(NamedTuple):
    manager: str
    path: Path


class Conflicts(Exception):
    """Other managers own fields that this apply would change."""

    def __init__(self, conflicts: list[Conflict]) -> None:
        self.conflicts = conflicts
        super().__init__(", ".join(f"conflict with {go_quote(each.manager)}: {shown(each.path)}" for each in conflicts))


class Updater:
    """`ignored`: fields that an API path does not write, by version; such writes do not own them."""

    def __init__(self, ignored: Mapping[str, PathSet], convert: Convert = as_it_is) -> None:
        self._ignored = ignored
        self._convert = convert

    def update(self, live: Typed, new: Typed, version: str, managers: Managers, manager: str) -> Managers:
        """The owners once `new` is stored: `manager` gets its changes; removed fields lose their owners."""
        managers = self._reconciled(live, managers)
        managers, changes = self._settle(live, new, version, managers, manager, True)
        before = managers[manager].fields if manager in managers else PathSet()
        fields = self._kept((before - changes.removed) | changes.modified | changes.added, version)
        managers.pop(manager, None)
        if fields:
            managers[manager] = Owned(fields, version, False)
        return managers

    def apply(
        self, live: Typed, config: Typed, version: str, managers: Managers, manager: str, force: bool
    ) -> tuple[Any, Managers]:
        """The object after the apply, ABSENT if unchanged; and its owners.

        Raises: Conflicts, unless `force`; TypedError."""
        managers = self._reconciled(live, managers)
        merged = Typed(typed.merge(live.value, config.value, live.type), live.type)
        last = managers.get(manager)
        managers[manager] = Owned(self._kept(typed.field_set(config.value, config.type), version), version, True)
        new = self._pruned(merged, managers, manager, last)
        if len(managers) > 1:  # Without other owners, nobody asks what has changed.
            managers, _ = self._settle(live, new, version, managers, manager, force)
        managers = {name: owned for name, owned in managers.items() if owned.fields}
        return (typed.ABSENT if typed.equal(live.value, new.value) else new.value), managers

    def _kept(self, fields: PathSet, version: str) -> PathSet:
        ignored = self._ignored.get(version)
        return fields.without(ignored) if ignored else fields

    def _compared(self, live: Typed, new: Typed, version: str) -> typed.Comparison:
        changes = typed.compare(live.value, new.value, live.type)
        return typed.Comparison(*(self._kept(each, version) for each in changes)) if self._ignored else changes

    def _settle(
        self, live: Typed, new: Typed, version: str, managers: Managers, manager: str, force: bool
    ) -> tuple[Managers, typed.Comparison]:
        changes = self._compared(live, new, version)
        by_version = {version: changes}
        conflicts: dict[str, PathSet] = {}
        found: Managers = {}
        for name, owned in managers.items():
            if name == manager:
                found[name] = owned
                continue
            if owned.version not in by_version:
                before, after = self._convert(live, owned.version), self._convert(new, owned.version)
                if before is None or after is None:
                    continue
                by_version[owned.version] = self._compared(before, after, owned.version)
            theirs = by_version[owned.version]
            lost = owned.fields & (theirs.modified | theirs.added)
            if lost:
                conflicts[name] = lost
            found[name] = Owned((owned.fields - lost) - theirs.removed, owned.version, owned.applied)
        if conflicts and not force:
            raise Conflicts([Conflict(name, path) for name, lost in sorted(conflicts.items()) for path in lost])
        return {name: owned for name, owned in found.items() if owned.fields}, changes

    def _reconciled(self, live: Typed, managers: Managers) -> Managers:
        found = {}
        for name, owned in managers.items():
            converted = self._convert(live, owned.version)
            # Fields of a removed version are dropped when owners are computed.
            fields = owned.fields if converted is None else typed.reconciled(owned.fields, converted.type)
            found[name] = owned._replace(fields=fields)
        return found

    # --- pruning of fields no longer applied ---------------------------------------------

    def _pruned(self, merged: Typed, managers: Managers, manager: str, last: Owned | None) -> Typed:
        """Removes fields that `manager` applied last time but not now, and that have no other owner."""
        if last is None or not last.fields:
            return merged
        whole = self._convert(merged, last.version)
        if whole is None:
            return merged
        gone = last.fields.with_named_fields(whole.type)
        pruned = Typed(typed.remove(whole.value, gone, whole.type), whole.type)
        pruned = self._with_owned(whole, pruned, last.version, managers)
        pruned = self._with_dangling(whole, pruned, last)
        return self._convert(pruned, managers[manager].version) or pruned

    def _with_owned(self, merged: Typed, pruned: Typed, version: str, managers: Managers) -> Typed:
        by_version: dict[str, PathSet] = {}
        for owned in managers.values():
            by_version[owned.version] = by_version.get(owned.version, PathSet()) | owned.fields
        # This version first: what was pruned in it may be needed to convert the object.
        for each, fields in sorted(by_version.items(), key=lambda item: (item[0] != version, item[0])):
            before, after = self._convert(merged, each), self._convert(pruned, each)
            if before is None or after is None:
                continue
            type_ = before.type
            all_fields = typed.field_set(before.value, type_).with_named_fields(type_)
            left = typed.field_set(after.value, type_).with_named_fields(type_)
            gone = all_fields - (left | fields.with_named_fields(type_))
            merged, pruned = before, Typed(typed.remove(before.value, gone, type_), type_)
        return pruned

    def _with_dangling(self, merged: Typed, pruned: Typed, last: Owned) -> Typed:
        after = self._convert(pruned, last.version)
        if after is None:
            return merged
        type_ = merged.type
        left = typed.field_set(after.value, after.type).with_named_fields(type_)
        all_fields = typed.field_set(merged.value, type_).with_named_fields(type_)
        gone = (all_fields - left) & last.fields.with_named_fields(type_)
        return Typed(typed.remove(merged.value, gone, type_), type_)
