"""Calls a scheduler's extenders, in sequence or in parallel, and handles their failures.

Source: pkg/scheduler/extender.go; findNodesThatPassExtenders, prioritizeNodes and extendersBinding in
pkg/scheduler/schedule_one.go; callExtenders in pkg/scheduler/framework/preemption/preemption.go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import orjson

from minikube_py.api.errors import go_quote
from minikube_py.client.rest import Object
from minikube_py.env import Outside
from minikube_py.errors import MinikubeError
from minikube_py.scheduler.configuration.merging import ConfigError
from minikube_py.scheduler.extenders import wire
from minikube_py.scheduler.extenders.config import ExtenderConfig
from minikube_py.scheduler.extenders.go_json import LARGE_BYTES
from minikube_py.scheduler.framework import EVERYTHING, MAX_NODE_SCORE, Code, EventRegistration, Status
from minikube_py.scheduler.objects import NodeInfo, PodInfo
from minikube_py.scheduler.plugins.default_preemption import Candidate

T = TypeVar("T")
Answered = TypeVar("Answered")
Project = Callable[[Object], T | None]

logger = logging.getLogger(__name__)

NAME: Final = "Extender"
"""Listed among the plugins that rejected a pod if an extender did."""
MAX_EXTENDER_PRIORITY: Final = 10
_OK: Final = 200


class ExtenderError(MinikubeError):
    """A non-ignorable extender failed; the message is upstream's."""


class Passed(NamedTuple):
    """`names`: the nodes that all extenders accept; `rejected`: their statuses for the others. `emptied`: an extender
    returned whole nodes, which upstream then scores as if no pod ran on them."""

    names: list[str]
    rejected: dict[str, Status]
    emptied: bool


class Given(NamedTuple):
    """One extender's score for a node: `score` times `weight` counts."""

    extender: str
    score: int
    weight: int


