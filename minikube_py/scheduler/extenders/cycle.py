"""The scheduling cycle of a pod with extenders: find fitting nodes, call the extenders, and rank what still fits.

While an extender is called, everything but placement continues: pods and nodes change, bindings end. So earlier
findings are void afterwards: the filters run again on the accepted nodes, and only then a node is scored, chosen and
charged, without awaiting. Other pods wait their turn, as upstream's do: a pod of lower priority must not take the room
meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from minikube_py.scheduler.columns import Emptied
from minikube_py.scheduler.evaluate import Evaluator
from minikube_py.scheduler.extenders.asking import NAME, ExtenderError, Extenders, Given, total
from minikube_py.scheduler.filtering import diagnose, fitting_of
from minikube_py.scheduler.framework import CODE_NAMES, Code, Diagnosis, FitError, IntArray, Status
from minikube_py.scheduler.objects import PodInfo, QueuedPodInfo
from minikube_py.scheduler.preparing import Prepared, Rejected
from minikube_py.scheduler.scoring import Choice, scored

if TYPE_CHECKING:
    from minikube_py.scheduler.scheduler import ProfileRun, Scheduler

logger = logging.getLogger(__name__)


class Gone(Exception):
    """The pod left the queue while extenders were called."""


class ExtendedCycle:
    def __init__(self, scheduler: Scheduler, extenders: Extenders) -> None:
        self._scheduler = scheduler
        self._extenders = extenders

    def concerns(self, pod: PodInfo) -> bool:
        return bool(self._extenders) and bool(self._extenders.of(pod))

    async def run(self, queued: QueuedPodInfo) -> None:
        scheduler = self._scheduler
        run = scheduler.admitted(queued)
        if run is None:
            return
        started_s = scheduler.clock.monotonic_s()
        try:
            choice = await self._choose(run.evaluator, queued)
            scheduler.place(run, queued, choice, started_s)
        except Gone:
            pass
        except FitError as error:
            try:
                nominated = await self._post_filter(run, queued, error.diagnosis)
            except Gone:
                return
            scheduler.unfit(run, queued, error, nominated, started_s)
        except ExtenderError as error:
            scheduler.fail(run, queued, Code.ERROR, str(error), None, started_s)
        except Exception as error:
            scheduler.broke(run, queued, error, started_s)

    def _still(self, queued: QueuedPodInfo) -> PodInfo:
        """The current pod. Raises: Gone."""
        known = self._scheduler.pod(queued.pod.key)
        if known is None or known.uid != queued.pod.uid or known.node_name:
            self._scheduler.queue.done(queued.pod.uid)
            raise Gone
        queued.pod = known
        if known.deleting:
            self._scheduler.admitted(queued)
            raise Gone
        return known

    # --- the decision -----------------------------------------------------------------------------------------------

    async def _choose(self, evaluator: Evaluator, queued: QueuedPodInfo) -> Choice:
        """Raises: FitError, NoNodesAvailable, PluginError, ExtenderError, Gone."""
        pod = queued.pod
        evaluator.begin()
        rejected: dict[str, Status] = {}
        if pod.nominated_node:
            choice = await self._on_nominated(evaluator, queued, rejected)
            if choice is not None:
                return choice
            pod = queued.pod
        prepared = evaluator.beside(pod)
        selected, evaluated = evaluator.uncached.find(pod, prepared)
        if not len(selected):
            raise FitError(self._diagnosis(evaluator, pod, prepared, rejected))
        bodies = self._bodies(evaluator, selected)
        passed = await self._extenders.filter(pod, bodies)
        rejected |= passed.rejected
        turned_down = len(passed.names) != len(bodies)
        given: Mapping[str, Sequence[Given]] = {}
        if len(passed.names) > 1:
            given = await self._extenders.prioritize(pod, {name: bodies[name] for name in passed.names})
        pod = self._still(queued)
        prepared, fits = self._fitting(evaluator, pod, passed.names)
        if not len(fits):
            diagnosis = self._diagnosis(evaluator, pod, prepared, rejected)
            if turned_down:
                diagnosis.unschedulable_plugins.add(NAME)
            raise FitError(diagnosis)
        if len(fits) == 1:
            return evaluator.uncached.only(pod, prepared, fits, evaluated)
        return self._ranked(evaluator, pod, prepared, fits, given, passed.emptied, evaluated)

    async def _on_nominated(
        self, evaluator: Evaluator, queued: QueuedPodInfo, rejected: dict[str, Status]
    ) -> Choice | None:
        """The pod's nominated node, if it still passes there. Extender rejections are added to `rejected`."""
        pod = queued.pod
        _, fits = self._fitting(evaluator, pod, (pod.nominated_node,))
        if not len(fits):
            return None
        try:
            passed = await self._extenders.filter(pod, self._bodies(evaluator, fits))
        except ExtenderError as error:
            logger.error("pod %s on its nominated node %s: %s", pod.key, pod.nominated_node, error)
            return None
        rejected |= passed.rejected
        pod = self._still(queued)
        prepared, fits = self._fitting(evaluator, pod, passed.names)
        return evaluator.uncached.only(pod, prepared, fits, 1) if len(fits) else None

    def _bodies(self, evaluator: Evaluator, slots: IntArray) -> dict[str, bytes]:
        names = [node.name for slot in slots.tolist() if (node := evaluator.columns.by_slot[slot]) is not None]
        found = {name: self._scheduler.node(name) for name in names}
        return {name: node.body for name, node in found.items() if node is not None}

    def _fitting(self, evaluator: Evaluator, pod: PodInfo, names: Sequence[str]) -> tuple[Prepared, IntArray]:
        """Those of the nodes that fit now. Raises: FitError, PluginError."""
        try:
            prepared = evaluator.beside(pod)
        except Rejected as rejected:
            raise evaluator.rejection(rejected) from None
        columns = evaluator.columns
        names = [name for name in names if prepared.node_names is None or name in prepared.node_names]
        slots = np.array(sorted(columns.slots_of(names)), np.int64)
        return prepared, fitting_of(prepared, pod, columns, slots)

    def _diagnosis(
        self, evaluator: Evaluator, pod: PodInfo, prepared: Prepared, rejected: Mapping[str, Status]
    ) -> Diagnosis:
        """The filters' and extenders' statuses; for a node rejected by both, the extenders'."""
        columns = evaluator.columns
        barred = dict(prepared.barred)
        unknown: list[str] = []
        for name, status in rejected.items():
            node = columns.by_name.get(name)
            if node is not None and node.present:
                barred[node.slot] = status
            else:
                unknown += status.reasons
        diagnosis = diagnose(columns, pod, prepared._replace(barred=barred))
        for reason in unknown:
            diagnosis.reasons[reason] = diagnosis.reasons.get(reason, 0) + 1
        return diagnosis

    def _ranked(
        self,
        evaluator: Evaluator,
        pod: PodInfo,
        prepared: Prepared,
        slots: IntArray,
        given: Mapping[str, Sequence[Given]],
        emptied: bool,
        evaluated: int,
    ) -> Choice:
        prepared.require_scores()
        columns, state, size = evaluator.columns, prepared.state, len(slots)
        nodes = Emptied(columns, slots, size) if emptied else columns.some(slots)
        names = [node.name for node in nodes.infos() if node is not None]
        found = scored(prepared.scorers, state, pod, nodes, size, evaluator.profile.kept_plugins)
        totals = found.totals + np.array([total(given.get(name, ())) for name in names], np.int64)
        place = evaluator.pick(totals)
        node = columns.by_slot[int(slots[place])]
        assert node is not None
        told = tuple((each.extender, each.score, each.weight) for each in given.get(node.name, ()))
        return Choice(node, state, int(totals[place]), evaluated, size, found.tops, found.wide_of(place), told)

    # --- PostFilter -------------------------------------------------------------------------------------------------

    async def _post_filter(self, run: ProfileRun, queued: QueuedPodInfo, diagnosis: Diagnosis) -> str | None:
        """As the scheduler's own, with preemption through extenders. Raises: Gone."""
        profile = run.profile
        if not profile.post_filters:
            return ""
        now_s = self._scheduler.clock.monotonic_s
        since_s, result = now_s(), None
        try:
            result, status = await profile.run_post_filter_through(self._extenders, queued.pod, diagnosis)
        except Exception as error:
            logger.exception("PostFilter for pod %s", queued.pod.key)
            status = Status(Code.ERROR, str(error) or type(error).__name__)
        self._still(queued)
        diagnosis.post_filter_message = status.message
        run.attempts.point("PostFilter", CODE_NAMES[status.code], now_s() - since_s)
        return None if result is None else result.nominated_node
