"""From a path and a method to a resource, a verb and a subresource, by upstream's rules.

Source: apiserver `pkg/endpoints/request/requestinfo.go` and `pkg/endpoints/installer.go`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from minikube_py.api.errors import (
    PageNotFound,
    StatusError,
    bad_request,
    go_quote,
    method_not_allowed,
    not_found,
    path_not_found,
)
from minikube_py.api.kind import Kind, Subresource
from minikube_py.api.registry import REGISTRY, Registry
from minikube_py.apiserver.messages import decode_path


class Route(NamedTuple):
    """`verb` is the API's (`list`, `deletecollection`, ...), not HTTP's. `subresource` None: the object itself."""

    resource: Kind
    verb: str
    namespace: str = ""
    name: str = ""
    subresource: Subresource | None = None


class ResourcePath(NamedTuple):
    """A parsed path, before it is known whether it is served. `error`: why not."""

    group: str
    version: str
    plural: str
    namespace: str
    name: str
    subresource: str
    watch: bool
    resource: Kind | None
    found: Subresource | None
    error: StatusError | None


_COLLECTION_VERBS: Final = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_OBJECT_VERBS: Final = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "POST": "create"}
PROXY: Final = "proxy"
_KNOWN_MAX: Final = 20_000
_KNOWN_CHARS_MAX: Final = 200
_NAMESPACE_SUBRESOURCES: Final = frozenset(("status", "finalize"))


def parse_path(path: str, registry: Registry = REGISTRY) -> ResourcePath | None:
    """None for a non-resource path (`/version`)."""
    known = registry.parsed
    found: ResourcePath | None = known.get(path)
    if found is None:
        found = _parsed(path, registry)
        if found is not None and found.error is None and len(path) <= _KNOWN_CHARS_MAX:
            if len(known) >= _KNOWN_MAX:
                known.clear()
            known[path] = found
    return found


def _parsed(path: str, registry: Registry) -> ResourcePath | None:
    if path.startswith("//"):
        return None
    segments = decode_path(path).strip("/").split("/")
    gaps = "" in segments
    nameless = len(segments) > 3 and segments.count("") == 1 and (not segments[-2] or _is_proxy(segments))
    if gaps:
        segments = [part for part in segments if part]
    if len(segments) < 3:
        return None
    if segments[0] == "api":
        group, version, rest = "", segments[1], segments[2:]
    elif segments[0] == "apis" and len(segments) > 3:
        group, version, rest = segments[1], segments[2], segments[3:]
    else:
        return None
    watch = rest[0] == "watch" and len(rest) > 1
    if watch:
        rest = rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in _NAMESPACE_SUBRESOURCES:
        namespace, rest = rest[1], rest[2:]
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    resource = registry.resource(group, version, rest[0])
    if nameless and (len(rest) == 2 or name == PROXY):
        found = _find(resource, group, version, rest[0], namespace, "", name, watch, False)
        found = found if found.error else found._replace(error=bad_request("name must be provided"))
        return _of_custom(found, registry)
    # Repeated slashes are ignored, except in proxied paths.
    too_deep = (gaps or len(rest) > 3) and subresource != PROXY
    return _of_custom(_find(resource, group, version, rest[0], namespace, name, subresource, watch, too_deep), registry)


def _is_proxy(segments: list[str]) -> bool:
    """Whether the name of what is proxied is missing."""
    return segments[segments.index("") + 1] == PROXY


def _of_custom(path: ResourcePath, registry: Registry) -> ResourcePath:
    """How upstream's handler of custom resources refuses: what has no definition, or one of another scope, is no path;
    a subresource that is not served is an object that is not found."""
    kind = path.resource
    if path.error is None or (not kind.definition if kind is not None else path.group in registry.base.groups):
        return path
    if kind is None or path.watch or bool(path.namespace) != kind.namespaced or not path.subresource:
        return path._replace(error=PageNotFound())
    return path._replace(error=not_found(kind, path.name))


def _find(
    resource: Kind | None,
    group: str,
    version: str,
    plural: str,
    namespace: str,
    name: str,
    sub: str,
    watch: bool,
    too_deep: bool,
) -> ResourcePath:
    found = resource.subresource(sub) if resource is not None and sub else None
    served = resource is not None and not too_deep and (found is not None or not sub)
    if served and resource is not None:
        # Only collections across namespaces have no namespace in their path, and only lists are across them.
        scoped = bool(namespace) == resource.namespaced or not (namespace or name or "list" not in resource.verbs)
        watched = not watch or (not sub and "watch" in resource.verbs)
        served = scoped and watched and (resource.stored or not name or "get" in resource.verbs)
    error = None if served else path_not_found()
    return ResourcePath(group, version, plural, namespace, name, sub, watch, resource, found, error)


def check_segment(name: str) -> None:
    """Raises: StatusError 400 where a name could not be one segment of a key."""
    wrong = [f"may not be '{each}'" for each in (".", "..") if name == each]
    wrong += [f"may not contain '{each}'" for each in ("/", "%") if each in name]
    if wrong:
        raise bad_request(f"Name parameter invalid: {go_quote(name)}: {';'.join(wrong)}")


def verb_of(path: ResourcePath, method: str, watching: bool) -> str:
    """The requested verb, served or not: authorization comes first."""
    if path.watch:
        return "watch"
    verbs = _OBJECT_VERBS if path.name else _COLLECTION_VERBS
    # Methods are upper case; others have an empty verb. HEAD authorizes as GET, but is not served.
    verb = verbs.get(method) or _OBJECT_VERBS.get(method) or (verbs["GET"] if method == "HEAD" else "")
    return "watch" if watching and verb == "list" else verb


def route(path: ResourcePath, method: str, verb: str) -> Route:
    """Raises: StatusError 404 if the path is not served, 405 if the method is not."""
    if path.error is not None or path.resource is None:
        if path.found is not None and path.error is not None and path.error.code == 400:
            as_get = method in ("HEAD", "OPTIONS") and path.found.name == PROXY
            if _OBJECT_VERBS.get("GET" if as_get else method) not in path.found.verbs:
                raise method_not_allowed()
        raise path.error or path_not_found()
    if method not in _OBJECT_VERBS and (path.found is None or path.found.name != PROXY):
        raise method_not_allowed()
    resource = path.resource
    if path.found is not None:
        if verb not in path.found.verbs and (method != "OPTIONS" or path.found.name != PROXY):
            raise method_not_allowed()
        return Route(resource, verb, path.namespace, path.name, path.found)
    if path.name:
        served = verb != "create" and verb in resource.verbs and (verb != "watch" or path.watch)
    elif resource.namespaced and not path.namespace:
        served = verb in ("list", "watch") and verb in resource.verbs
        if not served and resource.definition:
            raise PageNotFound()
    else:
        served = method in _COLLECTION_VERBS and verb in resource.verbs
    if resource.definition and not path.name and verb in ("update", "patch"):
        raise bad_request("name must be provided")
    if path.watch and method != "GET":
        served = False
    if not served:
        raise method_not_allowed()
    return Route(resource, verb, path.namespace, path.name)
