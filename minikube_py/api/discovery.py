"""Discovery: which groups, versions and resources are served, in both of its forms.

The older form is one document per group-version; the aggregated one (`as=APIGroupDiscoveryList`, v2 or v2beta1) has
everything and an ETag. Both come from the rows of the registry.

Source: KEP-3352; apiserver pkg/endpoints/discovery.
"""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson
import yaml

from minikube_py.api.document import JSON, PROTOBUF, YAML, Document, etag_of, matches, not_changed, parse_accept
from minikube_py.api.errors import no_representation, not_acceptable, path_not_found
from minikube_py.api.kind import Kind, Subresource
from minikube_py.api.kinds.apiregistration import GROUP as FIRST
from minikube_py.api.kinds.apiregistration import priority_of
from minikube_py.api.meta import version_rank
from minikube_py.api.registry import REGISTRY, Registry

AGGREGATED: Final = ("v2", "v2beta1")
_ACCEPTED: Final = (JSON, YAML)
Json = dict[str, Any]
Listed = tuple[tuple[str, str, int, int], ...]
"""Of each APIService: its group and version, and their priorities. The lists of groups are made of them alone, as
upstream's, served or not; the aggregated form has what is served."""


class Remote(NamedTuple):
    """A version that another server serves. `resources`: as the aggregated form tells them, in JSON, if any."""

    group: str
    version: str
    priorities: tuple[int, int]
    resources: bytes = b""
    freshness: str = "Current"


