"""Runs the operations of one workload against a running control plane.

Source: test/integration/scheduler_perf/executor.go; test/utils/runners.go.
"""

from __future__ import annotations

import asyncio
import fnmatch
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson

from minikube_py.api.errors import StatusError
from minikube_py.client.rest import NODES, PODS, Object, ResourceRef, RestClient, path_of
from minikube_py.env import ended
from minikube_py.errors import InvalidRequest, Unavailable
from minikube_py.lab.load import LoadError, create_namespaces, run_bounded
from minikube_py.lab.progress import progress
from minikube_py.lab.scheduler_perf import devices, objects, ops
from minikube_py.lab.scheduler_perf.figures import Collecting, Item, apply_threshold
from minikube_py.lab.scheduler_perf.files import Run
from minikube_py.lab.scheduler_perf.pods import Pods, PodSeen
from minikube_py.lab.scheduler_perf.templates import read_object, read_text, template
from minikube_py.lab.stage import Stage
from minikube_py.scheduler.scheduler import Scheduler

WORKERS: Final = 30
"""Concurrent creates, as upstream."""
STRICT: Final = {"fieldValidation": "Strict"}
RETRIED: Final = (404, 409, 429, 500, 503, 504)
RETRY_FOR_S: Final = 20.0
CHURN_MS: Final = 500
CSI_NODES: Final = ResourceRef("storage.k8s.io", "v1", "csinodes")
PRIORITY_CLASSES: Final = ResourceRef("scheduling.k8s.io", "v1", "priorityclasses")
VOLUMES: Final = ResourceRef("", "v1", "persistentvolumes")
CLAIMS: Final = ResourceRef("", "v1", "persistentvolumeclaims")


