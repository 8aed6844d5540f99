"""Resolves resource names as kubectl does (`rc`, `pods`, `Pod`, `deployments.apps`): from discovery."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from minikube_py.api.errors import StatusError
from minikube_py.api.kind import Kind
from minikube_py.api.registry import REGISTRY, Registry
from minikube_py.client.rest import ResourceRef, RestClient
from minikube_py.cluster.errors import ClusterError

Object = dict[str, Any]
GROUPS: Final = frozenset(kind.group for kind in REGISTRY.kinds)
"""Their kinds stay as they are while a server runs."""
NOT_FOUND: Final = 404


@dataclass(frozen=True, slots=True)
class Served:
    """A resource of the server. `names`: all its names, in lower case."""

    ref: ResourceRef
    kind: str
    namespaced: bool
    names: frozenset[str]

    @property
    def api_version(self) -> str:
        return self.ref.api_version


class Kinds:
    """The served resources, cached, and read again if a name is not found: kinds are added with their definitions.
    Those of definitions are confirmed at each use: they may have ended, or been replaced by others of that name."""

    def __init__(self) -> None:
        self._served: list[Served] = []
        self._used: set[str] = set()

    async def named(self, client: RestClient, name: str, parameter: str) -> Served:
        """By plural, singular, short name or kind, with or without `.group` or `.version.group`.

        Raises: ClusterError, naming the part of the `parameter` that is not served."""
        wanted, _, group = name.lower().partition(".")

        def fits(each: Served) -> bool:
            ref = each.ref
            return wanted in each.names and group in ("", ref.group, f"{ref.version}.{ref.group}".rstrip("."))

        return await self._found(client, fits, f"{parameter}: no resource {name!r}", wanted)

    def was_used(self, name: str) -> bool:
        """Whether a resource of that name was found before."""
        return name.lower().partition(".")[0] in self._used

    async def of(self, client: RestClient, obj: Mapping[str, Any]) -> Served:
        """Of an object, by its apiVersion and kind. Raises: ClusterError."""
        version, kind = obj.get("apiVersion"), obj.get("kind")

        def fits(each: Served) -> bool:
            return each.kind == kind and each.api_version == version

        return await self._found(client, fits, f"manifests: no kind {kind!r} in version {version!r}")

    async def all(self, client: RestClient) -> list[Served]:
        """Every resource with objects, the preferred version of its group first."""
        self._served = await _discover(client)
        return self._served

    async def _found(
        self, client: RestClient, fits: Callable[[Served], bool], missing: str, wanted: str = ""
    ) -> Served:
        found = next(filter(fits, self._served), None)
        if found is not None and found.ref.group not in GROUPS:
            found = next(filter(fits, await _served_in(client, found.api_version)), None)
        if found is None:
            self._served = await _discover(client)
            found = next(filter(fits, self._served), None)
        if found is None:
            known = (name for each in self._served for name in sorted(each.names))
            raise ClusterError(_missing(missing, wanted, known))
        self._used |= found.names
        return found


def served_kind(registry: Registry, name: str, parameter: str = "on") -> Kind:
    """The kind that `name` means, as in kubectl. Raises: ClusterError."""
    wanted, _, group = name.lower().partition(".")
    for kind in registry.kinds:
        names = (kind.plural, kind.singular, kind.kind.lower(), *kind.short_names)
        if wanted in names and group in ("", kind.group, f"{kind.version}.{kind.group}".rstrip(".")):
            return kind
    raise ClusterError(_missing(f"{parameter}: no resource {name!r}", wanted, (each.plural for each in registry.kinds)))


def _missing(what: str, wanted: str, known: Iterable[str]) -> str:
    near = get_close_matches(wanted, sorted(set(known)), 3)
    meant = f"did you mean {' or '.join(near)}?" if near else "`kubectl api-resources` lists what is"
    return f"{what} is served by this cluster; {meant}"


async def _discover(client: RestClient) -> list[Served]:
    groups = (await client.request("GET", "/apis"))["groups"]
    versions = ["v1"]
    for group in groups:
        preferred = group["preferredVersion"]["groupVersion"]
        rest = [each["groupVersion"] for each in group["versions"] if each["groupVersion"] != preferred]
        versions += [preferred, *rest]
    return [each for version in versions for each in await _served_in(client, version)]


async def _served_in(client: RestClient, version: str) -> list[Served]:
    """None if the version is not served any more."""
    try:
        rows = (await client.request("GET", f"/apis/{version}" if "/" in version else f"/api/{version}"))["resources"]
    except StatusError as error:
        if error.code != NOT_FOUND:
            raise
        return []
    group, _, bare = version.rpartition("/")
    found = []
    for row in rows:
        # Subresources, and reviews, which have no objects.
        if "/" in row["name"] or "list" not in row["verbs"]:
            continue
        names = {row["name"], row["kind"].lower(), row.get("singularName") or row["name"]}
        ref = ResourceRef(group, bare, row["name"])
        found.append(Served(ref, row["kind"], row["namespaced"], frozenset(names | {*row.get("shortNames", ())})))
    return found
