"""Counts of pods by topology domain, for pods that select other pods; updated on every change, never recounted.

A node's label puts it into a domain (`Domains`). Pods with equal labels form a class. Each query about pods (`Asked`)
and each term of running pods (`Carried`) knows the classes that it matches, or the pods that carry it, and counts them
by slot and by domain. Adding or removing a pod costs as much as the queries that match it and the terms it carries,
independent of cluster size. A node that changes its labels or taints leaves its domains and enters others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from minikube_py.scheduler.framework import BoolArray, IntArray
from minikube_py.scheduler.objects import NodeInfo, PodInfo
from minikube_py.scheduler.pod_terms import AffinityTerm, Labels, PodSelector, affinity_terms

if TYPE_CHECKING:
    from minikube_py.scheduler.columns import NodeColumns

T = TypeVar("T")

ASKED_BYTES_MAX: Final = 64 << 20
ASKED_MIN, ASKED_MAX = 64, 4096
EMPTY_CLASSES_MAX: Final = 1024
"""Empty classes that are kept for later pods."""

NOBODY: Final = 2**31 - 1
"""The minimum pod count over no domains."""

REQUIRED_AFFINITY, REQUIRED_ANTI_AFFINITY, PREFERRED = "affinity", "anti-affinity", "preferred"


class Domains:
    """`of`: by slot, the number of the node's domain, -1 for none. Numbers are reused once a domain has no nodes.
    `placed`: the number of nodes in a domain; `value`: the domain value of a node."""

    __slots__ = ("_free", "_nodes", "_numbers", "_values", "of", "placed", "value")

    def __init__(self, columns: NodeColumns, value: Callable[[NodeInfo], str | None]) -> None:
        self.value = value
        # As wide as an index: narrower ones are converted on every use.
        self.of: IntArray = np.full(columns.capacity, -1, np.int64)
        self.placed = 0
        self._numbers: dict[str, int] = {}
        self._values: list[str] = []
        self._nodes: list[int] = []
        self._free: list[int] = []
        for node in columns.by_slot:
            if node is not None and node.present:
                self.enter(node)

    @property
    def size(self) -> int:
        """All assigned numbers are below this."""
        return len(self._values)

    @property
    def in_use(self) -> int:
        """The number of domains with nodes."""
        return len(self._numbers)

    def enter(self, node: NodeInfo) -> None:
        value = self.value(node)
        if value is None:
            return
        number = self._numbers.get(value)
        if number is None:
            number = self._free.pop() if self._free else self.size
            if number == self.size:
                self._values.append(value)
                self._nodes.append(0)
            self._values[number] = value
            self._numbers[value] = number
        self._nodes[number] += 1
        self.placed += 1
        self.of[node.slot] = number

    def leave(self, slot: int) -> None:
        number = int(self.of[slot])
        if number < 0:
            return
        self.of[slot] = -1
        self.placed -= 1
        self._nodes[number] -= 1
        if not self._nodes[number]:
            del self._numbers[self._values[number]]
            self._free.append(number)

    def by_value(self, counts: IntArray) -> dict[str, int]:
        """`counts` (by number) by domain value."""
        return {value: int(counts[number]) for value, number in self._numbers.items()}


class Eligible:
    """The nodes that count for a constraint, as a mask over slots."""

    __slots__ = ("mask", "test")

    def __init__(self, columns: NodeColumns, test: Callable[[NodeInfo], bool]) -> None:
        self.test = test
        self.mask: BoolArray = np.zeros(columns.capacity, np.bool_)
        for node in columns.by_slot:
            if node is not None and node.present:
                self.mask[node.slot] = test(node)


class DomainCounts:
    """`counts`: by domain, the pods on its eligible nodes; `nodes`: the number of such nodes.

    `tally`: by pod count, the number of domains with such nodes that have it: extremes need no pass over domains."""

    __slots__ = ("_extremes", "counts", "domains", "eligible", "nodes", "tally")

    def __init__(self, domains: Domains, eligible: Eligible | None, slots: Mapping[int, int]) -> None:
        self.domains = domains
        self.eligible = eligible
        of = domains.of if eligible is None else np.where(eligible.mask, domains.of, -1)
        self.nodes: IntArray = np.bincount(of[of >= 0], minlength=domains.size)
        self.counts: IntArray = np.zeros(domains.size, np.int64)
        for slot, number in slots.items():
            if of[slot] >= 0:
                self.counts[of[slot]] += number
        self.tally: dict[int, int] = Counter(self.counts[self.nodes > 0].tolist())
        self._extremes: tuple[int, int] | None = None

    def extremes(self) -> tuple[int, int]:
        """The lowest and the highest count of a domain with eligible nodes; NOBODY and 0 if there is none."""
        if self._extremes is None:
            self._extremes = min(self.tally, default=NOBODY), max(self.tally, default=0)
        return self._extremes

    def _recount(self, before: int | None, after: int | None) -> None:
        """A domain's count changed; None: the domain has no eligible nodes."""
        tally = self.tally
        if before is not None:
            tally[before] -= 1
            if not tally[before]:
                del tally[before]
                self._extremes = None
        if after is not None:
            if after not in tally:
                tally[after] = 0
                self._extremes = None
            tally[after] += 1

    def domain(self, slot: int) -> int:
        """The domain in which the node counts; -1 for none."""
        if self.eligible is not None and not self.eligible.mask[slot]:
            return -1
        return int(self.domains.of[slot])

    def add(self, slot: int, number: int) -> None:
        domain = self.domain(slot)
        if domain >= 0:
            before = int(self.counts[domain])
            self.counts[domain] = before + number
            self._recount(before, before + number)

    def move(self, slot: int, pods: int, by: int) -> None:
        """A node with this many pods enters (`by` 1) or leaves (-1)."""
        domain = self.domain(slot)
        if domain < 0:
            return
        if domain >= len(self.counts):
            extra = np.zeros(max(self.domains.size, 2 * len(self.counts)) - len(self.counts), np.int64)
            self.counts, self.nodes = np.concatenate((self.counts, extra)), np.concatenate((self.nodes, extra))
        before = int(self.counts[domain]) if self.nodes[domain] else None
        self.nodes[domain] += by
        self.counts[domain] += by * pods
        self._recount(before, int(self.counts[domain]) if self.nodes[domain] else None)


