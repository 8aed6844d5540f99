"""Drawn inputs for the judge of stages (`stage_answers.go`): jq expressions, templates, and objects for the stages that
come with KWOK, each at the edges of what it can be."""

from __future__ import annotations

import random
from typing import Any

Json = dict[str, Any]
DATA: list[Any] = [
    {"metadata": {"labels": {"a": "true", "b/c": "x"}, "annotations": {}, "finalizers": ["f"], "name": "p"},
     "spec": {"replicas": 3, "on": True, "off": False, "none": None, "containers": [{"name": "c", "image": "i:1"},
              {"name": "d", "image": "j<&>", "restartPolicy": "Always", "env": [{"name": "n", "value": "yes"}]}]},
     "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"},
                {"type": "Initialized", "status": "False"}], "rate": 2.5, "big": 12345678901}},
    {"metadata": {"name": ""}, "spec": {"containers": []}, "status": {"phase": "", "conditions": None}},
    {"metadata": {"name": "x", "labels": {"a": "1"}}, "spec": {"containers": [{"name": "c"}], "on": "true"}},
    {},
]  # fmt: skip
_PATHS = (
    ".metadata", ".metadata.name", ".metadata.labels", '.metadata.labels["a"]', '.metadata.labels["b/c"]',
    ".metadata.annotations", ".metadata.finalizers", ".metadata.finalizers[0]", ".spec.replicas", ".spec.on",
    ".spec.off", ".spec.none", ".spec.containers", ".spec.containers.[].name", ".spec.containers[].image",
    ".spec.containers[1].env[0].value", ".status.phase", ".status.conditions", ".status.conditions.[]", ".status.rate",
    '.status.conditions.[] | select( .type == "Ready" ) | .status', ".status.conditions[0].type", ".status.big",
    '.["metadata"]["name"]', ".spec.containers[-1].name", ".missing.deep", ".metadata.name.deeper", ".[]", ".",
)  # fmt: skip
_LITERALS = ('"Ready"', '"x"', '""', "3", "3.0", "0", "-1", "true", "false", "null", "2.5", '"a\\u00e9"')
_WORDS = ("not", "length", "keys", "type", "empty", "any", "all")


def query(rng: random.Random, depth: int = 0) -> str:
    kind = rng.randrange(13 if depth < 4 else 3)
    if kind <= 2:
        return rng.choice(_PATHS) if kind else rng.choice(_LITERALS)
    inner = query(rng, depth + 1)
    other = query(rng, depth + 1)
    if kind == 3:
        return f"{inner} | {other}"
    if kind == 4:
        return f"({inner}) {rng.choice(('==', '!=', '<', '<=', '>', '>='))} ({other})"
    if kind == 5:
        return f"({inner}) {rng.choice(('and', 'or'))} ({other})"
    if kind == 6:
        return f"({inner}) // ({other})"
    if kind == 7:
        return f"{rng.choice(('select', 'map', 'any', 'all'))}({inner})"
    if kind == 8:
        return f"({inner}) | {rng.choice(_WORDS)}"
    if kind == 9:
        return f"({inner})?"
    if kind == 10:
        return f"{inner}, {other}"
    if kind == 11:
        return f"({inner}) | {rng.choice(('startswith', 'endswith', 'has'))}({rng.choice(_LITERALS[:4])})"
    return f"{inner} | select({other})"


_FIELDS = (
    ".metadata.name", ".spec.replicas", ".status.rate", ".spec.on", ".spec.none", ".spec.containers", ".status.phase",
    ".missing", ".missing.deeper", ".metadata.labels", ".status.conditions", ".", "$", "$.metadata.name", "$x",
    ".status.big", ".metadata.annotations", ".spec.off",
)  # fmt: skip
_CONSTANTS = ('"a<b"', '"yes"', '"07"', '`raw "x"`', "0", "1", "-3", "2.5", "true", "false", "nil", '""', '"é"', "1e3")
_ONE = (
    "not", "len", "Quote", "empty", "toString", "int", "lower", "upper", "trim", "first", "last", "toJson", "add1",
    "quote", "squote", "print", "println", "YAML",
)  # fmt: skip
_TWO = (
    "eq", "ne", "lt", "le", "gt", "ge", "index", "default", "and", "or", "join", "contains", "hasPrefix", "hasSuffix",
    "trimPrefix", "trimSuffix", "add", "sub", "mul", "div", "mod", "max", "min", "hasKey", "get", "coalesce", "list",
    "dict", "print", "indent", "nindent",
)  # fmt: skip


def operand(rng: random.Random, depth: int) -> str:
    kind = rng.randrange(7 if depth < 3 else 4)
    if kind < 2:
        return rng.choice(_FIELDS)
    if kind < 4:
        return rng.choice(_CONSTANTS)
    return f"({pipeline(rng, depth + 1)})"


