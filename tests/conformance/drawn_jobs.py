"""Jobs and what is done to them and their pods, step by step, drawn from a seed.

A failed pod ends its index or its job, but in the last step: a controller puts its successor off for ten seconds.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

Json = dict[str, Any]
STEPS = 4
FAIL_JOB, FAIL_INDEX, IGNORE, COUNT, OTHER = 42, 9, 7, 5, 1
"""Exit codes, by what a policy makes of them."""


class Step(NamedTuple):
    """`what` is done: the first running pod, of `index` if that is 0 or more, ends with `code`; or a patch."""

    what: str
    index: int = -1
    code: int = 0
    body: Json | None = None
    disrupted: bool = False


class Drawn(NamedTuple):
    name: str
    body: Json
    steps: list[Step]


def draw(seed: int, name: str) -> Drawn:
    rng = random.Random(f"{seed} {name}")
    indexed = rng.random() < 0.6
    spec = _spec(rng, indexed)
    steps = [_step(rng, spec, indexed, last=at == STEPS - 1) for at in range(STEPS)]
    return Drawn(name, {"kind": "Job", "metadata": {"name": name}, "spec": spec}, steps)


def _spec(rng: random.Random, indexed: bool) -> Json:
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "runs"}], "nodeName": "n"}
    spec: Json = {
        "template": {"metadata": {"labels": {"app": "j"}}, "spec": pod},
        "parallelism": rng.choice((0, 1, 2, 2, 3)),
        "completions": rng.choice((1, 2, 3, 3, 4)),
    }
    if not indexed and rng.random() < 0.2:
        spec.pop("completions")
    if indexed:
        spec["completionMode"] = "Indexed"
    by_index = indexed and rng.random() < 0.5
    if by_index:
        spec["backoffLimitPerIndex"] = 0
        if rng.random() < 0.5:
            spec["maxFailedIndexes"] = min(rng.choice((0, 1, 2)), spec["completions"])
    else:
        spec["backoffLimit"] = 0
    if rng.random() < 0.5:
        spec["podFailurePolicy"] = {"rules": _rules(rng, by_index)}
    if indexed and rng.random() < 0.4:
        spec["successPolicy"] = {"rules": [_success(rng, spec["completions"])]}
    if rng.random() < 0.2:
        spec["suspend"] = True
    if rng.random() < 0.2:
        spec["podReplacementPolicy"] = "Failed"
    if rng.random() < 0.1:
        spec["managedBy"] = "example.com/another"
    return spec


def _rules(rng: random.Random, by_index: bool) -> list[Json]:
    actions = {"FailJob": FAIL_JOB, "Ignore": IGNORE, "Count": COUNT}
    if by_index:
        actions["FailIndex"] = FAIL_INDEX
    found: list[Json] = []
    for action, code in actions.items():
        if rng.random() < 0.6:
            codes = {"operator": "In", "values": [code, 100]}
            if action == "FailJob" and rng.random() < 0.2:
                codes = {"operator": "NotIn", "values": sorted((FAIL_INDEX, IGNORE, COUNT))}
            found.append({"action": action, "onExitCodes": codes})
    if rng.random() < 0.4 or not found:
        condition = {"type": "DisruptionTarget", "status": "True"}
        found.append({"action": rng.choice(("FailJob", "Count")), "onPodConditions": [condition]})
    rng.shuffle(found)
    return found


def _success(rng: random.Random, completions: int) -> Json:
    indexes = rng.choice(("0", "0-1", f"{completions - 1}", f"0,{completions - 1}"))
    if completions == 1:
        indexes = "0"
    found: Json = {"succeededIndexes": indexes} if rng.random() < 0.6 else {}
    if not found or rng.random() < 0.3:
        found["succeededCount"] = 1
    return found


def _step(rng: random.Random, spec: Json, indexed: bool, last: bool) -> Step:
    roll = rng.random()
    index = rng.randrange(spec.get("completions", 1)) if indexed else -1
    if roll < 0.45:
        return Step("end", index)
    if roll < 0.7 or last:
        # What is ignored begins again, after a while.
        code = rng.choice((OTHER, FAIL_JOB, FAIL_INDEX, COUNT, *((IGNORE, IGNORE) if last else ())))
        return Step("end", index, code, disrupted=rng.random() < 0.2)
    changes: list[Json] = [
        {"parallelism": rng.choice((0, 1, 2, 3))}, {"parallelism": rng.choice((0, 1, 2, 3))},
        {"suspend": True}, {"suspend": False}, {"suspend": False},
        {"ttlSecondsAfterFinished": rng.choice((0, 3600))},
    ]  # fmt: skip
    return Step("patch", body={"spec": rng.choice(changes)})
