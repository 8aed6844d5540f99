"""Syncs each HorizontalPodAutoscaler every 15 seconds and scales its target by the usage of its pods.

Usage comes from `metrics.k8s.io`; metrics of pods, objects and others from other API servers (`custom_metrics`).

Source: `pkg/controller/podautoscaler/horizontal.go`, `metrics/client.go`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from minikube_py.api.errors import StatusError, go_quote
from minikube_py.api.meta import parse_timestamp
from minikube_py.api.selectors import LabelSelector, parse_label_selector
from minikube_py.client.events import timestamp
from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import PODS, Object, ResourceRef, path_of
from minikube_py.controllers import autoscaling
from minikube_py.controllers.autoscaling import Calculated, History, Metric, Metrics, Scaled, Uncalculated
from minikube_py.controllers.base import ControllerContext, QueueController, QueueWorkers
from minikube_py.controllers.disruption import go_selector
from minikube_py.controllers.volume_views import AUTOSCALERS, WholeView, about
from minikube_py.errors import MinikubeError
from minikube_py.fields import quantity

if TYPE_CHECKING:
    from minikube_py.controllers.custom_metrics import Measures

POD_METRICS: Final = ResourceRef("metrics.k8s.io", "v1beta1", "pods")
_ACTIVE, _ABLE, _LIMITED = "ScalingActive", "AbleToScale", "ScalingLimited"
_NO_SCALE: Final = "the HPA controller was unable to get the target's current scale: "
_CONFLICTS_MAX: Final = 5


class _Failed(Exception):
    """Already reported in conditions and events; the autoscaler is synced again after the usual period."""


class _Unmeasured(Uncalculated):
    """`where` prefixes the message in errors, but not in conditions."""

    def __init__(self, why: str, where: str) -> None:
        super().__init__(why)
        self.where = where


class _Proposal(NamedTuple):
    replicas: int
    metric: str
    status: Object


class _FixedPeriod:
    """Requeues an item after the same period, whatever the outcome."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s

    def when_s(self, item: str) -> float:
        return self._period_s

    def forget(self, item: str) -> None:
        """Nothing to forget."""

    def num_requeues(self, item: str) -> int:
        return 1


class HorizontalPodAutoscalerController(QueueController):
    name = "horizontal-pod-autoscaler-controller"

    def __init__(self, context: ControllerContext) -> None:
        self.client = context.client
        self.clock = context.clock
        self.config = context.config.autoscaler
        self._autoscalers: Informer[WholeView] = context.informers.of(AUTOSCALERS)
        self.events = context.recorder("horizontal-pod-autoscaler")
        limiter = _FixedPeriod(self.config.period_s)
        self._workers = QueueWorkers(context, "horizontalpodautoscaler", self._sync, limiter=limiter)
        self.histories: dict[str, History] = {}
        self.selectors: dict[str, LabelSelector] = {}
        self.found: dict[tuple[str, str], list[ResourceRef]] = {}
        self._measures: Measures | None = None
        self._autoscalers.add_handler(
            Handler(on_add=self._seen, on_update=lambda old, new: self._seen(new), on_delete=self._gone)
        )

    def _seen(self, view: WholeView) -> None:
        self._workers.queue.add_rate_limited(view.key)

    def _gone(self, view: WholeView) -> None:
        self.histories.pop(view.key, None)
        self.selectors.pop(view.key, None)

    async def _sync(self, key: str) -> None:
        view = self._autoscalers.store.get(key)
        if view is None:
            self.histories.pop(key, None)
            return
        try:
            await _Look(self, view).reconcile()
        except _Failed:
            return
        finally:
            self._workers.queue.add_rate_limited(key)

    def others_selecting(self, key: str, namespace: str, pods: list[Object]) -> list[str]:
        """The autoscalers that select these pods, including this one."""
        prefix = f"{namespace}/"
        labels = [pod["metadata"].get("labels") or {} for pod in pods]
        return sorted(
            other
            for other, selector in self.selectors.items()
            if other.startswith(prefix) and any(selector.matches(each) for each in labels)
        )

    @property
    def measures(self) -> Measures:
        if self._measures is None:
            # Few clusters have such metrics.
            from minikube_py.controllers.custom_metrics import Measures

            self._measures = Measures(self.client, self.mappings)
        return self._measures

    async def mappings(self, group: str, kind: str) -> list[ResourceRef]:
        """The resources of that kind, preferred version first. Raises: StatusError, Uncalculated."""
        found = self.found.get((group, kind))
        if found is None:
            found = await self._discovered(group, kind)
            if not found:
                raise Uncalculated(f"no matches for kind {go_quote(kind)} in group {go_quote(group)}")
            self.found[group, kind] = found
        return found

    async def _discovered(self, group: str, kind: str) -> list[ResourceRef]:
        root = f"/apis/{group}" if group else "/api"
        try:
            told = (await self.client.request("GET", root))["versions"]
            versions = [each["version"] if isinstance(each, dict) else each for each in told]
            lists = [(version, await self.client.request("GET", f"{root}/{version}")) for version in versions]
        except StatusError as error:
            if error.code != 404:
                raise
            return []
        return [
            ResourceRef(group, version, each["name"])
            for version, listed in lists
            for each in listed["resources"]
            if each["kind"] == kind and "/" not in each["name"]
        ]


