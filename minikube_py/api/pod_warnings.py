"""What upstream tells the sender of a pod, or of a template, that it takes all the same.

Source: `pkg/api/pod/warnings.go`. Objects have their defaults.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from minikube_py.api.errors import Json, go_quote
from minikube_py.api.meta import is_dns1123_label
from minikube_py.fields import quantity

DEPRECATED_LABELS: Final = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
    "app.kubernetes.io/created-by": "deprecated since v1.9",
    "scheduler.alpha.kubernetes.io/preferAvoidPods": "deprecated since v1.22; use Taints and Tolerations instead",
    "node-role.kubernetes.io/master": 'use "node-role.kubernetes.io/control-plane" instead',
}
_ANNOTATIONS: Final = {
    "scheduler.alpha.kubernetes.io/critical-pod": 'non-functional in v1.16+; use the "priorityClassName" field instead',
    "security.alpha.kubernetes.io/sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
    "security.alpha.kubernetes.io/unsafe-sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
}
_VOLUMES: Final = {
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "gitRepo": "deprecated in v1.11, and disabled by default in v1.33+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}
_GO_VOLUME_NAMES: Final = {"storageos": "storageOS"}
_SECCOMP: Final = "seccomp.security.alpha.kubernetes.io/pod"
_NO_SELECTOR: Final = "a null labelSelector results in matching no pod"
_DNS_LABEL_WANTED: Final = "which can result in surprising behavior; a DNS label is recommended"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def name_warnings(name: str, use: str) -> list[str]:
    messages = is_dns1123_label(name) if name else ()
    return [f"metadata.name: {use}, {_DNS_LABEL_WANTED}: [{' '.join(messages)}]"] if messages else []


def _containers(spec: Json, prefix: str) -> Iterator[tuple[Json, str]]:
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for i, container in enumerate(spec.get(kind) or ()):
            yield container, f"{prefix}spec.{kind}[{i}]"


def pod_warnings(metadata: Json, spec: Json, prefix: str) -> list[str]:
    found: list[str] = []
    get = spec.get
    path = f"{prefix}spec"
    if selector := get("nodeSelector"):
        old = (key for key in selector if key in DEPRECATED_LABELS)
        found += [f"{path}.nodeSelector[{key}]: {DEPRECATED_LABELS[key]}" for key in old]
    affinity = get("affinity") or {}
    if affinity:
        found += _node_affinity_warnings(affinity.get("nodeAffinity") or {}, f"{path}.affinity.nodeAffinity")
    for i, constraint in enumerate(get("topologySpreadConstraints") or ()):
        at, key = f"{path}.topologySpreadConstraints[{i}]", constraint.get("topologyKey") or ""
        if key in DEPRECATED_LABELS:
            found.append(f"{at}.topologyKey: {key} is {DEPRECATED_LABELS[key]}")
        if constraint.get("labelSelector") is None:
            found.append(f"{at}.labelSelector: {_NO_SELECTOR}")
    annotations = metadata.get("annotations") or {}
    for key, text in _ANNOTATIONS.items() if annotations else ():
        if key in annotations:
            found.append(f"{prefix}metadata.annotations[{key}]: {text}")
    for i, volume in enumerate(get("volumes") or ()):
        for name in [each for each in volume if each in _VOLUMES]:
            found.append(f"{path}.volumes[{i}].{_GO_VOLUME_NAMES.get(name, name)}: {_VOLUMES[name]}")
        if template := (volume.get("ephemeral") or {}).get("volumeClaimTemplate"):
            at = f"{path}.volumes[{i}].ephemeral.volumeClaimTemplate.spec"
            found += claim_warnings(template.get("spec") or {}, at)
    found += _list_warnings(spec, path)
    if _SECCOMP in annotations and not (get("securityContext") or {}).get("seccompProfile"):
        text = 'non-functional in v1.27+; use the "seccompProfile" field instead'
        found.append(f"{prefix}metadata.annotations[{_SECCOMP}]: {text}")
    found += _container_warnings(spec, prefix)
    for kind in ("podAffinity", "podAntiAffinity"):
        if terms := affinity.get(kind):
            found += _pod_affinity_warnings(terms, f"{path}.affinity.{kind}")
    return found


def _node_affinity_warnings(affinity: Json, path: str) -> list[str]:
    found = node_selector_warnings(affinity.get(_REQUIRED) or {}, f"{path}.{_REQUIRED}")
    for i, term in enumerate(affinity.get(_PREFERRED) or ()):
        found += _node_term_warnings(term.get("preference") or {}, f"{path}.{_PREFERRED}[{i}].preference")
    return found


def node_selector_warnings(selector: Json, path: str) -> list[str]:
    """Of labels that nodes no longer have."""
    terms = enumerate(selector.get("nodeSelectorTerms") or ())
    return [said for i, term in terms for said in _node_term_warnings(term, f"{path}.nodeSelectorTerms[{i}]")]


def _node_term_warnings(term: Json, path: str) -> list[str]:
    return [
        f"{path}.matchExpressions[{i}].key: {expression['key']} is {DEPRECATED_LABELS[expression['key']]}"
        for i, expression in enumerate(term.get("matchExpressions") or ())
        if expression.get("key") in DEPRECATED_LABELS
    ]


def claim_warnings(spec: Json, path: str) -> list[str]:
    """Of the spec of a PersistentVolumeClaim, or of a template of one."""
    resources = spec.get("resources") or {}
    found = []
    for name in ("requests", "limits"):
        text = (resources.get(name) or {}).get("storage")
        if text is not None and quantity.parse(text).milli_value() % 1000:
            at = f"{path}.resources.{name}[storage]"
            found.append(f"{at}: fractional byte value {go_quote(text)} is invalid, must be an integer")
    return found


def _pod_affinity_warnings(affinity: Json, path: str) -> list[str]:
    found = [
        f"{path}.{_REQUIRED}[{i}].labelSelector: {_NO_SELECTOR}"
        for i, term in enumerate(affinity.get(_REQUIRED) or ())
        if term.get("labelSelector") is None
    ]
    return found + [
        f"{path}.{_PREFERRED}[{i}].podAffinityTerm.labelSelector: {_NO_SELECTOR}"
        for i, term in enumerate(affinity.get(_PREFERRED) or ())
        if (term.get("podAffinityTerm") or {}).get("labelSelector") is None
    ]


def _list_warnings(spec: Json, path: str) -> list[str]:
    """Host aliases and pull secrets that are named twice or not at all."""
    found: list[str] = []
    seen: set[str] = set()
    for i, alias in enumerate(spec.get("hostAliases") or ()):
        address = alias.get("ip") or ""
        if address in seen:
            found.append(f"{path}.hostAliases[{i}].ip: duplicate ip {go_quote(address)}")
        seen.add(address)
    secrets = [secret.get("name") or "" for secret in spec.get("imagePullSecrets") or ()]
    seen.clear()
    for i, name in enumerate(secrets):
        if name in seen:
            found.append(f"{path}.imagePullSecrets[{i}].name: duplicate name {go_quote(name)}")
        seen.add(name)
    for i, name in enumerate(secrets):
        if not name:
            found.append(f'{path}.imagePullSecrets[{i}].name: invalid empty name ""')
    return found


def _container_warnings(spec: Json, prefix: str) -> list[str]:
    found: list[str] = []
    ports: list[tuple[Json, str]] = []
    for container, at in _containers(spec, prefix):
        if resources := container.get("resources"):
            found += _fraction_warnings(resources, f"{at}.resources")
        env = container.get("env")
        if env and len(env) > 1:
            found += _env_warnings(env, f"{at}.env")
        ports += [(port, f"{at}.ports[{i}]") for i, port in enumerate(container.get("ports") or ())]
    return found + _port_warnings(ports) if len(ports) > 1 else found


def _fraction_warnings(resources: Json, path: str) -> list[str]:
    return [
        f"{path}.{part}[{name}]: fractional byte value {go_quote(text)} is invalid, must be an integer"
        for name in ("memory", "ephemeral-storage")
        for part in ("limits", "requests")
        if (text := (resources.get(part) or {}).get(name)) and quantity.parse(text).milli_value() % 1000
    ]


def _env_warnings(env: Sequence[Json], path: str) -> list[str]:
    found: list[str] = []
    seen: set[str] = set()
    for i, variable in enumerate(env):
        name, value = variable.get("name") or "", variable.get("value") or ""
        reference = f"$({name})"
        if name in seen and (variable.get("valueFrom") is not None or value == reference or reference not in value):
            why = f"hides previous definition of {go_quote(name)}, which may be dropped when using apply"
            found.append(f"{path}[{i}]: {why}")
        seen.add(name)
    return found


PORT_WARNINGS_MAX: Final = 256
"""Each two ports of a pod may be worth a warning, and the headers of an answer hold fewer than these."""


def _port_warnings(ports: Sequence[tuple[Json, str]]) -> list[str]:
    return _same_port_warnings(ports) + _port_name_warnings(ports)


def _same_port_warnings(ports: Sequence[tuple[Json, str]]) -> list[str]:
    """Of ports with the same number and protocol. Only those are looked at that will be warned of."""
    found: list[str] = []
    taken: dict[tuple[object, ...], list[int]] = {}
    for index, (port, at) in enumerate(ports):
        number, protocol = port.get("containerPort") or 0, port.get("protocol") or ""
        host, address = port.get("hostPort") or 0, port.get("hostIP") or ""
        same = (number, protocol)
        exact, ambiguous = (*same, host, address), (*same, host, bool(address))
        if host:
            others = [*taken.get((*same, 0), ()), *taken.get(exact, ()), *taken.get((*same, host, not address), ())]
            others.sort()
        else:
            others = taken.get(same, [])
        for other in others:
            if len(found) >= PORT_WARNINGS_MAX:
                return found
            was, where = ports[other]
            if (address, host) == (was.get("hostIP") or "", was.get("hostPort") or 0):
                found.append(f"{at}: duplicate port definition with {where}")
            elif not host or not was.get("hostPort"):
                found.append(f"{at}: overlapping port definition with {where}")
            else:
                found.append(f"{at}: dangerously ambiguous port definition with {where}")
        for key in (same, exact, ambiguous) if host else (same, (*same, 0)):
            taken.setdefault(key, []).append(index)
    return found


def _port_name_warnings(ports: Sequence[tuple[Json, str]]) -> list[str]:
    found: list[str] = []
    names: dict[str, str] = {}
    for port, at in ports:
        if name := port.get("name"):
            if name in names:
                where = names[name]
                found.append(
                    f"{at}: duplicate port name {go_quote(name)} with {where}, services and probes that select ports "
                    f"by name will use {where}"
                )
            names.setdefault(name, at)
    return found
