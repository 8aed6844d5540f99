"""Upstream's warnings for accepted pods and templates.

Source: `pkg/api/pod/warnings.go`. Objects have their defaults.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from minikube_py.api.errors import Json, go_quote
from minikube_py.api.memo import remembered
from minikube_py.api.meta import is_dns1123_label
from minikube_py.api.validation.ips import ip_warnings
from minikube_py.api.validation.profiles import container_warnings, names_profiles
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
_WARNED: Final = frozenset((
    "nodeSelector", "affinity", "topologySpreadConstraints", "volumes", "hostAliases", "imagePullSecrets", "overhead",
    "dnsConfig",
))  # fmt: skip
_WARNED_ANNOTATIONS: Final = frozenset((*_ANNOTATIONS, _SECCOMP))
"""A pod without any of these members and annotations is warned only of its containers and its grace period."""
_KEYED: Final = (
    ("configMap", "ConfigMap", "name"), ("secret", "Secret", "secretName"), ("downwardAPI", "DownwardAPI", ""),
)  # fmt: skip
"""Volumes that put items at paths, and the member that names what they come from."""
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
    annotations, path = metadata.get("annotations") or {}, f"{prefix}spec"
    if _WARNED.isdisjoint(spec) and _WARNED_ANNOTATIONS.isdisjoint(annotations):
        return _container_warnings(spec, annotations, prefix) + _grace_warnings(spec, path)
    found: list[str] = []
    get = spec.get
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
    for key, text in _ANNOTATIONS.items() if annotations else ():
        if key in annotations:
            found.append(f"{prefix}metadata.annotations[{key}]: {text}")
    for i, volume in enumerate(get("volumes") or ()):
        for name in [each for each in volume if each in _VOLUMES]:
            found.append(f"{path}.volumes[{i}].{_GO_VOLUME_NAMES.get(name, name)}: {_VOLUMES[name]}")
        if template := (volume.get("ephemeral") or {}).get("volumeClaimTemplate"):
            at = f"{path}.volumes[{i}].ephemeral.volumeClaimTemplate.spec"
            found += claim_warnings(template.get("spec") or {}, at)
    found += _path_warnings(get("volumes") or ())
    found += _list_warnings(spec, path)
    found += [f"{path}.overhead[{name}]: {why}" for name, why in _fractions(get("overhead") or {})]
    if _SECCOMP in annotations and not (get("securityContext") or {}).get("seccompProfile"):
        text = 'non-functional in v1.27+; use the "seccompProfile" field instead'
        found.append(f"{prefix}metadata.annotations[{_SECCOMP}]: {text}")
    found += _container_warnings(spec, annotations, prefix) + _grace_warnings(spec, path)
    for kind in ("podAffinity", "podAntiAffinity"):
        if terms := affinity.get(kind):
            found += _pod_affinity_warnings(terms, f"{path}.affinity.{kind}")
    for i, text in enumerate((get("dnsConfig") or {}).get("nameservers") or ()):
        found += ip_warnings(text, f"{path}.dnsConfig.nameservers[{i}]")
    for i, alias in enumerate(get("hostAliases") or ()):
        found += ip_warnings(alias.get("ip") or "", f"{path}.hostAliases[{i}].ip")
    return found


def _grace_warnings(spec: Json, path: str) -> list[str]:
    if (spec.get("terminationGracePeriodSeconds") or 0) >= 0:
        return []
    return [f"{path}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"]


def _items(source: Json, told: str = "") -> list[tuple[str, str]]:
    return [((item.get("path") or "").rstrip("/"), told) for item in source.get("items") or ()]


def _projected(source: Json) -> list[tuple[str, str]]:
    """The paths of one source of a projected volume, and what each comes from."""
    get = source.get
    if (found := get("configMap") or {}).get("items"):
        return _items(found, f"ConfigMap {go_quote(found.get('name') or '')}")
    if (found := get("secret") or {}).get("items"):
        return _items(found, f"Secret {go_quote(found.get('name') or '')}")
    if (found := get("downwardAPI") or {}).get("items"):
        return _items(found, "DownwardAPI")
    if (found := get("serviceAccountToken")) is not None:
        return [((found.get("path") or "").rstrip("/"), "ServiceAccountToken")]
    if (found := get("clusterTrustBundle")) is not None:
        name = found.get("name") if found.get("name") is not None else found.get("signerName") or ""
        return [((found.get("path") or "").rstrip("/"), f"ClusterTrustBundle {go_quote(name)}")]
    found = get("podCertificate") or {}
    parts = (("certificateChainPath", "chain"), ("keyPath", "key"), ("credentialBundlePath", "credential bundle"))
    return [(found[name].rstrip("/"), f"PodCertificate {told}") for name, told in parts if found.get(name)]


def _path_warnings(volumes: Sequence[Json]) -> list[str]:
    """Of files of a volume that lie where others do."""
    found: list[str] = []
    for volume in volumes:
        name = go_quote(volume.get("name") or "")
        for kind, told, key in _KEYED:
            if (source := volume.get(kind)) is not None:
                what = f"{told} {go_quote(source.get(key) or '')}" if key else told
                found += [f"volume {name} ({what}): overlapping paths: {each}" for each in _overlaps(_items(source))]
        paths: list[tuple[str, str]] = []
        for source in (volume.get("projected") or {}).get("sources") or ():
            if not source:
                found.append(f"volume {name} (Projected) has no sources provided")
            paths += _projected(source)
        found += [f"volume {name} (Projected): overlapping paths: {each}" for each in _overlaps(paths)]
    return found


def _overlaps(paths: Sequence[tuple[str, str]]) -> list[str]:
    """For each path and earlier ones, at most as many as response headers hold."""
    found: list[str] = []
    above: dict[str, list[int]] = {}
    for index, (path, told) in enumerate(paths):
        if not path:
            continue
        parts = path.split("/")
        parents = ["/".join(parts[: i + 1]) for i in range(len(parts))]
        # Those at this path or below it, and those at a path above it.
        others = {*above.get(path, ()), *(i for each in parents for i in above.get(each, ()) if paths[i][0] == each)}
        for other in sorted(others)[: WARNINGS_MAX - len(found)]:
            where, source = paths[other]
            found.append(f"{go_quote(path)}{_from(told)} with {go_quote(where)}{_from(source)}")
        for each in parents:
            above.setdefault(each, []).append(index)
    return found


def _from(source: str) -> str:
    return f" ({source})" if source else ""


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
    return [
        f"{path}.resources.{part}[{name}]: {why}"
        for part in ("requests", "limits")
        for name, why in _fractions(resources.get(part) or {}, ("storage",))
    ]


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
    if not spec.get("hostAliases") and not spec.get("imagePullSecrets"):
        return found
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


def _container_warnings(spec: Json, annotations: Mapping[str, str], prefix: str) -> list[str]:
    found: list[str] = []
    ports: list[tuple[Json, str]] = []
    profiled = names_profiles(annotations)
    for container, at in _containers(spec, prefix):
        if profiled:
            found += container_warnings(annotations, container, spec, prefix)
        if resources := container.get("resources"):
            found += _fraction_warnings(resources, f"{at}.resources")
        env = container.get("env")
        if env and len(env) > 1:
            found += _env_warnings(env, f"{at}.env")
        ports += [(port, f"{at}.ports[{i}]") for i, port in enumerate(container.get("ports") or ())]
    return found + _port_warnings(ports) if ports else found


@remembered(4096)
def _fraction_told(text: str) -> str:
    """What is said of a number of bytes; "" unless it has a part of one."""
    told = f"fractional byte value {go_quote(text)} is invalid, must be an integer"
    return told if quantity.parse(text).milli_value() % 1000 else ""


_BYTES: Final = ("memory", "ephemeral-storage")


def _fractions(amounts: Json, names: Sequence[str] = _BYTES) -> list[tuple[str, str]]:
    """The names of those with a part of a byte, and what is said of them."""
    given = [(name, text) for name in names if (text := amounts.get(name))]
    return [(name, told) for name, text in given if (told := _fraction_told(text))]


def _fraction_warnings(resources: Json, path: str) -> list[str]:
    given = [(part, amounts) for part in ("limits", "requests") if (amounts := resources.get(part))]
    return [
        f"{path}.{part}[{name}]: {told}"
        for name in _BYTES
        for part, amounts in given
        if (text := amounts.get(name)) and (told := _fraction_told(text))
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


WARNINGS_MAX: Final = 256
"""Each pair of ports may give a warning; response headers hold fewer."""


def _port_warnings(ports: Sequence[tuple[Json, str]]) -> list[str]:
    if len(ports) == 1 and not ports[0][0].get("hostIP"):
        return []
    return _same_port_warnings(ports) + _port_name_warnings(ports)


def _same_port_warnings(ports: Sequence[tuple[Json, str]]) -> list[str]:
    """Of ports with the same number and protocol. Only reported ones are examined."""
    found: list[str] = []
    taken: dict[tuple[object, ...], list[int]] = {}
    for index, (port, at) in enumerate(ports):
        number, protocol = port.get("containerPort") or 0, port.get("protocol") or ""
        host, address = port.get("hostPort") or 0, port.get("hostIP") or ""
        if address and not host and len(found) < WARNINGS_MAX:
            shown = f"HostPort:0 ContainerPort:{number} Protocol:{protocol} HostIP:{address}"
            found.append(f"{at}: hostIP set without hostPort: {{Name:{port.get('name') or ''} {shown}}}")
        same = (number, protocol)
        exact, ambiguous = (*same, host, address), (*same, host, bool(address))
        if host:
            others = [*taken.get((*same, 0), ()), *taken.get(exact, ()), *taken.get((*same, host, not address), ())]
            others.sort()
        else:
            others = taken.get(same, [])
        for other in others:
            if len(found) >= WARNINGS_MAX:
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
