"""The schemas of a document of OpenAPI: messages with their fields, types, merge keys and list types, and parameters.

The texts come from the PyPI package `kubernetes-validate` where that is installed (extra `explain`), else there are
none.
Source: kube-openapi pkg/builder3.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import orjson

from minikube_py.api.custom import published
from minikube_py.api.custom.structural_rules import is_structural
from minikube_py.api.kind import Kind
from minikube_py.api.schema import META_KINDS, SCHEMA, Field, Message, Type, proto_name

Json = dict[str, Any]
VERSION: Final = "1.36"
_SCHEMAS: Final = "#/components/schemas/"


def schema_name(message: str) -> str:
    """A message's name in OpenAPI: `io.k8s.api.core.v1.Pod`."""
    return _SPECIAL_NAMES.get(message) or "io.k8s." + proto_name(message).removeprefix("k8s.io.")


_SPECIAL_NAMES: Final = {
    "resource.Quantity": "io.k8s.apimachinery.pkg.api.resource.Quantity",
    "intstr.IntOrString": "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
    "runtime.RawExtension": "io.k8s.apimachinery.pkg.runtime.RawExtension",
    "version.Info": "io.k8s.apimachinery.pkg.version.Info",
}
_BUILT: Final = (
    "major", "minor", "gitVersion", "gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform",
)  # fmt: skip
_COMPATIBLE: Final = ("emulationMajor", "emulationMinor", "minCompatibilityMajor", "minCompatibilityMinor")
_ANYTHING: Final = ("JSON", "JSONSchemaPropsOrArray", "JSONSchemaPropsOrBool", "JSONSchemaPropsOrStringArray")
_SPECIAL_SCHEMAS: Final[dict[str, Json]] = {
    "resource.Quantity": {"oneOf": [{"type": "string"}, {"type": "number"}]},
    "intstr.IntOrString": {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
    "runtime.RawExtension": {"type": "object"},
    "meta/v1.Time": {"type": "string", "format": "date-time"},
    "meta/v1.MicroTime": {"type": "string", "format": "date-time"},
    "meta/v1.Duration": {"type": "string"},
    "meta/v1.FieldsV1": {"type": "object"},
    "version.Info": {
        "type": "object",
        "required": list(_BUILT),
        "properties": {
            **{name: {"type": "string", "default": ""} for name in _BUILT},
            **{name: {"type": "string"} for name in _COMPATIBLE},
        },
    },
    **{f"apiextensions/v1.{name}": {} for name in _ANYTHING},
}
_UNIONS: Final[dict[str, tuple[str, ...]]] = {
    "core/v1.AppArmorProfile": ("type", "localhostProfile"),
    "core/v1.PodSchedulingGroup": ("", "podGroupName"),
    "core/v1.SeccompProfile": ("type", "localhostProfile"),
    "flowcontrol/v1.LimitResponse": ("type", "queuing"),
    "flowcontrol/v1.PriorityLevelConfigurationSpec": ("type", "exempt", "limited"),
    "flowcontrol/v1.Subject": ("kind", "group", "serviceAccount", "user"),
}
"""Discriminators of unions, and the members of which one is set."""
_SCALARS: Final[dict[str, Json]] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "uint8": {"type": "integer", "format": "byte"},
    "float64": {"type": "number", "format": "double"},
    "bytes": {"type": "string", "format": "byte"},
    "any": {},
}
_DEFAULTS: Final[dict[str, Any]] = {"string": "", "bool": False, "int32": 0, "int64": 0, "float64": 0, "message": {}}


# --- messages -------------------------------------------------------------------------------------------------------


@cache
def definitions() -> dict[str, Json]:
    """The texts' definitions by schema name; empty where the package is not installed or holds none."""
    spec = find_spec("kubernetes_validate")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        folder = Path(location) / "kubernetes-json-schema"
        path = folder / f"v{VERSION}.0-local" / "_definitions.json"
        if path.is_file():
            content = orjson.loads(path.read_bytes())
            found: dict[str, Json] = content.get("$defs") or content.get("definitions") or {}
            return found
    return {}


