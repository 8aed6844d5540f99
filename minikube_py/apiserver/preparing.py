"""From a request's body to the bytes that are stored: decode, default, admit, validate, encode.

Pure and synchronous. Small bodies run on the event loop (`writes`), large ones in a worker process, as the jobs at the
end of this module with plain values as arguments and results. Both take the same steps.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from minikube_py.api import go_json, go_numbers, strategy, yaml_text
from minikube_py.api.apply.managed_fields import (
    Sender,
    bare,
    field_manager,
    told_kind,
    told_of,
    track,
    with_reset,
)
from minikube_py.api.authorizer_checks import Unanswered, answered
from minikube_py.api.decode import decode, warning_lines
from minikube_py.api.errors import (
    Json,
    StatusError,
    bad_request,
    conflict,
    not_found,
    request_entity_too_large,
)
from minikube_py.api.feature_gates import EVERY_GATE, NO_GATES, FeatureGates
from minikube_py.api.json_text import TOO_DEEP
from minikube_py.api.kind import Cluster, Kind
from minikube_py.api.kinds.core import NAMESPACES
from minikube_py.api.meta import generate_name, namespace_of, new_uid, timestamp
from minikube_py.api.patch import apply_patch, canonical, no_name, read_config
from minikube_py.api.registry import Registry, registry_of
from minikube_py.api.typed import DecodeError
from minikube_py.apiserver.checks import (
    check,
    check_number,
    denials,
    matched,
    settled,
    steps_of_create,
    steps_of_update,
)
from minikube_py.apiserver.options import DeleteOptions, delete_options
from minikube_py.apiserver.webhook_answers import Patched, reviewed
from minikube_py.apiserver.webhook_answers import patched as webhook_patched

if TYPE_CHECKING:
    from minikube_py.api.mutations import Given, Mutated
    from minikube_py.api.openapi import Of
    from minikube_py.api.openapi_v2 import Part
    from minikube_py.apiserver.messages import Admission

STORED_BYTES_MAX = 3 << 19
"""The store takes requests of 1.5 MiB, as etcd does: workers need not return more."""

READ_BYTES_MAX = 256 << 10
"""For a binding, eviction, scale or review."""


def encode(obj: Json) -> bytes:
    """The store's form: `metadata` first, without kind, apiVersion and resourceVersion. Removes these from `obj`.

    Copied because it is retained: orjson's result keeps its whole buffer, 8 KB for a 1 KB pod."""
    metadata = obj["metadata"]
    metadata.pop("resourceVersion", None)
    obj.pop("kind", None)
    obj.pop("apiVersion", None)
    try:
        return bytes(memoryview(go_json.dumps({"metadata": metadata, **obj})))
    except TypeError:
        raise bad_request(TOO_DEEP) from None


def as_served(kind: Kind, value: bytes) -> bytes:
    """What was just stored, in the version of `kind`."""
    return value if kind.read is None else kind.read(value)


def as_written(kind: Kind, value: bytes) -> bytes:
    """What the store keeps of an encoded object."""
    return value if kind.write is None else kind.write(value)


def as_left(kind: Kind, value: bytes) -> bytes:
    """An encoded object that goes without being written once more, for `as_served` to show as it is."""
    if kind.write is None:
        return value
    from minikube_py.api.custom.conversion import with_version

    return with_version(value, kind.api_version)


def made_object(kind: Kind, value: bytes) -> Json:
    """What a job made, as admission sees it: before it is written in another version."""
    return decoded(kind, value if kind.write is not None else as_served(kind, value))


def shown(kind: Kind, obj: Json) -> Json:
    """A prepared object in the version of `kind`."""
    if kind.converts is None:
        return obj
    version = obj["metadata"].get("resourceVersion")
    found: Json = orjson.loads(as_served(kind, encode({**obj, "metadata": dict(obj["metadata"])})))
    if version is not None:
        found["metadata"]["resourceVersion"] = version
    return found


def stored(kind: Kind, value: bytes, revision: int) -> Json:
    """The object that `encode` encoded, with its version."""
    obj = decoded(kind, as_served(kind, value))
    obj["metadata"]["resourceVersion"] = str(revision)
    return obj


def decoded(kind: Kind, value: bytes) -> Json:
    obj: Json = orjson.loads(value)
    if kind.codec is not None and go_numbers.LONG.search(value):
        go_numbers.read(obj)
    return obj


def same(value: bytes, stored_value: bytes) -> bool:
    """Equal but for the order of members, which the sender chooses."""
    return value == stored_value or (
        len(value) == len(stored_value) and bool(orjson.loads(value) == orjson.loads(stored_value))
    )


