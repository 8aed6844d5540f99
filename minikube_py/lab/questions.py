"""One query in two ways: by the store's index, and by listing everything and filtering at the client.

The second is what an upstream client must do: list nodes and pods, decode, sum and compare. Both run at the same
revision, so that results are comparable while the cluster changes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import orjson

from minikube_py.client.transport import ApiTransport
from minikube_py.errors import MinikubeError
from minikube_py.fields.quantity import resource_units
from minikube_py.fields.where import Comparison, Where

FINISHED = ("Succeeded", "Failed")


class QuestionError(MinikubeError):
    """The API did not respond, or the two results differ."""


@dataclass(frozen=True, slots=True)
class Question:
    """At least this much of each resource is free, by its name in `free.*`; quantities in the API's format."""

    text: str
    at_least: Mapping[str, str]

    @property
    def selector(self) -> str:
        return str(self.where)

    @property
    def where(self) -> Where:
        return Where(tuple(Comparison(f"free.{name}", ">=", (text,)) for name, text in self.at_least.items()))


@dataclass(frozen=True, slots=True)
class Answer:
    """Sorted node names; the median time of `rounds`, in seconds; bytes transferred in one round."""

    names: tuple[str, ...]
    revision: str
    duration_s: float
    rounds: int
    size_bytes: int


async def ask_index(transport: ApiTransport, question: Question, rounds: int, limit: int = 0) -> Answer:
    """`GET nodes?fieldSelector=free...`. Raises: QuestionError, Unavailable."""
    params = {"fieldSelector": question.selector, **({"limit": str(limit)} if limit else {})}
    durations_s = []
    for _ in range(rounds):
        started_s = time.perf_counter()
        body = await _get(transport, "/api/v1/nodes", params)
        page = orjson.loads(body)
        durations_s.append(time.perf_counter() - started_s)
    names = tuple(sorted(item["metadata"]["name"] for item in page["items"]))
    return Answer(names, page["metadata"]["resourceVersion"], median(durations_s), rounds, len(body))


async def ask_by_listing(transport: ApiTransport, question: Question, rounds: int, revision: str) -> Answer:
    """Lists nodes and pods at exactly `revision`, and filters here. Raises: QuestionError, Unavailable."""
    exactly = {"resourceVersion": revision, "resourceVersionMatch": "Exact"}
    durations_s = []
    for _ in range(rounds):
        started_s = time.perf_counter()
        nodes_body = await _get(transport, "/api/v1/nodes", exactly)
        pods_body = await _get(transport, "/api/v1/pods", exactly)
        names = free_at_least(orjson.loads(nodes_body)["items"], orjson.loads(pods_body)["items"], question)
        durations_s.append(time.perf_counter() - started_s)
    return Answer(names, revision, median(durations_s), rounds, len(nodes_body) + len(pods_body))


def free_at_least(
    nodes: Iterable[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]], question: Question
) -> tuple[str, ...]:
    """The sorted names of nodes with enough free beside these pods: decoded objects, no index."""
    used: dict[str, dict[str, int]] = {}
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node and pod.get("status", {}).get("phase") not in FINISHED:
            sums = used.setdefault(node, {})
            for resource, amount in _requests(pod, question).items():
                sums[resource] = sums.get(resource, 0) + amount
    wanted = {resource: resource_units(resource, text) for resource, text in question.at_least.items()}
    names = []
    for node in nodes:
        name = node["metadata"]["name"]
        allocatable, taken = node.get("status", {}).get("allocatable", {}), used.get(name, {})
        if all(_free(resource, allocatable, taken) >= amount for resource, amount in wanted.items()):
            names.append(name)
    return tuple(sorted(names))


def _free(resource: str, allocatable: Mapping[str, str], taken: Mapping[str, int]) -> float:
    """A missing resource counts as less than 0, as a missing field satisfies no inequality."""
    if resource not in allocatable:
        return -math.inf
    return resource_units(resource, allocatable[resource]) - taken.get(resource, 0)


def _requests(pod: Mapping[str, Any], question: Question) -> dict[str, int]:
    """Containers only: the pods of these runs have neither init containers nor overhead."""
    sums: dict[str, int] = {}
    for container in pod["spec"]["containers"]:
        for resource, text in container.get("resources", {}).get("requests", {}).items():
            if resource in question.at_least:
                sums[resource] = sums.get(resource, 0) + resource_units(resource, text)
    return sums


async def _get(transport: ApiTransport, path: str, params: Mapping[str, str]) -> bytes:
    answer = await transport.request("GET", path, params)
    if answer.status != 200:
        text = answer.body[:300].decode(errors="replace")
        raise QuestionError(f"GET {path} {dict(params)} answered {answer.status}: {text}")
    return answer.body
