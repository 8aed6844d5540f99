"""MutatingAdmissionPolicy: CEL policies change writes, one after another.

Source: apiserver `pkg/admission/plugin/policy/mutating/{dispatcher,plugin}.go`,
`pkg/admission/plugin/policy/generic/policy_dispatcher.go`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from minikube_py.api.errors import Json, StatusError, go_quote
from minikube_py.api.kinds.admissionregistration import MUTATING_BINDING, MUTATING_POLICY
from minikube_py.apiserver.admission import Attributes, Invoked, Operation
from minikube_py.apiserver.policies import Failure, Invocation, Policies
from minikube_py.apiserver.preparing import Body, key_of
from minikube_py.apiserver.webhooks import kind_shown, seen_by_expressions, views_of

if TYPE_CHECKING:
    from minikube_py.api.mutations import Given, Mutated, MutatingPolicy
    from minikube_py.apiserver.versioned import Views


class MutatingPolicies(Policies["MutatingPolicy"]):
    name = "MutatingAdmissionPolicy"
    mutates = True
    kinds = (MUTATING_POLICY, MUTATING_BINDING)

    def _policy(self, spec: Json) -> MutatingPolicy:
        from minikube_py.api.mutations import MutatingPolicy

        return MutatingPolicy(spec)

    def has_work(self, operation: Operation) -> bool:
        return operation.verb != "DELETE" and super().has_work(operation)

    async def admit(self, attributes: Attributes) -> None:
        """Raises: StatusError 403, 404, 500."""
        failures: list[tuple[Failure, str]] = []
        asked: list[Invocation[MutatingPolicy]] = []
        views = views_of(attributes, self._cache)
        async for each in self.invocations(views):
            if isinstance(each, Failure):
                failures.append((each, ""))
            else:
                asked.append(each)
        if asked:
            failures += [(each, "Invalid") for each in await self._all(asked, views)]
        if failures:
            raise _refusal(failures, attributes)

    async def _all(self, asked: list[Invocation[MutatingPolicy]], views: Views) -> list[Failure]:
        """Raises: StatusError 404, 500."""
        attributes = views.attributes
        namespace, invoked = await self._namespace_of(attributes), Invoked.begin(self.name, attributes)
        failures: list[Failure] = []
        for each in asked:
            for param in each.params:
                failures += await self._one(each, param, namespace, invoked, views)
        await views.settle()
        if attributes.changed:
            invoked.require()
        invoked.end(attributes)
        return failures

    async def _one(
        self, asked: Invocation[MutatingPolicy], param: Json | None, namespace: Json | None, invoked: Invoked,
        views: Views,
    ) -> list[Failure]:  # fmt: skip
        """Raises: StatusError 500."""
        hook, attributes, view, kind = asked.hook, views.attributes, await views.of(asked.kind), views.form(asked.kind)
        of = attributes.of
        metadata = (param or {}).get("metadata") or {}
        key = (hook.name, asked.binding.name, metadata.get("namespace"), metadata.get("name"))
        skipped = attributes.reinvoked and key not in invoked.again
        bindings = dict(asked.seen(param, seen_by_expressions(view, asked.kind)))
        given: Given = (of.sub, kind_shown(of, asked.kind), bindings, namespace, skipped)
        body = Body(key_of(kind), b"", "", "", "", hook.name, of.sub, definition=kind.definition)
        here: partial[Any] = partial(hook.policy.mutated, kind, *given)
        asked_of = (hook.name, here, "mutated", body, hook.policy.text, given)
        found: Mutated = await self._asking.run(of.user, bindings, *asked_of)
        if found.value is not None and view.new is not None:
            after = orjson.loads(found.value)
            if view is attributes and asked.kind is not of.kind:
                # Only what it was shown as had the version that the policy names.
                after["apiVersion"] = of.kind.api_version
            view.new.clear()
            view.new.update(after)
            views.changed(asked.kind)
            # As upstream, even if nothing changed.
            attributes.changed = True
        if found.holds and not skipped and hook.spec.get("reinvocationPolicy") == "IfNeeded":
            invoked.now.add(key)
        if hook.spec.get("failurePolicy") == "Ignore":
            return []
        return [Failure(hook.name, asked.binding.name, error) for error in found.errors]


def _refusal(failures: list[tuple[Failure, str]], attributes: Attributes) -> StatusError:
    told = []
    for failure, _ in failures:
        by = f"'{failure.policy}' with binding '{failure.binding}'" if failure.binding else go_quote(failure.policy)
        told.append(f"policy {by} denied request: {failure.message}")
    error = attributes.forbidden("")
    details = {**(error.details or {}), "causes": [{"message": each} for each in told]}
    return StatusError(403, failures[0][1] or "Forbidden", told[0], details)
