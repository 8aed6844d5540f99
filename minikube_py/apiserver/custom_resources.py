"""Custom resource definitions: accepts names, serves and removes kinds, cleans up objects.

Served kinds follow the watch cache, so all API servers on a store serve the same. Any of them updates the definitions
(conditions, accepted names, finalizer), with optimistic concurrency.

Source: apiextensions-apiserver `pkg/controller/{status,establish,apiapproval,finalizer}`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from minikube_py.api.apply.managed_fields import Sender, track
from minikube_py.api.decode import JSON
from minikube_py.api.errors import Json, StatusError, forbidden, go_quote
from minikube_py.api.kind import Kind
from minikube_py.api.kinds.apiextensions import CLEANUP, CUSTOMRESOURCEDEFINITIONS, set_condition
from minikube_py.api.meta import timestamp
from minikube_py.api.registry import Registry
from minikube_py.apiserver.access import both
from minikube_py.apiserver.messages import Request
from minikube_py.apiserver.options import delete_options
from minikube_py.apiserver.reading import WRONG
from minikube_py.apiserver.watch_cache import Entry
from minikube_py.apiserver.work import is_large
from minikube_py.env import Slices
from minikube_py.errors import MinikubeError

if TYPE_CHECKING:
    from minikube_py.apiserver.core import ApiServer

log = logging.getLogger(__name__)
_MANAGER: Final = "kube-apiserver"
_NON_STRUCTURAL: Final = "NonStructuralSchema"
_RETRY_S: Final = 1.0
_CLEANED_EVERY_S: Final = 1.0
"""How often to check whether a deleted definition's objects are gone."""
_DEFINITION_STEPS: Final = 20
"""Of `env.Slices`, to look at a definition of usual size."""
_REASONS: Final = (
    ("plural", "PluralConflict"), ("singular", "SingularConflict"), ("shortNames", "ShortNamesConflict"),
    ("kind", "KindConflict"), ("listKind", "ListKindConflict"),
)  # fmt: skip


