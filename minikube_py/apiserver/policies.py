"""CEL policies in use by bindings: which ones match a write, and validating policies.

Source: apiserver `pkg/admission/plugin/policy/{generic,matching,validating}`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from minikube_py.api import go_json
from minikube_py.api.admission_policies import Policy, ValidatingPolicy
from minikube_py.api.errors import Json, StatusError
from minikube_py.api.kind import Kind
from minikube_py.api.kinds.admissionregistration import BINDING, POLICY, POLICY_KINDS
from minikube_py.api.kinds.core import BINDINGS, NAMESPACES
from minikube_py.api.label_selectors import NOTHING, InvalidSelector, selector_of
from minikube_py.api.registry import Registry
from minikube_py.api.selectors import LabelSelector
from minikube_py.apiserver.admission import Attributes, Operation, Plugin
from minikube_py.apiserver.admission_rules import Candidates, Namespaces, matched_kind
from minikube_py.apiserver.authorizing import Asking
from minikube_py.apiserver.watch_cache import WatchCache
from minikube_py.apiserver.webhooks import seen_by_expressions, views_of
from minikube_py.env import Slices

if TYPE_CHECKING:
    from minikube_py.apiserver.versioned import Views

log = logging.getLogger(__name__)
P = TypeVar("P", bound=Policy)
_name_of: Final = attrgetter("name")
_FAILURE: Final = "validation.policy.admission.k8s.io/validation_failure"
_HOOK_STEPS: Final = 4
_NOTE_BYTES_MAX: Final = 10 << 10
_CODES: Final = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413}
_OF_NAMESPACE: Final = (
    "name", "generateName", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
    "deletionGracePeriodSeconds", "labels", "annotations", "finalizers",
)  # fmt: skip


class Misconfigured(Exception):
    """Why a policy or binding is unusable."""


class _Resources(NamedTuple):
    """Which writes match. `wrong`: why that cannot be said, of what was stored past the API."""

    spec: Json
    namespaces: LabelSelector
    objects: LabelSelector
    wrong: str = ""

    @classmethod
    def of(cls, spec: Json, name: str) -> _Resources:
        try:
            return cls(spec, selector_of(spec.get("namespaceSelector")), selector_of(spec.get("objectSelector")))
        except InvalidSelector as error:
            log.error("what %s matches cannot be read: %s", name, error)
            return cls(spec, NOTHING, NOTHING, str(error))


class _Binding(NamedTuple):
    name: str
    spec: Json
    resources: _Resources | None


class Hook(NamedTuple, Generic[P]):
    name: str
    spec: Json
    resources: _Resources
    policy: P
    bindings: list[_Binding]


class Failure(NamedTuple):
    """For an unusable policy (or the named binding) whose failurePolicy is not Ignore."""

    policy: str
    binding: str
    message: str


class Invocation(NamedTuple, Generic[P]):
    """A policy that matches a write as `kind`, evaluated once per parameter object."""

    hook: Hook[P]
    binding: _Binding
    kind: Kind
    params: list[Json | None]

    def seen(self, param: Json | None, seen: Mapping[str, object]) -> Mapping[str, object]:
        return {**seen, "params": param} if self.hook.spec.get("paramKind") is not None else seen


class _Denial(NamedTuple):
    policy: str
    binding: str
    message: str
    reason: str = ""

    def status(self, attributes: Attributes) -> StatusError:
        by = f"'{self.policy}' with binding '{self.binding}'" if self.binding else f"'{self.policy}'"
        message = f"ValidatingAdmissionPolicy {by} denied request: {self.message}"
        error = attributes.forbidden(message)
        reason = self.reason or "Invalid"
        details = {**(error.details or {}), "causes": [{"message": message}]}
        return StatusError(_CODES.get(reason, 422), reason, error.message, details)


class Policies(Plugin, Generic[P]):
    """What both kinds of policies share: matching."""

    kinds: tuple[Kind, Kind]
    """Of policies and of their bindings."""

    def __init__(
        self, cache: WatchCache, namespaces: Namespaces, registry: Callable[[], Registry], asking: Asking
    ) -> None:
        self._cache = cache
        self._asking = asking
        self._policies, self._bindings = (cache.caches.get(kind) for kind in self.kinds)
        self.source = self._bindings
        self._namespaces = namespaces
        self._registry = registry
        self._seen = (-1, -1)
        self._hooks: list[Hook[P]] = []
        self._candidates: Candidates[Hook[P]] = Candidates(lambda hook: hook.resources.spec.get("resourceRules") or ())
        self._compiled: dict[bytes, tuple[int, P]] = {}

    def _policy(self, spec: Json) -> P:
        raise NotImplementedError

    def idle(self, kind: Kind, namespace: str) -> bool:
        return self._bindings is None or not self._bindings.entries

    def has_work(self, operation: Operation) -> bool:
        """Policies do not apply to policy objects or reviews."""
        kind = operation.kind
        if kind in POLICY_KINDS or not (kind.stored or kind is BINDINGS):
            return False
        return self._candidates.may_exist(self.hooks(), operation, self._registry())

    def hooks(self) -> list[Hook[P]]:
        """By policy name, then binding name."""
        policies, bindings = self._policies, self._bindings
        if policies is None or bindings is None:
            return []
        if self._seen != (policies.last_change, bindings.last_change):
            by_policy: dict[str, list[_Binding]] = {}
            for entry in bindings.entries.values():
                binding = entry.decode()
                name, spec = binding["metadata"]["name"], binding.get("spec") or {}
                resources = spec.get("matchResources")
                found = _Binding(name, spec, _Resources.of(resources, name) if resources else None)
                by_policy.setdefault(spec.get("policyName") or "", []).append(found)
            compiled = self._compiled
            self._compiled, self._hooks = {}, []
            for key, entry in policies.entries.items():
                obj = entry.decode()
                name, spec = obj["metadata"]["name"], obj.get("spec") or {}
                if name not in by_policy:
                    continue
                known = compiled.get(key)
                policy = known[1] if known is not None and known[0] == entry.revision else self._policy(spec)
                self._compiled[key] = entry.revision, policy
                matches = _Resources.of(spec.get("matchConstraints") or {}, name)
                self._hooks.append(Hook(name, spec, matches, policy, sorted(by_policy[name], key=_name_of)))
            self._hooks.sort(key=lambda hook: hook.name)
            self._seen = policies.last_change, bindings.last_change
        return self._hooks

    async def invocations(self, views: Views) -> AsyncIterator[Invocation[P] | Failure]:
        attributes, slices = views.attributes, Slices()
        for hook in self.hooks():
            await slices.spend(_HOOK_STEPS)
            fails = hook.spec.get("failurePolicy") != "Ignore"
            try:
                kind = await self._matched(hook.resources, attributes)
                if kind is None:
                    continue
                of_params = self._param_kind(hook.spec.get("paramKind"))
            except (StatusError, Misconfigured) as error:
                if fails:
                    yield Failure(hook.name, "", f"failed to configure policy: {error}")
                continue
            for binding in hook.bindings:
                try:
                    params = await self._params_of(binding, of_params, attributes)
                    if params:
                        await _can_be_seen(kind, views)
                except (StatusError, Misconfigured) as error:
                    if fails:
                        yield Failure(hook.name, binding.name, f"failed to configure binding: {error}")
                    continue
                if params:
                    yield Invocation(hook, binding, kind, params)

    async def _params_of(
        self, binding: _Binding, of_params: Kind | None, attributes: Attributes
    ) -> list[Json | None]:
        """Raises: StatusError 404; Misconfigured."""
        if binding.resources is not None and await self._matched(binding.resources, attributes) is None:
            return []
        if of_params is not None:
            await self._cache.of(of_params).ready()
        return list(self._params(of_params, binding.spec.get("paramRef"), attributes.of.namespace))

    async def _namespace_of(self, attributes: Attributes) -> Json | None:
        """As expressions see it. Raises: StatusError 404."""
        of = attributes.of
        if not of.namespace or of.kind is NAMESPACES:
            return None
        return _shown(await self._namespaces.get(of.namespace))

    async def _matched(self, resources: _Resources, attributes: Attributes) -> Kind | None:
        """The kind in which the write matches; None: no match. Raises: StatusError 404; Misconfigured."""
        if resources.wrong:
            raise Misconfigured(resources.wrong)
        spec, of = resources.spec, attributes.of
        given = (spec.get("matchPolicy") == "Equivalent", of, attributes.name, self._registry())

        def as_kind() -> Kind | None:
            if matched_kind(spec.get("excludeResourceRules") or (), *given) is not None:
                return None
            rules = spec.get("resourceRules")
            return matched_kind(rules, *given) if rules else of.kind

        return await self._namespaces.wanted(resources.namespaces, resources.objects, attributes, as_kind)

    def _param_kind(self, told: Json | None) -> Kind | None:
        """Raises: Misconfigured."""
        if told is None:
            return None
        group, _, version = (told.get("apiVersion") or "").rpartition("/")
        name = told.get("kind") or ""
        kind = self._registry().kind(group, version, name)
        if kind is None or not kind.stored:
            shown = f"{group}/{version}, Kind={name}"
            raise Misconfigured(f"failed to find resource referenced by paramKind: '{shown}'")
        return kind

    def _params(self, kind: Kind | None, ref: Json | None, namespace: str) -> Iterator[Json | None]:
        """The parameter objects; the policy runs once for each. Raises: Misconfigured."""
        if kind is None or ref is None:
            yield None
            return
        if kind.namespaced:
            namespace = ref.get("namespace") or namespace
            if not namespace:
                why = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                raise Misconfigured(why)
        elif ref.get("namespace"):
            raise Misconfigured("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
        cache, found = self._cache.of(kind), False
        if ref.get("name"):
            entry = cache.entries.get(kind.key(namespace, ref["name"]))
            entries = [entry] if entry is not None else []
        else:
            try:
                selector = selector_of(ref.get("selector"))
            except InvalidSelector as error:
                raise Misconfigured(str(error)) from None
            below = cache.iterate(kind.collection_prefix(namespace), None)
            entries = [entry for entry in below if selector.matches(entry.labels)]
        for entry in entries:
            found = True
            yield {**entry.decode(), "kind": kind.kind, "apiVersion": kind.api_version}
        if not found and ref.get("parameterNotFoundAction") == "Deny":
            raise Misconfigured("no params found for policy binding with `Deny` parameterNotFoundAction")


async def _can_be_seen(kind: Kind, views: Views) -> None:
    """Raises: Misconfigured."""
    try:
        await views.of(kind)
    except StatusError as error:
        raise Misconfigured(f"failed to convert object version: {error}") from None


def _shown(namespace: Mapping[str, Json]) -> Json:
    metadata = {name: namespace["metadata"][name] for name in _OF_NAMESPACE if name in namespace["metadata"]}
    return {"metadata": metadata, "spec": namespace.get("spec") or {}, "status": namespace.get("status") or {}}


def _shortened(text: str) -> str:
    return text.encode()[:_NOTE_BYTES_MAX].decode(errors="replace")


class ValidatingPolicies(Policies[ValidatingPolicy]):
    name = "ValidatingAdmissionPolicy"
    kinds = (POLICY, BINDING)

    def _policy(self, spec: Json) -> ValidatingPolicy:
        return ValidatingPolicy(spec)

    async def validate(self, attributes: Attributes) -> None:
        """Raises: StatusError of the first denial."""
        denials: list[_Denial] = []
        notes: dict[str, dict[str, None]] = {}
        views = views_of(attributes, self._cache)
        async for asked in self.invocations(views):
            if isinstance(asked, Failure):
                denials.append(_Denial(*asked))
            else:
                denials += await self._denials(asked, views, notes)
        for key, values in notes.items():
            attributes.tell(key, ", ".join(values))
        if denials:
            raise denials[0].status(attributes)

    async def _denials(
        self, asked: Invocation[ValidatingPolicy], views: Views, notes: dict[str, dict[str, None]]
    ) -> list[_Denial]:
        """Adds to `notes` the distinct values of audit annotations. Raises: StatusError 404."""
        hook, binding, attributes = asked.hook, asked.binding, views.attributes
        seen = seen_by_expressions(await views.of(asked.kind), asked.kind)
        namespace = await self._namespace_of(attributes)
        found: list[_Denial] = []
        actions = binding.spec.get("validationActions") or ()
        for param in asked.params:
            given = asked.seen(param, seen)
            here = partial(hook.policy.denials, given, namespace)
            asked_of = (hook.name, here, "denials", hook.policy.text, given, namespace)
            denied, errors, told = await self._asking.run(attributes.of.user, given, *asked_of)
            for key, text in told:
                notes.setdefault(f"{hook.name}/{key}", {})[_shortened(text)] = None
            for decision in denied:
                if "Audit" in actions:
                    failure = {
                        "message": decision.message, "policy": hook.name, "binding": binding.name,
                        "expressionIndex": decision.at, "validationActions": actions,
                    }  # fmt: skip
                    attributes.tell(_FAILURE, go_json.dumps([failure]).decode())
                if "Deny" in actions:
                    found.append(_Denial(hook.name, binding.name, decision.message, decision.reason))
                if "Warn" in actions:
                    by = f"'{hook.name}' with binding '{binding.name}'"
                    attributes.warn(f"Validation failed for ValidatingAdmissionPolicy {by}: {decision.message}")
            found += [_Denial(hook.name, binding.name, error) for error in errors]
        return found