def pipeline(rng: random.Random, depth: int = 0) -> str:
    kind = rng.randrange(8)
    if kind < 2:
        found = operand(rng, depth).replace("nil", "1")
    elif kind < 5:
        found = f"{rng.choice(_ONE)} {operand(rng, depth)}"
    elif kind < 7:
        found = f"{rng.choice(_TWO)} {operand(rng, depth)} {operand(rng, depth)}"
    else:
        verb = rng.choice(("%s", "%v", "%d", "%q", "%t", "%5d|", "%-4s|", "%03d", "%%%v"))
        found = f'printf "{verb}" {operand(rng, depth)}'
    if rng.random() < 0.3:
        found += f" | {rng.choice(_ONE)}"
    return found


def template(rng: random.Random, depth: int = 0) -> str:
    parts = []
    for _ in range(rng.randint(1, 3)):
        kind = rng.randrange(9 if depth < 3 else 3)
        trim = rng.choice(("", "", "- ")), rng.choice(("", "", " -"))
        if kind < 3:
            parts.append(f"{{{{{trim[0]}{pipeline(rng)}{trim[1]}}}}}")
        elif kind == 3:
            parts.append(f"{{{{ if {pipeline(rng)} }}}} {template(rng, depth + 1)}{{{{ else }}}}\n no {{{{ end }}}}")
        elif kind == 4:
            first = f"{{{{ if {pipeline(rng)} }}}}1{{{{ else if {pipeline(rng)} }}}}2{{{{else}}}}3{{{{end}}}}"
            parts.append(first)
        elif kind == 5:
            names = rng.choice(("", "$v := ", "$k, $v := ", "$k, $x = ")).replace("$k, $x =", "$x =")
            over = rng.choice((".spec.containers", ".metadata.labels", ".missing", ".status.conditions",
                               "NodeConditions",
                               "(list 1 2)", "(until 3)", "3", '""', ".metadata.finalizers"))  # fmt: skip
            jump = rng.choice(("", "", "{{ break }}", "{{ continue }}x"))
            end = f"{jump}{{{{ else }}}}none{{{{ end }}}}"
            parts.append(f"{{{{ range {names}{over} }}}}\n - {template(rng, depth + 1)}{end}")
        elif kind == 6:
            parts.append(f"{{{{ with {pipeline(rng)} }}}}{template(rng, depth + 1)}{{{{ else }}}}without{{{{ end }}}}")
        elif kind == 7:
            parts.append(f"{{{{ $x {rng.choice((':=', '='))} {pipeline(rng)} }}}}{{{{ $x }}}}")
        else:
            parts.append("{{/* a comment */}} text\n")
        parts.append(rng.choice((" ", "\n", "", ": ", "\n- ")))
    return "".join(parts)


QUERY_EDGES = (
    "..metadata", "..", ".. | .name", "3.x0", "-1 | length", "null | has(\"x\")", "(1 | keys) // 2", ".metadata .name",
    ".metadata.name?", ".[\"metadata\"].name", ".spec.containers[0:1]", "if . then 1 else 2 end", ".a as $x | $x",
    "(true, false) or (true, false)", "(true, false) and (true, false)", "(1, 2) == (1, 2)", "[1]", "{a: 1}",
    "1 < 2 < 3",
    ".spec.replicas == 3", ".spec.replicas | tostring", "not", "empty", "\"a\" < 1", "[] == []", ".a.\"b c\"",
)  # fmt: skip
TEMPLATE_EDGES = (
    "{{ range$x := . }}{{ end }}", "{{ indent 1e3 `` | len }}", "{{ indent (add 1) `` }}", "{{ index `é` 1 }}",
    "{{ print .metadata.labels .spec.replicas }}", "{{ index .status.rate 1 }}", "{{ printf `%d %d` 1 }}",
    "{{ 1 | index . }}", "{{ .metadata.name.x }}", "{{ .spec.none.x }}", "{{ (index .metadata `x`).y }}",
    "{{ $.spec.on }}",
    "{{- /* a */ -}} x", "{{/* a */}}", "{{ `a` -}}   b", "{{ if and true }}1{{ end }}", "{{ and }}", "{{ nil }}",
    "{{ eq 1 1.0 }}", "{{ eq .spec.replicas `3` }}", "{{ eq nil .missing }}", "{{ lt 1 2 }}", "{{ true | not | not }}",
    "{{ with $y := 1 }}{{ $y }}{{ end }}", "{{ range $i, $c := .spec.containers }}{{ $i }}{{ $c.name }}{{ end }}",
    "{{ 0x1F }}", "{{ 1_000 }}", "{{ 'a' }}", "{{ 1i }}", "{{ 9223372036854775808 }}",
    "{{ add 9223372036854775807 1 }}",
    "{{ div 7 -2 }} {{ mod -7 2 }}", "{{ div 1 0 }}", "{{ Quote . }}", "{{ YAML .spec 2 }}",
    "a: {{ YAML .metadata 1 }}",
    "{{ NodeConditions | len }}", "{{ block `x` . }}{{ end }}", "{{ break }}", "{{ else }}", "{{ end }}", "{{ if 1 }}",
)  # fmt: skip