def by_number(domains: Domains, counts: IntArray) -> IntArray:
    """`counts` for all domains, plus a 0 for nodes outside all domains (-1)."""
    found = np.zeros(domains.size + 1, np.int64)
    known = min(domains.size, len(counts))
    found[:known] = counts[:known]
    return found


class PodCounts:
    """Some pods, counted by slot, and by domain on request."""

    __slots__ = ("_views", "slots")

    def __init__(self) -> None:
        self.slots: dict[int, int] = {}
        self._views: dict[tuple[Domains, Eligible | None], DomainCounts] = {}

    def by_domain(self, domains: Domains, eligible: Eligible | None = None) -> DomainCounts:
        found = self._views.get((domains, eligible))
        if found is None:
            found = self._views[domains, eligible] = DomainCounts(domains, eligible, self.slots)
        return found

    def views(self) -> Iterable[DomainCounts]:
        return self._views.values()

    def add(self, slot: int, number: int) -> None:
        count(self.slots, slot, number)
        for view in self._views.values():
            view.add(slot, number)

    def move(self, slot: int, by: int) -> None:
        pods = self.slots.get(slot, 0)
        for view in self._views.values():
            view.move(slot, pods, by)


def count(slots: dict[int, int], slot: int, number: int) -> None:
    total = slots.get(slot, 0) + number
    if total:
        slots[slot] = total
    else:
        del slots[slot]


class LabelClass:
    """Pods of one namespace with equal labels. `asked`: the queries that match them."""

    __slots__ = ("asked", "carried", "deleting", "labels", "namespace", "slots", "version")

    def __init__(self, namespace: str, labels: Labels, deleting: bool) -> None:
        self.namespace = namespace
        self.labels = labels
        self.deleting = deleting
        self.slots: dict[int, int] = {}
        self.asked: dict[Asked, None] = {}
        self.carried: tuple[Carried, ...] = ()
        self.version = -1


