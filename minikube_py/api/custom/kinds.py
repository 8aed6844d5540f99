"""Builds the kinds of a CustomResourceDefinition, one per served version.

Source: apiextensions-apiserver `pkg/registry/customresource`, `pkg/apiserver/customresource_handler.go`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any, Final

import orjson

from minikube_py.api import go_numbers, meta
from minikube_py.api.custom.cel_rules import BLOCKED, Ruled, is_blocked, judged, ruled
from minikube_py.api.custom.codec import CustomCodec
from minikube_py.api.custom.conversion import SharedFields, webhook_of
from minikube_py.api.custom.paths import BadPath, follow, steps_of
from minikube_py.api.custom.rules import embedded_errors, scale_errors, unique_list_errors
from minikube_py.api.custom.structural import Structural, copied, fill_defaults, same_json, structural
from minikube_py.api.custom.values import validate_value
from minikube_py.api.decode import Named
from minikube_py.api.errors import FieldError, Json
from minikube_py.api.go_format import go_format
from minikube_py.api.kind import NAMED, NAMESPACED, STATUS_VERBS, Kind, ScalePaths, Selectable, Subresource
from minikube_py.api.meta import next_generation, version_rank
from minikube_py.api.printing import Age, Column, Printer

VERBS: Final = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")


def is_true(definition: Json, condition: str) -> bool:
    found = (definition.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == condition and each.get("status") == "True" for each in found)


def served_form(definition: Json) -> bytes:
    """The data for a definition's kinds; empty if it is not established, or has no versions."""
    if not is_true(definition, "Established") or not definition["spec"].get("versions"):
        return b""
    names = definition["status"]["acceptedNames"]
    spec = definition["spec"]
    content = {"spec": spec, "names": names}
    if len(spec["versions"]) > 1 or (spec.get("conversion") or {}).get("strategy") == "Webhook":
        content["first"] = next(iter(definition["status"].get("storedVersions") or ()), "")
    return orjson.dumps(content, option=orjson.OPT_SORT_KEYS)


@lru_cache(256)
def kinds_of(form: bytes) -> tuple[Kind, ...]:
    """The kinds of a `served_form`, in order of version priority."""
    content = orjson.loads(form)
    versions = sorted(content["spec"]["versions"], key=lambda version: version_rank(version["name"]))
    return tuple(_kind(content, version, form) for version in versions if version.get("served"))


def _kind(content: Json, version: Json, form: bytes) -> Kind:
    spec, names = content["spec"], content["names"]
    group, namespaced = spec["group"], spec["scope"] == "Namespaced"
    properties = _schema_of(version)
    named, schema = Named(group, version["name"], names["kind"]), structural(properties)
    codec = CustomCodec(named, names["plural"], schema)
    subresources = version.get("subresources") or {}
    has_status, scale = subresources.get("status") is not None, _scale_of(subresources.get("scale"))
    may_have_rules = b'"x-kubernetes-validations":' in form
    webhook = webhook_of(content)
    shared = SharedFields(form, named.api_version) if webhook is None and "first" in content else None
    rules = _Rules(properties, schema, may_have_rules, namespaced, has_status, *(scale or (None, ())))
    return Kind(
        group, version["name"], names["kind"], names["plural"], names["singular"], namespaced,
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        verbs=VERBS,
        subresources=_subresources(named, has_status, scale is not None),
        selectable=_selectable(version.get("selectableFields") or (), namespaced),
        allow_unconditional_update=False,
        deprecation=_deprecation(spec, version, names["kind"]),
        scale=scale[0] if scale else None,
        scales={f"{group}/{each['name']}": _paths_of(each) for each in spec["versions"]},
        default=lambda obj: fill_defaults(obj, schema),
        prepare_create=rules.prepare_create,
        prepare_update=rules.prepare_update,
        prepare_status=_prepare_status,
        canonicalize=go_numbers.write,
        validate=rules.validate,
        validate_update={"": rules.validate_update, "status": rules.validate_status},
        warn=rules.warn,
        warn_status=rules.warn_status,
        printer=_printer(version.get("additionalPrinterColumns") or ()),
        list_name=names["listKind"],
        names_items=True,
        storage_version=_storage_version(spec),
        codec=codec,
        # Upstream prunes and defaults what it reads from its store.
        read=None if webhook is not None else shared.read if shared is not None else codec.read,
        write=shared.write if shared is not None else None,
        definition=form,
        structure=properties,
        structures={f"{group}/{each['name']}": _schema_of(each) for each in spec["versions"]},
        conversion_webhook=webhook,
        also_reset={"status": (("metadata",),)},
    )  # fmt: skip


def _storage_version(spec: Json) -> str | None:
    """None if it is not served."""
    stored = (each["name"] for each in spec["versions"] if each.get("storage") and each.get("served"))
    return next((f"{spec['group']}/{name}" for name in stored), None)


