"""Drawn clusters: some nodes with running pods, pods to place, and an alternative rest of the cluster."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import CodeType, MappingProxyType, ModuleType
from typing import Any, Final

Object = dict[str, Any]

ZONE: Final = "topology.kubernetes.io/zone"
CPUS: Final = ("0", "1m", "100m", "999m", "1", "2", "4", "64", "1000000")
MEMORIES: Final = ("0", "1", "128Mi", "1Gi", "2Gi", "64Gi", "1Ti")
COUNTS: Final = ("0", "1", "2", "3", "250", "500", "999", "1000", "1001", "4000", "8000", "12800")
TEXTS: Final = ("a", "b", "a", "b", "", "0", "1", "7", "-1", "250", "1000", "x.y")
NODES_MAX, BOUND_MAX, PODS_MAX = 5, 6, 3
MANY_NODES, MANY_BOUND = 100, 40
"""Of one cluster in eight: more than bounds of one digit, words of 64 bits and usual blocks have."""
WORD = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_./-]{0,60}[A-Za-z0-9])?")
RESOURCES_MAX, LABELS_MAX = 4, 8
SAID: Final = ("name", "scope")


@dataclass(frozen=True, slots=True)
class Words:
    """Names used in drawn clusters, including those in the plugin's source, so that its conditions can match."""

    resources: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """Objects as the API serves them. `others`: alternative nodes, with their pods, to replace all nodes but one."""

    nodes: tuple[Object, ...]
    bound: tuple[Object, ...]
    pods: tuple[Object, ...]
    others: tuple[Object, ...] = ()
    others_bound: tuple[Object, ...] = ()


def texts_of(args: Any) -> Iterator[str]:
    """The strings in a plugin's args, keys of mappings included."""
    if isinstance(args, str):
        yield args
    elif isinstance(args, Iterable):
        for each in args:
            yield from texts_of(each)
        if isinstance(args, Mapping):
            yield from texts_of(args.values())


def words_of(module: ModuleType | None, args: Mapping[str, Any] = MappingProxyType({})) -> Words:
    """The strings in a plugin's args and module that could name resources or labels."""
    found: dict[str, None] = dict.fromkeys(texts_of(args.values()))
    for name, value in vars(module).items() if module is not None else ():
        members = vars(value) if isinstance(value, type) else {name: value}
        if isinstance(value, type) and value.__module__ != getattr(module, "__name__", ""):
            continue
        for member, function in members.items():
            if member in SAID or (member.startswith("__") and not callable(function)):
                continue
            code = getattr(function, "__code__", None)
            if isinstance(code, CodeType) and code.co_filename == getattr(module, "__file__", ""):
                found.update(dict.fromkeys(_texts(code)))
            elif isinstance(function, str):
                found[function] = None
    names = [text for text in found if WORD.fullmatch(text)]
    qualified = tuple(text for text in names if text.count("/") == 1)
    plain = tuple(text for text in names if "/" not in text and text not in ("cpu", "memory", "pods"))
    return Words(qualified[:RESOURCES_MAX], (*qualified, *plain)[:LABELS_MAX])


def _texts(code: CodeType) -> Iterator[str]:
    for constant in code.co_consts:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, CodeType):
            yield from _texts(constant)


def drawn_case(rng: random.Random, words: Words) -> Case:
    """Values collide often, and lie at the edges."""
    drawing = _Drawing(rng, words)
    nodes = [drawing.node(f"n{number}") for number in range(1 + rng.randrange(NODES_MAX))]
    others = [drawing.node(f"o{number}") for number in range(rng.randrange(NODES_MAX))]
    bound = [drawing.pod(f"b{i}", rng.choice(nodes)) for i in range(rng.randrange(BOUND_MAX))]
    others_bound = [drawing.pod(f"ob{i}", rng.choice(others)) for i in range(rng.randrange(BOUND_MAX)) if others]
    pods = [drawing.pod(f"p{number}") for number in range(1 + rng.randrange(PODS_MAX))]
    if rng.randrange(4):
        # The same template again, with other names and labels.
        pods.append(drawing.twin(f"p{len(pods)}", pods[-1]))
    if not rng.randrange(8):
        nodes += [drawing.node(f"n{i}") for i in range(len(nodes), rng.randint(10, MANY_NODES))]
        # Most on one node: a real one has tens of pods.
        bound += [drawing.pod(f"b{i}", rng.choice(nodes[:2])) for i in range(len(bound), rng.randint(6, MANY_BOUND))]
    return Case(tuple(nodes), tuple(bound), tuple(pods), tuple(others), tuple(others_bound))


