"""A pod's affinity terms, which pods a term matches, and the numbers that terms compare.

Selectors are compiled once for each spec and namespace. Source: pkg/scheduler/framework/types.go, newAffinityTerm.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from minikube_py.api.label_selectors import InvalidSelector, selector_of
from minikube_py.api.selectors import LabelSelector
from minikube_py.scheduler.framework import INT64_MAX, INT64_MIN
from minikube_py.scheduler.objects import PodInfo

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"

Labels = Mapping[str, str]
_NO_LABELS: Final[Labels] = {}


def label_as_int(text: str | None) -> int | None:
    """The value that Gt and Lt compare: a decimal int64, else None. As Go's ParseInt: a sign and ASCII digits only."""
    if not text or len(text) > 20 or not text.isascii():
        return None
    digits = text[1:] if text[0] in "+-" else text
    if not digits.isdigit():
        return None
    value = int(text)
    return value if INT64_MIN <= value <= INT64_MAX else None


class PodSelector:
    """Pods with certain labels in certain namespaces: the named ones, plus those matched by `namespace_selector` (None
    for no others). Equal selectors have equal keys."""

    __slots__ = ("key", "namespace_selector", "namespaces", "selector")

    def __init__(
        self, namespaces: frozenset[str], namespace_selector: LabelSelector | None, selector: LabelSelector
    ) -> None:
        self.namespaces = namespaces
        self.namespace_selector = namespace_selector
        self.selector = selector
        more = None if namespace_selector is None else namespace_selector.requirements
        self.key = (namespaces, more, selector.requirements)

    def covers(self, namespace: str, known: Mapping[str, Labels]) -> bool:
        """For a pod to be placed: whether its selector covers that namespace.

        A selector that matches empty labels covers all namespaces: upstream empties the selector in a copy of the term
        (mergeAffinityTermNamespacesIfNotEmpty), and then matches it against no labels."""
        if namespace in self.namespaces:
            return True
        more = self.namespace_selector
        if more is None:
            return False
        return more.matches(_NO_LABELS) or (namespace in known and more.matches(known[namespace]))

    def covers_newcomer(self, namespace: str, known: Mapping[str, Labels]) -> bool:
        """For a running pod: whether it covers a new pod there. A namespace not in `known` has no labels."""
        if namespace in self.namespaces:
            return True
        more = self.namespace_selector
        return more is not None and more.matches(known.get(namespace, _NO_LABELS))

    def means(self, pod: PodInfo) -> bool:
        """For queueing hints, which do not know namespace labels."""
        return self.covers_newcomer(pod.namespace, {}) and self.selector.matches(pod.labels)

    def first_pair(self) -> tuple[str, str] | None:
        """A label and value that all matching pods have, if any."""
        for key, op, values in self.selector.requirements:
            if op in ("=", "==", "in") and len(values) == 1:
                return key, values[0]
        return None


class AffinityTerm(NamedTuple):
    """`weight` is 0 for a required term, and negative for a preferred anti-affinity."""

    pods: PodSelector
    topology_key: str
    weight: int = 0


class AffinityTerms(NamedTuple):
    """The terms of one pod."""

    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    preferred: tuple[AffinityTerm, ...] = ()
    """Of affinity and anti-affinity."""
    problem: str = ""
    """What is invalid, if anything."""


_NO_TERMS: Final = AffinityTerms()


def affinity_terms(pod: PodInfo) -> AffinityTerms:
    spec = pod.spec
    if spec.pod_affinity is None and spec.pod_anti_affinity is None:
        return _NO_TERMS
    by_namespace: dict[str, AffinityTerms] = spec.cache.setdefault("pod affinity", {})
    found = by_namespace.get(pod.namespace)
    if found is None:
        found = by_namespace[pod.namespace] = _parse(spec.pod_affinity or {}, spec.pod_anti_affinity or {}, pod)
    return found


def _parse(near: Mapping[str, Any], apart: Mapping[str, Any], pod: PodInfo) -> AffinityTerms:
    problems: list[str] = []

    def terms(name: str, documents: Any, sign: int) -> tuple[AffinityTerm, ...]:
        try:
            return tuple(_term(document, pod.namespace, sign) for document in documents or ())
        except InvalidSelector as error:
            problems.append(f"{name}: {error}")
            return ()

    affinity = terms("requiredAffinityTerms", near.get(REQUIRED), 0)
    anti_affinity = terms("requiredAntiAffinityTerms", apart.get(REQUIRED), 0)
    preferred = terms("preferredAffinityTerms", near.get(PREFERRED), 1)
    preferred += terms("preferredAntiAffinityTerms", apart.get(PREFERRED), -1)
    text = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]" if problems else ""
    return AffinityTerms(affinity, anti_affinity, preferred, text)


def _term(document: Mapping[str, Any], own: str, sign: int) -> AffinityTerm:
    """`sign` 0: a required term; otherwise a weighted one. Raises: InvalidSelector."""
    term = document.get("podAffinityTerm") or {} if sign else document
    names, more = term.get("namespaces") or (), term.get("namespaceSelector")
    namespaces = frozenset((own,) if not names and more is None else names)
    pods = PodSelector(namespaces, None if more is None else selector_of(more), selector_of(term.get("labelSelector")))
    return AffinityTerm(pods, term.get("topologyKey", ""), sign * (document.get("weight") or 0) if sign else 0)