class CustomResources:
    """`follow` is to be called whenever the cache has changed; `run` until the server ends."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._cache = server.cache.caches.get(CUSTOMRESOURCEDEFINITIONS)
        self._seen = -1
        self._read: dict[bytes, _Read] = {}
        self._names = AcceptedNames()
        self._forms: dict[bytes, tuple[Kind, ...] | None] = {}
        self._structures: dict[tuple[str, int], Condition | None] = {}
        """What is wrong with the schemas of a definition's generation."""
        self._local: tuple[Kind, ...] = ()
        self._leaving: frozenset[bytes] = frozenset()
        self._changed = asyncio.Event()
        self._due: set[bytes] = set()
        """Keys of the definitions that have changed, and of those that may now get names that others had."""

    def follow(self) -> None:
        """Serves the current definitions."""
        cache = self._cache
        if cache is None:
            return
        services = self._server.services
        services.follow()
        if (local := services.kinds()) != self._local:
            self._local = local
            self._serve()
        if cache.last_change == self._seen:
            return
        self._seen = cache.last_change
        before = self._read
        self._read = {entry.key: _read(entry, before.get(entry.key)) for entry in cache.entries.values()}
        changed = [key for key, each in self._read.items() if before.get(key) is not each]
        gone = [key for key in before if key not in self._read]
        for key in (*changed, *gone):
            after = self._read.get(key)
            group = self._names.change(key, after.definition if after is not None else None)
            self._due.update(self._names.wanting(group))
        self._due.update(changed)
        self._changed.set()
        services.define(version for each in self._definitions() for version in _served(each))
        leaving = (each for each in self._definitions() if _custom().is_true(each, "Terminating"))
        self._leaving = frozenset(map(_prefix, leaving))
        forms = [each.form for each in self._read.values() if each.form]
        if forms == list(self._forms):
            return
        self._forms = {form: self._forms[form] if form in self._forms else _kinds(form) for form in forms}
        self._serve()

    @property
    def unserved(self) -> int:
        """How many established definitions have kinds that cannot be made."""
        return sum(kinds is None for kinds in self._forms.values())

    def _serve(self) -> None:
        server = self._server
        custom = tuple(kind for kinds in self._forms.values() for kind in kinds or ())
        server.registry = server.registry.extended((*custom, *self._local))
        served = [kind for kind in server.registry.kinds if kind.definition]
        server.cache.serve(served)
        server.watching.follow_caches()

    def check_open(self, resource: Kind, request: Request) -> None:
        """Adds a check that refuses new objects of a definition that is being deleted: StatusError 403."""
        if resource.prefix in self._leaving:
            request.admit = both(request.admit, _closed)

    def _definitions(self) -> list[Json]:
        """In order of name, without deleted ones. Do not change."""
        return [each.definition for each in self._read.values()]

    # --- what is written to definitions -----------------------------------------------------------------------------

    async def run(self) -> None:
        self._server.services.begin()
        try:
            await self._run()
        finally:
            await self._server.services.stop()

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            due, self._due = self._due, set()
            standing = set(map(_key, self._definitions()))
            self._structures = {key: found for key, found in self._structures.items() if key in standing}
            again: set[bytes] = set()
            slices = Slices()
            for key in sorted(due):
                await slices.spend(_DEFINITION_STEPS)
                if (read := self._read.get(key)) is None:
                    continue
                definition = read.definition
                try:
                    if await self._settle(definition):
                        again.add(key)
                except StatusError as error:
                    if error.code != 404:
                        log.warning("definition %s: %s", definition["metadata"]["name"], error.message)
                        again.add(key)
                except MinikubeError as error:
                    log.warning("definition %s: %s", definition["metadata"]["name"], error)
                    again.add(key)
            if again:
                await self._server.clock.sleep(_RETRY_S)
                self._due |= again
                self._changed.set()

    async def _settle(self, definition: Json) -> bool:
        """Writes pending changes; True: check again."""
        if (key := _key(definition)) not in self._structures:
            self._structures[key] = await self._judge(definition)
        if _next_status(definition, self._names.taken(definition), "", self._structures[key]) is not None:
            await self._write(definition, self._accept)
            return False
        metadata = definition["metadata"]
        if metadata.get("deletionTimestamp") and CLEANUP in (metadata.get("finalizers") or ()):
            return await self._clean_up(definition)
        return False

    async def _write(self, definition: Json, make: Any) -> None:
        def owned(stored: Json) -> Json:
            new: Json = make(stored)
            if new is not stored:
                sender = Sender("", _MANAGER, self._server.clock.wall_s())
                track(CUSTOMRESOURCEDEFINITIONS, "status", stored, new, sender)
            return new

        await self._server.writer.change(CUSTOMRESOURCEDEFINITIONS, "", definition["metadata"]["name"], owned)

    def _now(self) -> str:
        return timestamp(self._server.clock.wall_s())

    async def _judge(self, definition: Json) -> Condition | None:
        """That its schemas are not structural; looked at once for each of its generations, as upstream. Raises:
        StatusError if a worker could not tell."""
        if is_large(orjson.dumps(definition), JSON):
            work = self._server.writer.work
            found: Condition | None = await work.run("late", "custom_resources", "judged", definition)
        else:
            found = judged(None, definition)
        if found is not None:
            log.warning("definition %s is not described by OpenAPI: %s", definition["metadata"]["name"], found[2])
        return found

    def _accept(self, stored: Json) -> Json:
        if (key := _key(stored)) not in self._structures:
            # Changed meanwhile: its turn comes again.
            return stored
        status = _next_status(stored, self._names.taken(stored), self._now(), self._structures[key])
        return stored if status is None else {**stored, "metadata": dict(stored["metadata"]), "status": status}

    # --- deletion ---------------------------------------------------------------------------------------------------

    async def _clean_up(self, definition: Json) -> bool:
        """Deletes the objects of a definition being deleted; True while any remain."""
        if _custom().is_true(definition, "Established"):
            told = _condition(definition, "Terminating") or {}
            if told.get("reason") != "InstanceDeletionInProgress":
                why = ("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress")
                await self._write(definition, lambda old: _with_condition(old, "Terminating", *why, self._now()))
            if await self._delete_objects(definition):
                return True
            done = ("False", "InstanceDeletionCompleted", "removed all instances")
        else:
            done = ("False", "NeverEstablished", "resource was never established")

        def release(old: Json) -> Json:
            new = _with_condition(old, "Terminating", *done, self._now())
            kept = [name for name in old["metadata"].get("finalizers") or () if name != CLEANUP]
            metadata = {key: value for key, value in old["metadata"].items() if key != "finalizers"}
            return {**new, "metadata": {**metadata, "finalizers": kept} if kept else metadata}

        await self._write(definition, release)
        return False

    async def _delete_objects(self, definition: Json) -> bool:
        """True while any remain."""
        server = self._server
        kinds = next((k for k in self._forms.values() if k and k[0].prefix == _prefix(definition)), ())
        if not kinds:
            return False
        # In stored form, so no conversion webhook is called.
        kind = next((each for each in kinds if each.storage_version == each.api_version), kinds[0])
        # Must see recent writes of others.
        await server.lister.wait_fresh()
        await (cache := server.cache.of(kind)).ready()
        entries = list(cache.entries.values())
        if entries:
            await server.deleter.delete_collection(kind, entries, delete_options({}, b"", ""))
            await server.clock.sleep(_CLEANED_EVERY_S)
        return bool(entries)


