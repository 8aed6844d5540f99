"""Why a pod was placed where it is: recent decisions, recorded cheaply and explained on demand."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

from minikube_py.scheduler.dry_run import copied
from minikube_py.scheduler.evaluate import Evaluator
from minikube_py.scheduler.objects import NodeInfo, PodInfo
from minikube_py.scheduler.scoring import Choice


class Explanation(NamedTuple):
    """`scores`: of the node, (plugin, score after normalisation, weight). `message`: why a pod fits nowhere; `node` is
    then "". `score` is -1 if only one node fitted. `queued_s`, `started_s`: when it was queued for this attempt, and
    when the attempt began; None for a pod that fits nowhere."""

    pod: str
    uid: str
    at_s: float
    node: str
    score: int
    evaluated: int
    feasible: int
    scores: tuple[tuple[str, int, int], ...]
    message: str = ""
    queued_s: float | None = None
    started_s: float | None = None


class _Placed(NamedTuple):
    pod: PodInfo
    at_s: float
    node: NodeInfo
    choice_score: int
    evaluated: int
    feasible: int
    tops: Mapping[str, int]
    wide: Mapping[str, int]
    extended: tuple[tuple[str, int, int], ...]
    queued_s: float
    started_s: float


class _Failed(NamedTuple):
    pod: PodInfo
    at_s: float
    message: str


class Decisions:
    """The last `limit` decisions, by number; a pod tried several times has several."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._last = 0
        self._by_number: OrderedDict[int, _Placed | _Failed] = OrderedDict()
        self._last_of: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._by_number)

    def placed(self, pod: PodInfo, at_s: float, choice: Choice, queued_s: float, started_s: float) -> None:
        """Call before the pod is assumed: this records the node's state at the time of the choice."""
        seen = copied(choice.node)
        self._put(pod.uid, _Placed(pod, at_s, seen, *choice[2:], queued_s, started_s))

    def failed(self, pod: PodInfo, at_s: float, message: str) -> None:
        self._put(pod.uid, _Failed(pod, at_s, message))

    def _put(self, uid: str, decision: _Placed | _Failed) -> None:
        kept = self._by_number
        self._last += 1
        kept[self._last] = decision
        self._last_of[uid] = self._last
        if len(kept) > self._limit:
            number, oldest = kept.popitem(last=False)
            if self._last_of.get(oldest.pod.uid) == number:
                del self._last_of[oldest.pod.uid]

    def numbers_of(self, uid: str) -> list[int]:
        """The recorded decisions on a pod, latest last."""
        return [number for number, decision in self._by_number.items() if decision.pod.uid == uid]

    def explain(self, uid: str, evaluator: Evaluator, number: int | None = None) -> Explanation | None:
        """`number`: of the decision, None for the pod's latest. None if it is not, or no longer, recorded."""
        wanted = self._last_of.get(uid) if number is None else number
        decision = self._by_number.get(wanted) if wanted is not None else None
        if decision is None or decision.pod.uid != uid:
            return None
        pod = decision.pod
        if isinstance(decision, _Failed):
            return Explanation(pod.key, uid, decision.at_s, "", -1, 0, 0, (), decision.message)
        scores = evaluator.score_one(pod, decision.node, decision.tops, decision.wide) + decision.extended
        return Explanation(
            pod.key,
            uid,
            decision.at_s,
            decision.node.name,
            decision.choice_score,
            decision.evaluated,
            decision.feasible,
            scores,
            queued_s=decision.queued_s,
            started_s=decision.started_s,
        )
