"""`metadata.managedFields`: field ownership of a Kubernetes object, updated by applies and plain writes.

A manager is identified by name, operation and subresource, and for plain writes also by version. Its entry has its
fields and the time of its last change.

Source: apimachinery `pkg/util/managedfields/internal`.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

import orjson

from minikube_py.api import go_json, yaml_text
from minikube_py.api.apply import path_set, typed
from minikube_py.api.apply.assigned import without
from minikube_py.api.apply.path_set import PathSet, shown
from minikube_py.api.apply.types import Ref, empty, message_type, schema_type
from minikube_py.api.apply.updater import Conflict, Conflicts, Managers, Owned, Typed, Updater
from minikube_py.api.decode import read_value
from minikube_py.api.errors import Json, StatusError, apply_conflict, bad_request, go_quote
from minikube_py.api.kind import Form, Kind, nothing
from minikube_py.api.meta import timestamp
from minikube_py.api.schema import SCHEMA, Message
from minikube_py.api.typed import DecodeError

UPDATE_MANAGERS_MAX: Final = 10
ANCIENT: Final = "ancient-changes"
"""Manager that takes the fields of the oldest plain writers beyond UPDATE_MANAGERS_MAX."""
BEFORE_FIRST_APPLY: Final = "before-first-apply"
"""Owner of fields that predate tracking."""
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
ANNOTATIONS_BYTES_MAX: Final = 256 << 10
_KUBECTL: Final = "kubectl"
_SELF: Final = "current-operation"
_IDENTITY: Final = ("manager", "operation", "apiVersion", "subresource")
MANAGER_BYTES_MAX: Final = 128


def _names(*path: str) -> path_set.Path:
    return tuple(map(path_set.field, path))


_STRIPPED: Final = PathSet(
    _names("apiVersion"), _names("kind"), _names("metadata"),
    *(_names("metadata", each) for each in (
        "name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields",
        "resourceVersion",
    )),
)  # fmt: skip
"""Server fields, never owned."""


Converted = dict[tuple[bytes, str], Any]


class NeedsConversion(StatusError):
    """An owner uses another version: convert `asked` (object, version) and retry."""

    def __init__(self, asked: bytes, version: str, *_: object) -> None:
        super().__init__(500, "", f"an object is needed in the version {version}")
        self.asked = asked, version

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.asked, {"warnings": self.warnings}


class Sender(NamedTuple):
    """The writer and time, computed lazily. `tracks_all`: also track objects never applied and created without a
    manager name."""

    field_manager: str = ""
    user_agent: str = ""
    wall_s: float = 0.0
    tracks_all: bool = False
    converted: Converted | None = None
    """For kinds with a conversion webhook: results by request."""
    sent: bytes = b""
    media: str = ""
    """The body and its Content-Type, of a request."""

    @property
    def tracked(self) -> bool:
        return self.tracks_all or bool(self.field_manager)

    @property
    def manager(self) -> str:
        return manager_of(self.field_manager, self.user_agent)

    @property
    def now(self) -> str:
        return timestamp(self.wall_s)


def _between(obj: Json, given: Form, wanted: Form, version: str) -> Json:
    """The object in another version. Raises: TypedError."""
    try:
        found, _ = read_value(obj, SCHEMA.message(given.message))
        given.to_stored(found)
        wanted.from_stored(found)
        found, _ = read_value(found, SCHEMA.message(wanted.message))
    except DecodeError as error:
        raise typed.TypedError([str(error)]) from None
    return {**found, "kind": obj.get("kind"), "apiVersion": version}


def manager_of(field_manager: str, user_agent: str) -> str:
    """The request's manager; else the printable prefix of its User-Agent."""
    if field_manager:
        return field_manager
    found = ""
    for char in user_agent.partition("/")[0]:
        if not char.isprintable():
            continue
        if len((found + char).encode()) > MANAGER_BYTES_MAX:
            break
        found += char
    return found