class Extenders:
    """Raises from the constructor: ConfigError if extenders are configured but cannot be reached."""

    def __init__(self, configs: Sequence[ExtenderConfig], outside: Outside | None) -> None:
        if configs and outside is None:
            listed = ", ".join(each.url_prefix for each in configs)
            raise ConfigError(f"extenders: {listed}: servers outside of this process cannot be called from here")
        self.configs = tuple(configs)
        self.prioritizing = 0
        """Prioritize calls in progress."""
        self._outside = outside

    def __bool__(self) -> bool:
        return bool(self.configs)

    async def close(self) -> None:
        if self._outside is not None:
            await self._outside.close()

    # --- projections and events ---------------------------------------------------------------------------------------

    def with_bodies(
        self, pods: Project[PodInfo], nodes: Project[NodeInfo]
    ) -> tuple[Project[PodInfo], Project[NodeInfo]]:
        """The same projections, which also keep the objects if extenders need them."""
        if not self.configs:
            return pods, nodes
        # Running pods are sent only as victims.
        running = any(each.preempt_verb and not each.node_cache_capable for each in self.configs)

        def pod_with_body(obj: Object) -> PodInfo | None:
            found = pods(obj)
            if found is not None and (running or not found.node_name):
                object.__setattr__(found, "body", wire.body_of(obj, trimmed=True))
            return found

        def node_with_body(obj: Object) -> NodeInfo | None:
            found = nodes(obj)
            if found is not None:
                found.body = wire.body_of(obj, trimmed=False)
            return found

        return pod_with_body, node_with_body

    def events(self) -> list[tuple[str, EventRegistration]]:
        """Any event wakes a pod that an extender rejected."""
        return [(NAME, EVERYTHING)] if self.configs else []

    # --- interested extenders ---------------------------------------------------------------------------------------

    def of(self, pod: PodInfo) -> list[ExtenderConfig]:
        """The extenders interested in the pod."""
        if not any(each.managed for each in self.configs):
            return list(self.configs)
        asked = _resources(pod.body) if pod.body else set()
        return [each for each in self.configs if not each.managed or not asked.isdisjoint(each.managed)]

    async def _send(
        self, extender: ExtenderConfig, verb: str, body: bytes, read: Callable[[bytes], Answered]
    ) -> Answered:
        """The response parsed by `read`. Raises: ExtenderError, BadJson."""
        url = f"{extender.url_prefix.rstrip('/')}/{verb}"
        assert self._outside is not None
        try:
            answer = await self._outside.post(url, body, extender.tls, extender.timeout_s)
        except MinikubeError as error:
            raise ExtenderError(str(error)) from error
        if answer.status != _OK:
            raise ExtenderError(f"failed {verb} with extender at URL {url}, code {answer.status}")
        if len(answer.body) > LARGE_BYTES:
            return await asyncio.to_thread(read, answer.body)
        return read(answer.body)

    # --- Filter -----------------------------------------------------------------------------------------------------

    async def filter(self, pod: PodInfo, nodes: Mapping[str, bytes]) -> Passed:
        """`nodes`: the bodies of the nodes that passed the filters. Raises: ExtenderError."""
        passed = Passed(list(nodes), {}, False)
        for extender in self.of(pod):
            if not passed.names:
                break
            if not extender.filter_verb:
                continue
            try:
                passed = await self._filter_by(extender, pod, nodes, passed)
            except MinikubeError as error:
                if not extender.ignorable:
                    raise ExtenderError(str(error)) from error
                logger.info("extender %s is skipped: %s", extender.url_prefix, error)
        return passed

    async def _filter_by(
        self, extender: ExtenderConfig, pod: PodInfo, nodes: Mapping[str, bytes], passed: Passed
    ) -> Passed:
        """Raises: ExtenderError, BadJson."""
        body = _node_args(extender, pod, passed.names, nodes)
        result = await self._send(extender, extender.filter_verb, body, wire.filter_result)
        if result.error:
            raise ExtenderError(result.error)
        by_name = extender.node_cache_capable and result.names is not None
        listed = (result.names if by_name else result.nodes) or []
        known = set(passed.names)
        for name in listed:
            if name not in known:
                text = f"extender {go_quote(extender.url_prefix)} claims a filtered node {go_quote(name)}"
                raise ExtenderError(f"{text} which is not found in the input node list")
        rejected = {**passed.rejected}
        for name, why in result.failed.items():
            rejected[name] = Status(Code.UNSCHEDULABLE, why)
        for name, why in result.unresolvable.items():
            rejected[name] = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, why)
        whole = not by_name and result.nodes is not None
        return Passed(list(dict.fromkeys(listed)), rejected, passed.emptied or whole)

    # --- Prioritize -------------------------------------------------------------------------------------------------

    async def prioritize(self, pod: PodInfo, nodes: Mapping[str, bytes]) -> dict[str, list[Given]]:
        """By node, the extenders' scores. A failing extender gives none."""
        asked = [each for each in self.of(pod) if each.prioritize_verb]
        found: dict[str, list[Given]] = {}
        answers = await asyncio.gather(*(self._prioritize_by(each, pod, nodes) for each in asked))
        for extender, scores in zip(asked, answers, strict=True):
            for name, score in scores:
                scaled = _int64(score * (MAX_NODE_SCORE // MAX_EXTENDER_PRIORITY))
                found.setdefault(name, []).append(Given(extender.url_prefix, scaled, extender.weight))
        return found

    async def _prioritize_by(
        self, extender: ExtenderConfig, pod: PodInfo, nodes: Mapping[str, bytes]
    ) -> list[tuple[str, int]]:
        body = _node_args(extender, pod, list(nodes), nodes)
        self.prioritizing += 1
        try:
            return await self._send(extender, extender.prioritize_verb, body, wire.priorities)
        except MinikubeError as error:
            logger.info("extender %s gives no scores: %s", extender.url_prefix, error)
            return []
        finally:
            self.prioritizing -= 1

    # --- preemption -------------------------------------------------------------------------------------------------

    async def preempt(self, pod: PodInfo, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The candidates that the extenders accept, with the victims they name. Raises: ExtenderError."""
        left = {each.node.name: each for each in candidates}
        for extender in self.of(pod):
            if not left:
                break
            if not extender.preempt_verb:
                continue
            try:
                left = await self._preempt_by(extender, pod, left)
            except MinikubeError as error:
                if not extender.ignorable:
                    raise ExtenderError(str(error)) from error
                logger.info("extender %s is skipped: %s", extender.url_prefix, error)
        return list(left.values())

    async def _preempt_by(
        self, extender: ExtenderConfig, pod: PodInfo, left: Mapping[str, Candidate]
    ) -> dict[str, Candidate]:
        """Raises: ExtenderError, BadJson."""
        if extender.node_cache_capable:
            uids = {name: ([v.uid for v in each.victims], each.violations) for name, each in left.items()}
            body = wire.meta_preemption_args(pod.body, uids)
        else:
            whole = {name: ([v.body for v in each.victims], each.violations) for name, each in left.items()}
            body = wire.preemption_args(pod.body, whole)
        answer = await self._send(extender, extender.preempt_verb, body, wire.preemption_result)
        found: dict[str, Candidate] = {}
        for name, victims in answer.items():
            if name not in left:
                # Upstream accepts any known node, but only these were found to fit the pod.
                raise ExtenderError(f"nodeinfo not found for node name {go_quote(name)}")
            node = left[name].node
            uids_left = victims.uids if victims is not None else []
            chosen = tuple(_victim(extender, node, uid) for uid in uids_left)
            if chosen:
                found[name] = Candidate(node, chosen, victims.violations if victims is not None else 0)
            elif not extender.ignorable:
                raise ExtenderError(f"expected at least one victim pod on node {go_quote(name)}")
        return found

    # --- Bind -------------------------------------------------------------------------------------------------------

    async def bind(self, pod: PodInfo, node_name: str) -> Status | None:
        """None if no extender bound the pod: the profile does. Raises: ExtenderError."""
        for extender in self.of(pod):
            if not extender.bind_verb:
                continue
            body = wire.binding_args(pod.name, pod.namespace, pod.uid, node_name)
            try:
                wrong = await self._send(extender, extender.bind_verb, body, wire.binding_error)
                if wrong:
                    raise ExtenderError(wrong)
            except MinikubeError as error:
                if not extender.ignorable:
                    raise ExtenderError(str(error)) from error
                logger.info("extender %s is skipped: %s", extender.url_prefix, error)
                continue
            return Status(Code.SUCCESS)
        return None


def _node_args(extender: ExtenderConfig, pod: PodInfo, names: Sequence[str], nodes: Mapping[str, bytes]) -> bytes:
    if extender.node_cache_capable:
        return wire.name_args(pod.body, names)
    return wire.node_args(pod.body, (nodes[name] for name in names))


def _resources(body: bytes) -> set[str]:
    """The resources that a pod's containers request or limit, even if 0."""
    spec = orjson.loads(body)["spec"]
    found: set[str] = set()
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        resources = container.get("resources") or {}
        found.update(resources.get("requests") or (), resources.get("limits") or ())
    return found


def _victim(extender: ExtenderConfig, node: NodeInfo, uid: str | None) -> PodInfo:
    """Raises: ExtenderError."""
    found = node.pods.get(uid or "")
    if found is None:
        shown = "<nil>" if uid is None else f"&{{{uid}}}"
        text = f"extender: {extender.url_prefix} claims to preempt pod (UID: {shown}) on node: {node.name}"
        raise ExtenderError(f"{text}, but the pod is not found on that node")
    return found


def _int64(value: int) -> int:
    """Wraps as Go's arithmetic does."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def total(given: Sequence[Given]) -> int:
    return _int64(sum(each.score * each.weight for each in given))