class AcceptedNames:
    """Which definition has which name of resources or kinds, by group, kept up with each change: hundreds of one group
    are usual, and each asks for its names."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, str, str], set[bytes]] = {}
        self._had: dict[bytes, tuple[str, tuple[tuple[str, str], ...]]] = {}
        self._wanting: dict[str, dict[bytes, None]] = {}
        self.steps = 0
        """Names looked at."""

    def change(self, key: bytes, definition: Json | None) -> str:
        """`definition`: as it is now, or None if it is gone. Returns its group."""
        group, names = self._had.pop(key, ("", ()))
        for kind, name in names:
            owners = self._owners[group, kind, name]
            owners.discard(key)
            if not owners:
                del self._owners[group, kind, name]
        self.steps += len(names)
        wanting = self._wanting.get(group, {})
        wanting.pop(key, None)
        if not wanting:
            self._wanting.pop(group, None)
        if definition is None:
            return group
        group = _group(definition)
        names = tuple(dict.fromkeys(_names(_accepted_names(definition))))
        self._had[key] = group, names
        for kind, name in names:
            self._owners.setdefault((group, kind, name), set()).add(key)
        self.steps += len(names)
        if not _custom().is_true(definition, "NamesAccepted"):
            self._wanting.setdefault(group, {})[key] = None
        return group

    def wanting(self, group: str) -> list[bytes]:
        """Keys of the definitions that lack a name: another's change may free it."""
        return list(self._wanting.get(group, ()))

    def taken(self, definition: Json) -> tuple[set[str], set[str]]:
        """Of the names of resources and of kinds that it wants, those accepted for others of its group."""
        group, own = _group(definition), CUSTOMRESOURCEDEFINITIONS.prefix + definition["metadata"]["name"].encode()
        found: tuple[set[str], set[str]] = set(), set()
        for kind, name in _names(definition["spec"].get("names") or {}):
            self.steps += 1
            owners = self._owners.get((group, kind, name), ())
            if len(owners) > (own in owners):
                found[kind == "kinds"].add(name)
        return found


def _accepted_names(definition: Json) -> Json:
    return (definition.get("status") or {}).get("acceptedNames") or {}


