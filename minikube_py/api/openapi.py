"""OpenAPI: for `kubectl explain` and client-side validation.

Version 3 is one document per group-version, built lazily from the schema's table and the registry. It has every path
with its verbs and parameters, and every message with its fields, types, merge keys and list types. The texts come from
the PyPI package `kubernetes-validate` where that is installed (extra `explain`), else there are none.

Version 2 is made of these documents (`openapi_v2`).

Source: apiserver pkg/endpoints/openapi, kube-openapi pkg/handler3.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from minikube_py.api import openapi_v2
from minikube_py.api.custom import published
from minikube_py.api.custom.kinds import kinds_of
from minikube_py.api.document import JSON, Document, etag_of, matches, not_changed, parse_accept
from minikube_py.api.kind import Kind, Subresource
from minikube_py.api.registry import REGISTRY, Registry
from minikube_py.api.schema import META_KINDS, SCHEMA, Field, Message, Type, proto_name

Json = dict[str, Any]
V2_PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_V2_PROTOBUF_ASKED: Final = (V2_PROTOBUF, "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
TITLE: Final = "Kubernetes"
VERSION: Final = "1.36"
_SCHEMAS: Final = "#/components/schemas/"


def schema_name(message: str) -> str:
    """A message's name in OpenAPI: `io.k8s.api.core.v1.Pod`."""
    return _SPECIAL_NAMES.get(message) or "io.k8s." + proto_name(message).removeprefix("k8s.io.")