def is_finished(kind: Kind, obj: Json) -> bool:
    """An object being deleted is removed once no finalizer or grace holds it."""
    metadata = obj["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if kind is NAMESPACES:
        return not (obj.get("spec") or {}).get("finalizers")
    return not metadata.get("deletionGracePeriodSeconds")


# --- checks -----------------------------------------------------------------------------------------------------------


def check_name(metadata: Json, name: str) -> None:
    """Raises: StatusError 400 where the body names another object than the path."""
    found = metadata.get("name")
    if not found:
        raise no_name(name)
    if found != name:
        raise bad_request(f"the name of the object ({found}) does not match the name on the URL ({name})")


def check_namespace(kind: Kind, metadata: Json, namespace: str) -> None:
    """Fills in the path's namespace, or drops one where there is none. Raises: StatusError 400 where it is another."""
    found = metadata.get("namespace") or ""
    if not kind.namespaced:
        metadata.pop("namespace", None)
    elif not found:
        metadata["namespace"] = namespace
    elif found != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")


def check_uid(kind: Kind, metadata: Json, old: Json) -> None:
    """Raises: StatusError 409 where a PUT names another object's."""
    uid = metadata.get("uid")
    if uid and uid != old["metadata"]["uid"]:
        strategy.check_preconditions(kind, old, uid, None)


def settle_version(kind: Kind, name: str, metadata: Json) -> None:
    """For a PUT that creates: a version must be valid but is ignored; a uid cannot match. Raises: StatusError 400,
    409."""
    if uid := metadata.get("uid"):
        strategy.check_preconditions(kind, {"metadata": {**metadata, "name": name, "uid": ""}}, uid, None)
    if wanted := metadata.pop("resourceVersion", None):
        check_number(wanted)


def _is_revision(text: str) -> bool:
    """Whether upstream's storage accepts the text as a version."""
    return text.isascii() and text.isdigit() and 0 < int(text[:40]) < 1 << 64


# --- steps ------------------------------------------------------------------------------------------------------------


def named_for_create(kind: Kind, namespace: str, obj: Json, rng: random.Random) -> str:
    """The object's name, generated if only a prefix was given. Raises: StatusError 400."""
    metadata = obj["metadata"]
    check_namespace(kind, metadata, namespace)
    if _is_revision(metadata.get("resourceVersion") or ""):
        # Upstream answers 500 here, unless it is a dry run; but the error is the client's, not the server's.
        raise bad_request("resourceVersion should not be set on objects to be created")
    if not metadata.get("name") and (base := metadata.get("generateName")):
        metadata["name"] = generate_name(base, rng)
    elif kind.names_itself and not metadata.get("name"):
        metadata["name"] = new_uid(rng)
    return metadata.get("name") or ""


def admit_create(
    kind: Kind,
    obj: Json,
    rng: random.Random,
    wall_s: float,
    cluster: Cluster,
    admit: Admission | None,
    sender: Sender | None,
) -> None:
    """Prepares a named object for mutating admission. Without a sender, field managers are unchanged. Raises:
    StatusError 403."""
    metadata = obj["metadata"]
    for key in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
        if key in metadata:
            del metadata[key]
    metadata["uid"] = new_uid(rng)
    metadata["creationTimestamp"] = timestamp(wall_s)
    kind.default(obj)
    if sender is not None:
        track(kind, "", None, obj, sender)
    if admit is not None:
        admit(kind, "", metadata.get("name") or "", None, obj)
    kind.admit(obj, None, cluster)


class PatchBody(NamedTuple):
    """A patch of the object `name`, as sent. `force`: an apply takes over fields of others."""

    content_type: str
    body: bytes
    field_validation: str
    namespace: str
    name: str
    sender: Sender = Sender()
    force: bool = False


def patched(kind: Kind, old: Json, patch: PatchBody, sub: str, warnings: list[str]) -> Json:
    """The object after the patch, to be finished as an update. Raises: StatusError 400, 409, 413, 415, 422."""
    original = {"kind": kind.kind, "apiVersion": kind.api_version, **old}
    warnings.clear()
    new = apply_patch(patch.content_type, kind, original, patch.body, patch.field_validation, warnings=warnings)
    metadata = new["metadata"]
    check_name(metadata, patch.name)
    check_namespace(kind, metadata, patch.namespace)
    kind.default(new)
    with_reset(new, old, patch.body, patch.content_type)
    track(kind, sub, old, new, patch.sender)
    return new


def applied(kind: Kind, old: Json | None, patch: PatchBody, sub: str, warnings: list[str]) -> Json:
    """The object after a server-side apply, with defaults and field managers; `old` is None if the apply creates it.
    Raises: StatusError 400, 409, 413."""
    warnings.clear()
    try:
        config, repeats = read_config(patch.body)
        new = field_manager(kind, sub).apply(old, config, patch.force, patch.sender)
        try:
            new = canonical(kind, new)
        except DecodeError as error:
            what = f"failed to convert new object ({told_of(config)}) to proper version"
            unable = f"unable to convert unstructured object to {told_kind(config)}"
            raise bad_request(f"{what}: {unable}: {error}") from None
    except RecursionError:
        raise bad_request(TOO_DEEP) from None
    if old is None or kind.codec is None or bare(new) != bare(old):
        # Conversions omit defaults, and a no-op apply adds none.
        kind.default(new)
    if repeats and patch.field_validation == "Strict":
        raise bad_request(f"error strict decoding YAML: {repeats}")
    if repeats and patch.field_validation == "Warn":
        warnings.extend(warning_lines(repeats))
    metadata = new["metadata"]
    if old is None and (uid := metadata.get("uid")):
        why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        raise conflict(kind, patch.name, why)
    check_namespace(kind, metadata, patch.namespace)
    check_name(metadata, patch.name)
    return new


# --- jobs -------------------------------------------------------------------------------------------------------------

KindKey = tuple[str, str, str]
"""Group, version and plural: identifies a kind to another process. Jobs get the served kinds."""


class Body(NamedTuple):
    kind: KindKey
    body: bytes
    content_type: str
    field_validation: str
    namespace: str
    name: str
    """From the path; empty for a create."""
    sub: str = ""
    seen: Mapping[KindKey, Sequence[Json]] = {}
    """The objects that this kind's admission reads."""
    wall_s: float = 0.0
    definition: bytes = b""
    """For a kind built at run time: its definition."""
    gates: FeatureGates = NO_GATES
    sender: Sender = Sender()
    force: bool = False
    halfway: bool = False
    """The part before admission plugins that may change the object; `settle` does the rest."""


class Seen:
    """A `Cluster` from the job's data, in a worker process."""

    def __init__(self, objects: Mapping[KindKey, Sequence[Json]], wall_s: float, gates: FeatureGates) -> None:
        self.gates, self.passes_on = gates, True  # What has worker processes has connections to others, too.
        self._objects = objects
        self._wall_s = wall_s

    def wall_s(self) -> float:
        return self._wall_s

    def get(self, kind: Kind, namespace: str, name: str) -> Json | None:
        wanted = kind.key(namespace, name)
        named = (obj for obj in self.all(kind) if kind.key(namespace_of(obj), obj["metadata"]["name"]) == wanted)
        return next(named, None)

    def all(self, kind: Kind, namespace: str = "") -> Sequence[Json]:
        found = self._objects.get(key_of(kind), ())
        return [obj for obj in found if namespace_of(obj) == namespace] if namespace and kind.namespaced else found

    def defaults(self, kind: Kind) -> Sequence[Json]:
        return list(filter(kind.is_default, self.all(kind)))

    def topology_of(self, node: str) -> Mapping[str, str]:
        return {}


class Made(NamedTuple):
    """`value` is to be stored, `old` itself if unchanged. `refusal` applies only after the namespace check and
    admission; `value` is then for admission."""

    name: str
    value: bytes
    warnings: list[str]
    generated: bool = False
    finished: bool = False
    refusal: StatusError | None = None
    version: str = ""
    """Of a change that has yet to pass admission: the resourceVersion that it names."""


def key_of(kind: Kind) -> KindKey:
    return kind.group, kind.version, kind.plural


def kind_of(kinds: Registry, asked: Body) -> Kind:
    if asked.definition:
        from minikube_py.api.custom.kinds import kinds_of

        return next(kind for kind in kinds_of(asked.definition) if key_of(kind) == asked.kind)
    # Worker processes do not know the served kinds; the caller looked this one up.
    kind = kinds.resource(*asked.kind) or registry_of(EVERY_GATE).resource(*asked.kind)
    assert kind is not None, "jobs are made of kinds that are served"
    return kind


def _checked(value: bytes) -> bytes:
    if len(value) > STORED_BYTES_MAX:
        raise request_entity_too_large(f"limit is {STORED_BYTES_MAX}")
    return value


class _Reached:
    """Placeholder for admission, which workers cannot run: records that its turn has come."""

    def __init__(self) -> None:
        self._new: Json | None = None

    def admit(self, kind: Kind, sub: str, name: str, old: Json | None, new: Json | None) -> None:
        self._new = new

    def refused(self, name: str, error: StatusError, warnings: list[str], generated: bool = False) -> Made:
        """Raises: `error`, if it precedes admission."""
        _warned(error, warnings)
        value = encode(self._new) if self._new is not None else b""
        if not value or len(value) > STORED_BYTES_MAX:
            raise error
        return Made(name, value, warnings, generated, refusal=error)


def _warned(error: StatusError, warnings: list[str]) -> StatusError:
    error.warnings = tuple(warnings)
    return error


def create(kinds: Registry, asked: Body, wall_s: float, seed: int, updating: bool = False) -> Made:
    """`updating`: a PUT that creates. Raises: StatusError 400, 413, 415, before the namespace check."""
    kind, rng = kind_of(kinds, asked), random.Random(seed)
    obj, warnings = decode(kind, asked.body, asked.content_type, asked.field_validation)
    warnings += strategy.told_of_new(kind, obj)
    generated = "generateName" in obj["metadata"] and not obj["metadata"].get("name")
    try:
        if updating:
            check_name(obj["metadata"], asked.name)
            settle_version(kind, asked.name, obj["metadata"])
        name = named_for_create(kind, asked.namespace, obj, rng)
    except StatusError as error:
        raise _warned(error, warnings) from None
    return _created(kind, asked, obj, name, rng, wall_s, warnings, asked.sender, generated)


def _created(
    kind: Kind,
    asked: Body,
    obj: Json,
    name: str,
    rng: random.Random,
    wall_s: float,
    warnings: list[str],
    sender: Sender | None,
    generated: bool = False,
) -> Made:
    reached = _Reached()
    try:
        seen = Seen(asked.seen, asked.wall_s, asked.gates)
        admit_create(kind, obj, rng, wall_s, seen, reached.admit, sender)
        if asked.halfway:
            return Made(name, _checked(encode(obj)), warnings, generated)
        settled(steps_of_create(kind, obj, seen))
        return Made(name, _checked(encode(obj)), warnings + kind.warn(obj, None), generated)
    except StatusError as error:
        try:
            return reached.refused(name, error, warnings, generated)
        except StatusError:
            return Made(name, b"", warnings, generated, refusal=error)


def update(kinds: Registry, asked: Body, old_value: bytes | None, revision: int, may_be_absent: bool) -> Made | None:
    """None: missing, and may be created. Raises: StatusError."""
    kind = kind_of(kinds, asked)
    new, warnings = decode(kind, asked.body, asked.content_type, asked.field_validation)
    warnings += strategy.without_repeats(new)
    reached = _Reached()
    try:
        check_name(new["metadata"], asked.name)
        check_namespace(kind, new["metadata"], asked.namespace)
        if old_value is None:
            if may_be_absent:
                return None
            raise not_found(kind, asked.name)
        old = stored(kind, old_value, revision)
        kind.default(new)
        check_uid(kind, new["metadata"], old)
        with_reset(new, old, asked.body, asked.content_type)
        track(kind, asked.sub, old, new, asked.sender)
        reached.admit(kind, asked.sub, asked.name, old, new)
        return _finished(kind, asked, new, old, old_value, warnings)
    except StatusError as error:
        return reached.refused("", error, warnings)


def patch(kinds: Registry, asked: Body, old_value: bytes, revision: int) -> Made:
    """Raises: StatusError."""
    kind = kind_of(kinds, asked)
    warnings: list[str] = []
    reached = _Reached()
    given = patch_of(asked)
    try:
        old = stored(kind, old_value, revision)
        new = patched(kind, old, given, asked.sub, warnings)
        reached.admit(kind, asked.sub, asked.name, old, new)
        return _finished(kind, asked, new, old, old_value, warnings)
    except StatusError as error:
        return reached.refused("", error, warnings)


def patch_of(asked: Body) -> PatchBody:
    return PatchBody(
        asked.content_type, asked.body, asked.field_validation, asked.namespace, asked.name, asked.sender, asked.force
    )


def apply(kinds: Registry, asked: Body, old_value: bytes | None, revision: int, seed: int) -> Made:
    """A server-side apply; without `old_value` if it creates. Raises: StatusError."""
    kind, given = kind_of(kinds, asked), patch_of(asked)
    warnings: list[str] = []
    reached = _Reached()
    old = stored(kind, old_value, revision) if old_value is not None else None
    try:
        new = applied(kind, old, given, asked.sub, warnings)
        if old is None or old_value is None:
            settle_version(kind, asked.name, new["metadata"])
            warnings += kind.warn_given(new)
            return _created(kind, asked, new, asked.name, random.Random(seed), asked.wall_s, warnings, None)
        reached.admit(kind, asked.sub, asked.name, old, new)
        return _finished(kind, asked, new, old, old_value, warnings)
    except StatusError as error:
        return reached.refused("", error, warnings)


def _finished(kind: Kind, asked: Body, new: Json, old: Json, old_value: bytes, warnings: list[str]) -> Made:
    cluster = Seen(asked.seen, asked.wall_s, asked.gates)
    strategy.admit_update(kind, new, old, asked.sub, cluster)
    if asked.halfway:
        version = new["metadata"].get("resourceVersion") or ""
        return Made("", _checked(encode(new)), warnings, version=version)
    made = settled_here(kind, asked, new, old, cluster)
    value = old_value if same(made.value, old_value) else made.value
    return made._replace(value=value, warnings=warnings + made.warnings)


def settled_here(kind: Kind, asked: Body, new: Json, old: Json, cluster: Cluster) -> Made:
    said: list[str] = []
    new = settled(steps_of_update(kind, new, old, asked.sub, said, cluster))
    finished = is_finished(kind, new)
    return Made("", _checked(encode(new)), said, finished=finished)


def settle(kinds: Registry, asked: Body, new: Json, old: Json | None) -> Made:
    """The second half of a create (without `old`) or change."""
    kind, seen = kind_of(kinds, asked), Seen(asked.seen, asked.wall_s, asked.gates)
    try:
        if old is not None:
            return settled_here(kind, asked, new, old, seen)
        settled(steps_of_create(kind, new, seen))
        return Made("", _checked(encode(new)), kind.warn(new, None))
    except StatusError as error:
        return Made("", b"", [], refusal=error)


def read(kinds: Registry, asked: Body) -> tuple[bytes, list[str]]:
    """A body that is not stored itself: a binding, scale or review. Raises: StatusError; 413 if it is still large
    without unknown fields."""
    kind = kind_of(kinds, asked)
    sub = kind.subresource(asked.sub) if asked.sub else None
    obj, warnings = decode(kind, asked.body, asked.content_type, asked.field_validation, subresource=sub)
    value = orjson.dumps(obj)
    if len(value) > READ_BYTES_MAX:
        raise request_entity_too_large(f"limit is {READ_BYTES_MAX}")
    return value, warnings


def read_delete_options(kinds: Registry, body: bytes, content_type: str) -> DeleteOptions:
    """Raises: StatusError."""
    return delete_options({}, body, content_type)


def as_yaml(kinds: Registry, body: bytes) -> bytes:
    return yaml_text.write(orjson.loads(body))


def checked(kinds: Registry, asked: Body, new: Json, old: Json | None, repeated: Sequence[str]) -> list[str]:
    return check(kind_of(kinds, asked), new, old, asked.sub, repeated)


def hooked(kinds: Registry, asked: Body, before: bytes, said: tuple[str, str, str]) -> Patched | str | None:
    return webhook_patched(kind_of(kinds, asked), asked, before, said)


def mutated(kinds: Registry, asked: Body, spec: bytes, given: Given) -> Mutated | Unanswered:
    from minikube_py.api.mutations import MutatingPolicy

    found: Mutated | Unanswered = answered(
        given[2], MutatingPolicy(orjson.loads(spec)).mutated, kind_of(kinds, asked), *given
    )
    return found


def converted(kinds: Registry, *given: Any) -> list[bytes] | str:
    from minikube_py.apiserver.conversions import converted as read_converted

    return read_converted(*given)


def open_api(kinds: Registry, definitions: tuple[bytes, ...], of: Of) -> Part | bytes | None:
    from minikube_py.api.openapi import made

    return made(kinds, definitions, of)


def late(kinds: Registry, module: str, name: str, *given: Any) -> Any:
    """A job of a module that few servers need, by its name from this package on."""
    run: Callable[..., Any] = getattr(import_module(f".{module}", __package__), name)
    return run(kinds, *given)


_JOBS = (
    create, update, patch, apply, read, read_delete_options, as_yaml, checked, matched, denials, reviewed,
    hooked, mutated, settle, open_api, converted, late,
)  # fmt: skip
JOBS = {job.__name__: job for job in _JOBS}