class Schemas:
    """The schemas that one document needs, collected by reference. `rows`: its kinds."""

    def __init__(self, definitions: dict[str, Json], group: str, version: str, rows: list[Kind]) -> None:
        self.found: dict[str, Json] = {}
        self._definitions = definitions
        self._group, self._version = group, version
        self._custom = {name: row for row in rows if row.structure is not None for name in (row.kind, row.list_kind)}

    def kind(self, group: str, version: str, name: str) -> Json:
        """A reference to what a kind's objects or lists look like."""
        if (group, version) == (self._group, self._version) and (row := self._custom.get(name)):
            return self._custom_kind(row, name)
        message = SCHEMA.kind(group, version, name)
        return self.ref(message.name) if message is not None else {"type": "string"}

    def query(self, group: str, version: str, name: str) -> list[Json]:
        """The options of a connection, as they are in its query."""
        message = SCHEMA.kind(group, version, name)
        fields = [each for each in message.declared if each.number] if message is not None else []
        sorts = {"bool": "boolean", "[]int32": "integer"}
        return [parameter(each.name, sort=sorts.get(each.type.text, "string")) for each in fields]

    def _custom_kind(self, row: Kind, kind: str) -> Json:
        name = published.name_of(row.group, row.version, kind)
        if name not in self.found:
            schema = self._objects(row) if kind == row.kind else self._list(row)
            told = {"group": row.group, "kind": kind, "version": row.version}
            self.found[name] = {**schema, "x-kubernetes-group-version-kind": [told]}
            if own := [{"fieldPath": path} for path, each in row.selectable.items() if each.loose]:
                self.found[name]["x-kubernetes-selectable-fields"] = own
        return {"$ref": _SCHEMAS + name}

    def _objects(self, row: Kind) -> Json:
        assert row.structure is not None
        if not is_structural(row.structure):
            # As upstream: with members, kubectl would take all others for unknown.
            return {"type": "object"}
        texts = self._texts("ConfigMap")
        schema = published.published(row.structure, texts)
        self.ref("meta/v1.ObjectMeta")
        own = published.members("ObjectMeta", texts)
        return {"type": "object", **schema, "properties": {**schema.get("properties", {}), **own}}

    def _list(self, row: Kind) -> Json:
        self.ref("meta/v1.ListMeta")
        own = published.members("ListMeta", self._texts("ConfigMapList"))
        items = {"description": f"List of {row.plural}.", "type": "array", "items": self._custom_kind(row, row.kind)}
        description = f"{row.list_kind} is a list of {row.kind}"
        properties = {**own, "items": items}
        return {"description": description, "type": "object", "required": ["items"], "properties": properties}

    def _texts(self, kind: str) -> Json:
        told = self._definitions.get(f"io.k8s.api.core.v1.{kind}", {}).get("properties", {})
        return {name: part["description"] for name, part in told.items() if part.get("description")}

    def ref(self, message: str) -> Json:
        name = schema_name(message)
        if name not in self.found:
            self.found[name] = {}
            self.found[name] = self._schema(message, name)
        return {"$ref": _SCHEMAS + name}

    def _schema(self, message: str, name: str) -> Json:
        told = self._definitions.get(name, {})
        head: Json = {"description": told["description"]} if told.get("description") else {}
        special = _SPECIAL_SCHEMAS.get(message)
        if special is not None or not SCHEMA.has(message):
            return {**head, **(special or {})}
        return {**head, **self._object(SCHEMA.message(message), told.get("properties", {}))}

    def _object(self, message: Message, told: Json) -> Json:
        found: Json = {"type": "object"}
        required = [field.name for field in message.fields.values() if field.required]
        if required:
            found["required"] = required
        properties = {
            name: self._property(field, told.get(name, {})) for name, field in sorted(message.fields.items())
        }
        if properties:
            found["properties"] = properties
        if message.name in _UNIONS:
            by, *members = _UNIONS[message.name]
            union = {"fields-to-discriminateBy": {name: name[0].upper() + name[1:] for name in members}}
            found["x-kubernetes-unions"] = [{"discriminator": by, **union} if by else union]
        if SCHEMA.is_atomic(message.name):
            found["x-kubernetes-map-type"] = "atomic"
        kinds = SCHEMA.kinds_of(message.name)
        if self._group and kinds and message.go_name in META_KINDS:
            kinds.append({"group": self._group, "kind": message.go_name, "version": self._version})
        if kinds:
            found["x-kubernetes-group-version-kind"] = kinds
        return found

    def _property(self, field: Field, told: Json) -> Json:
        found: Json = {}
        if told.get("description"):
            # The package's texts end before the values of enumerations.
            values = "".join(f'\n - `"{value}"`' for value in SCHEMA.enum(field.type.named))
            found["description"] = told["description"] + (f"\n\nPossible enum values:{values}" if values else "")
        found |= self._type(field.type, _default(field))
        if field.list_map_keys:
            found["x-kubernetes-list-map-keys"] = list(field.list_map_keys)
        for key, value in (("list-type", field.list_type), ("map-type", field.map_type or field.struct_type)):
            if value:
                found[f"x-kubernetes-{key}"] = value
        if field.merge_key:
            found["x-kubernetes-patch-merge-key"] = field.merge_key
        if field.patch_strategies:
            found["x-kubernetes-patch-strategy"] = ",".join(field.patch_strategies)
        return found

    def _type(self, type: Type, default: Any = None) -> Json:
        extra = {} if default is None else {"default": default}
        if type.kind == "list":
            assert type.element is not None
            return {"type": "array", "items": self._element(type.element), **extra}
        if type.kind == "map":
            assert type.element is not None
            return {"type": "object", "additionalProperties": self._element(type.element), **extra}
        if type.message:
            # A bare reference cannot have sibling members.
            return {**extra, "allOf": [self.ref(type.message)]}
        found = {**_SCALARS.get(type.kind, {}), **extra}
        values = SCHEMA.enum(type.named) if type.named else ()
        return {**found, "enum": list(values)} if values else found

    def _element(self, type: Type) -> Json:
        default = _zero(type)
        return self.ref(type.message) if type.message and default is None else self._type(type, default)


