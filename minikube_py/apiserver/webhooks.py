"""MutatingAdmissionWebhook and ValidatingAdmissionWebhook: sends writes to other servers for admission.

Source: apiserver `pkg/admission/plugin/webhook`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import orjson

from minikube_py.api import go_json
from minikube_py.api.admission_expressions import Matched, match
from minikube_py.api.authorizer_checks import bindings_of
from minikube_py.api.errors import Json, StatusError, bad_request, go_quote, internal
from minikube_py.api.kind import Kind
from minikube_py.api.kinds.admissionregistration import ADMISSION_KINDS, MUTATING, VALIDATING
from minikube_py.api.label_selectors import InvalidSelector, selector_of
from minikube_py.api.meta import new_uid
from minikube_py.api.patch import JSON_PATCH
from minikube_py.api.registry import Registry
from minikube_py.api.selectors import EVERYTHING, LabelSelector
from minikube_py.apiserver.admission import Attributes, Invoked, Operation, Plugin, in_order
from minikube_py.apiserver.admission_rules import Candidates, Namespaces, matched_kind
from minikube_py.apiserver.audit_policy import REQUEST
from minikube_py.apiserver.authorizing import Asking
from minikube_py.apiserver.outgoing import NoDoor
from minikube_py.apiserver.preparing import Body, key_of
from minikube_py.apiserver.watch_cache import Entry, WatchCache
from minikube_py.apiserver.webhook_answers import Patched, Review, patched
from minikube_py.apiserver.webhook_calls import Caller, CallFailed
from minikube_py.apiserver.work import is_large_patch
from minikube_py.env import Rng, Slices

if TYPE_CHECKING:
    from minikube_py.apiserver.versioned import Views

log = logging.getLogger(__name__)
_KEY: Final = "webhook.admission.k8s.io/"
_HARMLESS: Final = ("None", "NoneOnDryRun")
_HOOK_STEPS: Final = 4


class Hook(NamedTuple):
    """`id` is unique, and begins with the configuration's name. `wrong`: why its selectors cannot be read, of what was
    stored past the API; what its rules match is then refused, unless its failurePolicy is Ignore."""

    id: str
    spec: Json
    namespaces: LabelSelector
    objects: LabelSelector
    wrong: str = ""

    @property
    def name(self) -> str:
        return self.spec.get("name") or ""

    @property
    def ignores(self) -> bool:
        return bool(self.spec.get("failurePolicy") == "Ignore")


class _Denied(Exception):
    def __init__(self, status: StatusError) -> None:
        super().__init__(status.message)
        self.status = status


class Webhooks(Plugin):
    """What both kinds of webhooks share: which are called."""

    kind: Kind
    """Of the configurations."""

    def __init__(
        self,
        cache: WatchCache,
        namespaces: Namespaces,
        caller: Caller,
        registry: Callable[[], Registry],
        rng: Rng,
        asking: Asking,
    ) -> None:
        self._asking, self._long = asking, asking.long
        self.source = self._cache = cache.caches.get(self.kind)
        self._caches = cache
        self._namespaces = namespaces
        self._caller = caller
        self._registry = registry
        self._rng = rng
        self._hooks: tuple[int, list[Hook]] = (-1, [])
        self._of_entry: dict[bytes, tuple[Entry, list[Hook]]] = {}
        self._candidates: Candidates[Hook] = Candidates(lambda hook: hook.spec.get("rules") or ())

    def idle(self, kind: Kind, namespace: str) -> bool:
        return self._cache is None or not self._cache.entries

    def has_work(self, operation: Operation) -> bool:
        """Webhooks do not apply to webhook configurations."""
        if operation.kind in ADMISSION_KINDS:
            return False
        return self._candidates.may_exist(self.hooks(), operation, self._registry())

    async def _candidates_for(self, attributes: Attributes) -> list[tuple[int, Hook]]:
        """Those whose rules may match the write, with their places."""
        return await self._candidates.of(self.hooks(), attributes.of, self._registry())

    def hooks(self) -> list[Hook]:
        """By configuration name, then in configured order."""
        cache = self._cache
        if cache is None:
            return []
        if self._hooks[0] != cache.last_change:
            known, kept = self._of_entry, {}
            for key, entry in sorted(cache.entries.items()):
                of, hooks = known.get(key, (None, []))
                kept[key] = entry, hooks if of is entry else [*_hooks_of(entry.decode())]
            self._of_entry = kept
            self._hooks = (cache.last_change, [hook for _, hooks in kept.values() for hook in hooks])
        return self._hooks[1]

    async def _asks(self, hook: Hook, views: Views) -> Kind | None:
        """The kind in which the hook matches the write; None: no match. Raises: StatusError 403, 404, 500."""
        attributes = views.attributes
        kind = await self._namespaces.wanted(
            hook.namespaces, hook.objects, attributes, partial(self._matched, hook, attributes.of)
        )
        if kind is not None and hook.wrong:
            if hook.ignores:
                return None
            raise attributes.forbidden(f"what webhook {go_quote(hook.name)} matches cannot be read: {hook.wrong}")
        conditions = hook.spec.get("matchConditions")
        if kind is not None and conditions:
            bindings = {**seen_by_expressions(await views.of(kind), kind), "namespaceObject": None}
            given = (conditions, bindings, not hook.ignores)
            job = (hook.id, partial(match, *given), "matched", *given)
            found: Matched = await self._asking.run(attributes.of.user, bindings, *job)
            if found.error:
                raise attributes.forbidden(found.error)
            if not found.holds:
                return None
        return kind

    def _matched(self, hook: Hook, of: Operation) -> Kind | None:
        equivalent = hook.spec.get("matchPolicy") == "Equivalent"
        return matched_kind(hook.spec.get("rules") or (), equivalent, of, "", self._registry())

    async def _call(self, hook: Hook, attributes: Attributes, kind: Kind) -> Review:
        """Calls the webhook. Raises: _Denied; CallFailed; StatusError."""
        if attributes.of.dry_run and hook.spec.get("sideEffects") not in _HARMLESS:
            raise bad_request(f"admission webhook {go_quote(hook.name)} does not support dry run")
        asked = review_of(attributes, kind, new_uid(self._rng))
        found = await self._caller.ask(hook.spec, asked, self.kind is MUTATING, self._long.work)
        for key, text in found.notes.items():
            attributes.tell(f"{hook.name}/{key}", text)
        for text in found.warnings:
            attributes.warn(text)
        if not found.allowed:
            raise _Denied(_denial(hook.name, found.status))
        return found


def _hooks_of(configuration: Json) -> Iterator[Hook]:
    counts: dict[str, int] = {}
    for spec in configuration.get("webhooks") or ():
        name = spec.get("name") or ""
        counts[name] = counts.get(name, -1) + 1
        id = f"{configuration['metadata']['name']}/{name}/{counts[name]}"
        try:
            yield Hook(id, spec, selector_of(spec.get("namespaceSelector")), selector_of(spec.get("objectSelector")))
        except InvalidSelector as error:
            log.error("what webhook %s matches cannot be read: %s", id, error)
            yield Hook(id, spec, EVERYTHING, EVERYTHING, str(error))


def _failure(hook: Hook, error: CallFailed) -> StatusError:
    return internal(f"failed calling webhook {go_quote(hook.name)}: {error}")


def _refused(hook: Hook, error: Exception) -> StatusError | None:
    """The response; None: the hook is skipped."""
    if isinstance(error, CallFailed):
        # A missing client is not the webhook's failure, so failurePolicy must not ignore it.
        return None if hook.ignores and not isinstance(error.__cause__, NoDoor) else _failure(hook, error)
    assert isinstance(error, _Denied | StatusError)
    return error.status if isinstance(error, _Denied) else error


def _denial(name: str, status: Json | None) -> StatusError:
    found = status or {}
    code, message, reason = found.get("code") or 0, found.get("message") or "", found.get("reason") or ""
    text = f"admission webhook {go_quote(name)} denied the request"
    text = f"{text}: {message or reason}" if message or reason else f"{text} without explanation"
    details = found.get("details")
    return StatusError(max(code, 400), reason, text, details, (details or {}).get("retryAfterSeconds"))


# --- what is shown ----------------------------------------------------------------------------------------------------


def review_of(attributes: Attributes, kind: Kind, uid: str) -> Json:
    """The request of an AdmissionReview, with the objects in the version of `kind`."""
    of = attributes.of
    group, version, name = of.said
    said = {"group": group, "version": version, "kind": name}
    resource = {"group": of.kind.group, "version": of.kind.version, "resource": of.kind.plural}
    shown = dict(zip(said, kind_shown(of, kind)))
    user: Json = {"username": of.user.name, "uid": of.user.uid, "groups": list(of.user.groups)}
    user = {key: value for key, value in user.items() if value}
    if of.user.extra:
        user["extra"] = {key: list(values) for key, values in of.user.extra}
    found = {
        "uid": uid, "kind": shown, "resource": {**resource, "group": kind.group, "version": kind.version},
        "subResource": of.sub, "requestKind": said, "requestResource": resource, "requestSubResource": of.sub,
        "name": attributes.name, "namespace": of.namespace, "operation": of.verb, "userInfo": user,
        "object": _shown(attributes.new, shown), "oldObject": _shown(attributes.old, shown),
        "dryRun": of.dry_run, "options": of.options,
    }  # fmt: skip
    optional = ("subResource", "requestSubResource", "name", "namespace")
    return {key: value for key, value in found.items() if value or key not in optional}


def kind_shown(of: Operation, kind: Kind) -> tuple[str, str, str]:
    """The group, version and kind of an object in the version of `kind`."""
    own = of.said[:2] == (of.kind.group, of.kind.version)
    return (kind.group, kind.version, of.said[2]) if own and kind is not of.kind else of.said


def views_of(attributes: Attributes, cache: WatchCache) -> Views:
    from minikube_py.apiserver.versioned import Views

    return Views(attributes, cache.conversions_of)


def seen_by_expressions(attributes: Attributes, kind: Kind) -> dict[str, object]:
    """The same as variables of CEL."""
    asked = review_of(attributes, kind, "")
    of = attributes.of
    authorizer = bindings_of(of.kind.group, of.kind.plural, of.sub, of.namespace, attributes.name)
    # Members that no expression can name, but a format of the whole shows.
    shown = {**asked, "uid": "", "object": None, "oldObject": None}
    return {"object": asked["object"], "oldObject": asked["oldObject"], "request": shown, **authorizer}


def _shown(obj: Json | None, said: Json) -> Json | None:
    if obj is None:
        return None
    version = f"{said['group']}/{said['version']}" if said["group"] else said["version"]
    return {"kind": said["kind"], "apiVersion": version, **{k: obj[k] for k in obj if k not in ("kind", "apiVersion")}}


# --- plugins ----------------------------------------------------------------------------------------------------------


class MutatingWebhooks(Webhooks):
    """Sequentially; hooks with reinvocationPolicy see later changes."""

    name = "MutatingAdmissionWebhook"
    mutates = True
    kind = MUTATING

    async def admit(self, attributes: Attributes) -> None:
        invoked, views, slices = Invoked.begin(self.name, attributes), views_of(attributes, self._caches), Slices()
        try:
            for at, hook in await self._candidates_for(attributes):
                await slices.spend(_HOOK_STEPS)
                kind = await self._asks(hook, views)
                if kind is None or (attributes.reinvoked and hook.id not in invoked.again):
                    continue
                await self._admit(hook, kind, views, invoked, f"round_{int(attributes.reinvoked)}_index_{at}")
            await views.settle()
            await asyncio.sleep(0)
        finally:
            invoked.end(attributes)

    async def _admit(self, hook: Hook, kind: Kind, views: Views, invoked: Invoked, place: str) -> None:
        """`place`: in the audit log."""
        attributes, view = views.attributes, await views.of(kind)
        refusal: StatusError | None = None
        changed = False
        named = {"configuration": hook.id.partition("/")[0], "webhook": hook.name}
        try:
            found = await self._call(hook, view, kind)
            changed = await self._patch(hook, found, views, kind)
            if attributes.audit is not None and (patch := orjson.loads(found.patch or b"null")):
                told = go_json.escaped(orjson.dumps(patch, option=orjson.OPT_SORT_KEYS)).decode()
                given = go_json.dumps({**named, "patch": "", "patchType": "JSONPatch"}).decode()
                attributes.tell(f"patch.{_KEY}{place}", given.replace('"patch":""', f'"patch":{told}'), REQUEST)
        except (CallFailed, _Denied, StatusError) as error:
            refusal = _refused(hook, error)
            if refusal is None:
                attributes.tell(f"failed-open.mutation.{_KEY}{place}", hook.name)
        if changed:
            invoked.require()
            attributes.changed = True
        if attributes.audit is not None:
            attributes.tell(f"mutation.{_KEY}{place}", go_json.dumps({**named, "mutated": changed}).decode())
        if hook.spec.get("reinvocationPolicy") == "IfNeeded":
            invoked.now.add(hook.id)
        if refusal is not None:
            raise refusal

    async def _patch(self, hook: Hook, found: Review, views: Views, kind: Kind) -> bool:
        """Whether the object changed. Raises: CallFailed; StatusError 429, 500, 504."""
        if not found.patch:
            return False
        of, new, form = views.attributes.of, (await views.of(kind)).new, views.form(kind)
        group, version, name = kind_shown(of, kind)
        said = of.said if form is of.kind else (group, version, name)
        await asyncio.sleep(0)
        before = in_order(_shown(new, {"group": group, "version": version, "kind": name}))
        named = found.patch, found.patch_type, "", "", hook.name, of.sub
        asked = Body(key_of(form), *named, definition=form.definition)
        if is_large_patch(found.patch, JSON_PATCH, before):
            made: Patched | str | None = await self._long.work.run("hooked", asked, before, said)
        else:
            made = patched(form, asked, before, said)
        if isinstance(made, str):
            raise CallFailed(made)
        if made is None:
            return False
        assert new is not None
        await asyncio.sleep(0)
        new.clear()
        new.update(orjson.loads(made.value))
        views.changed(kind)
        await asyncio.sleep(0)
        return made.changed


class ValidatingWebhooks(Webhooks):
    """All in parallel."""

    name = "ValidatingAdmissionWebhook"
    kind = VALIDATING

    async def validate(self, attributes: Attributes) -> None:
        views = views_of(attributes, self._caches)
        matched, slices = [], Slices()
        for _, hook in await self._candidates_for(attributes):
            await slices.spend(_HOOK_STEPS)
            if (kind := await self._asks(hook, views)) is not None:
                matched.append((hook, kind))
        asked = [(hook, kind, await views.of(kind)) for hook, kind in matched]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._validate(*each, at)) for at, each in enumerate(asked)]
        refusal = next(filter(None, (task.result() for task in tasks)), None)
        if refusal is not None:
            raise refusal

    async def _validate(self, hook: Hook, kind: Kind, attributes: Attributes, at: int) -> StatusError | None:
        try:
            await self._call(hook, attributes, kind)
        except (CallFailed, _Denied, StatusError) as error:
            refusal = _refused(hook, error)
            if refusal is None:
                attributes.tell(f"failed-open.validating.{_KEY}round_0_index_{at}", hook.name)
            return refusal
        return None