class Asked(PodCounts):
    """The pods matched by all of `selectors`; with `living`, without those being deleted.

    `is_kept` turns False once it is evicted from the cache and no longer updated."""

    __slots__ = ("classes", "is_kept", "key", "living", "selectors", "used")

    def __init__(self, key: Hashable, selectors: tuple[PodSelector, ...], living: bool) -> None:
        super().__init__()
        self.key = key
        self.selectors = selectors
        self.living = living
        self.classes: dict[LabelClass, None] = {}
        self.is_kept = True
        self.used = 0

    def means(self, one: LabelClass, known: Mapping[str, Labels]) -> bool:
        if self.living and one.deleting:
            return False
        return all(s.covers(one.namespace, known) and s.selector.matches(one.labels) for s in self.selectors)


class Carried(PodCounts):
    """The pods that carry a term, with multiplicity. `kind`: REQUIRED_AFFINITY and so on."""

    __slots__ = ("key", "kind", "number", "term")

    def __init__(self, key: Hashable, kind: str, term: AffinityTerm) -> None:
        super().__init__()
        self.key = key
        self.kind = kind
        self.term = term
        self.number = 0

    def means(self, one: LabelClass, known: Mapping[str, Labels]) -> bool:
        pods = self.term.pods
        return pods.selector.matches(one.labels) and pods.covers_newcomer(one.namespace, known)