class Discovery:
    """The documents of one registry, built lazily. `listed` None: there are no APIServices, and all is listed."""

    def __init__(
        self, registry: Registry = REGISTRY, listed: Listed | None = None, remote: tuple[Remote, ...] = ()
    ) -> None:
        self._registry, self._listed = registry, listed
        self._remote = {(each.group, each.version): each for each in remote}
        self._cache: dict[tuple[str, str], tuple[bytes, str]] = {}
        self._plains: dict[str, tuple[Json, bytes]] = {}

    def document(
        self, path: str, accept: str | None, server_address: str = "", if_none_match: str | None = None
    ) -> Document | None:
        """The response to a GET of a discovery path; None if it is not one (or an unknown group).

        `server_address` is host:port as the client reached it. Raises: StatusError (404 unknown version, 406).
        """
        parts = [part for part in path.split("/") if part]
        if not parts or parts[0] not in ("api", "apis") or len(parts) > (2 if parts[0] == "api" else 3):
            return None
        if len(parts) == 1:
            wanted = _aggregated_version(accept)
            if wanted:
                return self._aggregated(parts[0], wanted, if_none_match)
        key = "/".join(parts)
        found = self._plains.get(key)
        if found is None:
            content = self._plain(parts, server_address)
            if content is None:
                return None
            found = content, orjson.dumps(content) + b"\n"
            if parts != ["api"]:
                self._plains[key] = found
        if parts[0] == "api" or (len(parts) > 2 and parts[1] in self._registry.base.groups):
            _check_route(accept)
        return _as_asked(*found, accept)

    # --- one document a group-version -------------------------------------------------------------------------------

    def _plain(self, parts: list[str], server_address: str) -> Json | None:
        if parts == ["api"]:
            return self._core_versions(server_address)
        if parts == ["apis"]:
            groups = [self._group(name, versions) for name, versions in self._in_order().items()]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        group = parts[1] if parts[0] == "apis" else ""
        if parts[0] == "apis" and len(parts) == 2:
            versions = self._in_order().get(group) or (self._versions(group) if group in self._registry.groups else [])
            return {"kind": "APIGroup", "apiVersion": "v1", **self._group(group, versions)} if versions else None
        if parts[0] == "apis" and group not in self._registry.groups:
            return None
        return self._resource_list(group, parts[-1])

    def _core_versions(self, server_address: str) -> Json:
        return {
            "kind": "APIVersions",
            "versions": self._versions(""),
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
        }

    def _in_order(self) -> dict[str, list[str]]:
        """The versions of each listed group: by the priorities of their APIServices. That of a definition may not be
        made yet."""
        served = [(*each, *priority_of(*each)) for each in self._registry.group_versions if each[0]]
        services = [each for each in self._listed or () if each[0] not in ("", FIRST)]
        if self._listed is not None:
            known = {each[:2] for each in services} | set(self._registry.base.group_versions)
            served = [each for each in served if each[0] == FIRST or each[:2] not in known]
        services += served
        services.sort(key=lambda each: (each[0] != FIRST, -each[2], f"{each[1]}.{each[0]}"))
        found: dict[str, list[tuple[int, Any, str]]] = {}
        for group, version, _, priority in services:
            found.setdefault(group, []).append((-priority, version_rank(version), version))
        return {group: [version for *_, version in sorted(versions)] for group, versions in found.items()}

    def _versions(self, group: str) -> list[str]:
        """Those that are served."""
        served = (version for of, version in self._registry.group_versions if of == group)
        found = {version: priority_of(group, version)[1] for version in served}
        found |= {each.version: each.priorities[1] for each in self._remote.values() if each.group == group}
        return sorted(found, key=lambda version: (-found[version], version_rank(version)))

    def _served(self) -> list[str]:
        """The groups of the aggregated form, in its order."""
        first = {group: priority_of(group, "")[0] for group in self._registry.groups if group}
        for each in self._remote.values():
            first[each.group] = max(first.get(each.group, 0), each.priorities[0])
        return sorted(first, key=lambda group: (group != FIRST, -first[group], group))

    def _group(self, name: str, ordered: list[str]) -> Json:
        versions = [{"groupVersion": f"{name}/{version}", "version": version} for version in ordered]
        return {"name": name, "versions": versions, "preferredVersion": versions[0]}

    def _rows(self, group: str, version: str) -> list[Kind]:
        rows = [r for r in self._registry.kinds if (r.group, r.version) == (group, version)]
        return sorted(rows, key=lambda resource: resource.plural)

    def _resource_list(self, group: str, version: str) -> Json:
        rows = self._rows(group, version)
        if not rows:
            raise path_not_found()
        resources: list[Json] = []
        for row in rows:
            resources.append(_resource(row))
            resources += _subresources(row)
        head = {"kind": "APIResourceList", **({"apiVersion": "v1"} if group else {})}
        return {**head, "groupVersion": f"{group}/{version}" if group else version, "resources": resources}

    # --- everything in one document ---------------------------------------------------------------------------------

    def _aggregated(self, root: str, wanted: str, if_none_match: str | None) -> Document:
        found = self._cache.get((root, wanted))
        if found is None:
            groups = self._served() if root == "apis" else [""]
            content = {
                "kind": "APIGroupDiscoveryList",
                "apiVersion": f"apidiscovery.k8s.io/{wanted}",
                "metadata": {},
                "items": [self._aggregated_group(group) for group in groups],
            }
            body = orjson.dumps(content) + b"\n"
            found = self._cache[root, wanted] = (body, f'"{etag_of(body)}"')
        body, etag = found
        headers = {"ETag": etag, "Vary": "Accept", "Cache-Control": "public"}
        content_type = f"{JSON};g=apidiscovery.k8s.io;v={wanted};as=APIGroupDiscoveryList"
        if not_changed(etag, if_none_match):
            return Document(b"", content_type, headers, 304)
        return Document(body, content_type, headers)

    def _aggregated_group(self, group: str) -> Json:
        versions = [self._aggregated_rows(group, version) for version in self._versions(group)]
        return {"metadata": {"name": group} if group else {}, "versions": versions}

    def _aggregated_rows(self, group: str, version: str) -> Json:
        resources: Any = [_aggregated_resource(row) for row in self._rows(group, version)]
        freshness = "Current"
        if (remote := self._remote.get((group, version))) is not None:
            resources, freshness = remote.resources and orjson.Fragment(remote.resources), remote.freshness
        return {"version": version, **({"resources": resources} if resources else {}), "freshness": freshness}


