"""PodSecurity: enforces the standard in the namespace's labels on pods.

Source: `k8s.io/pod-security-admission/admission/admission.go`, without exemptions and with nothing enforced by default.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from minikube_py.api.errors import Json, aggregate, invalid
from minikube_py.api.kind import Kind
from minikube_py.api.kinds.core import NAMESPACES, PODS
from minikube_py.api.meta import controller_of
from minikube_py.api.pod_security import PREFIX, PRIVILEGED, Standard, policy_of, stricter, told, violations
from minikube_py.apiserver.admission import Attributes, Operation, Plugin
from minikube_py.apiserver.admission_rules import Namespaces
from minikube_py.apiserver.watch_cache import WatchCache
from minikube_py.env import Clock

PODS_MAX: Final = 3000
PODS_S: Final = 1.0
"""How many pods are checked, and for how long, when a namespace's labels change."""
_PODS_AT_ONCE: Final = 50
_IGNORED: Final = frozenset(("exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"))
_TEMPLATES: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("", "podtemplates"): ("template",),
    ("", "replicationcontrollers"): ("spec", "template"),
    ("apps", "replicasets"): ("spec", "template"),
    ("apps", "deployments"): ("spec", "template"),
    ("apps", "statefulsets"): ("spec", "template"),
    ("apps", "daemonsets"): ("spec", "template"),
    ("batch", "jobs"): ("spec", "template"),
    ("batch", "cronjobs"): ("spec", "jobTemplate", "spec", "template"),
}
_MARK: Final = PREFIX.encode()


class PodSecurity(Plugin):
    name = "PodSecurity"

    def __init__(self, cache: WatchCache, namespaces: Namespaces, clock: Clock) -> None:
        self._cached = cache.of(NAMESPACES)
        self._pods = cache.of(PODS)
        self._namespaces = namespaces
        self._clock = clock

    def idle(self, kind: Kind, namespace: str) -> bool:
        """Without such labels, a pod costs only a search in the namespace's bytes."""
        if kind is PODS or (kind.group, kind.plural) in _TEMPLATES:
            entry = self._cached.entries.get(NAMESPACES.key("", namespace))
            return entry is not None and _MARK not in entry.value
        return kind is not NAMESPACES

    def notes_all(self, kind: Kind) -> bool:
        return kind is PODS

    def has_work(self, operation: Operation) -> bool:
        if operation.verb not in ("CREATE", "UPDATE"):
            return False
        return operation.sub not in _IGNORED if operation.kind is PODS else not operation.sub

    async def validate(self, attributes: Attributes) -> None:
        """Raises: StatusError 403, 422."""
        of, new = attributes.of, attributes.new
        if new is None:
            return
        if of.kind is NAMESPACES:
            await self._namespace(attributes, new)
            return
        pod: Json | None = new
        if of.kind is PODS:
            if attributes.old is not None and not _matters(new, attributes.old):
                return
        else:
            for name in _TEMPLATES[of.kind.group, of.kind.plural]:
                pod = (pod or {}).get(name)
        if pod is not None:
            labels = (await self._namespaces.get(of.namespace))["metadata"].get("labels") or {}
            _evaluate(attributes, labels, pod)

    async def _namespace(self, attributes: Attributes, new: Json) -> None:
        policy, errors = policy_of(new["metadata"].get("labels") or {})
        if attributes.old is None:
            if errors:
                raise invalid(NAMESPACES, attributes.name, errors)
            return
        before, known = policy_of(attributes.old["metadata"].get("labels") or {})
        if errors and errors != known:
            raise invalid(NAMESPACES, attributes.name, errors)
        enforced, standing = policy.enforce, before.enforce
        if enforced == standing or enforced.level == PRIVILEGED:
            return
        if enforced.minor == standing.minor and not stricter(enforced.level, standing.level):
            return
        await self._look_at_pods(attributes.name, enforced, attributes.warn)

    async def _look_at_pods(self, namespace: str, enforced: Standard, warn: Callable[[str], None]) -> None:
        """Warns about existing pods that would be rejected; further pods of the same controller come last."""
        ends_s = self._clock.monotonic_s() + PODS_S
        first: list[Json] = []
        more: list[Json] = []
        owners = set()
        for at, entry in enumerate(list(self._pods.iterate(PODS.collection_prefix(namespace), None)), 1):
            if at % _PODS_AT_ONCE == 0:
                await asyncio.sleep(0)
            pod = entry.decode()
            owner = controller_of(pod)
            (more if owner is not None and owner.uid in owners else first).append(pod)
            if owner is not None:
                owners.add(owner.uid)
        pods, looked = [*first, *more], 0
        found: dict[str, list[str]] = {}
        for pod in pods[:PODS_MAX]:
            reasons = [reason for reason, _ in violations(enforced, pod["metadata"], pod["spec"])]
            if reasons:
                found.setdefault(", ".join(reasons), []).append(pod["metadata"]["name"])
            looked += 1
            if looked % _PODS_AT_ONCE == 0:
                await asyncio.sleep(0)
            if self._clock.monotonic_s() > ends_s:
                break
        if looked < len(pods):
            limited = f"only checked against the first {looked} of {len(pods)} existing pods"
            warn(f"new PodSecurity enforce level {limited}")
        if found:
            warn(f'existing pods in namespace "{namespace}" violate the new PodSecurity enforce level "{enforced}"')
        for text in sorted(f"{_counted(names)}: {reasons}" for reasons, names in found.items()):
            warn(text)


def _counted(names: list[str]) -> str:
    others = len(names) - 1
    return f"{min(names)} (and {others} other pod{'s' if others > 1 else ''})" if others else names[0]


def _evaluate(attributes: Attributes, labels: dict[str, str], pod: Json) -> None:
    policy, errors = policy_of(labels)
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    if (audit := attributes.audit) is not None:
        is_pod = attributes.of.kind is PODS
        if is_pod:
            audit.note(f"{PREFIX}enforce-policy", str(policy.enforce))
        if is_pod or (policy.warn.level, policy.audit.level) != (PRIVILEGED, PRIVILEGED):
            if errors:
                why = aggregate(str(error) for error in errors)
                audit.note(f"{PREFIX}error", f"Failed to parse policy: {why}")
            if found := violations(policy.audit, metadata, spec):
                audit.note(f"{PREFIX}audit-violations", f'would violate PodSecurity "{policy.audit}": {told(found)}')
    if attributes.of.kind is PODS and (found := violations(policy.enforce, metadata, spec)):
        raise attributes.forbidden(f'violates PodSecurity "{policy.enforce}": {told(found)}')
    if found := violations(policy.warn, metadata, spec):
        attributes.warn(f'would violate PodSecurity "{policy.warn}": {told(found)}')


def _matters(new: Json, old: Json) -> bool:
    """Whether an update is relevant: containers added or removed, or another image."""
    for name in ("containers", "initContainers"):
        after, before = new["spec"].get(name) or (), old["spec"].get(name) or ()
        if [each.get("image") for each in after] != [each.get("image") for each in before]:
            return True
    known = {each.get("name"): each.get("image") for each in old["spec"].get("ephemeralContainers") or ()}
    added = new["spec"].get("ephemeralContainers") or ()
    return any(each.get("name") not in known or known[each.get("name")] != each.get("image") for each in added)