class Topology:
    """`namespaces`: the labels of known namespaces."""

    def __init__(self, columns: NodeColumns) -> None:
        self._columns = columns
        self.namespaces: dict[str, Labels] = {}
        self._domains: dict[Hashable, Domains] = {}
        self._eligible: dict[Hashable, Eligible] = {}
        self._classes: dict[str, dict[tuple[int, bool], LabelClass]] = {}
        self._empty: dict[LabelClass, None] = {}
        self._asked: dict[Hashable, Asked] = {}
        self._asked_by_pair: dict[tuple[str, str] | None, dict[Asked, None]] = {}
        self._carried: dict[Hashable, Carried] = {}
        self._carried_by_pair: dict[tuple[str, str] | None, dict[Carried, None]] = {}
        self._version = 0
        self._turn = 0

    # --- questions --------------------------------------------------------------------------------------------------

    def domains(self, key: str, blank: bool = False) -> Domains:
        """By the label `key`; with `blank`, a node without it counts as having an empty value.

        Pods may name any key: those that no node has share the same domains."""
        known, other = key in self._columns.label_keys, "" if blank else None
        found = self._domains.get((key if known else None, blank))
        if found is None:
            found = Domains(self._columns, (lambda node: node.labels.get(key, other)) if known else (lambda _: other))
            self._domains[key if known else None, blank] = found
        return found

    def nodes(self) -> Domains:
        """Each node is a domain."""
        found = self._domains.get(None)
        if found is None:
            found = self._domains[None] = Domains(self._columns, lambda node: node.name)
        return found

    def eligible(self, key: Hashable, test: Callable[[NodeInfo], bool]) -> Eligible:
        """`key` identifies the test."""
        found = self._eligible.get(key)
        if found is None:
            found = self._eligible[key] = Eligible(self._columns, test)
        return found

    def asked(self, selectors: tuple[PodSelector, ...], living: bool = False) -> Asked:
        """The pods matched by all of `selectors`. Counted on first use, then maintained. Unused domains and eligible
        nodes may be evicted here: request them afterwards."""
        key = (tuple(selector.key for selector in selectors), living)
        found = self._asked.get(key)
        if found is None:
            self._make_room()
            found = self._asked[key] = Asked(key, selectors, living)
            self._asked_by_pair.setdefault(selectors[0].first_pair(), {})[found] = None
            for one in list(self._classes_for(selectors[0])):
                if found.means(one, self.namespaces):
                    self._join(found, one)
        self.use(found)
        return found

    def use(self, asked: Asked) -> None:
        self._turn += 1
        asked.used = self._turn

    def class_of(self, pod: PodInfo) -> LabelClass:
        """The class of a pod on a node, or of a pod to be placed."""
        own = self._classes.get(pod.namespace)
        if own is None:
            own = self._classes[pod.namespace] = {}
        key = (id(pod.labels), pod.deleting)
        found = own.get(key)
        if found is None:
            found = own[key] = LabelClass(pod.namespace, pod.labels, pod.deleting)
            self._empty[found] = None
            for asked in self._by_pairs(self._asked_by_pair, pod.labels):
                if asked.means(found, self.namespaces):
                    self._join(asked, found)
            if len(self._empty) > EMPTY_CLASSES_MAX:
                self._drop_class(next(iter(self._empty)))
        return found

    def carried_against(self, pod: PodInfo) -> tuple[Carried, ...]:
        """The terms of running pods that match `pod`."""
        if not self._carried:
            return ()
        one = self.class_of(pod)
        if one.version != self._version:
            found = self._by_pairs(self._carried_by_pair, one.labels)
            one.carried = tuple(carried for carried in found if carried.means(one, self.namespaces))
            one.version = self._version
        return one.carried

    # --- pods -------------------------------------------------------------------------------------------------------

    def add_pod(self, pod: PodInfo, slot: int) -> None:
        self._count_class(pod, slot, 1)
        if pod.spec.pod_affinity is not None or pod.spec.pod_anti_affinity is not None:
            self._carry(pod, slot, 1)

    def remove_pod(self, pod: PodInfo, slot: int) -> None:
        self._count_class(pod, slot, -1)
        if pod.spec.pod_affinity is not None or pod.spec.pod_anti_affinity is not None:
            self._carry(pod, slot, -1)

    def replace_pod(self, old: PodInfo, new: PodInfo, slot: int) -> None:
        """An update of a pod with unchanged spec."""
        if old.labels is not new.labels or old.deleting is not new.deleting:
            self._count_class(new, slot, 1)
            self._count_class(old, slot, -1)

    def _count_class(self, pod: PodInfo, slot: int, number: int) -> None:
        one = self.class_of(pod)
        was_empty = not one.slots
        count(one.slots, slot, number)
        for asked in one.asked:
            asked.add(slot, number)
        if was_empty:
            self._empty.pop(one, None)
        elif not one.slots:
            self._empty[one] = None

    def _carry(self, pod: PodInfo, slot: int, number: int) -> None:
        terms = affinity_terms(pod)
        for kind, some in (
            (REQUIRED_AFFINITY, terms.affinity),
            (REQUIRED_ANTI_AFFINITY, terms.anti_affinity),
            (PREFERRED, terms.preferred),
        ):
            for term in some:
                carried = self._carried_term(kind, term)
                carried.number += number
                carried.add(slot, number)
                if not carried.number:
                    del self._carried[carried.key]
                    _drop(self._carried_by_pair, term.pods.first_pair(), carried)
                    self._version += 1

    def _carried_term(self, kind: str, term: AffinityTerm) -> Carried:
        key = (kind, term.weight, term.topology_key, term.pods.key)
        found = self._carried.get(key)
        if found is None:
            found = self._carried[key] = Carried(key, kind, term)
            self._carried_by_pair.setdefault(term.pods.first_pair(), {})[found] = None
            self._version += 1
        return found

    # --- nodes and namespaces ---------------------------------------------------------------------------------------

    def would_move(self, node: NodeInfo, new: NodeInfo) -> bool:
        """Whether the node would change domains as `new`: most labels and taints define none."""
        if node.labels == new.labels and node.taints == new.taints:
            return False
        return any(domains.value(node) != domains.value(new) for domains in self._domains.values()) or any(
            eligible.test(new) != eligible.mask[node.slot] for eligible in self._eligible.values()
        )

    def leave(self, node: NodeInfo) -> None:
        """Call before the node changes its labels or taints, or is removed."""
        if not self._domains:
            return
        slot = node.slot
        for counts in self._all_counts():
            counts.move(slot, -1)
        for eligible in self._eligible.values():
            eligible.mask[slot] = False
        for domains in self._domains.values():
            domains.leave(slot)

    def enter(self, node: NodeInfo) -> None:
        """Call once the node has its current labels and taints."""
        if not self._domains:
            return
        for domains in self._domains.values():
            domains.enter(node)
        for eligible in self._eligible.values():
            eligible.mask[node.slot] = eligible.test(node)
        for counts in self._all_counts():
            counts.move(node.slot, 1)

    def grow(self, capacity: int) -> None:
        for domains in self._domains.values():
            domains.of = np.concatenate((domains.of, np.full(capacity - len(domains.of), -1, np.int64)))
        for eligible in self._eligible.values():
            eligible.mask = np.concatenate((eligible.mask, np.zeros(capacity - len(eligible.mask), np.bool_)))

    def put_namespace(self, name: str, labels: Labels) -> None:
        if self.namespaces.get(name) != labels:
            self.namespaces[name] = labels
            self._look_again(name)

    def remove_namespace(self, name: str) -> None:
        if self.namespaces.pop(name, None) is not None:
            self._look_again(name)

    def _look_again(self, namespace: str) -> None:
        """Queries with namespace selectors may match this namespace now, or no longer."""
        self._version += 1
        for asked in self._asked.values():
            if all(selector.namespace_selector is None for selector in asked.selectors):
                continue
            for one in self._classes.get(namespace, {}).values():
                means = asked.means(one, self.namespaces)
                if means and one not in asked.classes:
                    self._join(asked, one)
                elif not means and one in asked.classes:
                    self._part(asked, one)

    # --- cached counts ----------------------------------------------------------------------------------------------

    def _all_counts(self) -> Iterator[PodCounts]:
        yield from self._asked.values()
        yield from self._carried.values()

    def _classes_for(self, selector: PodSelector) -> Iterator[LabelClass]:
        """All classes that `selector` may match."""
        spaces = self._classes if selector.namespace_selector is not None else sorted(selector.namespaces)
        for space in spaces:
            yield from self._classes.get(space, {}).values()

    @staticmethod
    def _by_pairs(table: Mapping[tuple[str, str] | None, dict[T, None]], labels: Labels) -> Iterator[T]:
        """Entries that may match pods with these labels."""
        yield from table.get(None, ())
        for pair in labels.items():
            yield from table.get(pair, ())

    @staticmethod
    def _join(asked: Asked, one: LabelClass) -> None:
        asked.classes[one] = None
        one.asked[asked] = None
        for slot, number in one.slots.items():
            asked.add(slot, number)

    @staticmethod
    def _part(asked: Asked, one: LabelClass) -> None:
        del asked.classes[one], one.asked[asked]
        for slot, number in one.slots.items():
            asked.add(slot, -number)

    def _drop_class(self, one: LabelClass) -> None:
        del self._empty[one]
        del self._classes[one.namespace][id(one.labels), one.deleting]
        if not self._classes[one.namespace]:
            del self._classes[one.namespace]
        for asked in one.asked:
            del asked.classes[one]

    def _make_room(self) -> None:
        """If there are too many queries, drops half of them, least recently used first, and what served only them."""
        limit = max(ASKED_MIN, min(ASKED_MAX, ASKED_BYTES_MAX // (16 * self._columns.capacity)))
        if len(self._asked) < limit:
            return
        for asked in sorted(self._asked.values(), key=lambda one: one.used)[: limit // 2]:
            asked.is_kept = False
            del self._asked[asked.key]
            _drop(self._asked_by_pair, asked.selectors[0].first_pair(), asked)
            for one in asked.classes:
                del one.asked[asked]
        views = [view for counts in self._all_counts() for view in counts.views()]
        eligible, domains = {view.eligible for view in views}, {view.domains for view in views}
        self._eligible = {key: one for key, one in self._eligible.items() if one in eligible}
        self._domains = {key: one for key, one in self._domains.items() if one in domains}


def _drop(table: dict[tuple[str, str] | None, dict[T, None]], pair: tuple[str, str] | None, item: T) -> None:
    del table[pair][item]
    if not table[pair]:
        del table[pair]
