"""StatefulSets and what is done to them, their pods, claims and revisions, step by step, drawn from a seed."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

Json = dict[str, Any]
STEPS = 4
IMAGES = ("one", "two", "three", "broken", "crashing", "stuck")
"""Pods of `broken` stay pending, those of `crashing` are never ready, those of `stuck` stay when they are deleted."""
OTHER = "other"
"""A ConfigMap that may own claims."""
POLICIES = ("Retain", "Delete")


class Step(NamedTuple):
    """`what` is done, to the pod, claim or revision `at` that place, with a patch or body."""

    what: str
    at: int = 0
    body: Json | None = None


class Drawn(NamedTuple):
    name: str
    body: Json
    steps: list[Step]

    @property
    def ordered(self) -> bool:
        """Whether its pods and claims are made one by one, so that events have one order."""
        specs = [
            self.body["spec"],
            *(step.body["spec"] for step in self.steps if step.what.startswith("again") and step.body),
        ]
        return all(
            spec["podManagementPolicy"] == "OrderedReady" and len(spec.get("volumeClaimTemplates", ())) < 2
            for spec in specs
        )


def draw(seed: int, name: str) -> Drawn:
    rng = random.Random(f"{seed} {name}")
    first = _set(rng, name, rng.choice(("one", "one", "one", "broken", "stuck")))
    return Drawn(name, first, [_step(rng, name, first) for _ in range(STEPS)])


def without_claims(name: str, policy: str) -> Drawn:
    """One that adopts pods which lack the volumes of its claims."""
    rng = random.Random(0)
    first = _set(rng, name, "one")
    first["spec"] |= {
        "replicas": 2,
        "podManagementPolicy": policy,
        "minReadySeconds": 0,
        "ordinals": None,
        "updateStrategy": {"type": "RollingUpdate"},
    }
    bare = {
        key: value
        for key, value in first["spec"].items()
        if key not in ("volumeClaimTemplates", "persistentVolumeClaimRetentionPolicy")
    }
    claimed = {**first, "spec": {**bare, "volumeClaimTemplates": [_claim(rng, "data")]}}
    updated = {"spec": {"template": template(rng, name, "two")}}
    steps = [
        Step("again after Orphan", body=claimed),
        Step("patch", body=updated),
        Step("kill pod", 0),
        Step("kill pod", 1),
    ]
    return Drawn(name, {**first, "spec": bare}, steps)


def template(rng: random.Random, name: str, image: str) -> Json:
    metadata: Json = {"labels": {"app": name}}
    if rng.random() < 0.2:
        metadata["annotations"] = {"note": rng.choice("ab")}
    spec: Json = {"containers": [{"name": "c", "image": image}], "nodeName": "n"}
    if rng.random() < 0.2:
        spec["volumes"] = [{"name": "scratch", "emptyDir": {}}, {"name": "data", "emptyDir": {}}]
    return {"metadata": metadata, "spec": spec}


def _set(rng: random.Random, name: str, image: str) -> Json:
    spec: Json = {
        "replicas": rng.choice((0, 1, 2, 2, 3, 3)), "selector": {"matchLabels": {"app": name}},
        "template": template(rng, name, image), "podManagementPolicy": rng.choice(("OrderedReady", "Parallel")),
        "updateStrategy": _strategy(rng), "revisionHistoryLimit": rng.choice((0, 1, 2, 10)),
        "minReadySeconds": rng.choice((0, 0, 0, 1, 3600)),
    }  # fmt: skip
    if rng.random() < 0.7:
        spec["serviceName"] = "s"
    if rng.random() < 0.3:
        spec["ordinals"] = {"start": rng.choice((1, 2, 7))}
    if rng.random() < 0.6:
        spec["volumeClaimTemplates"] = [
            _claim(rng, each) for each in rng.choice((("data",), ("data",), ("data", "log")))
        ]
        if rng.random() < 0.7:
            spec["persistentVolumeClaimRetentionPolicy"] = _policy(rng)
    metadata: Json = {"name": name}
    if rng.random() < 0.2:
        metadata["annotations"] = {"of": "the set"}
    return {"kind": "StatefulSet", "metadata": metadata, "spec": spec}


def _claim(rng: random.Random, name: str) -> Json:
    metadata: Json = {"name": name}
    if rng.random() < 0.3:
        metadata |= {"labels": {"kind": "claim", "app": "other"}, "annotations": {"note": "c"}}
    return {
        "metadata": metadata,
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }


def _strategy(rng: random.Random) -> Json:
    if rng.random() < 0.2:
        return {"type": "OnDelete", "rollingUpdate": None}
    if rng.random() < 0.4:
        return {"type": "RollingUpdate"}
    return {"type": "RollingUpdate", "rollingUpdate": {"partition": rng.choice((0, 0, 1, 2, 3, 5))}}


def _policy(rng: random.Random) -> Json:
    return {"whenDeleted": rng.choice(POLICIES), "whenScaled": rng.choice(POLICIES)}


def _step(rng: random.Random, name: str, first: Json) -> Step:
    at = rng.randrange(4)
    what = rng.choice(
        ("spec",) * 8
        + ("pod",) * 4
        + ("claim",) * (2 if "volumeClaimTemplates" in first["spec"] else 0)
        + ("delete", "delete", "revision")
    )
    if what == "spec":
        return Step("patch", body={"spec": _change(rng, name, first)})
    if what == "pod":
        return _on_pod(rng, at)
    if what == "claim":
        return _on_claim(rng, name, at)
    if what == "delete":
        again = _set(rng, name, rng.choice(("one", "two")))
        if rng.random() < 0.5:
            again = {**first, "spec": {**first["spec"], "replicas": rng.choice((1, 2, 3))}}
        return Step(
            rng.choice(
                ("again after Orphan", "again after Background", "again after Foreground", "again after Orphan")
            ),
            body=again,
        )
    return Step("delete revision", at)


def _change(rng: random.Random, name: str, first: Json) -> Json:
    changes: list[Json] = [
        *({"template": template(rng, name, rng.choice(IMAGES))} for _ in range(4)),
        {"template": first["spec"]["template"]},
        *({"replicas": rng.choice((0, 1, 2, 3, 4))} for _ in range(3)),
        {"updateStrategy": _strategy(rng)},
        {"updateStrategy": _strategy(rng), "template": template(rng, name, "two")},
        {"ordinals": rng.choice((None, {"start": 1}, {"start": 2}))},
        {"minReadySeconds": rng.choice((0, 1))},
        {"revisionHistoryLimit": rng.choice((0, 1, 3)), "template": template(rng, name, "three")},
        {"replicas": 1, "template": template(rng, name, "two")},
        {"persistentVolumeClaimRetentionPolicy": _policy(rng)},
        {"persistentVolumeClaimRetentionPolicy": _policy(rng), "replicas": rng.choice((1, 2))},
    ]
    return rng.choice(changes)


def _on_pod(rng: random.Random, at: int) -> Step:
    conditions = [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    found = [
        Step("delete pod", at), Step("delete pod", at), Step("kill pod", at),
        Step("pod status", at, {"phase": "Failed"}), Step("pod status", at, {"phase": "Succeeded"}),
        Step("pod status", at, {"conditions": conditions}),
        Step("patch pod", at, {"metadata": {"labels": {"app": "free"}}}),
        Step("patch pod", at, {"metadata": {"labels": {"statefulset.kubernetes.io/pod-name": None}}}),
        Step("patch pod", at, {"metadata": {"labels": {"controller-revision-hash": None}}}),
        Step("patch pod", at, {"metadata": {"ownerReferences": None}}),
    ]  # fmt: skip
    return rng.choice(found)


def _on_claim(rng: random.Random, name: str, at: int) -> Step:
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": OTHER}
    own = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name}
    pod = {"apiVersion": "v1", "kind": "Pod", "name": "?"}
    references: list[list[Json] | None] = [
        None,
        [{**other, "controller": True}],
        [other],
        [own],
        [pod],
        [{**own, "controller": True}],
        [{**pod, "controller": True}],
    ]
    if rng.random() < 0.25:
        return Step("delete claim", at)
    return Step("claim owners", at, {"ownerReferences": rng.choice(references)})
