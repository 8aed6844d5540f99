"""Device taint eviction: deletes pods that use a device with a NoExecute taint when their claims' toleration ends.

Source: k8s.io/kubernetes/pkg/controller/devicetainteviction/device_taint_eviction.go, without DeviceTaintRules and
claims of PodGroups, whose gates are off.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final

from minikube_py.api.errors import StatusError
from minikube_py.client.events import NORMAL, Involved, timestamp
from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import PODS, Object
from minikube_py.controllers.base import (
    BY_DEVICE,
    BY_POOL,
    ControllerContext,
    QueueController,
    QueueWorkers,
    delete_pod,
    disruption,
)
from minikube_py.controllers.device_taints import DEVICE_SLICES, Pool, SliceView, due_s, placed_taints, results_of
from minikube_py.controllers.node_taints import Taint
from minikube_py.controllers.resource_claims import belongs_to
from minikube_py.controllers.views import PodView
from minikube_py.controllers.volume_views import DEVICE_CLAIMS, WholeView

REASON: Final = "DeviceTaintManagerEviction"
WORKERS: Final = 8
_PODS: Final = ("", "pods")
_RESOLUTION_S: Final = 0.001
"""A rest of waiting below it is rounding."""


class DeviceTaintEviction(QueueController):
    name = "device-taint-eviction-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._clock = context.clock
        self._recorder = context.recorder(self.name)
        self._pods: Informer[PodView] = context.informers.of(PODS)
        self._claims: Informer[WholeView] = context.informers.of(DEVICE_CLAIMS)
        self._slices: Informer[SliceView] = context.informers.of(DEVICE_SLICES)
        self._generations: defaultdict[Pool, Counter[int]] = defaultdict(Counter)
        """How many slices of a pool have each."""
        self._newest: dict[Pool, int] = {}
        self._due_s: dict[str, float] = {}
        """When a pod must go, by namespace/name/uid."""
        self._workers = QueueWorkers(context, "device_taint_eviction", self.evict, WORKERS)
        self.evicted = 0
        self._slices.add_handler(
            Handler(
                lambda new: self._slice_changed(None, new),
                lambda old, new: self._slice_changed(old, new),
                lambda old: self._slice_changed(old, None),
            )
        )
        self._claims.add_handler(Handler(self._claim, self._claim_updated, self._claim))
        self._pods.add_handler(Handler(self._judge, self._pod_updated, self._pod_gone))

    def metrics(self) -> dict[str, float]:
        return {**self._workers.metrics(), "device_taint_eviction_controller_pod_deletions_total": self.evicted}

    # --- events -----------------------------------------------------------------------------------------------------

    def _slice_changed(self, old: SliceView | None, new: SliceView | None) -> None:
        before, after = placed_taints(old), placed_taints(new)
        changed = [place for place in {**before, **after} if before.get(place) != after.get(place)]
        devices = dict.fromkeys((pool, name) for pool, _, name in changed)
        # The new one first: a generation of one slice does not end meanwhile.
        for piece, by in ((new, 1), (old, -1)):
            if piece is not None:
                devices |= self._count(piece.pool, piece.generation, by)
        using = [claim for device in devices for claim in self._claims.store.by_index(BY_DEVICE, device)]
        for claim in {claim.key: claim for claim in using}.values():
            self._claim(claim)

    def _count(self, pool: Pool, generation: int, by: int) -> dict[tuple[Pool, str], None]:
        """The devices that count from now on, or no longer: slices of earlier generations do not."""
        counts, before = self._generations[pool], self._newest.get(pool, -1)
        counts[generation] += by
        if not counts[generation]:
            del counts[generation]
        if by > 0:
            after = max(before, generation)
        else:
            after = before if before in counts else max(counts, default=-1)
        self._newest[pool] = after
        if not counts:
            del self._generations[pool], self._newest[pool]
        if after == before:
            return {}
        store = self._slices.store
        pieces = [piece for some in (before, after) for piece in store.by_index(BY_POOL, (pool, some))]
        return dict.fromkeys((pool, name) for piece in pieces for name in piece.taints)

    def _taints(self, pool: Pool, device: str) -> Sequence[Taint]:
        pieces = self._slices.store.by_index(BY_DEVICE, (pool, self._newest.get(pool, -1), device))
        return pieces[-1].taints[device] if pieces else ()

    def _claim_updated(self, old: WholeView, new: WholeView) -> None:
        if old.uid != new.uid or _users(old) != _users(new):
            self._claim(old)
        self._claim(new)

    def _claim(self, claim: WholeView) -> None:
        for name, uid in _users(claim):
            pod = self._pods.store.get(f"{claim.namespace}/{name}")
            if pod is not None and pod.uid == uid:
                self._judge(pod)

    def _pod_updated(self, old: PodView, new: PodView) -> None:
        if old.uid != new.uid:
            self._pod_gone(old)
            self._judge(new)
        elif old.node != new.node or old.devices != new.devices:
            self._judge(new)

    def _pod_gone(self, pod: PodView) -> None:
        self._due_s.pop(_id(pod), None)

    def _judge(self, pod: PodView) -> None:
        """Evicts now or later, or cancels that."""
        found = self._pod_due_s(pod)
        if found is not None:
            self._due_s[_id(pod)] = found
            self._workers.queue.add_after(_id(pod), found - self._clock.wall_s())
        elif self._due_s.pop(_id(pod), None) is not None:
            self._event(pod.namespace, pod.name, pod.uid, "Cancelling deletion")

    def _pod_due_s(self, pod: PodView) -> float | None:
        """The earliest of its claims' times."""
        if not pod.node or not self._slices.store.index_values(BY_POOL):
            return None
        times = []
        for wanted in pod.devices:
            if wanted.extended or not wanted.known:
                continue
            claim = self._claims.store.get(f"{pod.namespace}/{wanted.claim}")
            if claim is None or not results_of(claim) or (wanted.template and not belongs_to(claim, pod)):
                continue
            if any(uid == pod.uid for _, uid in _users(claim)):
                times.append(due_s(claim, self._taints))
        return min((each for each in times if each is not None), default=None)

    def _event(self, namespace: str, name: str, uid: str, what: str) -> None:
        self._recorder.event(Involved("Pod", namespace, name, uid), NORMAL, REASON, what)

    # --- work -------------------------------------------------------------------------------------------------------

    async def evict(self, key: str) -> None:
        """Records the reason in the pod's status, then deletes it with its own grace period."""
        due = self._due_s.get(key)
        if due is None:
            return
        if (left_s := due - self._clock.wall_s()) > _RESOLUTION_S:
            self._workers.queue.add_after(key, left_s)
            return
        try:
            await self._delete(*key.split("/"))
        except StatusError as error:
            if error.code != 404:
                raise
        self._due_s.pop(key, None)

    async def _delete(self, namespace: str, name: str, uid: str) -> None:
        pod = await self._client.get(PODS, name, namespace)
        if pod["metadata"]["uid"] != uid or pod["metadata"].get("deletionTimestamp"):
            return
        self._event(namespace, name, uid, "Marking for deletion")
        condition = self._condition((pod.get("status") or {}).get("conditions") or ())
        await delete_pod(self._client, namespace, name, uid, {"conditions": [condition]}, None)
        self.evicted += 1

    def _condition(self, before: Sequence[Object]) -> Object:
        """One that another disruption has set keeps its time."""
        true = (each for each in before if (each["type"], each["status"]) == ("DisruptionTarget", "True"))
        since = next(true, {}).get("lastTransitionTime") or timestamp(self._clock.wall_s())
        why = "DeletionByDeviceTaintManager", "Device Taint manager: deleting due to NoExecute taint"
        return disruption(*why, since)


def _id(pod: PodView) -> str:
    return f"{pod.key}/{pod.uid}"


def _users(claim: WholeView) -> list[tuple[str, str]]:
    """(name, uid) of the pods for which it is reserved."""
    reserved = (claim.obj.get("status") or {}).get("reservedFor") or ()
    return [(each["name"], each["uid"]) for each in reserved if (each.get("apiGroup") or "", each["resource"]) == _PODS]