class Managed(NamedTuple):
    """Owners by identifier, and the time of each one's last change."""

    owners: Managers
    times: dict[str, str]

    @classmethod
    def read(cls, entries: Sequence[Json]) -> Managed:
        """Raises: ValueError, in upstream's words."""
        found = cls({}, {})
        for number, entry in enumerate(entries):
            operation, version, form = (entry.get(name) or "" for name in ("operation", "apiVersion", "fieldsType"))
            if operation not in ("Apply", "Update"):
                raise ValueError("operation must be `Apply` or `Update`")
            if not version:
                raise ValueError("apiVersion must not be empty")
            if not form:
                raise ValueError(f"missing fieldsType in managed fields entry {number}")
            if form != "FieldsV1":
                raise ValueError(f"invalid fieldsType {go_quote(form)} in managed fields entry {number}")
            name = _identifier(entry)
            found.owners[name] = Owned(PathSet.from_json(entry.get("fieldsV1") or {}), version, operation == "Apply")
            if entry.get("time"):
                found.times[name] = entry["time"]
        return found

    @classmethod
    def read_or_empty(cls, entries: Sequence[Json]) -> Managed:
        try:
            return cls.read(entries)
        except ValueError:
            return cls({}, {})

    def written(self) -> list[Json]:
        entries = []
        for name, owned in self.owners.items():
            known = orjson.loads(name)
            entry = {"manager": known.get("manager", ""), "operation": known["operation"], "apiVersion": owned.version}
            if not entry["manager"]:
                del entry["manager"]
            if name in self.times:
                entry["time"] = self.times[name]
            entry |= {"fieldsType": "FieldsV1", "fieldsV1": owned.fields.to_json()}
            if known.get("subresource"):
                entry["subresource"] = known["subresource"]
            entries.append(entry)
        return sorted(entries, key=_order)


def _identifier(entry: Json) -> str:
    """Apply managers are identified without the version."""
    names = (name for name in _IDENTITY if name != "apiVersion" or entry["operation"] != "Apply")
    return go_json.dumps({name: entry[name] for name in names if entry.get(name)}).decode()


def _order(entry: Json) -> tuple[Any, ...]:
    named = (entry.get(name, "") for name in ("manager", "apiVersion", "subresource"))
    return entry["operation"], _seconds(entry.get("time")), *named


def _seconds(time: str | None) -> float:
    return datetime.datetime.fromisoformat(time).timestamp() // 1 if time else 0


def is_reset(entries: Any) -> bool:
    """Whether a sender resets all owners with `[]` or `[{}]`."""
    return isinstance(entries, list) and (not entries or entries == [{}])


_RESET: Final = re.compile(rb'"?managedFields"?\s*:\s*\[\s*\]')


def with_reset(new: Json, old: Json, body: bytes, content_type: str) -> None:
    """Restores an empty list dropped by decoding: here it has a meaning."""
    if "managedFields" in new["metadata"] or "managedFields" not in old["metadata"] or b"managedFields" not in body:
        return
    if content_type.startswith("application/json-patch+json"):
        changes = [each for each in orjson.loads(body) if each.get("path") == "/metadata/managedFields"]
        asked = bool(changes) and changes[-1].get("value") == []
    else:
        asked = _RESET.search(body) is not None
    if asked:
        new["metadata"]["managedFields"] = []


_EMPTY: Final = re.compile(rb"\[\s*\]|\{\s*\}")


def _made_empty(kind: Kind, obj: Json, sender: Sender) -> list[tuple[Json, str]]:
    """Fields that Go always prints and that were sent empty: their sender owns them, though they are stored as null.
    They are empty in `obj` from then on."""
    if kind.codec is not None or not _EMPTY.search(sender.sent):
        return []
    found = list(_sent_empty(SCHEMA.kind(kind.group, kind.version, kind.kind), obj, _given(sender)))
    for holder, name, value in found:
        holder[name] = value
    return [(holder, name) for holder, name, _ in found]