_SPECIAL_NAMES: Final = {
    "resource.Quantity": "io.k8s.apimachinery.pkg.api.resource.Quantity",
    "intstr.IntOrString": "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
    "runtime.RawExtension": "io.k8s.apimachinery.pkg.runtime.RawExtension",
}
_ANYTHING: Final = ("JSON", "JSONSchemaPropsOrArray", "JSONSchemaPropsOrBool", "JSONSchemaPropsOrStringArray")
_SPECIAL_SCHEMAS: Final[dict[str, Json]] = {
    "resource.Quantity": {"oneOf": [{"type": "string"}, {"type": "number"}]},
    "intstr.IntOrString": {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
    "runtime.RawExtension": {"type": "object"},
    "meta/v1.Time": {"type": "string", "format": "date-time"},
    "meta/v1.MicroTime": {"type": "string", "format": "date-time"},
    "meta/v1.Duration": {"type": "string"},
    "meta/v1.FieldsV1": {"type": "object"},
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


def _definitions() -> dict[str, Json]:
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


class _Schemas:
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
        return [_parameter(each.name, sort=sorts.get(each.type.text, "string")) for each in fields]

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
            return {"type": "array", "items": self._type(type.element, _zero(type.element)), **extra}
        if type.kind == "map":
            assert type.element is not None
            element = type.element
            inner = self.ref(element.message) if element.kind == "quantity" else self._type(element, _zero(element))
            return {"type": "object", "additionalProperties": inner, **extra}
        if type.message:
            # A bare reference cannot have sibling members.
            return {**extra, "allOf": [self.ref(type.message)]}
        found = {**_SCALARS.get(type.kind, {}), **extra}
        values = SCHEMA.enum(type.named) if type.named else ()
        return {**found, "enum": list(values)} if values else found


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


# --- paths ----------------------------------------------------------------------------------------------------------

_CODES: Final = {
    "create": ("200", "201", "202"), "update": ("200", "201"), "patch": ("200", "201"), "delete": ("200", "202"),
}  # fmt: skip
YAML: Final = "application/yaml"
_TOLD: Final = {"200": "OK", "201": "Created", "202": "Accepted"}
_LIST_PARAMETERS: Final = (
    "continue", "fieldSelector", "labelSelector", "limit", "resourceVersion", "resourceVersionMatch",
    "sendInitialEvents", "timeoutSeconds",
)  # fmt: skip
_DELETE_PARAMETERS: Final = ("dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy")
_WRITE_PARAMETERS: Final = ("dryRun", "fieldManager", "fieldValidation")
_PARAMETERS: Final[dict[str, tuple[str, ...]]] = {
    "create": _WRITE_PARAMETERS,
    "update": _WRITE_PARAMETERS,
    "patch": (*_WRITE_PARAMETERS, "force"),
    "delete": _DELETE_PARAMETERS,
    "deletecollection": tuple(sorted((*_LIST_PARAMETERS, *_DELETE_PARAMETERS))),
    "list": tuple(sorted((*_LIST_PARAMETERS, "allowWatchBookmarks", "watch"))),
    "log": (
        "container", "follow", "insecureSkipTLSVerifyBackend", "limitBytes", "previous", "sinceSeconds", "stream",
        "tailLines", "timestamps",
    ),
}  # fmt: skip
_CUSTOM_PARAMETERS: Final = {"get": ("resourceVersion",), "deletecollection": _PARAMETERS["list"]}
_PARAMETER_TYPES: Final = {
    "force": "boolean", "orphanDependents": "boolean", "allowWatchBookmarks": "boolean", "sendInitialEvents": "boolean",
    "watch": "boolean", "gracePeriodSeconds": "integer", "limit": "integer", "timeoutSeconds": "integer",
    "follow": "boolean", "insecureSkipTLSVerifyBackend": "boolean", "limitBytes": "integer", "previous": "boolean",
    "sinceSeconds": "integer", "tailLines": "integer", "timestamps": "boolean",
}  # fmt: skip
_PATCHES: Final = ("apply-patch+yaml", "json-patch+json", "merge-patch+json", "strategic-merge-patch+json")


def _parameter(name: str, where: str = "query", sort: str = "") -> Json:
    schema = {"type": sort or _PARAMETER_TYPES.get(name, "string"), "uniqueItems": True}
    required = {"required": True} if where == "path" else {}
    return {"name": name, "in": where, **required, "schema": schema}


class _Paths:
    """The paths of one group-version."""

    def __init__(self, group: str, version: str, schemas: _Schemas) -> None:
        self.found: dict[str, Json] = {}
        self._root = f"/apis/{group}/{version}" if group else f"/api/{version}"
        self._title = _title(group, version)
        name = _title(group, "")
        self._tag = f"{name[:1].lower()}{name[1:]}_{version}"
        self._group, self._version, self._schemas = group, version, schemas
        self._patches: tuple[str, ...] = ()
        self._custom = ""
        """The kind, of a custom resource."""

    def add(self, row: Kind) -> None:
        self._custom = row.kind if row.structure is not None else ""
        # What is no Go type has no merge keys.
        self._patches = _PATCHES[:-1] if self._custom else _PATCHES
        collection = f"{self._root}/namespaces/{{namespace}}/{row.plural}"
        if not row.namespaced:
            collection = f"{self._root}/{row.plural}"
        scope = ("namespace",) if row.namespaced else ()
        own = (self._group, self._version, row.kind)
        middle = "Namespaced" if row.namespaced else ""
        self._put(collection, scope, own, {
            "get": ("list", f"list{self._title}{middle}{row.kind}", row.list_kind),
            "post": ("create", f"create{self._title}{middle}{row.kind}", row.kind),
            "delete": ("deletecollection", f"delete{self._title}Collection{middle}{row.kind}", "Status"),
        }, row.verbs)  # fmt: skip
        deleted = "Status" if row.delete_answer == "status" else row.kind
        self._put(f"{collection}/{{name}}", ("name", *scope), own, {
            "get": ("get", f"read{self._title}{middle}{row.kind}", row.kind),
            "put": ("update", f"replace{self._title}{middle}{row.kind}", row.kind),
            "delete": ("delete", f"delete{self._title}{middle}{row.kind}", deleted),
            "patch": ("patch", f"patch{self._title}{middle}{row.kind}", row.kind),
        }, row.verbs)  # fmt: skip
        if row.namespaced:
            self._put(f"{self._root}/{row.plural}", (), own, {
                "get": ("list", f"list{self._title}{row.kind}ForAllNamespaces", row.list_kind),
            }, row.verbs)  # fmt: skip
        for sub in row.subresources:
            self._add_subresource(f"{collection}/{{name}}/{sub.name}", ("name", *scope), row, sub, middle)

    def _add_connection(self, path: str, scope: tuple[str, ...], row: Kind, sub: Subresource, middle: str) -> None:
        """What leads to a container: any bytes both ways. What is proxied has a path of its own behind it."""
        kind = {"group": self._group, "version": self._version, "kind": sub.kind}
        # Writable ones support all methods.
        methods: tuple[str, ...] = ("get", "post")
        if "update" in sub.verbs:
            methods += ("put", "delete", "options", "head", "patch")
        content = {"*/*": {"schema": {"type": "string"}}}
        answers: Json = {"200": {"description": "OK", "content": content}, "401": {"description": "Unauthorized"}}
        title = f"{middle}{row.kind}{sub.name.capitalize()}"
        options = self._schemas.query(self._group, self._version, sub.kind)
        for end, deeper in (("", []), ("WithPath", [_parameter("path", "path")])):
            if end and "update" not in sub.verbs:
                continue
            item: Json = {
                method: {
                    "tags": [self._tag],
                    "operationId": f"connect{self._title}{method.capitalize()}{title}{end}",
                    "responses": answers,
                    "x-kubernetes-action": "connect",
                    "x-kubernetes-group-version-kind": kind,
                }
                for method in methods
            }
            parameters = [*(_parameter(name, "path") for name in scope), *deeper, *options]
            item["parameters"] = sorted(parameters, key=lambda each: (each["name"], each["in"]))
            self.found[f"{path}/{{path}}" if end else path] = item

    def _add_subresource(self, path: str, scope: tuple[str, ...], row: Kind, sub: Subresource, middle: str) -> None:
        if sub.connects:
            self._add_connection(path, scope, row, sub, middle)
            return
        kind = (sub.group, sub.version, sub.kind) if sub.version else (self._group, self._version, sub.kind)
        title = f"{self._title}{middle}{row.kind}{sub.name.capitalize()}"
        self._put(path, scope, kind, {
            "get": ("get", f"read{title}", "string" if sub.name == "log" else sub.kind),
            "put": ("update", f"replace{title}", sub.kind),
            "post": ("create", f"create{title}", sub.kind),
            "patch": ("patch", f"patch{title}", sub.kind),
        }, sub.verbs)  # fmt: skip

    def _put(
        self,
        path: str,
        scope: tuple[str, ...],
        kind: tuple[str, str, str],
        operations: dict[str, tuple[str, str, str]],
        verbs: tuple[str, ...],
    ) -> None:
        item: Json = {}
        for method, (verb, operation_id, answer) in operations.items():
            if verb in verbs:
                item[method] = self._operation(verb, operation_id, answer, kind)
        if item:
            shared = [*(_parameter(name, "path") for name in scope), _parameter("pretty")]
            if self._custom and len(item) == 1:
                shared += next(iter(item.values())).pop("parameters", [])
                shared.sort(key=lambda each: each["name"])
            item["parameters"] = shared
            self.found[path] = item

    def _operation(self, verb: str, operation_id: str, answer: str, kind: tuple[str, str, str]) -> Json:
        group, version, name = kind
        answered = ("", "v1", "Status") if answer == "Status" else (group, version, answer)
        found: Json = {"tags": [self._tag], "operationId": operation_id}
        given = {**_PARAMETERS, **_CUSTOM_PARAMETERS} if self._custom else _PARAMETERS
        names = given["log"] if operation_id.endswith("Log") else given.get(verb, ())
        if names:
            found["parameters"] = [_parameter(parameter) for parameter in names]
        body = self._body(verb, kind)
        if body:
            found["requestBody"] = body
        schema = {"schema": self._schemas.kind(*answered)}
        content = {JSON: schema, "text/plain": schema} if answer == "string" else self._media(JSON, schema)
        codes = ("200",) if self._custom and verb == "patch" else _CODES.get(verb, ("200",))
        responses: Json = {code: {"description": _TOLD[code], "content": content} for code in codes}
        found["responses"] = {**responses, "401": {"description": "Unauthorized"}}
        action = {"create": "post", "update": "put"}.get(verb, verb)
        found["x-kubernetes-action"] = action
        if self._custom:
            # Of the resource, even for a scale.
            group, version, name = self._group, self._version, self._custom
        found["x-kubernetes-group-version-kind"] = {"group": group, "version": version, "kind": name}
        return found

    def _body(self, verb: str, kind: tuple[str, str, str]) -> Json:
        if verb == "patch":
            schema = {"schema": self._schemas.ref("meta/v1.Patch")}
            return {"content": {f"application/{patch}": schema for patch in self._patches}, "required": True}
        if verb in ("create", "update"):
            return {"content": self._media("*/*", {"schema": self._schemas.kind(*kind)}), "required": True}
        if verb == "delete" or (verb == "deletecollection" and not self._custom):
            return {"content": self._media("*/*", {"schema": self._schemas.ref("meta/v1.DeleteOptions")})}
        return {}

    def _media(self, built_in: str, schema: Json) -> Json:
        """For custom resources, upstream names each type that it reads and writes."""
        return {JSON: schema, YAML: schema} if self._custom else {built_in: schema}


_INFO: Final = {"title": TITLE, "version": VERSION}
_CUSTOM_INFO: Final = {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"}


def _title(group: str, version: str) -> str:
    parts = (group.removesuffix(".k8s.io") or "core").split(".")
    return "".join(part.capitalize() for part in (*parts, version))


# --- documents ------------------------------------------------------------------------------------------------------


class Swagger(NamedTuple):
    """The document of version 2, in both forms."""

    json: bytes
    protobuf: bytes
    etag: str


class OpenApi:
    """The documents of one registry. Each is built lazily and cached as bytes; callers that build elsewhere ask what it
    `lacks`, and let it `keep` the result."""

    def __init__(self, registry: Registry = REGISTRY) -> None:
        self._registry = registry
        self._documents: dict[tuple[str, str], bytes] = {}
        self._definitions: dict[str, Json] | None = None
        self._index: bytes | None = None
        self._hashes: dict[tuple[str, str], str] = {}
        self._swagger: Swagger | None = None

    def lacks(self, path: str) -> tuple[str, ...] | None:
        """Of what the document at `path` is to be made: a group-version, or () for all. None: nothing is."""
        parts = path.split("/")[1:]
        if parts == ["openapi", "v2"]:
            return () if self._swagger is None else None
        of = self._group_version(parts[2:]) if parts[:2] == ["openapi", "v3"] and len(parts) > 2 else None
        return of if of not in self._documents else None

    def keep(self, of: tuple[str, ...], made: Swagger | bytes) -> None:
        if isinstance(made, Swagger):
            self._swagger = made
        else:
            self._documents[of[0], of[1]] = made

    def document(
        self, path: str, accept: str | None, asked_hash: str = "", if_none_match: str | None = None
    ) -> Document | None:
        """The answer to a GET under `/openapi`, None if not found (upstream's 404 has no body).

        Status 406 has no body either. Only what is asked for by its hash may be kept forever."""
        parts = [part for part in path.split("/") if part]
        if parts == ["openapi", "v2"]:
            return self._version_2(accept, if_none_match)
        if parts[:2] != ["openapi", "v3"] or (len(parts) == 2 and path.endswith("/")):
            return None
        if not any(matches(JSON, clause.media) for clause in parse_accept(accept)):
            return Document(b"", "", {"Vary": "Accept"}, 406)
        if len(parts) == 2:
            return Document(self.index(), JSON, {})
        group_version = self._group_version(parts[2:])
        if group_version is None:
            return None
        known = self._hash(*group_version)
        if asked_hash and asked_hash != known:
            return Document(b"", JSON, {"Location": f"/{'/'.join(parts)}?hash={known}", "Vary": "Accept"}, 301)
        etag = f'"{known}"'
        headers = {"ETag": etag, "Vary": "Accept"} | ({"Cache-Control": "public, immutable"} if asked_hash else {})
        if not_changed(etag, if_none_match):
            return Document(b"", "", headers, 304)
        return Document(self.group_version(*group_version), JSON, headers)

    def _group_version(self, parts: list[str]) -> tuple[str, str] | None:
        group_version = ("", parts[1]) if parts[0] == "api" and len(parts) == 2 else tuple(parts[1:])
        if parts[0] not in ("api", "apis") or len(group_version) != 2:
            return None
        found = (group_version[0], group_version[1])
        return found if found in self._registry.group_versions else None

    def index(self) -> bytes:
        """Where the documents are; made without making them."""
        if self._index is None:
            paths = {}
            for group, version in self._registry.group_versions:
                path = f"apis/{group}/{version}" if group else f"api/{version}"
                paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={self._hash(group, version)}"}
            self._index = orjson.dumps({"paths": paths})
        return self._index

    def _hash(self, group: str, version: str) -> str:
        """Of what a document is made from: the table's versions, the rows, and whether texts are at hand."""
        if (known := self._hashes.get((group, version))) is not None:
            return known
        rows = [
            (row.plural, row.kind, row.namespaced, row.verbs, row.definition.decode(),
             [(s.name, s.kind, s.verbs) for s in row.subresources])
            for row in self._rows(group, version)
        ]
        texts = find_spec("kubernetes_validate") is not None
        made = etag_of(orjson.dumps([dict(SCHEMA.versions), VERSION, group, version, rows, texts]))
        self._hashes[group, version] = made
        return made

    def _rows(self, group: str, version: str) -> list[Kind]:
        return [row for row in self._registry.kinds if (row.group, row.version) == (group, version)]

    def group_version(self, group: str, version: str) -> bytes:
        """The document of a group-version that is served."""
        found = self._documents.get((group, version))
        if found is None:
            found = self._documents[group, version] = orjson.dumps(self._build(group, version))
        return found

    def _build(self, group: str, version: str) -> Json:
        if self._definitions is None:
            self._definitions = _definitions()
        rows = self._rows(group, version)
        schemas = _Schemas(self._definitions, group, version, rows)
        paths = _Paths(group, version, schemas)
        for row in rows:
            paths.add(row)
        return {
            "openapi": "3.0.0",
            "info": _CUSTOM_INFO if any(row.structure is not None for row in rows) else _INFO,
            "paths": dict(sorted(paths.found.items())),
            "components": {"schemas": dict(sorted(schemas.found.items()))},
        }


    def make_swagger(self) -> Swagger:
        parts = [orjson.loads(self.group_version(*each)) for each in self._registry.group_versions]
        told = openapi_v2.document(parts)
        text = orjson.dumps(told)
        return Swagger(text, openapi_v2.protobuf(told), etag_of(text))

    def _version_2(self, accept: str | None, if_none_match: str | None) -> Document:
        headers = {"Vary": "Accept-Encoding\nAccept"}
        for clause in parse_accept(accept):
            as_json = matches(JSON, clause.media)
            if not as_json and clause.media not in _V2_PROTOBUF_ASKED:
                continue
            swagger = self._swagger = self._swagger or self.make_swagger()
            headers["ETag"] = f'"{swagger.etag}"'
            if not_changed(headers["ETag"], if_none_match):
                return Document(b"", "", headers, 304)
            if as_json:
                return Document(swagger.json, JSON, headers)
            return Document(swagger.protobuf, V2_PROTOBUF, headers)
        return Document(b"", "", headers, 406)


def made(registry: Registry, definitions: tuple[bytes, ...], of: tuple[str, ...]) -> Swagger | bytes | None:
    """What `lacks` named, of these definitions' kinds beside those that are built in; None: they do not have it."""
    kinds = registry.extended(tuple(kind for definition in definitions for kind in kinds_of(definition)))
    if not of:
        return OpenApi(kinds).make_swagger()
    return OpenApi(kinds).group_version(*of) if of in kinds.group_versions else None


documents: Final = lru_cache(8)(OpenApi)
"""Those of a registry."""


def document(
    path: str, accept: str | None, asked_hash: str = "", if_none_match: str | None = None, registry: Registry = REGISTRY
) -> Document | None:
    """`OpenApi.document` of the registry."""
    return documents(registry).document(path, accept, asked_hash, if_none_match)