def _aggregated_version(accept: str | None) -> str:
    """The version of the aggregated form if the client prefers it, else ""."""
    for clause in parse_accept(accept):
        parameters = clause.parameters
        if parameters.get("as") == "APIGroupDiscoveryList" and parameters.get("g") == "apidiscovery.k8s.io":
            if clause.media == JSON and parameters.get("v") in AGGREGATED:
                return parameters["v"]
        elif not parameters.get("as") and any(matches(media, clause.media) for media in _ACCEPTED):
            return ""
    return ""


def _check_route(accept: str | None) -> None:
    """Core and versions are go-restful's routes, which know no `application/*`; the lists of groups are not, nor is
    what custom resources have."""
    wanted = {clause.partition(";")[0].strip() for clause in (accept or "*/*").split(",")}
    if not wanted & {*_ACCEPTED, PROTOBUF, "*/*"}:
        raise no_representation(_ACCEPTED)


def _as_asked(content: Json, as_json: bytes, accept: str | None) -> Document:
    for clause in parse_accept(accept):
        if clause.parameters.get("as"):
            continue
        if matches(JSON, clause.media):
            return Document(as_json, JSON, {})
        if clause.media == YAML:
            return Document(yaml.safe_dump(content, sort_keys=True).encode(), YAML, {})
    raise not_acceptable(_ACCEPTED)


def _resource(row: Kind) -> Json:
    found: Json = {
        "name": row.plural,
        "singularName": row.singular,
        "namespaced": row.namespaced,
        "kind": row.kind,
        "verbs": list(row.verbs),
    }
    if row.short_names:
        found["shortNames"] = list(row.short_names)
    if row.categories:
        found["categories"] = list(row.categories)
    if row.stored and (stored_as := row.stored_as):
        found["storageVersionHash"] = _version_hash(stored_as, row.kind)
    return found


def _version_hash(version: str, kind: str) -> str:
    """Tells a storage migrator whether objects must be rewritten."""
    named = version if "/" in version else f"/{version}"
    return base64.b64encode(hashlib.sha256(f"{named}/{kind}".encode()).digest()[:8]).decode()


def _in_order(row: Kind) -> list[Subresource]:
    """By name; those of custom resources as they are."""
    return list(row.subresources) if row.names_items else sorted(row.subresources, key=lambda sub: sub.name)


def _subresources(row: Kind) -> list[Json]:
    found = []
    for sub in _in_order(row):
        entry: Json = {"name": f"{row.plural}/{sub.name}", "singularName": "", "namespaced": row.namespaced}
        if sub.version:
            entry |= {"group": sub.group, "version": sub.version}
        found.append({**entry, "kind": sub.kind, "verbs": list(sub.verbs)})
    return found


def _response_kind(row: Kind, sub: Subresource | None = None) -> Json:
    if sub is not None and sub.version:
        return {"group": sub.group, "version": sub.version, "kind": sub.kind}
    group, version = (row.group, row.version) if row.names_items else ("", "")
    return {"group": group, "version": version, "kind": sub.kind if sub is not None else row.kind}


def _aggregated_resource(row: Kind) -> Json:
    found: Json = {
        "resource": row.plural,
        "responseKind": _response_kind(row),
        "scope": "Namespaced" if row.namespaced else "Cluster",
        "singularResource": row.singular,
        "verbs": list(row.verbs),
    }
    if row.short_names:
        found["shortNames"] = list(row.short_names)
    if row.categories:
        found["categories"] = list(row.categories)
    if row.subresources:
        found["subresources"] = [
            {
                "subresource": sub.name,
                "responseKind": _response_kind(row, sub),
                "verbs": list(sub.verbs),
            }
            for sub in _in_order(row)
        ]
    return found


_of: Final = lru_cache(8)(Discovery)


def document(
    path: str,
    accept: str | None,
    server_address: str = "",
    if_none_match: str | None = None,
    registry: Registry = REGISTRY,
    listed: Listed | None = None,
    remote: tuple[Remote, ...] = (),
) -> Document | None:
    """`Discovery.document` of the registry."""
    return _of(registry, listed, remote).document(path, accept, server_address, if_none_match)
