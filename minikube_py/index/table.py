"""The rows of one FieldSet: the objects' own values and the sums over those that refer to them, fed to an index.

A table is a function of its objects: whatever the order of their changes, equal objects give equal rows. Referrers may
precede their target; a sum is kept by the target's key, whether the target exists or not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from minikube_py.fields.asked import Asked, asked_of
from minikube_py.fields.evaluate import NO_TOTALS, Own, Reader, Row, Totals
from minikube_py.fields.extract import family, scalar
from minikube_py.fields.paths import parse_path, read
from minikube_py.fields.spec import FieldSet, SumSpec
from minikube_py.fields.whole import clamp
from minikube_py.index.columns import ColumnIndex
from minikube_py.index.contract import RowChange
from minikube_py.index.ending import ROWS_PER_SLICE, Ending, SumAhead
from minikube_py.index.running import Running
from minikube_py.index.sample import Sample

Change = tuple[bytes, Any]
"""A key and its current decoded object; GONE if it has none."""

GONE = object()

Members = dict[str, int]
_INTERNED = 4096


class Contribution(NamedTuple):
    """The amount one referring object adds, and its target."""

    target: bytes
    members: Members


class Sum:
    """One SumSpec's totals by target, and the contribution of each referring object."""

    def __init__(self, spec: SumSpec, target_prefix: bytes) -> None:
        self.name = spec.name
        self.source_prefix = spec.source_prefix
        self._target_prefix = target_prefix
        self._reference = parse_path(spec.reference)
        self._members = _members_of(spec)
        self._contributions: dict[bytes, Contribution] = {}
        self.totals: dict[bytes, dict[str, int]] = {}
        self._interned: dict[tuple[tuple[str, int], ...], Members] = {}

    def update(self, key: bytes, obj: Any) -> list[Contribution]:
        """Applies the new state of a referring object; returns the contributions that ended or began."""
        old = self._contributions.get(key)
        try:
            new = None if obj is GONE else self._contribution(obj)
        except MemoryError:
            raise
        except Exception:
            # The rows of such an object are empty, so it contributes nothing.
            new = None
        if old == new:
            return []
        touched = []
        if old is not None:
            self._add(old, -1)
            touched.append(old)
            del self._contributions[key]
        if new is not None:
            self._add(new, 1)
            touched.append(new)
            self._contributions[key] = new
        return touched

    def _contribution(self, obj: Any) -> Contribution | None:
        reference = read(obj, self._reference)
        if not isinstance(reference, str) or not reference:
            return None
        members = self._members(obj)
        if not members:
            return None
        # Many objects request the same: they share one dictionary.
        shape = tuple(members.items())
        shared = self._interned.get(shape)
        if shared is None:
            if len(self._interned) >= _INTERNED:
                self._interned.clear()
            shared = self._interned[shape] = members
        return Contribution(self._target_prefix + reference.encode("utf-8", "surrogatepass"), shared)

    def _add(self, contribution: Contribution, sign: int) -> None:
        totals = self.totals.get(contribution.target)
        if totals is None:
            totals = self.totals[contribution.target] = {}
        _add_to(totals, contribution.members, sign)
        if not totals:
            del self.totals[contribution.target]

    def prepare(self, ahead: SumAhead, keys: Iterable[bytes]) -> None:
        """Adds the deletion of a slice of objects to `ahead`, with no visible effect."""
        for key in keys:
            ended = self._contributions.get(key)
            if ended is not None:
                ahead.keys.append(key)
                totals = ahead.totals.get(ended.target)
                if totals is None:
                    totals = ahead.totals[ended.target] = dict(self.totals.get(ended.target, NO_TOTALS))
                _add_to(totals, ended.members, -1)

    def finish(self, ahead: SumAhead) -> list[object]:
        """Makes the prepared changes take effect; returns what is removed."""
        for target, totals in ahead.totals.items():
            if totals:
                self.totals[target] = totals
            else:
                self.totals.pop(target, None)
        return list(map(self._contributions.pop, ahead.keys))


def _add_to(totals: dict[str, int], members: Members, sign: int) -> None:
    for resource, units in members.items():
        total = totals.get(resource, 0) + sign * units
        if total:
            totals[resource] = total
        else:
            totals.pop(resource, None)


def _drop(entries: dict[Any, Any], count: int) -> None:
    for _ in range(min(count, len(entries))):
        entries.popitem()


def _members_of(spec: SumSpec) -> Callable[[Any], Members]:
    if spec.name.endswith("*"):
        return family(spec.extractor, spec.args)
    value_of = scalar(spec.extractor, spec.args, "quantity")
    resource = spec.args.get("resource", "")

    def members(obj: Any) -> Members:
        value = value_of(obj)
        return {resource: value} if isinstance(value, int) else {}

    return members