def _default(field: Field) -> Any:
    """The default of a property: as marked, else the zero value of what is always written."""
    if field.default is not None:
        return field.default
    if field.omitempty and field.type.kind != "message":
        return None
    return _zero(field.type)


def _zero(type: Type) -> Any:
    """The zero value, where OpenAPI tells it."""
    return None if type.pointer else _DEFAULTS.get(type.kind)


# --- parameters -------------------------------------------------------------------------------------------------------

_PARAMETER_TYPES: Final = {
    "force": "boolean", "orphanDependents": "boolean", "allowWatchBookmarks": "boolean", "sendInitialEvents": "boolean",
    "ignoreStoreReadErrorWithClusterBreakingPotential": "boolean",
    "watch": "boolean", "gracePeriodSeconds": "integer", "limit": "integer", "timeoutSeconds": "integer",
    "follow": "boolean", "insecureSkipTLSVerifyBackend": "boolean", "limitBytes": "integer", "previous": "boolean",
    "sinceSeconds": "integer", "tailLines": "integer", "timestamps": "boolean",
}  # fmt: skip


_SELECTED: Final = "A selector to restrict the list of returned objects by their {}. Defaults to everything."
_PARAMETER_TEXTS: Final = {
    "labelSelector": _SELECTED.format("labels"), "fieldSelector": _SELECTED.format("fields"),
    "watch": "Watch for changes to the described resources and return them as a stream of add, update, and remove "
    "notifications. Specify resourceVersion.",
    "namespace": "object name and auth scope, such as for teams and projects",
}  # fmt: skip
"""Upstream's texts, where they take one sentence: it tells the parameters of each list, and others have pages."""


def parameter(name: str, where: str = "query", sort: str = "") -> Json:
    schema = {"type": sort or _PARAMETER_TYPES.get(name, "string"), "uniqueItems": True}
    required = {"required": True} if where == "path" else {}
    told = {"description": _PARAMETER_TEXTS[name]} if name in _PARAMETER_TEXTS else {}
    return {**told, "name": name, "in": where, **required, "schema": schema}
