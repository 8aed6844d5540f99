"""Checks expressions of ValidatingAdmissionPolicies against the types of what they match, and tells of it in their
status. It is loaded when the first policy appears.

Source: `pkg/controller/validatingadmissionpolicystatus`, apiserver
`pkg/admission/plugin/policy/validating/typechecking.go`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from minikube_py.api.admission_expressions import AUTHORIZER, FIELDS, FUNCTIONS, VARIABLES
from minikube_py.api.admission_policies import COMPOSED, plain_type
from minikube_py.api.errors import StatusError
from minikube_py.api.patch import APPLY_PATCH
from minikube_py.cel.environment import Environment, compile
from minikube_py.cel.schemas import declared
from minikube_py.cel.syntax import Invalid
from minikube_py.cel.types import DYN, Type, struct
from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import Object, RestClient
from minikube_py.controllers.base import ControllerContext, QueueController, QueueWorkers
from minikube_py.controllers.volume_views import POLICIES, WholeView
from minikube_py.errors import MinikubeError

KINDS_MAX: Final = 10
"""Of a policy, that are checked."""
_SHAPE: Final = (LookupError, TypeError, AttributeError, ValueError, RecursionError)
"""What a document of the wrong form raises."""
_GVK: Final = "x-kubernetes-group-version-kind"
_API_VERSION: Final = f"{POLICIES.group}/{POLICIES.version}"


class GroupVersionKind(NamedTuple):
    group: str
    version: str
    kind: str

    def __str__(self) -> str:
        return f"{self.group}/{self.version}, Kind={self.kind}"


def is_unchecked(policy: WholeView) -> bool:
    metadata, status = policy.obj["metadata"], policy.obj.get("status") or {}
    return bool((metadata.get("generation") or 0) > (status.get("observedGeneration") or 0))


class PolicyTypes(QueueController):
    name = "validatingadmissionpolicy-status-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._policies: Informer[WholeView] = context.informers.of(POLICIES)
        self._workers = QueueWorkers(context, self.name, self._sync)

    def start(self) -> None:
        super().start()
        self._policies.add_handler(Handler(on_add=self._seen, on_update=lambda old, new: self._seen(new)))

    def _seen(self, policy: WholeView) -> None:
        if is_unchecked(policy):
            self._workers.queue.add(policy.name)

    async def _sync(self, name: str) -> None:
        policy = self._policies.store.get(name)
        if policy is None or not is_unchecked(policy):
            return
        found = []
        checks = await self._checks(policy.obj["spec"])
        for path, expression in expressions(policy.obj["spec"]):
            told = []
            for kind, checking in checks.items():
                if (wrong := checking.wrong(expression)) is not None:
                    told.append(f"{kind}: {wrong}\n")
                await asyncio.sleep(0)
            if told:
                found.append({"fieldRef": path, "warning": "\n".join(told)})
        status: Object = {
            "observedGeneration": policy.obj["metadata"]["generation"],
            "typeChecking": {"expressionWarnings": found} if found else {},
        }
        applied = {
            "apiVersion": _API_VERSION, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
            "status": status,
        }  # fmt: skip
        params_of_apply = {"fieldManager": "validatingadmissionpolicy-status", "force": "true"}
        try:
            await self._client.patch(
                POLICIES, name, applied, content_type=APPLY_PATCH, subresource="status", params=params_of_apply
            )
        except StatusError as error:
            if error.code != 404:
                raise


    async def _checks(self, spec: Mapping[str, Any]) -> dict[GroupVersionKind, Checking]:
        """By the kinds that the policy names. Raises: StatusError, Unavailable."""
        documents, params, param_schema = Documents(self._client), spec.get("paramKind"), None
        if params is not None:
            group, _, version = params["apiVersion"].rpartition("/")
            param_schema = await documents.schema(GroupVersionKind(group, version, params["kind"]))
        checks = {}
        for kind in sorted([each async for each in _kinds(spec, documents)]):
            if kind not in checks and (schema := await documents.schema(kind)) is not None:
                checks[kind] = Checking(kind.kind, schema, params, param_schema, spec.get("variables") or ())
                await asyncio.sleep(0)
        return checks


def expressions(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Those that are checked, with their paths."""
    for number, rule in enumerate(spec.get("validations") or ()):
        yield f"spec.validations[{number}].expression", rule.get("expression") or ""
        if message := rule.get("messageExpression"):
            yield f"spec.validations[{number}].messageExpression", message


# --- kinds ------------------------------------------------------------------------------------------------------------