class Running:
    """One workload. `run()` returns its figures; `missed` holds missed thresholds."""

    def __init__(self, run: Run, topic: str, standing: Stage, scheduler: Scheduler, seed: int) -> None:
        self._run, self._topic = run, topic
        self._clock, self._scheduler = standing.clock, scheduler
        self._client = RestClient(standing.transport)
        self._transport = standing.transport
        self._rng = random.Random(seed)
        self._pods = Pods(self._client, standing.clock, self._rng)
        self._counts: dict[str, int] = {}
        self._classes: set[int] = set()
        self._nodes_made = 0
        self._background: list[asyncio.Task[None]] = []
        self._collecting: Collecting | None = None
        self._items: list[Item] = []
        self.missed: list[str] = []

    async def run(self) -> list[Item]:
        """Raises: MinikubeError of every kind; StatusError if the API refuses a request of the workload."""
        await self._pods.start()
        try:
            for index, op in enumerate(self._run.ops):
                try:
                    await self._do(op, index)
                    self._look_behind()
                except StatusError as error:
                    raise LoadError(f"{op.place} ({op.opcode}): {error}") from error
                except (InvalidRequest, LoadError) as error:
                    raise LoadError(f"{op.place} ({op.opcode}): {error}") from error
        finally:
            for task in self._background:
                task.cancel()
            await ended(*self._background)
            if self._collecting is not None:
                await self._collecting.cancel()
            await self._pods.stop()
        return self._items

    @property
    def scheduled(self) -> int:
        return self._pods.scheduled

    def _look_behind(self) -> None:
        """Raises: the error that ended a background churn or deletion."""
        for task in self._background:
            if task.done() and not task.cancelled() and (error := task.exception()):
                raise error

    def _aside(self, work: Coroutine[Any, Any, None]) -> None:
        self._background.append(asyncio.create_task(work))

    async def _do(self, op: ops.Op, index: int) -> None:
        match op:
            case ops.CreateNodes():
                await self._create_nodes(op, index)
            case ops.CreateNamespaces():
                await self._create_namespaces(op)
            case ops.CreatePods():
                await self._create_pods(op, index)
            case ops.DeletePods():
                await self._delete_pods(op)
            case ops.Churn():
                await self._churn(op, index)
            case ops.Barrier():
                await self._barrier(op)
            case ops.Sleep():
                await self._clock.sleep(op.duration)
            case ops.StartCollectingMetrics():
                self._collect(op.name, op.namespaces, op.label_selector)
            case ops.StopCollectingMetrics():
                await self._finish_collecting()
            case ops.CreateAny():
                await self._create_any(op)
            case ops.UpdateAny():
                await self._update_any(op)
            case ops.CreateResourceClaims():
                await self._create_claims(op)
            case ops.CreateResourceDriver():
                await self._create_driver(op)
            case ops.AllocResourceClaims():
                await devices.allocate(self._client, op.namespace, self._rng)
            case _:
                raise InvalidRequest(f"{op.place}: {op.opcode} is not run here")

    # --- helpers --------------------------------------------------------------------------------------------------

    def _path(self, text: str) -> Path:
        return self._run.case.folder / text

    async def _namespace(self, name: str) -> None:
        if name not in self._counts:
            await create_namespaces(self._transport, [name])
            self._counts[name] = 0

    async def _class_for(self, obj: Object) -> None:
        priority = objects.priority_of(obj)
        if priority is not None and priority not in self._classes:
            self._classes.add(priority)
            await self._client.create(PRIORITY_CLASSES, objects.priority_class(priority))

    async def _all(self, count: int, work: Callable[[int], Awaitable[None]]) -> None:
        async def tasks() -> AsyncGenerator[Callable[[], Awaitable[None]], None]:
            for index in range(count):
                yield partial(work, index)

        await run_bounded(tasks(), WORKERS)

    async def _ticks(self, period_s: float) -> AsyncGenerator[None, None]:
        """Like Go's ticker: the first tick after one period; late ticks are not caught up by more than one."""
        next_s = self._clock.monotonic_s()
        while True:
            next_s = max(next_s + period_s, self._clock.monotonic_s())
            await self._clock.sleep(next_s - self._clock.monotonic_s())
            yield

    # --- nodes and namespaces -------------------------------------------------------------------------------------

    async def _create_nodes(self, op: ops.CreateNodes, index: int) -> None:
        source = template(self._path(op.node_template_path)) if op.node_template_path else None

        async def create(at: int) -> None:
            node = source.render(at, op.count) if source is not None else objects.base_node(f"node-{index}-")
            await self._client.create(NODES, objects.named_node(objects.typed(node), self._rng), params=STRICT)

        await self._all(op.count, create)
        strategies = (op.node_allocatable_strategy, op.label_node_prepare_strategy, op.unique_node_label_strategy)
        if any(each is not None for each in strategies):
            nodes = sorted(await self._client.list(NODES), key=lambda node: str(node["metadata"]["name"]))
            # By their index among all nodes by name, as upstream.
            await self._prepare_nodes(op, nodes[self._nodes_made : self._nodes_made + op.count])
        if self._run.declared_features:
            await self._declare_features()
        self._nodes_made += op.count

    async def _declare_features(self) -> None:
        names = [node["metadata"]["name"] for node in await self._client.list(NODES)]
        status = {"status": {"declaredFeatures": list(self._run.declared_features)}}

        async def declare(at: int) -> None:
            await self._client.patch(NODES, names[at], status, subresource="status")

        await self._all(len(names), declare)

    async def _prepare_nodes(self, op: ops.CreateNodes, nodes: list[Object]) -> None:
        allocatable, label, unique = (
            op.node_allocatable_strategy, op.label_node_prepare_strategy, op.unique_node_label_strategy,
        )  # fmt: skip
        for at, node in enumerate(nodes):
            name = node["metadata"]["name"]
            if allocatable is not None:
                await self._client.patch(NODES, name, {"status": {"allocatable": dict(allocatable.node_allocatable)}})
                await self._client.create(CSI_NODES, objects.csi_node(name, allocatable))
            elif label is not None:
                value = label.label_values[at % len(label.label_values)]
                await self._client.patch(NODES, name, {"metadata": {"labels": {label.label_key: value}}})
            elif unique is not None:
                value = f"{self._rng.getrandbits(128):032x}"
                await self._client.patch(NODES, name, {"metadata": {"labels": {unique.label_key: value}}})

    async def _create_namespaces(self, op: ops.CreateNamespaces) -> None:
        base: Object = {}
        if op.namespace_template_path:
            path = self._path(op.namespace_template_path)
            base = read_object(read_text(path), str(path))
        for number in range(op.count):
            name = f"{op.prefix}-{number}"
            metadata = {**(base.get("metadata") or {}), "name": name}
            body = objects.typed({"apiVersion": "v1", "kind": "Namespace", **base, "metadata": metadata})
            await self._client.create(ResourceRef("", "v1", "namespaces"), body, params=STRICT)
            self._counts.setdefault(name, 0)

    # --- pods -----------------------------------------------------------------------------------------------------

    async def _create_pods(self, op: ops.CreatePods, index: int) -> None:
        namespace = op.namespace if op.namespace is not None else f"namespace-{index}"
        await self._namespace(namespace)
        chosen = op.pod_template_path or self._run.case.default_pod_template_path
        path = self._path(chosen) if chosen else None
        if path is not None:
            await self._class_for(template(path).render(0, op.count))
        create = self._creator(op, namespace, objects.pod_maker(op, path))
        if op.collect_metrics:
            self._collect(namespace, (namespace,), {})
        if op.steady_state:
            await self._keep_steady(op, namespace, create)
        else:
            if op.skip_wait_to_completion:
                await self._all(op.count, create)
                self._counts[namespace] += op.count
            else:
                await self._wait(namespace, {}, op.count, create=create)
        if op.collect_metrics:
            await self._finish_collecting()

    def _creator(
        self, op: ops.CreatePods, namespace: str, make: Callable[[int], bytes]
    ) -> Callable[[int], Awaitable[None]]:
        path = path_of(PODS, namespace)
        if not op.persistent_volume_claim_template_path:

            async def create(index: int) -> None:
                await self._client.raw("POST", path, STRICT, make(index))

            return create
        texts = (op.persistent_volume_template_path, op.persistent_volume_claim_template_path)
        volume, claim = (objects.typed(read_object(read_text(self._path(text)), text)) for text in texts)

        async def create_with_volume(index: int) -> None:
            made, bound = objects.volume_and_claim(volume, claim, namespace, index)
            bound["metadata"]["namespace"] = namespace
            await self._client.create(CLAIMS, bound, namespace, STRICT)
            await self._client.update_status(CLAIMS, bound)
            await self._client.create(VOLUMES, made, params=STRICT)
            await self._client.update_status(VOLUMES, made)
            await self._client.raw("POST", path, STRICT, make(index))

        return create_with_volume

    async def _wait(
        self,
        namespace: str,
        labels: Mapping[str, str],
        count: int,
        attempted: bool = False,
        create: Callable[[int], Awaitable[None]] | None = None,
    ) -> None:
        """Until this many are scheduled, or attempted; `create` creates them first."""
        done, step = 0, max(1, count // 200)

        def one(pod: PodSeen) -> None:
            nonlocal done
            if pod.namespace == namespace:
                done += 1
                if not done % step:
                    shown.update(min(done, count - 1))

        with progress(f"{namespace}: {'attempted' if attempted else 'scheduled'}", count) as shown:
            self._pods.on_scheduled.append(one)
            try:
                if create is not None:
                    await self._all(count, create)
                await self._pods.wait_for(namespace, labels, count, attempted)
            finally:
                self._pods.on_scheduled.remove(one)
            shown.update(count)

    async def _keep_steady(self, op: ops.CreatePods, namespace: str, create: Callable[[int], Awaitable[None]]) -> None:
        """Creates `count` pods, deletes them once all are scheduled, and repeats until the time is up."""
        scheduled = asyncio.Semaphore(0)
        total = 0

        def one(pod: PodSeen) -> None:
            nonlocal total
            if pod.namespace == namespace:
                total += 1
                scheduled.release()

        async def go_on() -> None:
            while True:
                await self._all(op.count, create)
                for _ in range(op.count):
                    await scheduled.acquire()
                body = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
                await self._client.request("DELETE", path_of(PODS, namespace), None, body)

        self._pods.on_scheduled.append(one)
        work = asyncio.create_task(go_on())
        try:
            with progress(f"{namespace}: steady state, seconds", int(op.duration)) as shown:
                until_s = self._clock.monotonic_s() + op.duration
                while not work.done() and (left_s := until_s - self._clock.monotonic_s()) > 0:
                    await self._clock.sleep(min(1.0, left_s))
                    shown.update(int(op.duration - max(0.0, left_s - 1.0)), f"{total:,} pods scheduled")
            if work.done():
                await work
        finally:
            work.cancel()
            await ended(work)
            self._pods.on_scheduled.remove(one)
        if not total:
            raise LoadError(
                "no pod at all got scheduled, either because of a problem or because the time was too short"
            )

    async def _barrier(self, op: ops.Barrier) -> None:
        for namespace in op.namespaces:
            if namespace not in self._counts:
                raise LoadError(f"unknown namespace {namespace}")
        attempted = op.stage_requirement == "Attempted"
        namespaces = op.namespaces or tuple(self._counts)
        for namespace in namespaces:
            await self._wait(namespace, op.label_selector, self._counts[namespace], attempted)
        if not attempted:
            for namespace in namespaces:
                del self._counts[namespace]

    async def _delete_pods(self, op: ops.DeletePods) -> None:
        pods = self._pods.select((op.namespace,), op.label_selector)

        async def delete() -> None:
            if not op.delete_pods_per_second:
                selector = ",".join(f"{key}={value}" for key, value in op.label_selector.items())
                params = {"labelSelector": selector} if selector else None
                await self._client.request("DELETE", path_of(PODS, op.namespace), params)
                return
            ticks = self._ticks(1.0 / op.delete_pods_per_second)
            for pod in pods:
                await anext(ticks)
                await self._client.delete(PODS, pod.name, pod.namespace)

        if op.skip_wait_to_completion:
            self._aside(delete())
        else:
            await delete()

    # --- any object -----------------------------------------------------------------------------------------------

    async def _churn(self, op: ops.Churn, index: int) -> None:
        namespace = op.namespace if op.namespace is not None else f"namespace-{index}"
        await create_namespaces(self._transport, [namespace])
        targets: list[tuple[ResourceRef, str, bytes]] = []
        for text in op.template_paths:
            obj = read_object(read_text(self._path(text)), str(self._path(text)))
            kind, ref = objects.served(obj, text)
            await self._class_for(obj)
            targets.append((ref, namespace if kind.namespaced else "", orjson.dumps(objects.with_class(obj))))
        self._aside(self._keep_churning(op, targets))

    async def _keep_churning(self, op: ops.Churn, targets: list[tuple[ResourceRef, str, bytes]]) -> None:
        made: list[list[str]] = [[""] * (op.number if op.mode == "recreate" else 1) for _ in targets]
        ticks = self._ticks((op.interval_milliseconds or CHURN_MS) / 1000)
        for at in _numbers(op.number if op.mode == "create" else 0):
            await anext(ticks)
            for (ref, namespace, body), names in zip(targets, made, strict=True):
                slot = at % len(names)
                if op.mode == "recreate" and names[slot]:
                    await self._client.delete(ref, names[slot], namespace)
                    names[slot] = ""
                    continue
                try:
                    answer = await self._client.request("POST", path_of(ref, namespace), None, body)
                except StatusError:
                    # As upstream: the next tick tries again.
                    continue
                names[slot] = answer["metadata"]["name"]

    async def _create_any(self, op: ops.CreateAny) -> None:
        if op.namespace:
            await self._namespace(op.namespace)
        source = template(self._path(op.template_path))
        for index in range(op.count):
            obj = source.render(index, op.count)
            if objects.is_inert(obj):
                return
            ref = self._placed(obj, op.namespace, op.template_path)
            await self._class_for(obj)
            await self._patiently(partial(self._client.create, ref, objects.with_class(obj), op.namespace, STRICT))

    def _placed(self, obj: Object, namespace: str, place: str) -> ResourceRef:
        kind, ref = objects.served(obj, place)
        if kind.namespaced is not bool(namespace):
            told = f"namespace {namespace!r} set" if namespace else "namespace not set"
            scope = "Namespaced" if kind.namespaced else "Cluster"
            raise LoadError(f"{told} for {place}, but {obj['kind']} has scope {scope}")
        return ref

    async def _patiently(self, create: Callable[[], Awaitable[Any]]) -> None:
        """Some refusals are temporary: a definition just created, or too many requests."""
        until_s = self._clock.monotonic_s() + RETRY_FOR_S
        while True:
            try:
                await create()
                return
            except (StatusError, Unavailable) as error:
                passing = isinstance(error, Unavailable) or error.code in RETRIED
                if not passing or self._clock.monotonic_s() >= until_s:
                    raise
            await self._clock.sleep(1.0)

    async def _update_any(self, op: ops.UpdateAny) -> None:
        if op.namespace:
            await self._namespace(op.namespace)
        source = template(self._path(op.template_path))
        ticks = self._ticks(1.0 / op.update_per_second) if op.update_per_second else None
        subresource = op.subresources[0] if op.subresources else ""
        for index in range(op.count):
            if ticks is not None:
                await anext(ticks)
            obj = source.render(index, op.count)
            ref = self._placed(obj, op.namespace, op.template_path)
            body, name = orjson.dumps(objects.with_class(obj)), obj["metadata"]["name"]
            for part in (subresource, "status"):
                await self._client.request("PUT", path_of(ref, op.namespace, name, part), STRICT, body)

    # --- devices --------------------------------------------------------------------------------------------------

    async def _create_claims(self, op: ops.CreateResourceClaims) -> None:
        await self._namespace(op.namespace)
        path = self._path(op.template_path)
        obj = read_object(read_text(path), str(path))
        ref = self._placed(obj, op.namespace, op.template_path)
        body = orjson.dumps(obj)

        async def create(_: int) -> None:
            await self._client.raw("POST", path_of(ref, op.namespace), STRICT, body)

        await self._all(op.count, create)

    async def _create_driver(self, op: ops.CreateResourceDriver) -> None:
        names = [node["metadata"]["name"] for node in await self._client.list(NODES)]
        matching = [name for name in names if fnmatch.fnmatchcase(name, op.nodes)]

        async def create(at: int) -> None:
            made = objects.device_slice(op.driver_name, matching[at], op.max_claims_per_node)
            await self._client.create(devices.SLICES, made, params=STRICT)

        await self._all(len(matching), create)

    # --- figures --------------------------------------------------------------------------------------------------

    def _collect(self, name: str, namespaces: tuple[str, ...], labels: Mapping[str, str]) -> None:
        if self._collecting is not None:
            raise LoadError("metrics collection is overlapping: a second one was started before the first was stopped")
        case = self._run.case
        title = f"BenchmarkPerfScheduling/{self._run.name}/{name}"
        self._collecting = Collecting(
            title, self._pods, self._clock, self._scheduler.metrics, case.metrics, namespaces, labels
        )

    async def _finish_collecting(self) -> None:
        collecting, self._collecting = self._collecting, None
        if collecting is None:
            raise LoadError("missing startCollectingMetrics operation before stopping")
        items = await collecting.finish()
        case, workload = self._run.case, self._run.workload
        self.missed += apply_threshold(items, workload.threshold_of(self._topic), case.selector(workload))
        self._items += items


def _numbers(count: int) -> Iterator[int]:
    """This many, or infinite."""
    number = 0
    while not count or number < count:
        yield number
        number += 1
