"""What other API servers measure: of pods and other objects (`custom.metrics.k8s.io`), and of anything else
(`external.metrics.k8s.io`).

Source: k8s.io/metrics `pkg/client/{custom_metrics,external_metrics}`; `pkg/controller/podautoscaler/metrics/client.go`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import quote

from minikube_py.api.document import object_of, objects, text
from minikube_py.api.errors import StatusError
from minikube_py.api.label_selectors import selector_text
from minikube_py.api.values import INT64_MAX
from minikube_py.client.rest import Object, ResourceRef, RestClient
from minikube_py.controllers.autoscaling import Metric, Metrics, Uncalculated, told_by_server
from minikube_py.errors import MinikubeError
from minikube_py.fields import quantity

CUSTOM: Final = "custom.metrics.k8s.io"
EXTERNAL: Final = "external.metrics.k8s.io"
_VERSIONS: Final = tuple(f"{CUSTOM}/{version}" for version in ("v1beta2", "v1beta1"))


class Measures:
    """`mappings`: the resources of a kind, by group and kind, preferred version first; raises what `_custom` does."""

    def __init__(self, client: RestClient, mappings: Callable[[str, str], Awaitable[list[ResourceRef]]]) -> None:
        self._client = client
        self._mappings = mappings

    async def of_pods(self, namespace: str, selector: str, metric: Object) -> Metrics:
        """By pod. Raises: Uncalculated."""
        found = await self._custom(namespace, "pods", "*", metric, {"labelSelector": selector})
        if not found:
            raise Uncalculated("no metrics returned from custom metrics API")
        return {text(object_of(each.get("describedObject")), "name"): Metric(_milli(each)) for each in found}

    async def of_object(self, namespace: str, of: Object, metric: Object) -> int:
        """In thousandths. Raises: Uncalculated."""
        group, kind = (of.get("apiVersion") or "").rpartition("/")[0], of["kind"]
        resource, name = "metrics", ""
        if (group, kind) != ("", "Namespace"):
            try:
                found_at = (await self._mappings(group, kind))[0]
                resource, name = f"{found_at.plural}.{group}".removesuffix("."), of["name"]
            except (MinikubeError, Uncalculated) as error:
                named = f"{kind}.{group}" if group else kind
                raise _unfetched(CUSTOM, f"unable to map kind {named} to resource: {error}") from None
        found = await self._custom(namespace, resource, name, metric, {})
        if len(found) != 1:
            why = f"the custom metrics API server returned {len(found)} results when we asked for exactly one"
            raise _unfetched(CUSTOM, why)
        return _milli(found[0])

    async def external(self, namespace: str, metric: Object) -> list[int]:
        """In thousandths. Raises: Uncalculated."""
        path = f"/apis/{EXTERNAL}/v1beta1/namespaces/{namespace}/{quote(metric['name'], safe='')}"
        try:
            answer = await self._client.request("GET", path, _terms("labelSelector", metric))
        except MinikubeError as error:
            raise _unfetched(EXTERNAL, told_by_server(error, f"{metric['name']}.{EXTERNAL}")) from None
        if not (found := objects(answer, "items")):
            raise Uncalculated("no metrics returned from external metrics API")
        return [_milli(each) for each in found]

    async def _custom(
        self, namespace: str, resource: str, name: str, metric: Object, more: Mapping[str, str]
    ) -> list[Object]:
        """Raises: Uncalculated."""
        segments = (resource, name, metric["name"]) if name else (resource, metric["name"])
        try:
            version = await self._version()
            path = "/".join(("", "apis", version, "namespaces", namespace, *(quote(each, "*") for each in segments)))
            answer = await self._client.request("GET", path, {**more, **_terms("metricLabelSelector", metric)})
        except MinikubeError as error:
            of = f"{resource}.{CUSTOM} {name or metric['name']}"
            raise _unfetched(CUSTOM, told_by_server(error, of)) from None
        return objects(answer, "items")

    async def _version(self) -> str:
        """The preferred one, with its group. Raises: MinikubeError, Uncalculated."""
        try:
            told = await self._client.request("GET", f"/apis/{CUSTOM}")
        except StatusError as error:
            if error.code != 404:
                raise
            raise _unfetched(CUSTOM, f"no custom metrics API ({CUSTOM}) registered") from None
        served = [object_of(told.get("preferredVersion")), *objects(told, "versions")]
        known = [each for version in served if (each := text(version, "groupVersion")) in _VERSIONS]
        if not known:
            raise _unfetched(CUSTOM, "no known available metric versions found")
        return known[0]


def _terms(parameter: str, metric: Object) -> dict[str, str]:
    selected = selector_text(metric.get("selector"), "", "")
    return {parameter: selected} if selected else {}


def _unfetched(group: str, why: str) -> Uncalculated:
    return Uncalculated(f"unable to fetch metrics from {group.partition('.')[0]} metrics API: {why}")


def _milli(value: Object) -> int:
    """Raises: Uncalculated."""
    try:
        found = quantity.parse(str(value.get("value"))).milli_value()
    except ValueError as error:
        raise Uncalculated(str(error)) from None
    return max(-INT64_MAX - 1, min(found, INT64_MAX))