def _given(sender: Sender) -> Any:
    """What was sent: an object, or the changed parts of one. Protobuf has no empty lists."""
    if "protobuf" in sender.media:
        return {}
    try:
        value = yaml_text.read(sender.sent)[0] if "yaml" in sender.media else orjson.loads(sender.sent)
    except (orjson.JSONDecodeError, yaml_text.YamlError):
        return {}
    if not isinstance(value, list):
        return value
    whole: Json = {}
    for step in value:
        if isinstance(step, dict) and step.get("op") in ("add", "replace") and isinstance(step.get("path"), str):
            *above, name = step["path"].split("/")[1:] or [""]
            part = whole
            for each in above:
                part = inner if isinstance(inner := part.get(each), dict) else part.setdefault(each, {})
                if not isinstance(part, dict):
                    break
            else:
                part[name] = step.get("value")
    return whole


def _sent_empty(message: Message | None, obj: Json, given: Any) -> Iterator[tuple[Json, str, Any]]:
    for field in message.fields.values() if message is not None and isinstance(given, dict) else ():
        value, here = given.get(field.name), obj.get(field.name, "")
        if field.type.kind in ("list", "map"):
            if here is None and isinstance(value, list | dict) and not value and not field.left_out_when_zero:
                yield obj, field.name, value
        elif field.type.kind == "message" and isinstance(here, dict):
            yield from _sent_empty(SCHEMA.message(field.type.message), here, value)