def queries(seed: int, count: int) -> list[Json]:
    """Before the drawn ones come edges, which may be outside of what is understood."""
    rng = random.Random(seed)
    edges = [{"query": each, "data": data, "edge": True} for each in QUERY_EDGES for data in DATA[::3]]
    return edges + [{"query": query(rng), "data": rng.choice(DATA)} for _ in range(count)]


def templates(seed: int, count: int) -> list[Json]:
    rng = random.Random(seed)
    edges = [{"template": each, "data": data, "edge": True} for each in TEMPLATE_EDGES for data in DATA[::3]]
    return edges + [{"template": "{{ $x := 5 }}" + template(rng), "data": rng.choice(DATA)} for _ in range(count)]


# --- objects ----------------------------------------------------------------------------------------------------------

_STAGES = ("pod-create", "pod-ready", "pod-complete", "pod-delete", "pod-init-container-running",
           "pod-init-container-completed", "pod-container-running-failed",
           "pod-init-container-running-failed")  # fmt: skip
_DELAYS = ("5s", "", "1m30.5s", "-2s", "0", "2006-01-02T15:04:35Z", "2006-01-02T15:04:05.5+01:00", "soon", "1.5h", "7")
_WEIGHTS = ("5", "0", "", "x", "0x10", "010", "1e3", "20000")


def _annotations(rng: random.Random) -> Json:
    found: Json = {}
    for stage in rng.sample(_STAGES, rng.randint(0, 4)):
        prefix = f"{stage}.stage.kwok.x-k8s.io"
        drawn = {"delay": rng.choice(_DELAYS), "jitter-delay": rng.choice(_DELAYS), "weight": rng.choice(_WEIGHTS),
                 "reason": rng.choice(("OOMKilled", "y", "a: b", "0x1F", "")), "message": "said <so>",
                 "exit-code": rng.choice(("1", "137", "0", "077", "many")), "type": "DiskPressure",
                 "container-name": rng.choice(("c", "i", "none", ""))}  # fmt: skip
        for key in rng.sample(sorted(drawn), rng.randint(0, 4)):
            found[f"{prefix}/{key}"] = drawn[key]
    return found


def _state(rng: random.Random) -> Json:
    at = "2006-01-02T15:04:05Z"
    return rng.choice((
        {}, {"waiting": {"reason": "PodInitializing"}}, {"running": {"startedAt": at}}, {"waiting": {}},
        {"terminated": {"exitCode": 1, "startedAt": at, "finishedAt": at}},
    ))  # fmt: skip


