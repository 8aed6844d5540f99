"""The users of a simulated control plane: they create, scale, change and delete what a seed draws, and record
acknowledged operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

from minikube_py.api.errors import StatusError
from minikube_py.client.rest import (
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    SERVICES,
    STATEFUL_SETS,
    Object,
    ResourceRef,
    RestClient,
)
from minikube_py.env import Clock, Rng
from minikube_py.errors import MinikubeError
from minikube_py.kubelet.config import RUN_SECONDS
from minikube_py.sim.checkers.control_plane import Acknowledged
from minikube_py.sim.loop import SimFailure

PRIORITY_CLASSES: Final = ResourceRef("scheduling.k8s.io", "v1", "priorityclasses")
BUDGETS: Final = ResourceRef("policy", "v1", "poddisruptionbudgets")
QUOTAS: Final = ResourceRef("", "v1", "resourcequotas")
STORAGE_CLASSES: Final = ResourceRef("storage.k8s.io", "v1", "storageclasses")
CLAIMS: Final = ResourceRef("", "v1", "persistentvolumeclaims")
AUTOSCALERS: Final = ResourceRef("autoscaling", "v2", "horizontalpodautoscalers")
DEFAULT: Final = "default"
TEAM: Final = "team"
NAMESPACES_DRAWN: Final = (DEFAULT, DEFAULT, TEAM)
BUDGET_SHARE: Final = 0.5
AUTOSCALER_SHARE: Final = 0.3
SCALED: Final = (1, 4)
HARD: Final = 4
REPLICAS_MAX: Final = 7
REPLICAS_AT_REST: Final = 2
"""So few that all pods fit once everything is healthy."""
RETRY_S: Final = 0.5
AT_ONCE_SHARES: Final = (0.0, 0.5, 0.8)
LAST_DELETIONS: Final = 3
LAST_DELETE_SHARE: Final = 0.5
TOUCH_SHARE: Final = 0.5
SIZES: Final = ("100m", "500m", "1")
LARGE_SIZES: Final = ("2", "3", "3500m")
"""Up to most of a node."""
PRIORITIES: Final = {"low": -10, "high": 1000, "top": 2000}
CONTEST_SHARE: Final = 0.5
GRACES_S: Final = (0, 3, 3)
"""A pod without a grace period is gone before the answer to its deletion is here."""
TAINT: Final = "example.com/drawn"
TAINTED_S: Final = (1.0, 12.0)
TOLERATED_S: Final = (0, 8, 20, 40)
TOLERATED_SHARE: Final = 0.6
POLICIES: Final = ("Background", "Background", "Foreground", "Orphan")
STRATEGIES: Final[tuple[Object, ...]] = tuple(
    {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": most}} for surge, most in ((1, 0), ("25%", "25%"), (0, 2))
)
WORKLOADS: Final[tuple[tuple[ResourceRef, str, str], ...]] = (
    (REPLICATION_CONTROLLERS, DEFAULT, "rc"),
    (REPLICATION_CONTROLLERS, TEAM, "rc"),
    (REPLICA_SETS, DEFAULT, "rs"),
    (STATEFUL_SETS, DEFAULT, "db"),
    (DEPLOYMENTS, DEFAULT, "web"),
    (DEPLOYMENTS, DEFAULT, "api"),
)
DAEMONS: Final = (DAEMON_SETS, DEFAULT, "agent")
ROLLED: Final = (*WORKLOADS[3:], DAEMONS)
CALM_S: Final = 40.0
"""Users work that long before the first fault."""
CRONS: Final = {"forbid": "Forbid", "replace": "Replace", "allow": "Allow"}
CRON_RUN_S: Final = (5, 90)
"""Also longer than the minute to the next one."""
CRON_SHARE: Final = 0.4
CRON_CALM_S: Final = 130.0
"""Two minutes begin within it."""
CLAIM: Final = {
    "accessModes": ["ReadWriteOnce"], "storageClassName": "made", "resources": {"requests": {"storage": "1Gi"}}
}  # fmt: skip
CLAIM_NAMES: Final = tuple(f"claim-{number}" for number in range(4))
JOB_NAMES: Final = tuple(f"job-{number}" for number in range(4))
Op = Callable[[], Awaitable[None]]


class User:
    """`acknowledged`: in order; `counts`: attempts by outcome. `room`: how many pods fit. `calm_s`: how long it works
    before the first fault, once it is set up."""

    def __init__(self, client: RestClient, clock: Clock, rng: Rng, room: int) -> None:
        self.client, self.clock, self.rng = client, clock, rng
        self.acknowledged: list[Acknowledged] = []
        self.counts: Counter[str] = Counter()
        self.calm_s = CALM_S
        self._made = 0
        self._room = self._room_left = room
        self._ops: tuple[tuple[int, Op], ...] = (
            (6, self._make), (6, self._scale), (3, self._roll), (3, self._delete), (3, self._job), (3, self._burst),
            (2, self._delete_pod), (4, self._evict), (2, self._budget), (2, self._bind_again), (3, self._taint),
            (1, self._cron), (2, self._claim),
        )  # fmt: skip

    async def set_up(self) -> None:
        """Creates the permanent objects."""
        for resource, obj in self._permanent():
            await self._surely(lambda r=resource, o=obj: self._create(r, o))  # type: ignore[misc]
        for name in ("web", "rc"):
            if self.rng.random() < BUDGET_SHARE:
                await self._surely(lambda name=name: self._budget(name))  # type: ignore[misc]

    def _permanent(self) -> Iterator[tuple[ResourceRef, Object]]:
        yield NAMESPACES, {"metadata": {"name": TEAM}}
        for name, value in PRIORITIES.items():
            yield PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value}
        yield QUOTAS, {"metadata": {"name": "quota", "namespace": TEAM}, "spec": {"hard": {"pods": str(HARD)}}}
        yield STORAGE_CLASSES, {"metadata": {"name": "made"}, "provisioner": "simulated.minikube-py"}
        for name in ("web", "rc"):
            spec: Object = {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": 80}]}
            yield SERVICES, {"metadata": {"name": name, "namespace": DEFAULT}, "spec": spec}
        if self.rng.random() < CRON_SHARE:
            self.calm_s = CRON_CALM_S
            for name in CRONS:
                yield CRON_JOBS, self._cron_job(name, CRON_RUN_S[-1])
        if self.rng.random() < AUTOSCALER_SHARE:
            target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "api"}
            spec = {"scaleTargetRef": target, "minReplicas": SCALED[0], "maxReplicas": SCALED[1]}
            yield AUTOSCALERS, {"metadata": {"name": "api", "namespace": DEFAULT}, "spec": spec}

    async def work(self, operations: int, span_s: float) -> None:
        """About this many operations within about that time, whatever their outcome; some of them right after
        another."""
        drawn = [op for weight, op in self._ops for _ in range(weight)]
        at_once = self.rng.choice(AT_ONCE_SHARES)
        for _ in range(operations):
            if self.rng.random() >= at_once:
                await self.clock.sleep(2 * self.rng.random() * span_s / operations / (1 - at_once))
            await self._try(self.rng.choice(drawn))

    async def settle(self) -> None:
        """Deletes what exceeds the space; the rest is unchanged, so that waiting pods fit."""
        room = self._room
        for resource, namespace, name in self.rng.sample(WORKLOADS, len(WORKLOADS)):
            found = await self._surely(lambda r=resource, s=namespace, n=name: self.client.get(r, n, s))  # type: ignore[misc]
            if found is None:
                continue
            replicas = found["spec"]["replicas"]
            if replicas <= min(room, HARD if namespace == TEAM else room):
                room -= replicas
                continue
            room -= REPLICAS_AT_REST
            await self._surely(lambda r=resource, s=namespace, n=name: self._patch(  # type: ignore[misc]
                r, s, n, {"spec": {"replicas": REPLICAS_AT_REST}}))  # fmt: skip
        self._room_left = room
        for namespace in (DEFAULT, TEAM):
            pods = await self._surely(lambda s=namespace: self.client.list(PODS, s))  # type: ignore[misc]
            for pod in pods or ():
                if not pod["metadata"].get("ownerReferences"):
                    await self._surely(lambda p=pod: self._remove(PODS, p, "Background"))  # type: ignore[misc]
        for name in CRONS:
            await self._surely(lambda n=name: self._patch(CRON_JOBS, DEFAULT, n, {"spec": {"suspend": True}}))  # type: ignore[misc]
        for node in await self._surely(lambda: self.client.list(NODES)):
            await self._surely(lambda n=node: self._untaint(n["metadata"]["name"]))  # type: ignore[misc]

    async def last_deletions(self, span_s: float) -> None:
        """Deletes some pods and some of their owners, without another change of the desired state."""
        for _ in range(LAST_DELETIONS):
            await self.clock.sleep(2 * self.rng.random() * span_s / LAST_DELETIONS)
            await self._surely(self._delete_pod)
        for _ in range(LAST_DELETIONS):
            if self.rng.random() < LAST_DELETE_SHARE:
                await self._surely(self.rng.choice((self._delete, self._delete, self._delete_job)))

    async def last_touches(self) -> None:
        """What no later change hides: a StatefulSet is replaced by an equal one that finds its pods, a taint comes and
        goes, and an autoscaled workload is scaled by hand beyond its maximum."""
        for touch in (self._replace_set, self._taint_and_untaint, self._scale_beyond):
            await self._surely(touch)

    async def _replace_set(self) -> None:
        resource, namespace, name = WORKLOADS[3]
        old = await self.client.get(resource, name, namespace)
        if self.rng.random() < TOUCH_SHARE and "deletionTimestamp" not in old["metadata"]:
            await self._surely(lambda: self._remove(resource, old, "Orphan"))
            metadata = {"name": name, "namespace": namespace}
            while await self._surely(lambda: self.client.get(resource, name, namespace)) is not None:
                await self.clock.sleep(RETRY_S)
            await self._surely(lambda: self._create(resource, {"metadata": metadata, "spec": old["spec"]}))

    async def _taint_and_untaint(self) -> None:
        node = self.rng.choice(await self.client.list(NODES))
        if self.rng.random() < TOUCH_SHARE:
            taint = {"key": TAINT, "value": "a", "effect": "NoExecute"}
            await self._set_taints(node, [*(node["spec"].get("taints") or ()), taint])
            await self.clock.sleep(TAINTED_S[-1])
            await self._surely(lambda: self._untaint(node["metadata"]["name"]))

    async def _scale_beyond(self) -> None:
        scaler = await self.client.get(AUTOSCALERS, "api", DEFAULT)
        replicas = scaler["spec"]["maxReplicas"] + self.rng.randint(1, 3)
        if self._room_left >= replicas:
            await self._patch(DEPLOYMENTS, DEFAULT, "api", {"spec": {"replicas": replicas}})

    # -- operations ---------------------------------------------------------------------------------------------------

    async def _make(self, workload: tuple[ResourceRef, str, str] | None = None) -> None:
        resource, namespace, name = workload or self.rng.choice((*WORKLOADS, DAEMONS))
        labels, rng = {"app": name}, self.rng
        template = self._template(labels, SIZES[:1] if resource == DAEMON_SETS else SIZES)
        spec: Object = {"replicas": rng.randint(0, REPLICAS_MAX), "template": template}
        spec["selector"] = labels if resource == REPLICATION_CONTROLLERS else {"matchLabels": labels}
        if resource == DAEMON_SETS:
            # A node full of other pods has room for it.
            template["spec"]["priorityClassName"] = "top"
            del spec["replicas"]
        elif resource == DEPLOYMENTS:
            spec["strategy"] = rng.choice(STRATEGIES)
        elif resource == STATEFUL_SETS and rng.random() < 0.5:
            spec["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": CLAIM}]
        await self._create(resource, {"metadata": {"name": name, "namespace": namespace}, "spec": spec})

    async def _scale(self) -> None:
        await self._change(self.rng.choice(WORKLOADS), {"spec": {"replicas": self.rng.randint(0, REPLICAS_MAX)}})

    async def _roll(self) -> None:
        workload = self.rng.choice(ROLLED)
        template = self._template({"app": workload[2]}, SIZES[:1] if workload is DAEMONS else SIZES)
        if workload is DAEMONS:
            template["spec"]["priorityClassName"] = "top"
        await self._change(workload, {"spec": {"template": template}})

    async def _change(self, workload: tuple[ResourceRef, str, str], change: Object) -> None:
        """Creates it if missing."""
        resource, namespace, name = workload
        try:
            await self._patch(resource, namespace, name, change)
        except StatusError as error:
            if error.code != 404:
                raise
            await self._make(workload)

    async def _delete(self) -> None:
        resource, namespace, name = self.rng.choice((*WORKLOADS, DAEMONS))
        await self._remove(resource, await self.client.get(resource, name, namespace), self.rng.choice(POLICIES))

    async def _job(self) -> None:
        name = self.rng.choice(JOB_NAMES)
        if self.rng.random() < 0.3:
            await self._delete_job(name)
            return
        template = self._template({"job": name})
        template["spec"]["restartPolicy"] = "Never"
        spec = {"completions": self.rng.randint(1, 4), "parallelism": self.rng.randint(1, 3), "template": template}
        spec["backoffLimit"] = 100
        await self._create(JOBS, {"metadata": {"name": name, "namespace": DEFAULT}, "spec": spec})

    async def _delete_job(self, name: str = "") -> None:
        name = name or self.rng.choice(JOB_NAMES)
        await self._remove(JOBS, await self.client.get(JOBS, name, DEFAULT), self.rng.choice(POLICIES[:3]))

    async def _cron(self) -> None:
        """Starts a Job each minute, or no longer."""
        name = self.rng.choice(tuple(CRONS))
        if self.rng.random() < 0.2:
            cron = await self.client.get(CRON_JOBS, name, DEFAULT)
            await self._remove(CRON_JOBS, cron, self.rng.choice(POLICIES[:3]))
            return
        await self._create(CRON_JOBS, self._cron_job(name, self.rng.choice(CRON_RUN_S)))

    def _cron_job(self, name: str, run_s: int) -> Object:
        template = self._template({"cron": name}, SIZES[:1])
        template["spec"]["restartPolicy"] = "Never"
        template["metadata"]["annotations"] = {RUN_SECONDS: str(run_s)}
        spec: Object = {"schedule": "* * * * *", "concurrencyPolicy": CRONS[name]}
        spec["jobTemplate"] = {"spec": {"template": template}}
        return {"metadata": {"name": name, "namespace": DEFAULT}, "spec": spec}

    async def _claim(self) -> None:
        """Several at once need volumes, beside those that others hold; or one goes, and its volume with it."""
        first, *others = self.rng.sample(CLAIM_NAMES, 3)
        if self.rng.random() < 0.4:
            claim = await self.client.get(CLAIMS, first, DEFAULT)
            await self._remove(CLAIMS, claim, "Background")
            return
        for name in (first, *others):
            claim = {"metadata": {"name": name, "namespace": DEFAULT}, "spec": CLAIM}
            await self._try(lambda claim=claim: self._create(CLAIMS, claim))  # type: ignore[misc]

    async def _burst(self) -> None:
        """More than may fit. In a contest large pods take the room of several small ones each, and of each other."""
        rng = self.rng
        pods: list[tuple[str, tuple[str, ...]]]
        pods = [(rng.choice(tuple(PRIORITIES)), SIZES) for _ in range(rng.randint(1, 5))]
        if rng.random() < CONTEST_SHARE:
            pods = [("low", ("1",))] * rng.randint(4, 16)
            pods += [(rng.choice(("high", "top")), LARGE_SIZES) for _ in range(rng.randint(2, 8))]
        for priority, sizes in pods:
            self._made += 1
            spec = self._template({"app": "burst"}, sizes)["spec"] | {"priorityClassName": priority}
            await self._create(PODS, {"metadata": {"name": f"burst-{self._made}", "namespace": DEFAULT}, "spec": spec})

    async def _taint(self) -> None:
        """A node gets a taint; some time later it goes, or a pod tolerates it, or it stays."""
        rng = self.rng
        node = rng.choice(await self.client.list(NODES))
        name, taints = node["metadata"]["name"], node["spec"].get("taints") or []
        effect = rng.choice(("NoExecute", "NoExecute", "NoSchedule"))
        await self._set_taints(node, [*taints, {"key": TAINT, "value": "a", "effect": effect}])
        await self.clock.sleep(rng.uniform(*TAINTED_S))
        if (outcome := rng.choice(("goes", "goes", "is tolerated", "stays"))) == "goes":
            await self._untaint(name)
        elif outcome == "is tolerated":
            pods = await self.client.list(PODS, DEFAULT)
            for pod in [pod for pod in pods if pod["spec"].get("nodeName") == name][:2]:
                # The first toleration of a taint counts.
                tolerations = [{"key": TAINT, "operator": "Exists"}, *(pod["spec"].get("tolerations") or ())]
                change = {"metadata": {"uid": pod["metadata"]["uid"]}, "spec": {"tolerations": tolerations}}
                await self._patch(PODS, DEFAULT, pod["metadata"]["name"], change)

    async def _untaint(self, name: str) -> None:
        node = await self.client.get(NODES, name)
        taints = node["spec"].get("taints") or []
        left = [each for each in taints if each["key"] != TAINT]
        if left != taints:
            await self._set_taints(node, left)

    async def _set_taints(self, node: Object, taints: list[Object]) -> None:
        """Beside those of the controllers, which change in the meantime."""
        metadata = {"resourceVersion": node["metadata"]["resourceVersion"]}
        await self._patch(NODES, "", node["metadata"]["name"], {"metadata": metadata, "spec": {"taints": taints}})

    async def _delete_pod(self) -> None:
        pods = await self.client.list(PODS, self.rng.choice(NAMESPACES_DRAWN))
        if pods:
            await self._remove(PODS, self.rng.choice(pods), "Background")

    async def _bind_again(self) -> None:
        """As a scheduler with stale information: it must be refused."""
        pods = [pod for pod in await self.client.list(PODS, DEFAULT) if pod["spec"].get("nodeName")]
        nodes = await self.client.list(NODES)
        if pods:
            pod, node = self.rng.choice(pods)["metadata"], self.rng.choice(nodes)["metadata"]["name"]
            await self.client.bind(DEFAULT, pod["name"], node, pod["uid"])

    async def _evict(self) -> None:
        """Some pods of one application at once: more than its budget may allow."""
        app = self.rng.choice(("web", "rc", "db", ""))
        pods = await self.client.list(PODS, DEFAULT, label_selector=f"app={app}" if app else "")
        for pod in self.rng.sample(pods, min(len(pods), self.rng.randint(1, 3))):
            await self._try(lambda pod=pod: self.client.evict(DEFAULT, pod["metadata"]["name"]))  # type: ignore[misc]

    async def _budget(self, name: str = "") -> None:
        """Made, changed or deleted."""
        rng, wanted = self.rng, name
        name = name or rng.choice(("web", "rc", "db"))
        if not wanted and rng.random() < 0.4:
            budget = await self.client.get(BUDGETS, name, DEFAULT)
            if rng.random() < 0.5:
                await self._remove(BUDGETS, budget, "Background")
            else:
                await self._patch(BUDGETS, DEFAULT, name, {"spec": {"minAvailable": rng.randint(0, 5)}})
            return
        spec = {"minAvailable": rng.randint(0, 3), "selector": {"matchLabels": {"app": name}}}
        await self._create(BUDGETS, {"metadata": {"name": name, "namespace": DEFAULT}, "spec": spec})

    def _template(self, labels: dict[str, str], sizes: tuple[str, ...] = SIZES) -> Any:
        rng = self.rng
        requests = {"cpu": rng.choice(sizes), "memory": "64Mi"}
        container = {"name": "c", "image": "i", "resources": {"requests": requests}}
        spec: Object = {"containers": [container], "terminationGracePeriodSeconds": rng.choice(GRACES_S)}
        if rng.random() < TOLERATED_SHARE:
            tolerated = {"key": TAINT, "operator": "Exists", "effect": "NoExecute"}
            spec["tolerations"] = [tolerated | {"tolerationSeconds": rng.choice(TOLERATED_S)}]
        return {"metadata": {"labels": labels}, "spec": spec}

    # -- requests -----------------------------------------------------------------------------------------------------

    async def _create(self, resource: ResourceRef, obj: Object) -> None:
        obj = {"apiVersion": resource.api_version, **obj}
        namespace = obj["metadata"].get("namespace", "")
        self._acknowledge("create", resource, await self.client.create(resource, obj, namespace))

    async def _patch(self, resource: ResourceRef, namespace: str, name: str, change: Object) -> None:
        self._acknowledge("patch", resource, await self.client.patch(resource, name, change, namespace))

    async def _remove(self, resource: ResourceRef, obj: Object, policy: str) -> None:
        metadata = obj["metadata"]
        name, namespace, uid = metadata["name"], metadata.get("namespace", ""), metadata["uid"]
        await self.client.delete(resource, name, namespace, uid=uid, propagation=policy)
        self._acknowledge("delete", resource, obj)

    def _acknowledge(self, verb: str, resource: ResourceRef, obj: Object) -> None:
        metadata = obj["metadata"]
        name = f"{metadata['namespace']}/{metadata['name']}" if "namespace" in metadata else metadata["name"]
        key = f"{resource.plural}/{name}"
        self.acknowledged.append(Acknowledged(verb, key, metadata["uid"], int(metadata["resourceVersion"])))

    async def _try(self, op: Op) -> None:
        try:
            await op()
        except StatusError as error:
            self.counts["unknown" if error.code >= 500 else "refused"] += 1
        except MinikubeError:
            self.counts["unknown"] += 1
        else:
            self.counts["done"] += 1

    async def _surely(self, op: Callable[[], Awaitable[Any]]) -> Any:
        """Retries until it is done, or was, or its object does not exist."""
        while True:
            try:
                return await op()
            except StatusError as error:
                if error.reason in ("NotFound", "AlreadyExists"):
                    return None
                if error.code < 500 and error.reason not in ("Conflict", "TooManyRequests"):
                    raise SimFailure(f"a user was refused: {error}") from error
            except MinikubeError:
                pass
            await self.clock.sleep(RETRY_S)
