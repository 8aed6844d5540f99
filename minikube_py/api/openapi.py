"""OpenAPI: for `kubectl explain` and client-side validation.

Version 3 is one document per group-version, built lazily from the schema's table and the registry. It has every path
with its verbs and parameters, and every message that they need (`openapi_schemas`). So have the paths above them.

Version 2 is made of these documents (`openapi_v2`), each of which adds a part, and of other servers'
(`openapi_merging`). Documents and parts are kept by what
they are made from, so that a new registry makes only those of kinds that changed.

Source: apiserver pkg/endpoints/openapi, kube-openapi pkg/handler3.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

import orjson

from minikube_py.api import openapi_merging, openapi_v2
from minikube_py.api.custom.kinds import kinds_of
from minikube_py.api.document import JSON, Document, etag_of, matches, not_changed, parse_accept
from minikube_py.api.kind import Kind, Subresource
from minikube_py.api.openapi_schemas import VERSION, Schemas, definitions, parameter
from minikube_py.api.registry import REGISTRY, Registry
from minikube_py.api.schema import SCHEMA

Json = dict[str, Any]
V2_PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_V2_PROTOBUF_ASKED: Final = (V2_PROTOBUF, "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
TITLE: Final = "Kubernetes"


# --- paths ----------------------------------------------------------------------------------------------------------

_CODES: Final = {
    "create": ("200", "201", "202"), "update": ("200", "201"), "patch": ("200", "201"), "delete": ("200", "202"),
}  # fmt: skip
YAML: Final = "application/yaml"
_OBJECTS: Final = (JSON, YAML, openapi_v2.PROTOBUF)
_STREAMED: Final = tuple(f"{media};stream=watch" for media in (JSON, openapi_v2.PROTOBUF))
_TOLD: Final = {"200": "OK", "201": "Created", "202": "Accepted"}
_LIST_PARAMETERS: Final = (
    "continue", "fieldSelector", "labelSelector", "limit", "resourceVersion", "resourceVersionMatch",
    "sendInitialEvents", "shardSelector", "timeoutSeconds",
)  # fmt: skip
_WATCH_PARAMETERS: Final = tuple(sorted((*_LIST_PARAMETERS, "allowWatchBookmarks", "watch")))
_DELETE_PARAMETERS: Final = (
    "dryRun", "gracePeriodSeconds", "ignoreStoreReadErrorWithClusterBreakingPotential", "orphanDependents",
    "propagationPolicy",
)  # fmt: skip
_WRITE_PARAMETERS: Final = ("dryRun", "fieldManager", "fieldValidation")
_PARAMETERS: Final[dict[str, tuple[str, ...]]] = {
    "create": _WRITE_PARAMETERS,
    "update": _WRITE_PARAMETERS,
    "patch": (*_WRITE_PARAMETERS, "force"),
    "delete": _DELETE_PARAMETERS,
    "deletecollection": tuple(sorted((*_LIST_PARAMETERS, *_DELETE_PARAMETERS))),
    **dict.fromkeys(("list", "watch", "watchlist"), _WATCH_PARAMETERS),
    "log": (
        "container", "follow", "insecureSkipTLSVerifyBackend", "limitBytes", "previous", "sinceSeconds", "stream",
        "tailLines", "timestamps",
    ),
}  # fmt: skip
_CUSTOM_PARAMETERS: Final = {"get": ("resourceVersion",), "deletecollection": _PARAMETERS["list"]}
_PATCHES: Final = ("json-patch+json", "merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml")


class _Paths:
    """The paths of one group-version."""

    def __init__(self, group: str, version: str, schemas: Schemas) -> None:
        self.found: dict[str, Json] = {}
        self._root = f"{_root(group)}/{version}"
        self._title = _title(group, version)
        self._tag = f"{_tag(group)}_{version}"
        self._group, self._version, self._schemas = group, version, schemas
        self._patches: tuple[str, ...] = ()
        self._custom = ""
        """The kind, of a custom resource."""

    def add_discovery(self) -> None:
        schema = self._schemas.ref("meta/v1.APIResourceList")
        self.found[f"{self._root}/"] = _discovery(f"get{self._title}APIResources", schema, self._tag)

    def add(self, row: Kind) -> None:
        self._custom = row.kind if row.structure is not None else ""
        # What is no Go type has no merge keys.
        self._patches = (*_PATCHES[:2], *_PATCHES[3:]) if self._custom else _PATCHES
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
        if "watch" in row.verbs and not self._custom:
            self._add_watches(row, own, scope, middle)
        for sub in row.subresources:
            self._add_subresource(f"{collection}/{{name}}/{sub.name}", ("name", *scope), row, sub, middle)

    def _add_watches(self, row: Kind, own: tuple[str, str, str], scope: tuple[str, ...], middle: str) -> None:
        root, title = f"{self._root}/watch", f"watch{self._title}"
        within = f"{root}/namespaces/{{namespace}}/{row.plural}" if middle else f"{root}/{row.plural}"

        def put(path: str, names: tuple[str, ...], verb: str, operation_id: str) -> None:
            self._put(path, names, own, {"get": (verb, operation_id, "WatchEvent")}, (verb,))

        if middle:
            put(f"{root}/{row.plural}", (), "watchlist", f"{title}{row.kind}ListForAllNamespaces")
        put(within, scope, "watchlist", f"{title}{middle}{row.kind}List")
        put(f"{within}/{{name}}", ("name", *scope), "watch", f"{title}{middle}{row.kind}")

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
        for end, deeper in (("", []), ("WithPath", [parameter("path", "path")])):
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
            parameters = [*(parameter(name, "path") for name in scope), *deeper, *options]
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
            shared = [*(parameter(name, "path") for name in scope), parameter("pretty")]
            if len(item) == 1:
                shared += next(iter(item.values())).pop("parameters", [])
                shared.sort(key=lambda each: each["name"])
            item["parameters"] = shared
            self.found[path] = item

    def _operation(self, verb: str, operation_id: str, answer: str, kind: tuple[str, str, str]) -> Json:
        group, version, name = kind
        answered = ("", "v1", answer) if answer in ("Status", "WatchEvent") else (group, version, answer)
        found: Json = {"tags": [self._tag], "operationId": operation_id}
        given = {**_PARAMETERS, **_CUSTOM_PARAMETERS} if self._custom else _PARAMETERS
        names = given["log"] if operation_id.endswith("Log") else given.get(verb, ())
        if names:
            found["parameters"] = [parameter(each) for each in names]
        body = self._body(verb, kind)
        if body:
            found["requestBody"] = body
        schema = {"schema": self._schemas.kind(*answered)}
        streamed = _STREAMED if verb in ("list", "watch", "watchlist") else ()
        medias = _OBJECTS[:2] if self._custom else (*_OBJECTS, *streamed)
        content = dict.fromkeys(("text/plain", *medias) if answer == "string" else medias, schema)
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
            return {"content": self._read(self._schemas.kind(*kind)), "required": True}
        if verb == "delete" or (verb == "deletecollection" and not self._custom):
            return {"content": self._read(self._schemas.ref("meta/v1.DeleteOptions"))}
        return {}

    def _read(self, schema: Json) -> Json:
        """For custom resources, upstream names each type that it reads."""
        return {media: {"schema": schema} for media in (_OBJECTS[:2] if self._custom else ("*/*",))}


def _root(group: str) -> str:
    return f"/apis/{group}" if group else "/api"


def _tag(group: str) -> str:
    name = _title(group, "")
    return name[:1].lower() + name[1:]


def _discovery(operation_id: str, schema: Json, tag: str, medias: tuple[str, ...] = _OBJECTS) -> Json:
    """What has no verb of the API, and no parameters."""
    answers = {"description": "OK", "content": {media: {"schema": schema} for media in medias}}
    responses = {"200": answers, "401": {"description": "Unauthorized"}}
    return {"get": {"tags": [tag], "operationId": operation_id, "responses": responses}}


_INFO: Final = {"title": TITLE, "version": VERSION}
_CUSTOM_INFO: Final = {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"}


def _title(group: str, version: str) -> str:
    parts = (group.removesuffix(".k8s.io") or "core").split(".")
    return "".join(part.capitalize() for part in (*parts, version))


class _Above(NamedTuple):
    """A path that belongs to no group-version. Without `message`, the answer is text."""

    operation_id: str
    tag: str
    message: str = ""
    medias: tuple[str, ...] = _OBJECTS


def _paths_above(groups: Iterable[str]) -> dict[str, _Above]:
    """By path, without the slashes around it. `groups`: those built in."""
    issuer = "getServiceAccountIssuerOpenID"
    found = {
        ".well-known/openid-configuration": _Above(f"{issuer}Configuration", "WellKnown", medias=(JSON,)),
        "api": _Above("getCoreAPIVersions", "core", "meta/v1.APIVersions"),
        "apis": _Above("getAPIVersions", "apis", "meta/v1.APIGroupList"),
        "openid/v1/jwks": _Above(f"{issuer}Keyset", "openid", medias=("application/jwk-set+json",)),
        "version": _Above("getCodeVersion", "version", "version.Info", (JSON,)),
    }
    ids = {group: f"get{_title(group, '')}APIGroup" for group in groups if group}
    return found | {f"apis/{group}": _Above(ids[group], _tag(group), "meta/v1.APIGroup") for group in ids}


def _document(paths: Json, schemas: Json, info: Json) -> Json:
    components: Json = {"schemas": dict(sorted(schemas.items()))} if schemas else {}
    if info is _INFO:
        components["securitySchemes"] = {"BearerToken": openapi_v2.TOKEN}
    return {"openapi": "3.0.0", "info": info, "paths": dict(sorted(paths.items())), "components": components}


# --- documents ------------------------------------------------------------------------------------------------------


class Swagger(NamedTuple):
    """The document of version 2, in both forms."""

    json: bytes
    protobuf: bytes
    etag: str


_SWAGGERS_MAX: Final = 2
"""Several servers of a process may have the same registry."""
Others = tuple[openapi_merging.Foreign, ...]
"""What other servers add to the document of version 2."""
Of = tuple[str, str, str]
"""Group, version, and what is made of them: "v3", a document, or "v2", a part."""
_kept: OrderedDict[tuple[str, str], bytes | openapi_v2.Part] = OrderedDict()
"""By hash and what it is; the latest used last."""


class OpenApi:
    """The documents of one registry. Each is built lazily; callers that build elsewhere ask what it `lacks`, let it
    `keep` the result, and then take the steps of `joining`."""

    def __init__(self, registry: Registry = REGISTRY) -> None:
        self._registry = registry
        self._index: bytes | None = None
        self._hashes: dict[tuple[str, str], str] = {}
        self._swaggers: dict[str, Swagger] = {}

    def lacks(self, path: str, others: Others = ()) -> Of | None:
        """What is to be made next for the document at `path`. None: nothing."""
        parts = path.split("/")[1:]
        wanted: list[Of] = []
        if parts == ["openapi", "v2"]:
            wanted = [] if self._etag(others) in self._swaggers else self._parts
        elif parts[:2] == ["openapi", "v3"] and len(parts) > 2 and (of := self._group_version(parts[2:])):
            wanted = [(*of, "v3")]
        return next((each for each in wanted if (self._hash(*each[:2]), each[2]) not in _kept), None)

    def keep(self, of: Of, made: bytes | openapi_v2.Part) -> None:
        _kept[self._hash(*of[:2]), of[2]] = made
        # Twice what this registry needs: earlier definitions and other clusters of the process have some, too.
        while len(_kept) > 2 * (2 * len(self._parts) + len(self._above)):
            _kept.popitem(last=False)

    def joining(self, path: str, others: Others = ()) -> Iterator[None]:
        """Nothing is lacking: the steps that join the document of version 2, if that is the one at `path`."""
        etag = self._etag(others)
        if path == "/openapi/v2" and etag not in self._swaggers:
            text, packed = yield from openapi_merging.joining([self._part(*of) for of in self._parts], others)
            if len(self._swaggers) >= _SWAGGERS_MAX:
                self._swaggers.clear()
            self._swaggers[etag] = Swagger(text, packed, etag)

    def _etag(self, others: Others) -> str:
        """Of the document of version 2."""
        hashes = [*(self._hash(*of[:2]) for of in self._parts), *(each.etag for each in others)]
        return etag_of("".join(hashes).encode())

    @cached_property
    def _above(self) -> dict[str, _Above]:
        return _paths_above(dict.fromkeys(row.group for row in self._registry.kinds if not row.definition))

    @property
    def _parts(self) -> list[Of]:
        return [("", "", "v2"), *((*each, "v2") for each in self._registry.group_versions)]

    def _part(self, group: str, version: str, what: str = "v2") -> openapi_v2.Part:
        found = self._found((group, version, what))
        return found if isinstance(found, openapi_v2.Part) else self.make_part(group, version)

    def make_part(self, group: str, version: str) -> openapi_v2.Part:
        # Schemas share members until they are encoded.
        return openapi_v2.part(orjson.loads(self.group_version(group, version)))

    def _found(self, of: Of) -> bytes | openapi_v2.Part | None:
        key = self._hash(*of[:2]), of[2]
        if key in _kept:
            _kept.move_to_end(key)
        return _kept.get(key)

    def document(
        self,
        path: str,
        accept: str | None,
        asked_hash: str = "",
        if_none_match: str | None = None,
        others: Others = (),
    ) -> Document | None:
        """The answer to a GET under `/openapi`, None if not found (upstream's 404 has no body).

        Status 406 has no body either. Only what is asked for by its hash may be kept forever."""
        parts = [part for part in path.split("/") if part]
        if parts == ["openapi", "v2"]:
            return self._version_2(accept, if_none_match, others)
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
        """What a document is of: a group-version, or a path above them and ""."""
        if (path := "/".join(parts)) in self._above:
            return path, ""
        group_version = ("", parts[1]) if parts[0] == "api" and len(parts) == 2 else tuple(parts[1:])
        if parts[0] not in ("api", "apis") or len(group_version) != 2:
            return None
        found = (group_version[0], group_version[1])
        return found if found in self._registry.group_versions else None

    def index(self) -> bytes:
        """Where the documents are; made without making them."""
        if self._index is None:
            hashes = {f"{_root(each[0])[1:]}/{each[1]}": self._hash(*each) for each in self._registry.group_versions}
            hashes |= {path: self._hash(path, "") for path in self._above}
            urls = {path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={hashes[path]}"} for path in sorted(hashes)}
            self._index = orjson.dumps({"paths": urls})
        return self._index

    def _hash(self, group: str, version: str) -> str:
        """Of what a document is made from: the table's versions, the rows, and whether texts are at hand."""
        if (known := self._hashes.get((group, version))) is not None:
            return known
        rows = [
            (row.plural, row.kind, row.namespaced, row.verbs, row.definition.decode(),
             [(s.name, s.kind, s.verbs) for s in row.subresources])
            for row in self._rows(group, version)
        ] if version else list(self._above)  # fmt: skip
        texts = find_spec("kubernetes_validate") is not None
        made = etag_of(orjson.dumps([dict(SCHEMA.versions), VERSION, group, version, rows, texts]))
        self._hashes[group, version] = made
        return made

    def _rows(self, group: str, version: str) -> list[Kind]:
        return [row for row in self._registry.kinds if (row.group, row.version) == (group, version)]

    def group_version(self, group: str, version: str) -> bytes:
        """The document of a group-version that is served, or of a path above them; of all these, without both."""
        found = self._found((group, version, "v3"))
        if not isinstance(found, bytes):
            found = orjson.dumps(self._build(group, version))
            self.keep((group, version, "v3"), found)
        return found

    def _build(self, group: str, version: str) -> Json:
        if not version:
            return self._build_above([group] if group else list(self._above))
        rows = self._rows(group, version)
        schemas = Schemas(definitions(), group, version, rows)
        paths = _Paths(group, version, schemas)
        for row in rows:
            paths.add(row)
        custom = any(row.structure is not None for row in rows)
        if not custom:
            paths.add_discovery()
        return _document(paths.found, schemas.found, _CUSTOM_INFO if custom else _INFO)

    def _build_above(self, names: list[str]) -> Json:
        schemas = Schemas(definitions(), "", "v1", [])
        paths = {}
        for name in names:
            operation_id, tag, message, medias = self._above[name]
            schema = schemas.ref(message) if message else {"type": "string"}
            paths[f"/{name}/"] = _discovery(operation_id, schema, tag, medias)
        return _document(paths, schemas.found, _INFO)

    def make_swagger(self, others: Others = ()) -> Swagger:
        """In one step."""
        for _ in self.joining("/openapi/v2", others):
            pass
        return self._swaggers[self._etag(others)]

    def _version_2(self, accept: str | None, if_none_match: str | None, others: Others) -> Document:
        headers = {"Vary": "Accept-Encoding\nAccept"}
        for clause in parse_accept(accept):
            as_json = matches(JSON, clause.media)
            if not as_json and clause.media not in _V2_PROTOBUF_ASKED:
                continue
            swagger = self.make_swagger(others)
            headers["ETag"] = f'"{swagger.etag}"'
            if not_changed(headers["ETag"], if_none_match):
                return Document(b"", "", headers, 304)
            if as_json:
                return Document(swagger.json, JSON, headers)
            return Document(swagger.protobuf, V2_PROTOBUF, headers)
        return Document(b"", "", headers, 406)


def made(registry: Registry, definitions: tuple[bytes, ...], of: Of) -> openapi_v2.Part | bytes | None:
    """What `lacks` named, of these definitions' kinds beside those that are built in; None: they do not have it."""
    kinds = registry.extended(tuple(kind for definition in definitions for kind in kinds_of(definition)))
    group, version, what = of
    if version and (group, version) not in kinds.group_versions:
        return None
    return OpenApi(kinds).make_part(group, version) if what == "v2" else OpenApi(kinds).group_version(group, version)


documents: Final = lru_cache(8)(OpenApi)
"""Those of a registry."""


def document(
    path: str,
    accept: str | None,
    asked_hash: str = "",
    if_none_match: str | None = None,
    registry: Registry = REGISTRY,
    others: Others = (),
) -> Document | None:
    """`OpenApi.document` of the registry."""
    return documents(registry).document(path, accept, asked_hash, if_none_match, others)