class _Look:
    """One sync of one autoscaler. `status` is the new status."""

    def __init__(self, controller: HorizontalPodAutoscalerController, view: WholeView) -> None:
        self._of = controller
        self._client = controller.client
        self._config = controller.config
        self._view = view
        self._now_s = controller.clock.wall_s()
        self._spec: Object = view.obj["spec"]
        self._status: Object = dict(view.obj.get("status") or {})
        self._involved = about("HorizontalPodAutoscaler", view.obj, "autoscaling/v2")
        self._history = controller.histories.setdefault(view.key, History())

    def _say(self, type_: str, reason: str, message: str) -> None:
        self._of.events.event(self._involved, type_, reason, message)

    def _set(self, type_: str, status: str, reason: str, message: str) -> None:
        conditions = [dict(each) for each in self._status.get("conditions") or ()]
        old = next((each for each in conditions if each["type"] == type_), None)
        if old is None:
            old = {"type": type_, "status": ""}
            conditions.append(old)
        since = old.get("lastTransitionTime") if old["status"] == status else timestamp(self._now_s)
        old |= {"status": status, "lastTransitionTime": since, "reason": reason, "message": message}
        self._status["conditions"] = conditions

    # --- reconciling ------------------------------------------------------------------------------------------------

    async def reconcile(self) -> None:
        """Raises: _Failed, and the errors of the status write."""
        reference = self._spec["scaleTargetRef"]
        resource, scale = await self._scale(reference)
        self._set(_ABLE, "True", "SucceededGetScale", "the HPA controller was able to get the target's current scale")
        current: int = (scale.get("spec") or {}).get("replicas") or 0
        if not self._history.recommended:
            self._history.recommended.append((current, self._now_s))
        least, most = self._spec.get("minReplicas"), self._spec["maxReplicas"]
        least = 1 if least is None else least
        desired, why, metrics, error = current, "", None, None
        if current == 0:
            text = "scaling is disabled since the replica count of the target is zero"
            self._set(_ACTIVE, "False", "ScalingDisabled", text)
        elif current > most:
            desired, why = most, "Current number of replicas above Spec.MaxReplicas"
        elif current < least:
            desired, why = least, "Current number of replicas below Spec.MinReplicas"
        else:
            proposed, name, metrics, error = await self._by_metrics(scale, current)
            if proposed > current:
                why = f"{name} above target"
            elif proposed < current:
                why = "All metrics below target"
            desired = self._normalized(current, proposed, least, most)
        rescaled = desired != current
        if rescaled:
            await self._rescale(resource, scale, current, desired, why, metrics)
        self._report(current, desired, metrics, rescaled)
        await self._write()
        if error is not None:
            raise _Failed(error)

    async def _scale(self, reference: Object) -> tuple[ResourceRef, Object]:
        """The target's resource and its scale. Raises: _Failed."""
        version = reference.get("apiVersion") or ""
        group = version.partition("/")[0] if "/" in version else ""
        try:
            mappings = await self._of.mappings(group, reference["kind"])
        except (MinikubeError, Uncalculated) as error:
            raise await self._unable(str(error)) from None
        first = ""
        for resource in mappings:
            try:
                return resource, await self._client.get_scale(resource, reference["name"], self._view.namespace)
            except MinikubeError as error:
                first = first or str(error)
        self._of.found.pop((group, reference["kind"]), None)
        raise await self._unable(first)

    async def _unable(self, why: str) -> _Failed:
        self._say("Warning", "FailedGetScale", why)
        self._set(_ABLE, "False", "FailedGetScale", _NO_SCALE + why)
        await self._write()
        return _Failed(why)

    def _normalized(self, current: int, proposed: int, least: int, most: int) -> int:
        behavior, history, now_s = self._spec.get("behavior"), self._history, self._now_s
        if behavior is None:
            wanted = autoscaling.stabilized(history, proposed, self._config.downscale_window_s, now_s)
            why, text = "ScaleDownStabilized", autoscaling.HIGHER
            said = autoscaling.limited(current, wanted, least, most)
        else:
            down = behavior.get("scaleDown") or {}
            if down.get("stabilizationWindowSeconds") is None:
                down = {**down, "stabilizationWindowSeconds": self._config.downscale_window_s}
            behavior = {**behavior, "scaleDown": down}
            wanted, why, text = autoscaling.stabilized_by(history, behavior, current, proposed, now_s)
            said = autoscaling.limited_by(history, behavior, current, wanted, least, most, now_s)
        if wanted == proposed:
            why, text = "ReadyForNewScale", "recommended size matches current size"
        self._set(_ABLE, "True", why, text)
        self._set(_LIMITED, "False" if said.replicas == wanted else "True", said.reason, said.message)
        return said.replicas

    async def _rescale(
        self, resource: ResourceRef, scale: Object, before: int, after: int, why: str, metrics: list[Object] | None
    ) -> None:
        """Raises: _Failed."""
        name = self._spec["scaleTargetRef"]["name"]
        failure = ""
        for _ in range(_CONFLICTS_MAX):
            try:
                wanted = {**scale, "spec": {**(scale.get("spec") or {}), "replicas": after}}
                await self._client.update(resource, wanted, "scale")
                break
            except MinikubeError as error:
                failure = str(error)
                if not isinstance(error, StatusError) or error.code != 409:
                    break
                try:
                    scale = await self._client.get_scale(resource, name, self._view.namespace)
                except MinikubeError:
                    continue
        else:
            failure = failure or "conflict"
        if failure:
            raise await self._not_rescaled(before, after, why, metrics, failure)
        text = f"the HPA controller was able to update the target scale to {after}"
        self._set(_ABLE, "True", "SucceededRescale", text)
        self._say("Normal", "SuccessfulRescale", f"New size: {after}; reason: {why}")
        self._history.scaled(self._spec.get("behavior"), before, after, self._now_s)

    async def _not_rescaled(
        self, before: int, after: int, why: str, metrics: list[Object] | None, failure: str
    ) -> _Failed:
        self._say("Warning", "FailedRescale", f"New size: {after}; reason: {why}; error: {failure}")
        text = f"the HPA controller was unable to update the target scale: {failure}"
        self._set(_ABLE, "False", "FailedUpdateScale", text)
        self._report(before, self._status.get("desiredReplicas") or 0, metrics, False)
        await self._write()
        return _Failed(failure)

    # --- status -----------------------------------------------------------------------------------------------------

    def _report(self, current: int, desired: int, metrics: list[Object] | None, rescaled: bool) -> None:
        self._status |= {"currentReplicas": current, "desiredReplicas": desired, "currentMetrics": metrics}
        if rescaled:
            self._status["lastScaleTime"] = timestamp(self._now_s)

    async def _write(self) -> None:
        """Raises: MinikubeError."""
        if _set_fields(self._status) == _set_fields(self._view.obj.get("status") or {}):
            return
        try:
            await self._client.update_status(AUTOSCALERS, {**self._view.obj, "status": self._status})
        except MinikubeError as error:
            self._say("Warning", "FailedUpdateStatus", str(error))
            raise

    # --- metrics ----------------------------------------------------------------------------------------------------

    async def _by_metrics(self, scale: Object, current: int) -> tuple[int, str, list[Object], str | None]:
        """The highest replica count proposed, its metric, the status of each metric, and the errors of some.

        Raises: _Failed."""
        specs = self._spec.get("metrics") or []
        statuses: list[Object] = [{"type": ""} for _ in specs]
        try:
            pods, selector = await self._pods((scale.get("status") or {}).get("selector") or "")
        except Uncalculated as error:
            raise await self._without_metrics(current, None, str(error)) from None
        behavior = self._spec.get("behavior")
        tolerances = autoscaling.tolerances_of(behavior, self._config.tolerance)
        observed: int = (scale.get("status") or {}).get("replicas") or 0
        scaled = Scaled(pods, current, observed, tolerances, self._now_s, self._config)
        replicas, metric, wrong, first = 0, "", 0, ("", "", "")
        for i, spec in enumerate(specs):
            source = _SOURCES[spec["type"]]
            try:
                proposal = await self._proposal(spec, source, scaled, selector)
            except Uncalculated as error:
                reason = f"FailedGet{spec['type']}Metric"
                self._say("Warning", reason, str(error))
                text = f"the HPA was unable to compute the replica count: {error}"
                where = error.where if isinstance(error, _Unmeasured) else ""
                value = f"failed to get {_named(spec, source)} value: {where}{error}"
                first = first if wrong else (reason, text, value)
                wrong += 1
                continue
            statuses[i] = proposal.status
            if replicas == 0 or proposal.replicas > replicas:
                replicas, metric = proposal.replicas, proposal.metric
        told = f"invalid metrics ({wrong} invalid out of {len(specs)}), first error is: {first[2]}" if wrong else None
        if wrong >= len(specs) or (wrong and replicas < current):
            self._set(_ACTIVE, "False", first[0], first[1])
            raise await self._without_metrics(current, statuses, told or "")
        text = f"the HPA was able to successfully calculate a replica count from {metric}"
        self._set(_ACTIVE, "True", "ValidMetricFound", text)
        return replicas, metric, statuses, told

    async def _without_metrics(self, current: int, statuses: list[Object] | None, why: str) -> _Failed:
        self._report(current, self._status.get("desiredReplicas") or 0, statuses, False)
        await self._write()
        self._say("Warning", "FailedComputeMetricsReplicas", why)
        return _Failed(why)

    async def _pods(self, text: str) -> tuple[list[Object], str]:
        """The pods of the scale target. Raises: Uncalculated."""
        key = self._view.key
        if not text:
            self._say("Warning", "SelectorRequired", "selector is required")
            self._set(_ACTIVE, "False", "InvalidSelector", "the HPA target's scale is missing a selector")
            raise Uncalculated("selector is required")
        self._of.selectors[key] = parse_label_selector(text)
        try:
            pods = await self._client.list(PODS, self._view.namespace, label_selector=text)
        except MinikubeError as error:
            raise Uncalculated(f"unable to get pods while calculating replica count: {error}") from None
        others = self._of.others_selecting(key, self._view.namespace, pods)
        if len(others) > 1:
            why = f"pods by selector {text} are controlled by multiple HPAs: [{' '.join(others)}]"
            self._say("Warning", "AmbiguousSelector", why)
            self._set(_ACTIVE, "False", "AmbiguousSelector", why)
            raise Uncalculated(why)
        return pods, text

    async def _proposal(self, spec: Object, source: str, scaled: Scaled, selector: str) -> _Proposal:
        """Raises: Uncalculated."""
        told = spec[source]
        if not source.endswith("esource"):
            return await self._measured(spec["type"], source, told, scaled, selector)
        resource, container, target = told["name"], told.get("container") or "", told["target"]
        average = target.get("averageValue")
        what = "utilization" if average is None else "usage"
        try:
            metrics = await self._metrics(resource, selector, container)
            if average is not None:
                goal = quantity.parse(average).milli_value()
                found = autoscaling.by_value(scaled, metrics, goal, resource)
            else:
                goal = target["averageUtilization"]
                found = autoscaling.by_utilization(scaled, metrics, goal, resource, container)
        except Uncalculated as error:
            raise Uncalculated(f"failed to get {resource} {what}: {error}") from None
        named = f"{resource} resource"
        if average is None:
            kind = "container resource" if container else "resource"
            named = f"{resource} {kind} utilization (percentage of request)"
        return _Proposal(found.replicas, named, _status(spec["type"], source, told, found, average is None))

    async def _measured(self, type_: str, source: str, told: Object, scaled: Scaled, selector: str) -> _Proposal:
        """By a metric of another API server. Raises: Uncalculated."""
        namespace, metric, of = self._view.namespace, told["metric"], told.get("describedObject")
        measures, target = self._of.measures, told["target"]
        name, chosen, average = metric["name"], go_selector(metric.get("selector")), target.get("averageValue")
        goal = quantity.parse(target["value"] if average is None else average).milli_value()
        where = f"failed to get {name} {source} metric: " if average is not None and source != "pods" else ""
        named = f"external metric {name}({chosen})"
        try:
            if of is not None:
                named = named if average is not None else f"{of['kind']} metric {name}"
                # The message is upstream's, including its mix-up.
                failed = f"unable to get metric {name}: {of['kind']} on {namespace} {of['name']}/"
                used = await measures.of_object(namespace, of, metric)
            elif source == "external":
                where = where or f"failed to get external metric {name}: "
                failed = f"unable to get external metric {namespace}/{name}/{chosen}: "
                used = autoscaling.total(await measures.external(namespace, metric), average is not None)
            else:
                named, failed = f"pods metric {name}", f"unable to get metric {name}: "
                metrics = await measures.of_pods(namespace, selector, metric)
        except Uncalculated as error:
            raise _Unmeasured(f"{failed}{error}", where) from None
        try:
            if source == "pods":
                found = autoscaling.by_value(scaled, metrics, goal, "")
            else:
                found = (autoscaling.by_total if average is None else autoscaling.by_average)(scaled, used, goal)
        except Uncalculated as error:
            raise _Unmeasured(str(error), where) from None
        current = {"value" if average is None else "averageValue": str(quantity.from_milli(found.average))}
        described = {"describedObject": of} if of is not None else {}
        status = {"type": type_, source: {**described, "metric": metric, "current": current}}
        return _Proposal(found.replicas, named, status)

    async def _metrics(self, resource: str, selector: str, container: str) -> Metrics:
        """Raises: Uncalculated."""
        path = path_of(POD_METRICS, self._view.namespace)
        head = f"unable to get metrics for resource {resource}: "
        try:
            items = (await self._client.request("GET", path, {"labelSelector": selector}))["items"]
        except MinikubeError as error:
            told = autoscaling.told_by_server(error, "pods.metrics.k8s.io")
            why = f"unable to fetch metrics from resource metrics API: {told}"
            raise Uncalculated(f"{head}{why}") from None
        if not items:
            raise Uncalculated(f"{head}no metrics returned from resource metrics API")
        found: Metrics = {}
        for item in items:
            used = [each["usage"].get(resource) for each in item["containers"] if container in ("", each["name"])]
            if used and None not in used:
                value = sum(quantity.parse(each).milli_value() for each in used)
                window_s = _seconds(item["window"])
                found[item["metadata"]["name"]] = Metric(value, parse_timestamp(item["timestamp"]), window_s)
        return found