def pod(rng: random.Random, name: str = "p") -> Json:
    """Any that the API could hold at some moment of its life."""
    labels = {f"{stage}.stage.kwok.x-k8s.io": rng.choice(("true", "true", "false", "")) for stage in
              rng.sample(_STAGES, rng.randint(0, 4))}  # fmt: skip
    metadata: Json = {"name": name, "namespace": "default", "uid": "u-1", "labels": labels,
                      "creationTimestamp": "2006-01-02T15:04:00Z"}  # fmt: skip
    if rng.random() < 0.7:
        metadata["annotations"] = _annotations(rng)
    if rng.random() < 0.3:
        at = rng.choice(("04:35", "04:05", "00:05"))
        metadata["deletionTimestamp"] = f"2006-01-02T15:{at}Z"
        metadata["deletionGracePeriodSeconds"] = 30
    if rng.random() < 0.3:
        metadata["finalizers"] = rng.sample(["a/b", "c/d"], rng.randint(1, 2))
    if rng.random() < 0.5:
        metadata["ownerReferences"] = [
            {"apiVersion": "v1", "kind": rng.choice(("Job", "Job", "ReplicaSet")), "name": "o", "uid": "1"}
        ]
    containers = [{"name": each, "image": rng.choice(("nginx", "a:1", "x<y"))} for each in rng.choice(("c", "cd"))]
    spec: Json = {"nodeName": "node-0", "containers": containers}
    inits = [{"name": each, "image": "init", **rng.choice(({}, {"restartPolicy": "Always"}))} for each in
             rng.choice(("", "", "i", "ij"))]  # fmt: skip
    if inits:
        spec["initContainers"] = inits
    if rng.random() < 0.3:
        spec["hostNetwork"] = rng.random() < 0.5
    if rng.random() < 0.3:
        spec["readinessGates"] = [{"conditionType": "example.com/up"}]
    status: Json = {"phase": rng.choice(("Pending", "Pending", "Running", "Running", "Succeeded", "Failed", ""))}
    if rng.random() < 0.7:
        status["podIP"] = "10.0.0.1"
    if rng.random() < 0.7:
        kinds = rng.sample(["Initialized", "Ready", "ContainersReady", "PodScheduled"], rng.randint(0, 4))
        status["conditions"] = [{"type": kind, "status": rng.choice(("True", "False"))} for kind in kinds]
    for of, states in ((containers, "containerStatuses"), (inits, "initContainerStatuses")):
        if of and rng.random() < 0.7:
            status[states] = [{"name": each["name"], "image": each["image"], "ready": rng.random() < 0.5,
                               "restartCount": 0, "imageID": "", "state": _state(rng)} for each in of]  # fmt: skip
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def node(rng: random.Random) -> Json:
    prefix = "node-not-ready.stage.kwok.x-k8s.io"
    metadata: Json = {"name": "node-0", "uid": "u", "labels": rng.choice(({}, {prefix: "true"}))}
    if rng.random() < 0.7:
        metadata["creationTimestamp"] = "2006-01-02T15:04:00Z"
    if rng.random() < 0.7:
        told = {f"{prefix}/{key}": value for key, value in (
            ("type", rng.choice(("DiskPressure", "MemoryPressure", ""))), ("reason", "gone"),
            ("delay", rng.choice(_DELAYS)),
            ("weight", rng.choice(_WEIGHTS)), ("jitter-delay", rng.choice(_DELAYS)))}  # fmt: skip
        metadata["annotations"] = {key: told[key] for key in rng.sample(sorted(told), rng.randint(0, 5))}
    status: Json = {}
    if rng.random() < 0.7:
        status["phase"] = rng.choice(("Running", "Running", "Pending"))
    if rng.random() < 0.7:
        status["conditions"] = [{"type": "Ready", "status": rng.choice(("True", "False", "Unknown"))}]
    if rng.random() < 0.6:
        status["addresses"] = rng.choice(([], [{"type": "InternalIP", "address": "1.2.3.4"}], [
            {"type": "Hostname", "address": "node-0"}, {"type": "InternalIP", "address": "1.2.3.4"}]))  # fmt: skip
    if rng.random() < 0.6:
        status["allocatable"] = status["capacity"] = {"cpu": "32", "memory": "256Gi", "pods": "110", "a.b/c": "1"}
    if rng.random() < 0.5:
        status["nodeInfo"] = {each: rng.choice(("", "told")) for each in (
            "architecture", "bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "kubeletVersion",
            "machineID", "operatingSystem", "osImage", "systemUUID")}  # fmt: skip
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}, "status": status}


def volume(rng: random.Random) -> Json:
    """A PersistentVolume or a claim."""
    kind = rng.choice(("PersistentVolume", "PersistentVolumeClaim"))
    metadata: Json = {"name": "v", "uid": "u-9", "resourceVersion": "12"}
    spec: Json = {
        "storageClassName": rng.choice(("kwok-volume", "kwok-volume", "other")),
        "accessModes": ["ReadWriteOnce"],
    }
    if rng.random() < 0.2:
        metadata["deletionTimestamp"] = "2006-01-02T15:04:35Z"
    if kind == "PersistentVolume":
        spec["persistentVolumeReclaimPolicy"] = rng.choice(("Delete", "Retain"))
        if rng.random() < 0.7:
            spec["claimRef"] = rng.choice(({"name": "c", "namespace": "default"}, {}))
    else:
        metadata["namespace"] = "default"
        spec["resources"] = {"requests": {"storage": rng.choice(("5Gi", "1"))}}
        if rng.random() < 0.4:
            spec["volumeName"] = "pvc-1"
    status = {"phase": rng.choice(("Pending", "Bound", "Released", "Failed", "Available"))}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec, "status": status}


def lives(seed: int, count: int) -> list[tuple[list[str], list[Json]]]:
    """Folders of KWOK's stages, and objects for them."""
    rng = random.Random(seed)
    return [
        (["pod/fast"], [pod(rng) for _ in range(count)]),
        (["pod/general"], [pod(rng) for _ in range(count)]),
        (["pod/general", "pod/chaos"], [pod(rng) for _ in range(count)]),
        (["node/fast", "node/heartbeat", "node/chaos"], [node(rng) for _ in range(count)]),
        (["node/fast", "node/heartbeat-with-lease"], [node(rng) for _ in range(count)]),
        (["volume/fast"], [volume(rng) for _ in range(count)]),
    ]
