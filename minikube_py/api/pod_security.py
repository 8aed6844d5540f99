"""The pod security standards: levels from namespace labels, and a pod's violations.

Source: `k8s.io/pod-security-admission/{api,policy}`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from minikube_py.api.errors import FieldError, Json, go_quote, invalid_value

PREFIX: Final = "pod-security.kubernetes.io/"
PRIVILEGED, BASELINE, RESTRICTED = "privileged", "baseline", "restricted"
LEVELS: Final = (PRIVILEGED, BASELINE, RESTRICTED)
MODES: Final = ("enforce", "audit", "warn")
LATEST: Final = 1 << 31
"""Minor version of `latest`."""
_VERSION: Final = re.compile(r"v1\.([0-9]|[1-9][0-9]*)")
_INT_MAX: Final = (1 << 63) - 1


class Standard(NamedTuple):
    level: str = PRIVILEGED
    minor: int = LATEST

    def __str__(self) -> str:
        return f"{self.level}:{'latest' if self.minor == LATEST else f'v1.{self.minor}'}"


class Policy(NamedTuple):
    enforce: Standard = Standard()
    audit: Standard = Standard()
    warn: Standard = Standard()


def policy_of(labels: Mapping[str, str]) -> tuple[Policy, list[FieldError]]:
    """Invalid labels mean the strictest level for enforce, and none otherwise."""
    errors: list[FieldError] = []
    found: dict[str, Standard] = {}
    good = set()
    for mode in MODES:
        level, minor = PRIVILEGED, LATEST
        if (text := labels.get(f"{PREFIX}{mode}")) is not None:
            if text in LEVELS:
                level = text
                good.add(mode)
            else:
                level = RESTRICTED if mode == "enforce" else PRIVILEGED
                errors.append(_wrong(mode, text, f"must be one of {', '.join(LEVELS)}"))
        if (text := labels.get(f"{PREFIX}{mode}-version")) is not None:
            match = _VERSION.fullmatch(text)
            if match is not None and int(match[1]) <= _INT_MAX:
                minor = int(match[1])
            elif text != "latest":
                errors.append(_wrong(f"{mode}-version", text, 'must be "latest" or "v1.x"'))
        found[mode] = Standard(level, minor)
    enforced, warned = found["enforce"], found["warn"]
    if f"{PREFIX}warn" not in labels and "enforce" in good and stricter(enforced.level, warned.level):
        minor = warned.minor if f"{PREFIX}warn-version" in labels else enforced.minor
        found["warn"] = Standard(enforced.level, minor)
    return Policy(**found), errors


def _wrong(label: str, value: str, why: str) -> FieldError:
    return invalid_value(f"metadata.labels[{PREFIX}{label}]", value, why)


def stricter(level: str, other: str) -> bool:
    return LEVELS.index(level) > LEVELS.index(other)


# --- what a pod violates ----------------------------------------------------------------------------------------------

Violation = tuple[str, str]
"""Reason and detail."""
Look = Callable[[Json, Json], Violation | None]
"""At metadata and spec."""


class Check(NamedTuple):
    """`looks`: keyed by their first minor version. `overrides`: a check of the baseline that it replaces."""

    id: str
    level: str
    looks: tuple[tuple[int, Look], ...]
    overrides: str = ""


def violations(standard: Standard, metadata: Json, spec: Json) -> list[Violation]:
    if standard.level == PRIVILEGED:
        return []
    return [found for look in _looks(standard.level, min(standard.minor, _NEWEST)) if (found := look(metadata, spec))]


def told(found: Sequence[Violation]) -> str:
    return ", ".join(f"{reason} ({detail})" if detail else reason for reason, detail in found)


@lru_cache(256)
def _looks(level: str, minor: int) -> list[Look]:
    wanted = (BASELINE,) if level == BASELINE else (BASELINE, RESTRICTED)
    known = {
        (check.level, check.id): (check, [look for since, look in check.looks if since <= minor])
        for check in CHECKS
        if check.level in wanted
    }
    overridden = {check.overrides for check, looks in known.values() if looks and check.level == RESTRICTED}
    hidden = {(BASELINE, id) for id in overridden}
    return [known[key][1][-1] for key in sorted(known.keys() - hidden) if known[key][1]]


def _containers(spec: Json) -> Iterable[Json]:
    for name in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(name) or ()


def _context(holder: Json) -> Json:
    found: Json = holder.get("securityContext") or {}
    return found


def _quoted(items: Iterable[str]) -> str:
    return '"' + '", "'.join(items) + '"'


def _named(names: Sequence[str], what: str = "container") -> str:
    return f"{_plural(what, names)} {_quoted(names)}"


def _plural(what: str, items: Sequence[Any]) -> str:
    return what if len(items) == 1 else f"{what}s"


def _setters(pod: bool, containers: Sequence[str]) -> str:
    return " and ".join([*(["pod"] if pod else []), *([_named(containers)] if containers else [])])


def _names(spec: Json, wrong: Callable[[Json], Any]) -> list[str]:
    """Of the containers whose security context is wrong."""
    return [each.get("name") or "" for each in _containers(spec) if wrong(_context(each))]


def _not_on_windows(look: Look) -> Look:
    return lambda metadata, spec: None if (spec.get("os") or {}).get("name") == "windows" else look(metadata, spec)


def _not_in_user_namespace(look: Look) -> Look:
    return lambda metadata, spec: None if spec.get("hostUsers") is False else look(metadata, spec)


def _escalation(metadata: Json, spec: Json) -> Violation | None:
    names = _names(spec, lambda context: context.get("allowPrivilegeEscalation") is not False)
    detail = "must set securityContext.allowPrivilegeEscalation=false"
    return ("allowPrivilegeEscalation != false", f"{_named(names)} {detail}") if names else None


_ARMORED: Final = "container.apparmor.security.beta.kubernetes.io/"
_PROFILES: Final = ("RuntimeDefault", "Localhost")


def _profile(context: Json, name: str) -> str | None:
    """The type of a profile that is not allowed."""
    profile = context.get(name)
    if profile is None or (profile.get("type") or "") in _PROFILES:
        return None
    return profile.get("type") or ""


def _app_armor(metadata: Json, spec: Json) -> Violation | None:
    pod = _profile(_context(spec), "appArmorProfile")
    bad = {
        i: found
        for i, each in enumerate(_containers(spec))
        if (found := _profile(_context(each), "appArmorProfile")) is not None
    }
    names = [each.get("name") or "" for i, each in enumerate(_containers(spec)) if i in bad]
    annotations = sorted(
        f"{key}={go_quote(value)}"
        for key, value in (metadata.get("annotations") or {}).items()
        if key.startswith(_ARMORED) and not (value in ("", "runtime/default") or value.startswith("localhost/"))
    )
    values = sorted({*bad.values(), *([pod] if pod is not None else [])}) + annotations
    setters = [_setters(pod is not None, names)] if names or pod is not None else []
    setters += [_plural("annotation", annotations)] if annotations else []
    if not setters:
        return None
    detail = f"{' and '.join(setters)} must not set AppArmor profile type to {_quoted(values)}"
    return _plural("forbidden AppArmor profile", values), detail


_CAPABILITIES: Final = frozenset(
    ("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP",
     "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT")
)  # fmt: skip


def _added(spec: Json, allowed: Iterable[str]) -> str:
    def bad(context: Json) -> set[str]:
        return set((context.get("capabilities") or {}).get("add") or ()).difference(allowed)

    names = _names(spec, bad)
    found = sorted(set().union(*(bad(_context(each)) for each in _containers(spec))))
    return f"{_named(names)} must not include {_quoted(found)} in securityContext.capabilities.add" if names else ""


def _capabilities(metadata: Json, spec: Json) -> Violation | None:
    detail = _added(spec, _CAPABILITIES)
    return ("non-default capabilities", detail) if detail else None


def _dropped(metadata: Json, spec: Json) -> Violation | None:
    names = _names(spec, lambda context: "ALL" not in ((context.get("capabilities") or {}).get("drop") or ()))
    details = [f'{_named(names)} must set securityContext.capabilities.drop=["ALL"]'] if names else []
    details += filter(None, [_added(spec, ("NET_BIND_SERVICE",))])
    return ("unrestricted capabilities", "; ".join(details)) if details else None


def _host_namespaces(metadata: Json, spec: Json) -> Violation | None:
    found = [f"{name}=true" for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
    return ("host namespaces", ", ".join(found)) if found else None


def _host_paths(metadata: Json, spec: Json) -> Violation | None:
    names = [each.get("name") or "" for each in spec.get("volumes") or () if each.get("hostPath") is not None]
    return ("hostPath volumes", _named(names, "volume")) if names else None


def _host_ports(metadata: Json, spec: Json) -> Violation | None:
    ports = {
        i: {str(port["hostPort"]) for port in each.get("ports") or () if port.get("hostPort")}
        for i, each in enumerate(_containers(spec))
    }
    names = [each.get("name") or "" for i, each in enumerate(_containers(spec)) if ports[i]]
    if not names:
        return None
    found = sorted(set().union(*ports.values()))
    use = "uses" if len(names) == 1 else "use"
    return "hostPort", f"{_named(names)} {use} {_plural('hostPort', found)} {', '.join(found)}"


def _hosts(container: Json) -> set[str]:
    lifecycle = container.get("lifecycle") or {}
    handlers = [container.get(name) for name in ("livenessProbe", "readinessProbe", "startupProbe")]
    handlers += [lifecycle.get(name) for name in ("postStart", "preStop")]
    asked = [(each or {}).get(how) or {} for each in handlers for how in ("httpGet", "tcpSocket")]
    return {each["host"] for each in asked if each.get("host")}


def _probe_hosts(metadata: Json, spec: Json) -> Violation | None:
    names = sorted({each.get("name") or "" for each in _containers(spec) if _hosts(each)})
    if not names:
        return None
    found = sorted(set().union(*map(_hosts, _containers(spec))))
    use = "uses" if len(names) == 1 else "use"
    detail = f"{_named(names)} {use} {_plural('probe or lifecycle host', found)} {_quoted(found)}"
    return "probe or lifecycle host", detail


def _privileged(metadata: Json, spec: Json) -> Violation | None:
    names = _names(spec, lambda context: context.get("privileged"))
    return ("privileged", f"{_named(names)} must not set securityContext.privileged=true") if names else None


def _proc_mounts(metadata: Json, spec: Json) -> Violation | None:
    def bad(context: Json) -> bool:
        return context.get("procMount") not in (None, "Default")

    names = _names(spec, bad)
    found = sorted({_context(each)["procMount"] for each in _containers(spec) if bad(_context(each))})
    detail = f"{_named(names)} must not set securityContext.procMount to {_quoted(found)}" if names else ""
    return ("procMount", detail) if names else None


_VOLUMES: Final = frozenset(
    ("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected",
     "secret")
)  # fmt: skip
_OTHER_VOLUMES: Final = (
    "hostPath", "gcePersistentDisk", "awsElasticBlockStore", "gitRepo", "nfs", "iscsi", "glusterfs", "rbd",
    "flexVolume", "cinder", "cephfs", "flocker", "fc", "azureFile", "vsphereVolume", "quobyte", "azureDisk",
    "photonPersistentDisk", "portworxVolume", "scaleIO", "storageos",
)  # fmt: skip


def _volumes(metadata: Json, spec: Json) -> Violation | None:
    bad = [each for each in spec.get("volumes") or () if all(each.get(name) is None for name in _VOLUMES)]
    if not bad:
        return None
    types = sorted({next((name for name in _OTHER_VOLUMES if each.get(name) is not None), "unknown") for each in bad})
    use = "uses" if len(bad) == 1 else "use"
    named = _named([each.get("name") or "" for each in bad], "volume")
    return "restricted volume types", f"{named} {use} {_plural('restricted volume type', types)} {_quoted(types)}"


def _non_root(metadata: Json, spec: Json) -> Violation | None:
    pod = _context(spec).get("runAsNonRoot")
    names = _names(spec, lambda context: context.get("runAsNonRoot") is False)
    if names or pod is False:
        setters = _setters(pod is False, names)
        return "runAsNonRoot != true", f"{setters} must not set securityContext.runAsNonRoot=false"
    names = [] if pod else _names(spec, lambda context: context.get("runAsNonRoot") is None)
    detail = "must set securityContext.runAsNonRoot=true"
    return ("runAsNonRoot != true", f"pod or {_named(names)} {detail}") if names else None


def _user(metadata: Json, spec: Json) -> Violation | None:
    pod, names = _context(spec).get("runAsUser") == 0, _names(spec, lambda context: context.get("runAsUser") == 0)
    return ("runAsUser=0", f"{_setters(pod, names)} must not set runAsUser=0") if pod or names else None


_SE_TYPES: Final = ("", "container_t", "container_init_t", "container_kvm_t")


def _se_linux(*allowed: str) -> Look:
    def bad(context: Json) -> bool:
        options = context.get("seLinuxOptions") or {}
        return (options.get("type") or "") not in allowed or bool(options.get("user") or options.get("role"))

    def look(metadata: Json, spec: Json) -> Violation | None:
        pod, names = bad(_context(spec)), _names(spec, bad)
        if not (pod or names):
            return None
        given = [_context(each).get("seLinuxOptions") or {} for each in (spec, *_containers(spec))]
        types = sorted({each.get("type") or "" for each in given}.difference(allowed))
        data = [f"{_plural('type', types)} {_quoted(types)}"] if types else []
        data += [f"{name} may not be set" for name in ("user", "role") if any(each.get(name) for each in given)]
        setters = _setters(pod, names)
        return "seLinuxOptions", f"{setters} set forbidden securityContext.seLinuxOptions: {'; '.join(data)}"

    return look


_SECCOMP: Final = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER: Final = "container.seccomp.security.alpha.kubernetes.io/"


def _old_seccomp(metadata: Json, spec: Json) -> Violation | None:
    annotations = metadata.get("annotations") or {}
    keys = [_SECCOMP, *(f"{_SECCOMP_CONTAINER}{each.get('name') or ''}" for each in _containers(spec))]
    given = {key: annotations[key] for key in keys if key in annotations}
    bad = sorted(
        f"{key}={go_quote(value)}"
        for key, value in given.items()
        if value not in ("runtime/default", "docker/default") and not value.startswith("localhost/")
    )
    return ("seccompProfile", f"forbidden {_plural('annotation', bad)} {', '.join(bad)}") if bad else None


def _seccomp(metadata: Json, spec: Json) -> Violation | None:
    pod = _profile(_context(spec), "seccompProfile")
    bad = [_profile(_context(each), "seccompProfile") for each in _containers(spec)]
    names = [each.get("name") or "" for each, found in zip(_containers(spec), bad) if found is not None]
    values = sorted({found for found in (pod, *bad) if found is not None})
    setters = _setters(pod is not None, names)
    detail = f"{setters} must not set securityContext.seccompProfile.type to {_quoted(values)}"
    return ("seccompProfile", detail) if values else None


def _seccomp_needed(metadata: Json, spec: Json) -> Violation | None:
    if (found := _seccomp(metadata, spec)) is not None or _context(spec).get("seccompProfile") is not None:
        return found
    names = _names(spec, lambda context: context.get("seccompProfile") is None)
    detail = 'must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
    return ("seccompProfile", f"pod or {_named(names)} {detail}") if names else None


_SYSCTLS: Final = (
    (0, ("kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies",
         "net.ipv4.ping_group_range", "net.ipv4.ip_unprivileged_port_start")),
    (27, ("net.ipv4.ip_local_reserved_ports",)),
    (29, ("net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl",
          "net.ipv4.tcp_keepalive_probes")),
    (32, ("net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem")),
)  # fmt: skip


def _sysctls(minor: int) -> Look:
    allowed = frozenset(name for since, names in _SYSCTLS if since <= minor for name in names)

    def look(metadata: Json, spec: Json) -> Violation | None:
        given = [each.get("name") or "" for each in _context(spec).get("sysctls") or ()]
        bad = [name for name in given if name not in allowed]
        return ("forbidden sysctls", ", ".join(bad)) if bad else None

    return look


def _host_process(metadata: Json, spec: Json) -> Violation | None:
    def bad(context: Json) -> bool:
        return bool((context.get("windowsOptions") or {}).get("hostProcess"))

    pod, names = bad(_context(spec)), _names(spec, bad)
    detail = "must not set securityContext.windowsOptions.hostProcess=true"
    return ("hostProcess", f"{_setters(pod, names)} {detail}") if pod or names else None


CHECKS: Final = (
    Check("allowPrivilegeEscalation", RESTRICTED, ((8, _escalation), (25, _not_on_windows(_escalation)))),
    Check("appArmorProfile", BASELINE, ((0, _app_armor),)),
    Check("capabilities_baseline", BASELINE, ((0, _capabilities),)),
    Check("capabilities_restricted", RESTRICTED, ((22, _dropped), (25, _not_on_windows(_dropped))),
          "capabilities_baseline"),
    Check("hostNamespaces", BASELINE, ((0, _host_namespaces),)),
    Check("hostPathVolumes", BASELINE, ((0, _host_paths),)),
    Check("hostPorts", BASELINE, ((0, _host_ports),)),
    Check("hostProbesAndHostLifecycle", BASELINE, ((34, _probe_hosts),)),
    Check("privileged", BASELINE, ((0, _privileged),)),
    Check("procMount", BASELINE, ((0, _proc_mounts), (35, _not_in_user_namespace(_proc_mounts)))),
    Check("procMount_restricted", RESTRICTED, ((35, _proc_mounts),), "procMount"),
    Check("restrictedVolumes", RESTRICTED, ((0, _volumes),), "hostPathVolumes"),
    Check("runAsNonRoot", RESTRICTED, ((0, _non_root), (35, _not_in_user_namespace(_non_root)))),
    Check("runAsUser", RESTRICTED, ((23, _user), (35, _not_in_user_namespace(_user)))),
    Check("seLinuxOptions", BASELINE, ((0, _se_linux(*_SE_TYPES)), (31, _se_linux(*_SE_TYPES, "container_engine_t")))),
    Check("seccompProfile_baseline", BASELINE, ((0, _old_seccomp), (19, _seccomp))),
    Check("seccompProfile_restricted", RESTRICTED, ((19, _seccomp_needed), (25, _not_on_windows(_seccomp_needed))),
          "seccompProfile_baseline"),
    Check("sysctls", BASELINE, tuple((minor, _sysctls(minor)) for minor, _ in _SYSCTLS)),
    Check("windowsHostProcess", BASELINE, ((0, _host_process),)),
)  # fmt: skip
_NEWEST: Final = max(since for check in CHECKS for since, _ in check.looks)