class Documents:
    """What the server tells of its kinds, each document read once."""

    def __init__(self, client: RestClient) -> None:
        self._client = client
        self._read: dict[str, Object] = {}

    async def _document(self, path: str) -> Object:
        """Empty if it cannot be read: but for the list of groups, it may be another server's, which may be down, and
        its answer of any form. Raises: StatusError, Unavailable."""
        if path not in self._read:
            try:
                self._read[path] = await self._client.request("GET", path)
            except MinikubeError:
                if path == "/apis":
                    raise
                self._read[path] = {}
        return self._read[path]

    async def kinds(self, group: str, version: str, resource: str) -> list[GroupVersionKind]:
        """Without a group, those of all groups that have the version, as upstream's mapper finds them."""
        groups = [group]
        if not group:
            served = (await self._document("/apis")).get("groups") or ()
            groups += [each["name"] for each in served if version in [v["version"] for v in each["versions"]]]
        found = []
        for each in groups:
            document = await self._document(_path("", each, version))
            with suppress(*_SHAPE):
                named = [r for r in document.get("resources") or () if resource in (r["name"], r.get("singularName"))]
                found += [GroupVersionKind(each, version, str(r["kind"])) for r in named]
        return found

    async def schema(self, kind: GroupVersionKind) -> Object | None:
        """With the schemas that it refers to in place."""
        document = await self._document(_path("/openapi/v3", kind.group, kind.version))
        with suppress(*_SHAPE):
            schemas = (document.get("components") or {}).get("schemas") or {}
            for name, schema in schemas.items():
                if kind._asdict() in (schema.get(_GVK) or ()):
                    return whole_schema(schema, schemas, {name: None})
        return None


def _path(under: str, group: str, version: str) -> str:
    return f"{under}/apis/{group}/{version}" if group else f"{under}/api/{version}"


async def _kinds(spec: Mapping[str, Any], documents: Documents) -> AsyncIterator[GroupVersionKind]:
    """At most KINDS_MAX of each rule that names them all."""
    for rule in (spec.get("matchConstraints") or {}).get("resourceRules") or ():
        groups, versions = rule.get("apiGroups") or (), rule.get("apiVersions") or ()
        if any("*" in each for each in (*groups, *versions)):
            continue
        resources = sorted(each for each in rule.get("resources") or () if "*" not in each and "/" not in each)
        found = 0
        for group in sorted(groups):
            for version in sorted(versions):
                for resource in resources:
                    for kind in await documents.kinds(group, version, resource):
                        yield kind
                        found += 1
                        if found == KINDS_MAX:
                            return


def whole_schema(schema: Mapping[str, Any], schemas: Mapping[str, Object], within: dict[str, None]) -> Object:
    """With what it refers to in place; what contains itself is an object without fields there. `within`: the names of
    the schemas around it."""
    if name := _referred(schema):
        if name in within:
            return {"type": "object"}
        return whole_schema(schemas[name], schemas, {**within, name: None})
    found = dict(schema)
    if found.get("format") == "int-or-string":
        found["x-kubernetes-int-or-string"] = True
    if properties := found.get("properties"):
        found["properties"] = {each: whole_schema(inner, schemas, within) for each, inner in properties.items()}
    for part in ("items", "additionalProperties"):
        if isinstance(inner := found.get(part), dict):
            found[part] = whole_schema(inner, schemas, within)
    return found


def _referred(schema: Mapping[str, Any]) -> str:
    """A reference may be the only one of `allOf`."""
    for each in (schema, *(schema.get("allOf") or ())):
        if reference := each.get("$ref"):
            return str(reference).rpartition("/")[2]
    return ""


# --- checks -----------------------------------------------------------------------------------------------------------


@dataclass
class Checking:
    """Of expressions about objects of one kind. `params`: the policy's paramKind, None without one."""

    kind: str
    schema: Object
    params: Object | None
    param_schema: Object | None
    variables: Iterable[Object]
    _names: dict[str, Type] = field(init=False)
    _fields: dict[str, Mapping[str, Type]] = field(init=False)

    def __post_init__(self) -> None:
        self._fields = {**FIELDS}
        of = self._type(self.kind, self.schema)
        self._names = {**VARIABLES, "authorizer": AUTHORIZER["authorizer"], "object": of, "oldObject": of}
        if self.params is not None:
            self._names["params"] = self._type(f"{self.params['kind']}.params", self.param_schema)
        self._names["variables"] = struct(COMPOSED)
        known: dict[str, Type] = {}
        self._fields[COMPOSED] = known
        for variable in self.variables:
            found = self._compiled(variable["expression"])
            known[variable["name"]] = DYN if isinstance(found, str) else plain_type(found)

    def _type(self, name: str, schema: Object | None) -> Type:
        found = None if schema is None else declared(schema, True)
        return DYN if found is None else found.typed(name, self._fields)

    def _compiled(self, expression: str) -> Type | str:
        """Its type, or what is wrong with it."""
        try:
            return compile(expression, Environment(self._names, self._fields, functions=FUNCTIONS)).type
        except Invalid as error:
            return str(error)

    def wrong(self, expression: str) -> str | None:
        found = self._compiled(expression)
        return found if isinstance(found, str) else None