class _Drawing:
    def __init__(self, rng: random.Random, words: Words) -> None:
        self._rng, self._words = rng, words

    def node(self, name: str) -> Object:
        rng = self._rng
        # Half of the nodes have room for most pods: without fitting nodes, nothing is scored.
        roomy = rng.randrange(2)
        cpu, memory = ("64", "64Gi") if roomy else (rng.choice(CPUS), rng.choice(MEMORIES))
        allocatable = {"cpu": cpu, "memory": memory, "pods": "110" if roomy else rng.choice(("0", "1", "110"))}
        allocatable |= {resource: rng.choice(COUNTS) for resource in self._words.resources if rng.randrange(3)}
        labels = {"kubernetes.io/hostname": name, **self._labels((ZONE, *self._words.labels))}
        spec: Object = {"unschedulable": True} if not rng.randrange(8) else {}
        if not rng.randrange(4):
            spec["taints"] = [
                {"key": rng.choice("ab"), "value": "", "effect": rng.choice(("NoSchedule", "PreferNoSchedule"))}
            ]
        return {
            "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels},
            "spec": spec,
            "status": {"allocatable": allocatable},
        }

    def pod(self, name: str, node: Object | None = None) -> Object:
        rng = self._rng
        requests = {
            key: value
            for key, value in (("cpu", rng.choice(CPUS[:-2])), ("memory", rng.choice(MEMORIES[:-2])))
            if rng.randrange(2)
        }
        requests |= {resource: rng.choice(COUNTS) for resource in self._words.resources if rng.randrange(2)}
        spec: Object = {"containers": [{"name": "c", "image": "x", "resources": {"requests": requests}}]}
        if rng.randrange(4) == 0:
            spec["tolerations"] = [{"key": rng.choice("ab"), "operator": "Exists"}]
        if rng.randrange(4) == 0:
            spec["priority"] = rng.choice((-1, 1, 1000))
        if node is not None:
            spec["nodeName"] = node["metadata"]["name"]
        return {"metadata": self._metadata(name), "spec": spec, "status": {}}

    def twin(self, name: str, pod: Object) -> Object:
        """An equal pod with another name, and half of the time with other labels."""
        labels = self._labels(("app", *self._words.labels)) if self._rng.randrange(2) else pod["metadata"]["labels"]
        return {**pod, "metadata": {**pod["metadata"], "name": name, "uid": f"uid-{name}", "labels": labels}}

    def _metadata(self, name: str) -> Object:
        namespace = self._rng.choice(("default", "other"))
        return {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "labels": self._labels(("app", *self._words.labels)),
        }

    def _labels(self, keys: Sequence[str]) -> dict[str, str]:
        rng = self._rng
        return {key: rng.choice((*TEXTS, *self._words.labels)) for key in keys if rng.randrange(2)}


def smaller(case: Case) -> Iterator[Case]:
    """The case with half of its nodes, or with one item less, for each item that can be removed."""
    half = len(case.nodes) // 2
    for some in (case.nodes[:half], case.nodes[half:]) if half > 1 else ():
        names = {node["metadata"]["name"] for node in some}
        yield replace(case, nodes=some, bound=tuple(pod for pod in case.bound if pod["spec"]["nodeName"] in names))
    if len(case.bound) > 1:
        yield replace(case, bound=case.bound[: len(case.bound) // 2])
    for name in ("bound", "others_bound", "pods"):
        objects = getattr(case, name)
        for i in range(len(objects)):
            if name != "pods" or len(objects) > 1:
                yield replace(case, **{name: (*objects[:i], *objects[i + 1 :])})
    for nodes, bound in (("nodes", "bound"), ("others", "others_bound")):
        objects = getattr(case, nodes)
        for i, node in enumerate(objects):
            if nodes == "nodes" and len(objects) == 1:
                continue
            kept = tuple(pod for pod in getattr(case, bound) if pod["spec"]["nodeName"] != node["metadata"]["name"])
            yield replace(case, **{nodes: (*objects[:i], *objects[i + 1 :]), bound: kept})
    yield from _plainer(case)


def _plainer(case: Case) -> Iterator[Case]:
    """The case with one label, taint, toleration or request less."""
    for name in ("nodes", "bound", "pods", "others", "others_bound"):
        objects = getattr(case, name)
        for i, obj in enumerate(objects):
            for less in _less(obj):
                yield replace(case, **{name: (*objects[:i], less, *objects[i + 1 :])})


def _less(obj: Object) -> Iterator[Object]:
    metadata, spec = obj["metadata"], obj["spec"]
    for key in metadata.get("labels", {}):
        yield {**obj, "metadata": {**metadata, "labels": _without(metadata["labels"], key)}}
    for key in ("taints", "unschedulable", "tolerations", "priority"):
        if key in spec:
            yield {**obj, "spec": _without(spec, key)}
    if "containers" in spec:
        requests = spec["containers"][0]["resources"]["requests"]
        for key in requests:
            container = {**spec["containers"][0], "resources": {"requests": _without(requests, key)}}
            yield {**obj, "spec": {**spec, "containers": [container]}}


def _without(mapping: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in mapping.items() if name != key}


def least(case: Case, breaks: Callable[[Case], bool]) -> Case:
    """Shrinks the case while it still `breaks` the same law."""
    going = True
    while going:
        going = False
        for less in smaller(case):
            if breaks(less):
                case, going = less, True
                break
    return case


def listing(case: Case) -> str:
    """One line per object."""
    lines = [_line("node", node) for node in case.nodes]
    lines += [_line("runs", pod) for pod in case.bound]
    lines += [_line("pod ", pod) for pod in case.pods]
    lines += [_line("else", node) for node in case.others]
    lines += [_line("runs", pod) for pod in case.others_bound]
    return "\n".join(lines)


def _line(kind: str, obj: Object) -> str:
    metadata, spec = obj["metadata"], obj["spec"]
    words = [kind, metadata["name"]]
    if spec.get("nodeName"):
        words.append(f"on {spec['nodeName']}")
    amounts = obj["status"].get("allocatable") or spec.get("containers", [{}])[0].get("resources", {}).get(
        "requests", {}
    )
    words += [f"{name}={value}" for name, value in amounts.items()]
    words += [
        f"label {key}={value!r}" for key, value in metadata.get("labels", {}).items() if key != "kubernetes.io/hostname"
    ]
    if metadata.get("namespace", "default") != "default":
        words.append(f"namespace {metadata['namespace']}")
    words += [f"{key} {spec[key]}" for key in ("taints", "unschedulable", "tolerations", "priority") if key in spec]
    return " ".join(words)