class FieldManager:
    """For one kind, or one of its subresources."""

    def __init__(self, kind: Kind, subresource: str) -> None:
        self._kind = kind
        self._version = kind.api_version
        self._subresource = subresource
        self._types: Mapping[str, Ref] = {version: schema_type(each) for version, each in kind.structures.items()}
        self._empty: Json = {"metadata": {}, "kind": kind.kind, "apiVersion": kind.api_version}
        if not self._types:
            message = SCHEMA.kind(kind.group, kind.version, kind.kind)
            assert message is not None, "kinds have messages or structures"
            self._types = {version: message_type(form.message) for version, form in kind.forms.items()}
            self._types = self._types or {kind.api_version: message_type(message.name)}
            self._empty = {**empty(message.name), **self._empty}
        self.type = self._types[self._version]
        resets = PathSet(*(_names(*path) for path in kind.resets(subresource)))
        self._ignored = dict.fromkeys(kind.forms or (self._version,), resets) if resets else {}
        self._same = Updater(self._ignored, self._convert)

    def _updater(self, sender: Sender) -> Updater:
        if sender.converted is None:
            return self._same
        return Updater(self._ignored, partial(self._convert_by_webhook, sender.converted))

    def _convert_by_webhook(self, converted: Converted, value: Typed, version: str) -> Typed | None:
        """Raises: NeedsConversion; TypedError."""
        type_ = self._types.get(version)
        if type_ is None or not isinstance(value.value, dict) or value.value.get("apiVersion") == version:
            return value if type_ is not None else None
        asked = orjson.dumps(value.value, option=orjson.OPT_SORT_KEYS), version
        if asked not in converted:
            raise NeedsConversion(*asked)
        typed.validate(converted[asked], type_)
        return Typed(converted[asked], type_)

    def _convert(self, value: Typed, version: str) -> Typed | None:
        type_ = self._types.get(version)
        if type_ is None or type_ is value.type:
            return value if type_ is not None else None
        if not isinstance(value.value, dict):
            return Typed(value.value, type_)
        if forms := self._kind.forms:
            given = next(form for held, form in forms.items() if self._types[held] is value.type)
            return Typed(_between(value.value, given, forms[version], version), type_)
        return Typed({**value.value, "apiVersion": version}, type_)

    def _typed(self, obj: Json) -> Typed:
        return Typed({**obj, "kind": self._kind.kind, "apiVersion": self._version}, self.type)

    def _written(self, obj: Json) -> Typed:
        """The object of a plain write, as it will be read: what conversion adds is the writer's, too."""
        given = self._typed(obj)
        if (form := self._kind.forms.get(self._version)) is None or form.to_stored is nothing:
            return given
        return given._replace(value=_between(given.value, form, form, self._version))

    def _identity(self, manager: str, operation: str) -> str:
        entry = {"manager": manager or "unknown", "operation": operation, "apiVersion": self._version}
        return _identifier({**entry, "subresource": self._subresource})

    # --- plain writes -------------------------------------------------------------------------------------------------

    def update(self, live: Json | None, new: Json, sender: Sender) -> None:
        """Sets `new`'s managedFields for a plain write; `live` is None for a create.

        The sender's managedFields count, except on a subresource. Fields that cannot be determined are omitted."""
        sent = new["metadata"].pop("managedFields", None)
        managed = self._known(live, sent)
        if not managed.owners and (live is not None or not sender.tracked):
            return
        try:
            entries = self._updated(live or self._empty, new, managed, sender).written()
        except ValueError:
            return
        if entries:
            new["metadata"]["managedFields"] = entries

    def _known(self, live: Json | None, sent: Any) -> Managed:
        before = live["metadata"].get("managedFields") or () if live is not None else ()
        if self._subresource:
            return Managed.read_or_empty(before)
        if is_reset(sent):
            return Managed({}, {})
        found = Managed.read_or_empty(sent or ())
        # A sender unaware of managedFields does not delete them.
        return found if found.owners else Managed.read_or_empty(before)

    def _updated(self, live: Json, new: Json, managed: Managed, sender: Sender, manager: str = "") -> Managed:
        updater = self._updater(sender)
        owners = updater.update(self._typed(live), self._written(new), self._version, managed.owners, _SELF)
        times = dict(managed.times)
        mine = owners.pop(_SELF, None)
        if mine is not None and (fields := mine.fields - _STRIPPED):
            name = self._identity(manager or sender.manager, "Update")
            if name in owners:
                fields = fields | owners[name].fields
            owners[name] = Owned(fields, self._version, False)
            times[name] = sender.now
        return _capped(Managed(owners, times))

    # --- applies ------------------------------------------------------------------------------------------------------

    def apply(self, live: Json | None, config: Json, force: bool, sender: Sender) -> Json:
        """The object after the apply, with its managedFields. Raises: StatusError 400, 409."""
        before = {**(live or self._empty), "kind": self._kind.kind, "apiVersion": self._version}
        try:
            managed = Managed.read(before["metadata"].get("managedFields") or ())
        except ValueError as error:
            raise bad_request(f"failed to decode managed fields: {error}") from None
        if (config.get("apiVersion"), config.get("kind")) != (self._version, self._kind.kind):
            raise bad_request(f"invalid object type: {told_kind(config)}")
        try:
            new, managed = self._applied_here(live, before, config, managed, force, sender)
        except Conflicts as error:
            conflicts = self._unexpected(before, error.conflicts) if sender.manager == _KUBECTL else error.conflicts
            if conflicts:
                raise _refusal(conflicts) from None
            new, managed = self._applied_here(live, before, config, managed, True, sender)
        metadata = dict(new["metadata"])
        metadata.pop("managedFields", None)
        if entries := managed.written():
            metadata["managedFields"] = entries
        if sender.manager == _KUBECTL and (metadata.get("annotations") or {}).get(LAST_APPLIED):
            metadata["annotations"] = _with_last_applied(metadata["annotations"], config)
        return {**new, "metadata": metadata}

    def _applied_here(
        self, live: Json | None, before: Json, config: Json, managed: Managed, force: bool, sender: Sender
    ) -> tuple[Json, Managed]:
        """Raises: Conflicts; StatusError 400."""
        if not managed.owners and live is not None:
            managed = self.before_first_apply(before, managed, sender)
        if isinstance(config.get("metadata"), dict) and isinstance(config["metadata"].get("managedFields"), list):
            raise bad_request("metadata.managedFields must be nil")
        name = self._identity(sender.manager, "Apply")
        try:
            typed.validate(config, self.type)
        except typed.TypedError as error:
            raise bad_request(f"failed to create typed patch object ({told_of(config)}): {error}") from None
        try:
            new, owners = self._updater(sender).apply(
                self._typed(before), Typed(config, self.type), self._version, dict(managed.owners), name, force
            )
        except typed.TypedError as error:
            # The owner's version lacks a field of the object.
            raise StatusError(500, "", str(error), {}) from None
        if (mine := owners.pop(name, None)) is not None and (fields := mine.fields - _STRIPPED):
            owners[name] = mine._replace(fields=fields)
        if new is typed.ABSENT:
            return before, Managed(owners, managed.times)
        return new, Managed(owners, {**managed.times, name: sender.now})

    def before_first_apply(self, live: Json, managed: Managed, sender: Sender) -> Managed:
        """What writers have set so far, in the object and its status."""
        if not self._kind.stored:
            return self._updated(self._empty, live, managed, sender, BEFORE_FIRST_APPLY)
        given = without(live, self._kind.assigned)
        managed = field_manager(self._kind, "")._updated(self._empty, given, managed, sender, BEFORE_FIRST_APPLY)
        if not self._kind.has_status or not given.get("status"):
            return managed
        status = {**self._empty, "status": given["status"]}
        return field_manager(self._kind, "status")._updated(self._empty, status, managed, sender, BEFORE_FIRST_APPLY)

    def _unexpected(self, live: Json, conflicts: list[Conflict]) -> list[Conflict]:
        """The conflicts without fields that kubectl applied before, per its annotation."""
        text = (live["metadata"].get("annotations") or {}).get(LAST_APPLIED)
        try:
            last = orjson.loads(text or b"null")
            if not isinstance(last, dict) or last.get("apiVersion") != self._version:
                return conflicts
            typed.validate(last, self.type)
            changes = typed.compare(last, live, self.type)
        except (orjson.JSONDecodeError, typed.TypedError):
            return conflicts
        allowed = typed.field_set(last, self.type) - changes.modified - changes.added - changes.removed
        return [conflict for conflict in conflicts if conflict.path not in allowed]