def _names(names: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each as ("resources" or "kinds", name); may repeat."""
    for name in (names.get("plural") or "", names.get("singular") or "", *(names.get("shortNames") or ())):
        yield "resources", name
    for name in (names.get("kind") or "", names.get("listKind") or ""):
        yield "kinds", name


def _closed(kind: Kind, sub: str, name: str, old: Json | None, new: Json | None) -> None:
    if old is None and new is not None:
        start = new["metadata"].get("generateName")
        given = "" if start and name.startswith(start) else name
        raise forbidden(kind, given, "create not allowed while custom resource definition is terminating")


Condition = tuple[str, str, str]
"""Status, reason and message."""


class _Read(NamedTuple):
    """A definition as it was at a revision, and the form in which it is served."""

    revision: int
    definition: Json
    form: bytes


def _read(entry: Entry, known: _Read | None) -> _Read:
    """Definitions are large: each is decoded once for each of its revisions."""
    if known is not None and known.revision == entry.revision:
        return known
    definition: Json = orjson.loads(entry.value)
    return _Read(entry.revision, definition, _custom().served_form(definition))


def _kinds(form: bytes) -> tuple[Kind, ...] | None:
    """None: they cannot be made, which is logged and concerns no other definition."""
    try:
        found: tuple[Kind, ...] = _custom().kinds_of(form)
        return found
    except WRONG as error:
        content = orjson.loads(form)
        named = f"{content['names'].get('plural')}.{content['spec'].get('group')}"
        log.error("definition %s cannot be served: %s", named, str(error) or type(error).__name__)
        return None


def _key(definition: Json) -> tuple[str, int]:
    metadata = definition["metadata"]
    return metadata["uid"], metadata.get("generation") or 0


def _group(definition: Json) -> str:
    group: str = definition["spec"].get("group") or ""
    return group


def _served(definition: Json) -> Iterator[tuple[str, str]]:
    group = _group(definition)
    return ((group, each["name"]) for each in definition["spec"].get("versions") or () if each.get("served"))


def _custom() -> Any:
    """Loaded with the first definition."""
    return import_module("minikube_py.api.custom.kinds")


def _prefix(definition: Json) -> bytes:
    spec = definition["spec"]
    return f"/registry/{spec['group']}/{spec['names']['plural']}/".encode()


# --- status ---------------------------------------------------------------------------------------------------------


def _condition(definition: Json, type_: str) -> Json | None:
    found = (definition.get("status") or {}).get("conditions") or ()
    return next((each for each in found if each.get("type") == type_), None)


def _with_condition(definition: Json, type_: str, status: str, reason: str, message: str, now: str) -> Json:
    before = definition.get("status") or {}
    conditions = set_condition(before.get("conditions") or [], type_, status, reason, message, now)
    return {**definition, "metadata": dict(definition["metadata"]), "status": {**before, "conditions": conditions}}


def _accepted(definition: Json, taken: tuple[set[str], set[str]]) -> tuple[Json, str, str]:
    """The names accepted now, and why not all: reason and message, or ""."""
    wanted = definition["spec"].get("names") or {}
    names = dict((definition.get("status") or {}).get("acceptedNames") or {})
    reason = message = ""
    for name, conflict in _REASONS:
        used = taken[1] if name in ("kind", "listKind") else taken[0]
        asked = wanted.get(name) or ([] if name == "shortNames" else "")
        had = names.get(name) or ([] if name == "shortNames" else "")
        news = [text for text in asked if text not in had] if name == "shortNames" else [asked] if asked != had else []
        clashes = [f"{go_quote(text)} is already in use" for text in news if text in used]
        if clashes:
            reason = conflict
            message = clashes[0] if len(clashes) == 1 else f"[{', '.join(clashes)}]"
        elif asked or name in ("plural", "kind"):
            names[name] = asked
        else:
            names.pop(name, None)
    if wanted.get("categories"):
        names["categories"] = wanted["categories"]
    else:
        names.pop("categories", None)
    # In Go's order.
    order = ("plural", "singular", "shortNames", "kind", "listKind", "categories")
    return {name: names[name] for name in order if name in names}, reason, message


def judged(kinds: Registry | None, definition: Json) -> Condition | None:
    """A job for large definitions; nothing of it depends on the other kinds."""
    found: Condition | None = import_module("minikube_py.api.custom.definition_rules").structure(definition)
    return found


def _next_status(
    definition: Json, taken: tuple[set[str], set[str]], now: str, structure: Condition | None
) -> Json | None:
    """The status with names, `NamesAccepted`, `Established`, the approval of the group and `NonStructuralSchema`;
    None: unchanged."""
    before = definition.get("status") or {}
    conditions: list[Json] = before.get("conditions") or []
    names, reason, message = _accepted(definition, taken)
    if not reason:
        accepted = ("True", "NoConflicts", "no conflicts found")
    else:
        accepted = ("False", reason, message)
    conditions = set_condition(conditions, "NamesAccepted", *accepted, now)
    rules = import_module("minikube_py.api.custom.definition_rules")
    if not _custom().is_true(definition, "Established"):
        established = ("False", "NotAccepted", "not all names are accepted")
        if not reason and not rules.bundle_is_valid(definition):
            established = ("False", "InvalidCABundle", "The conversion webhook CABundle is invalid")
        elif not reason:
            established = ("True", "InitialNamesAccepted", "the initial names have been accepted")
        conditions = set_condition(conditions, "Established", *established, now)
    state, why = rules.approval(definition)
    if state:
        status = "True" if state == "ApprovedAnnotation" else "False"
        conditions = set_condition(conditions, "KubernetesAPIApprovalPolicyConformant", status, state, why, now)
    if structure is not None:
        conditions = set_condition(conditions, _NON_STRUCTURAL, *structure, now)
    elif any(each["type"] == _NON_STRUCTURAL for each in conditions):
        conditions = [each for each in conditions if each["type"] != _NON_STRUCTURAL]
    status_now = {**before, "conditions": conditions, "acceptedNames": names}
    return None if status_now == before else status_now