class Table:
    """A FieldSet in use. `apply` takes the changes of one revision and updates `index` in the same step.

    `prefixes`: the keys whose changes it must get. Raises InvalidRequest for an unsound declaration."""

    def __init__(self, field_set: FieldSet, revision: int, objects: Iterable[Change] = ()) -> None:
        self.field_set = field_set
        self.reader = Reader(field_set)
        self.sums = [Sum(spec, field_set.prefix) for spec in field_set.sums]
        self.prefixes = tuple(dict.fromkeys([field_set.prefix, *(spec.source_prefix for spec in field_set.sums)]))
        self.unreadable: dict[bytes, None] = {}
        """Objects under `prefixes` that are no JSON objects: they have only fields with a default, and add nothing."""
        self._own: dict[bytes, Own] = {}
        self._rows: dict[bytes, Row] = {}
        self.index = ColumnIndex(field_set, revision, self._changes(objects))
        self.running: dict[str, Running] = {}
        """The declared indexes over these rows, by name."""
        self.sample = Sample(self.index)

    def load(self, objects: Iterable[Change]) -> None:
        """Loads more objects of its initial revision; before the first `apply`."""
        self.index.load(self._changes(objects))

    def serves(self, asked: Asked) -> bool:
        """Each of the fields has the required meaning here, and a column."""
        index = self.index
        if index.full and not all(index.has_column(name) for name, _ in asked):
            return False
        return asked_of(self.field_set, [name for name, _ in asked]) == asked

    def dispose(self, rows: int) -> bool:
        """Frees about `rows` of its rows, which are no longer used; True once none is left."""
        sums = [each for total in self.sums for each in (total._contributions, total.totals)]
        left: list[dict[Any, Any]] = [self.unreadable, self._own, self._rows, *sums]
        for each in left:
            _drop(each, rows)
        self.index.dispose(rows)
        return not any(left)

    def close(self) -> None:
        """Another table replaces it."""
        for running in self.running.values():
            running.close()

    def apply(self, revision: int, changes: Iterable[Change]) -> list[bytes]:
        """Returns the keys whose row changed."""
        row_changes = self._changes(changes)
        return self.index.apply(revision, row_changes) if row_changes else []

    def prepare(self, ending: Ending, keys: Sequence[bytes]) -> Iterator[None]:
        """Prepares the deletion of `keys`, in slices without effect; the table must not change meanwhile."""
        prefix = self.field_set.prefix
        for start in range(0, len(keys), ROWS_PER_SLICE):
            part = keys[start : start + ROWS_PER_SLICE]
            ending.unreadable += [key for key in part if key in self.unreadable]
            for total, ahead in zip(self.sums, ending.sums):
                total.prepare(ahead, [key for key in part if key.startswith(total.source_prefix)])
            own = [key for key in part if key.startswith(prefix)]
            ending.keys.update(dict.fromkeys(own))
            self.index.prepare(ending.rows, [RowChange(key, None) for key in own])
            yield
        totals = {total.name: ahead.totals for total, ahead in zip(self.sums, ending.sums)}
        targets = list(dict.fromkeys(chain.from_iterable(totals.values())))
        for start in range(0, len(targets), ROWS_PER_SLICE):
            rows = {
                key: self._whole_row(key, self._own[key], totals)
                for key in targets[start : start + ROWS_PER_SLICE]
                if key in self._own and key not in ending.keys
            }
            ending.rewritten.update(rows)
            self.index.prepare(ending.rows, [RowChange(key, row) for key, row in rows.items()])
            yield

    def finish(self, ending: Ending) -> None:
        """Makes the prepared changes take effect, as if by `apply`."""
        ending.remains += [total.finish(ahead) for total, ahead in zip(self.sums, ending.sums)]
        ending.remains += [list(map(self._own.pop, ending.keys)), list(map(self._rows.pop, ending.keys))]
        ending.remains.append(list(map(self.unreadable.pop, ending.unreadable)))
        self._rows.update(ending.rewritten)
        self.index.finish(ending.rows)

    def _changes(self, changes: Iterable[Change]) -> list[RowChange]:
        rewritten: dict[bytes, Row | None] = {}
        touched: list[tuple[str, Contribution]] = []
        prefix = self.field_set.prefix
        for key, obj in changes:
            if type(obj) is not dict and obj is not GONE:
                if key.startswith(self.prefixes):
                    self.unreadable[key] = None
            elif self.unreadable:
                self.unreadable.pop(key, None)
            for total in self.sums:
                if key.startswith(total.source_prefix):
                    touched += [(total.name, contribution) for contribution in total.update(key, obj)]
            if key.startswith(prefix):
                rewritten[key] = None
                if obj is GONE:
                    self._own.pop(key, None)
                else:
                    self._own[key] = self.reader.own(obj)
        for key in rewritten:
            own = self._own.get(key)
            if own is None:
                self._rows.pop(key, None)
            else:
                rewritten[key] = self._rows[key] = self._whole_row(key, own)
        for name, contribution in touched:
            key = contribution.target
            own = self._own.get(key)
            if own is not None and key not in rewritten:
                rewritten[key] = dict(self._rows[key])
            if own is not None:
                row = rewritten[key]
                assert row is not None
                self._follow_sum(row, own, name, contribution)
                self._rows[key] = row
        return [RowChange(key, row) for key, row in rewritten.items()]

    def _whole_row(self, key: bytes, own: Own, ahead: Mapping[str, Mapping[bytes, Totals]] | None = None) -> Row:
        """`ahead`: totals that will replace the current ones, by sum and target."""
        if not own.parts:
            return own.plain
        totals: dict[str, Totals] = {total.name: total.totals.get(key, NO_TOTALS) for total in self.sums}
        for name, targets in (ahead or {}).items():
            totals[name] = targets.get(key, totals[name])
        return self.reader.row(own, totals)

    def _follow_sum(self, row: Row, own: Own, name: str, contribution: Contribution) -> None:
        """Writes the fields of `row` affected by the resources of one contribution."""
        totals: Totals = NO_TOTALS
        for total in self.sums:
            if total.name == name:
                totals = total.totals.get(contribution.target, NO_TOTALS)
        for summed, part in zip(self.reader.summed, own.parts):
            if summed.sum != name:
                continue
            for resource in contribution.members:
                units = part.get(resource)
                if units is not None:
                    row[summed.name(resource)] = clamp(units + summed.sign * totals.get(resource, 0))