@lru_cache(512)
def field_manager(kind: Kind, subresource: str = "") -> FieldManager:
    return FieldManager(kind, subresource)


def track(kind: Kind, subresource: str, live: Json | None, new: Json, sender: Sender) -> None:
    """As `FieldManager.update`; free if nothing is tracked."""
    if sender.tracked or "managedFields" in new["metadata"] or (live and "managedFields" in live["metadata"]):
        empty = _made_empty(kind, new, sender)
        field_manager(kind, subresource).update(live, new, sender)
        for holder, name in empty:
            holder[name] = None


def with_owners(kind: Kind, obj: Json, sender: Sender) -> Json:
    """The object as its first apply finds it: what it has belongs to somebody."""
    if "managedFields" in obj["metadata"]:
        return obj
    live = {**obj, "kind": kind.kind, "apiVersion": kind.api_version}
    entries = field_manager(kind).before_first_apply(live, Managed({}, {}), sender).written()
    return {**obj, "metadata": {**obj["metadata"], "managedFields": entries}}


def with_times_of(new: Json, old: Json) -> None:
    """If only the owners' times would change, they are kept too, so there is no write."""
    entries, before = new["metadata"].get("managedFields"), old["metadata"].get("managedFields")
    if not entries or not before or len(entries) != len(before) or entries == before:
        return
    if [_timeless(each) for each in entries] == [_timeless(each) for each in before] and bare(new) == bare(old):
        new["metadata"]["managedFields"] = before