_SOURCES: Final = {
    "Resource": "resource", "ContainerResource": "containerResource", "Pods": "pods", "Object": "object",
    "External": "external",
}  # fmt: skip


def _named(spec: Object, source: str) -> str:
    """The metric's name in errors."""
    told = spec[source]
    return {
        "resource": lambda: f"{told['name']} resource metric",
        "containerResource": lambda: f"{told['container']} container metric",
        "external": lambda: f"{told['metric']['name']} external metric",
    }.get(source, lambda: f"{source} metric")()


def _status(type_: str, source: str, told: Object, found: Calculated, by_share: bool) -> Object:
    binary = told["name"] == "memory"
    current: Object = {"averageValue": str(quantity.from_milli(found.average, "BinarySI" if binary else "DecimalSI"))}
    if by_share:
        current["averageUtilization"] = found.utilization
    named = {key: told[key] for key in ("name", "container") if key in told}
    return {"type": type_, source: {**named, "current": current}}


_PARTS: Final = re.compile(r"([0-9.]+)(h|ms|us|µs|ns|m|s)")
_UNITS_S: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


def _seconds(window: str) -> float:
    """A duration as Go prints it: seconds and fractions, or minutes and hours."""
    return sum(float(number) * _UNITS_S[unit] for number, unit in _PARTS.findall(window))


def _set_fields(status: Object) -> dict[str, Any]:
    """The fields that are set: empty and zero count as unset."""
    return {name: value for name, value in status.items() if value not in (None, 0, [])}