def _schema_of(version: Json) -> Json:
    return (version.get("schema") or {}).get("openAPIV3Schema") or {}


def _subresources(named: Named, status: bool, scale: bool) -> tuple[Subresource, ...]:
    found = []
    if status:
        found.append(Subresource("status", named.kind, STATUS_VERBS))
    if scale:
        found.append(Subresource("scale", "Scale", STATUS_VERBS, "autoscaling", "v1"))
    return tuple(found)


def _selectable(fields: Any, namespaced: bool) -> dict[str, Selectable]:
    own = {each["jsonPath"].removeprefix("."): Selectable(_members(each["jsonPath"]), loose=True) for each in fields}
    return {**(NAMESPACED if namespaced else NAMED), **own}


def _members(path: str) -> tuple[str, ...]:
    return tuple(str(step) for step in steps_of(path))


def _paths_of(version: Json) -> ScalePaths | None:
    scale = _scale_of((version.get("subresources") or {}).get("scale"))
    return scale[0] if scale else None


def _scale_of(told: Json | None) -> tuple[ScalePaths, tuple[str, ...]] | None:
    if not told:
        return None
    selector = tuple((told.get("labelSelectorPath") or "").removeprefix(".").split("."))
    selector = selector if selector != ("",) else ()

    def text(obj: Json) -> str:
        found = follow(obj, selector) if selector else []
        return found[0] if found and isinstance(found[0], str) else ""

    spec, status = (
        tuple(told[name].removeprefix(".").split(".")) for name in ("specReplicasPath", "statusReplicasPath")
    )
    return ScalePaths(text, spec, status, may_lack_replicas=False), selector


def _deprecation(spec: Json, version: Json, kind: str) -> str:
    if not version.get("deprecated"):
        return ""
    if version.get("deprecationWarning") is not None:
        return str(version["deprecationWarning"])
    rank = version_rank(version["name"])
    better = [v["name"] for v in spec["versions"] if v.get("served") and not v.get("deprecated")]
    better = sorted((name for name in better if version_rank(name) < rank), key=version_rank)
    text = f"{spec['group']}/{version['name']} {kind} is deprecated"
    return f"{text}; use {spec['group']}/{better[0]} {kind}" if better else text


# --- writing --------------------------------------------------------------------------------------------------------


class _Rules:
    """The hooks that need the schema."""

    def __init__(
        self,
        properties: Json,
        schema: Structural,
        may_have_rules: bool,
        namespaced: bool,
        has_status: bool,
        scale: ScalePaths | None,
        selector: tuple[str, ...],
    ) -> None:
        self._properties = properties
        self._status_properties = (properties.get("properties") or {}).get("status")
        self._schema = schema
        self._may_have_rules = may_have_rules
        self._namespaced = namespaced
        self._has_status = has_status
        self._scale = scale
        self._selector = selector
        self._let_be: tuple[Json, list[str]] = ({}, [])

    def prepare_create(self, obj: Json) -> None:
        if self._has_status:
            obj.pop("status", None)
        obj["metadata"]["generation"] = 1

    def prepare_update(self, new: Json, old: Json) -> None:
        if not same_json(_content(new), _content(old)):
            next_generation(new, old)

    def _scale_errors(self, obj: Json, status_alone: bool = False) -> list[FieldError]:
        return scale_errors(obj, self._scale, self._selector, status_alone) if self._scale is not None else []

    @cached_property
    def _ruled(self) -> Ruled | None:
        """Expressions are compiled with the first object."""
        return ruled(self._properties, True) if self._may_have_rules else None

    def _rule_errors(self, errors: list[FieldError], new: Json, old: Json | None) -> list[FieldError]:
        if self._ruled is None:
            return errors
        if is_blocked(errors):
            return [*errors, BLOCKED]
        found = judged(self._ruled, new, "", old, ratchets=old is not None)
        self._let_be = new, found.warnings
        return errors + found.errors

    def validate(self, obj: Json) -> list[FieldError]:
        errors = meta.validate_object_meta(obj["metadata"], self._namespaced, meta.is_dns1123_subdomain)
        errors += validate_value(obj, self._properties)
        errors += self._scale_errors(obj)
        errors += embedded_errors(obj, self._schema) + unique_list_errors(obj, self._schema)
        return self._rule_errors(errors, obj, None)

    def validate_update(self, new: Json, old: Json) -> list[FieldError]:
        errors = meta.validate_object_meta_update(new["metadata"], old["metadata"])
        errors += validate_value(new, self._properties, "", old)
        errors += self._scale_errors(new) + embedded_errors(new, self._schema)
        return self._rule_errors(errors + self._list_errors(new, old), new, old)

    def _list_errors(self, new: Json, old: Json) -> list[FieldError]:
        """Lists that were invalid before may stay so."""
        return [] if unique_list_errors(old, self._schema) else unique_list_errors(new, self._schema)

    def validate_status(self, new: Json, old: Json) -> list[FieldError]:
        errors = meta.validate_object_meta_update(new["metadata"], old["metadata"])
        if "status" in new and self._status_properties is not None:
            errors += validate_value(new["status"], self._status_properties, "status", old.get("status"))
        return self._rule_errors(errors + self._scale_errors(new, True) + self._list_errors(new, old), new, old)

    def warn(self, new: Json, old: Json | None) -> list[str]:
        return self.warn_status(new, old) + _warn(new, old)

    def warn_status(self, new: Json, old: Json | None) -> list[str]:
        """Violations that the rules tolerated; they have just run."""
        looked_at, warnings = self._let_be
        return warnings if looked_at is new else []