def _timeless(entry: Json) -> Json:
    return {name: item for name, item in entry.items() if name != "time"}


def bare(obj: Json) -> Json:
    found = {name: item for name, item in obj.items() if name not in ("kind", "apiVersion")}
    return {**found, "metadata": {k: v for k, v in obj["metadata"].items() if k != "managedFields"}}


def _capped(managed: Managed) -> Managed:
    """Merges the oldest plain writers of a version if there are too many."""
    owners, times = managed
    updaters = sorted(
        (name for name, owned in owners.items() if not owned.applied),
        key=lambda name: (_seconds(times.get(name)), name),
    )
    left = len(updaters)
    first: dict[str, str] = {}
    for name in updaters:
        if left <= UPDATE_MANAGERS_MAX:
            break
        owned = owners[name]
        if owned.version not in first:
            first[owned.version] = name
            continue
        bucket = _identifier({"manager": ANCIENT, "operation": "Update", "apiVersion": owned.version})
        if bucket not in owners:
            owners[bucket] = owners.pop(first[owned.version])
        owners[bucket] = Owned(owned.fields | owners[bucket].fields, owned.version, owned.applied)
        if name != bucket:
            del owners[name]
        left -= 1
        if name in times:
            times[bucket] = times[name]
    return managed


def _with_last_applied(annotations: Json, config: Json) -> Json:
    metadata = config.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("annotations"), dict):
        kept = {name: text for name, text in metadata["annotations"].items() if name != LAST_APPLIED}
        metadata = {name: item for name, item in metadata.items() if name != "annotations"}
        config = {**config, "metadata": {**metadata, "annotations": kept} if kept else metadata}
    text = go_json.escaped(orjson.dumps(config, option=orjson.OPT_SORT_KEYS)).decode() + "\n"
    found = {**annotations, LAST_APPLIED: text}
    if sum(len(name.encode()) + len(value.encode()) for name, value in found.items()) > ANNOTATIONS_BYTES_MAX:
        del found[LAST_APPLIED]
    return found


# --- texts ------------------------------------------------------------------------------------------------------------


def _refusal(conflicts: list[Conflict]) -> StatusError:
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {_manager_told(each.manager)}",
         "field": shown(each.path)}
        for each in conflicts
    ]  # fmt: skip
    if len(conflicts) == 1:
        return apply_conflict(causes, f"Apply failed with 1 conflict: {causes[0]['message']}: {causes[0]['field']}")
    lines: list[str] = []
    for manager in sorted({each.manager for each in conflicts}):
        lines.append(f"conflicts with {_manager_told(manager)}:")
        lines += [f"- {shown(each.path)}" for each in conflicts if each.manager == manager]
    return apply_conflict(causes, f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines))


def _manager_told(identifier: str) -> str:
    known = orjson.loads(identifier)
    told = go_quote(known.get("manager", ""))
    if known.get("subresource"):
        told = f"{told} with subresource {go_quote(known['subresource'])}"
    return f"{told} using {known.get('apiVersion', '')}" if known["operation"] == "Update" else told


def told_kind(config: Json) -> str:
    """Group, version and kind as Go prints them: `apps/v1, Kind=Deployment`, `/v1, Kind=Pod`."""
    text, kind = config.get("apiVersion"), config.get("kind")
    version = text if isinstance(text, str) else ""
    group, slash, rest = version.partition("/")
    if version.count("/") > 1:
        group, rest = "", ""
    return f"{group if slash else ''}/{rest if slash else group}, Kind={kind if isinstance(kind, str) else ''}"


def told_of(config: Json) -> str:
    metadata = config.get("metadata")
    known = metadata if isinstance(metadata, dict) else {}
    namespace, name = (each if isinstance(each := known.get(part), str) else "" for part in ("namespace", "name"))
    return f"{namespace}/{name}; {told_kind(config)}"