def _content(obj: Json) -> Json:
    """All but metadata and constants of the kind."""
    return {name: value for name, value in obj.items() if name not in ("metadata", "kind", "apiVersion")}


def _prepare_status(new: Json, old: Json) -> None:
    """All but the status stays."""
    kept: Json = {name: new[name] for name in ("kind", "apiVersion", "status") if name in new}
    server = {name: new["metadata"].get(name) for name in ("resourceVersion", "managedFields")}
    new.clear()
    new |= {**copied({name: value for name, value in old.items() if name not in ("status", *kept)}), **kept}
    new["metadata"].pop("managedFields", None)
    new["metadata"] |= {name: value for name, value in server.items() if value or name == "resourceVersion"}


_STANDARD: Final = ("kubernetes", "orphan", "foregroundDeletion")


def _warn(new: Json, old: Json | None) -> list[str]:
    before = (old or {}).get("metadata", {}).get("finalizers") or ()
    found = []
    for name in sorted(set(new["metadata"].get("finalizers") or ()) - set(before)):
        found += [f'metadata.finalizers: "{name}": {message}' for message in meta.is_qualified_name(name)]
        if "/" not in name and name not in _STANDARD:
            path = " including a path (/)" if "." in name else ""
            advice = (
                f"prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer"
            )
            found.append(f'metadata.finalizers: "{name}": {advice} writers')
    return found


# --- printing -------------------------------------------------------------------------------------------------------

_NAME: Final = Column(
    "Name", "string", "name",
    "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a "
    "client to request the generation of an appropriate name automatically. Name is primarily intended for creation "
    "idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/"
    "overview/working-with-objects/names#names",
    0,
)  # fmt: skip
_CREATED: Final = (
    "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed "
    "to be set in happens-before order across separate operations. Clients may not set this value. It is represented "
    "in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s."
    "io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"
)


ROW_STEPS_MAX: Final = 10_000
"""Items of lists that the columns of one row look at. Further cells are empty."""
CHARS_OF_STEP: Final = 64
"""Of a cell's text."""


def _printer(columns: Any) -> Printer:
    if not columns:
        created = Column("Age", "date", "", _CREATED, 0)
        return Printer((_NAME, created), lambda obj, age: [obj["metadata"]["name"], age(_created(obj))])
    described, cells = [_NAME], []
    for each in columns:
        path = each["jsonPath"]
        text = each.get("description") or f"Custom resource definition column (in JSONPath format): {path}"
        type_ = each["type"]
        described.append(Column(each["name"], type_, each.get("format") or "", text, each.get("priority") or 0))
        cells.append(_cell(type_, path))

    def row(obj: Json, age: Age) -> list[Any]:
        left = [ROW_STEPS_MAX]
        return [obj["metadata"]["name"], *(cell(obj, age, left) for cell in cells)]

    return Printer(tuple(described), row)


def _created(obj: Json) -> Any:
    return obj["metadata"].get("creationTimestamp")


def _cell(type_: str, path: str) -> Callable[[Json, Age, list[int]], Any]:
    try:
        steps = steps_of(path)
    except BadPath:
        # Upstream then prints no further columns; here, definitions with such paths are refused.
        return lambda obj, age, left: None

    def cell(obj: Json, age: Age, left: list[int]) -> Any:
        found = follow(obj, steps, left) if left[0] > 0 else ()
        shown = _shown(found[0], type_, age) if found else None
        if isinstance(shown, str):
            left[0] -= len(shown) // CHARS_OF_STEP
        return shown

    return cell


def _shown(value: Any, type_: str, age: Age) -> Any:
    if type_ == "string":
        return _text(value)
    if isinstance(value, bool):
        return value if type_ == "boolean" else None
    if type_ == "integer" and isinstance(value, int | float):
        return int(value)
    if type_ == "number" and isinstance(value, int | float):
        return float(value)
    if type_ == "date" and isinstance(value, str):
        shown = age(value)
        return "<invalid>" if shown == "<unknown>" and value else shown
    return None


def _text(value: Any) -> str:
    if isinstance(value, dict | list):
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    return "" if value is None else go_format(value)
