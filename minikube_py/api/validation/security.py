"""Security contexts of pods and containers, and the profiles they name.

Privileged containers are allowed, as on every cluster that minikube or kubeadm sets up (`--allow-privileged`).
"""

from __future__ import annotations

import re
from typing import Any, Final

from minikube_py.api.errors import (
    FieldError,
    Json,
    Verbatim,
    duplicate,
    forbidden_value,
    go_json,
    invalid_value,
    not_supported,
    required,
    too_long,
)
from minikube_py.api.meta import between
from minikube_py.api.validation.paths import validate_descending_path
from minikube_py.api.validation.windows import validate_windows

MAX_ID: Final = (1 << 31) - 1
_PROFILES: Final = ("Localhost", "RuntimeDefault", "Unconfined")
_PATH_LIMIT: Final = 4095
_SYSCTL_FMT: Final = r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SYSCTL: Final = re.compile(_SYSCTL_FMT)
_SYSCTL_LIMIT: Final = 253
_NET: Final = ("net.",)
_IPC: Final = ("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.")


def _validate_ids(context: Json, names: tuple[str, ...], path: str) -> list[FieldError]:
    return [
        invalid_value(f"{path}.{name}", value, between(0, MAX_ID))
        for name in names
        if (value := context.get(name)) is not None and not 0 <= value <= MAX_ID
    ]


def validate_seccomp(profile: Json | None, path: str) -> list[FieldError]:
    if profile is None:
        return []
    errors: list[FieldError] = []
    kind, local = profile.get("type") or "", profile.get("localhostProfile")
    if not kind:
        errors.append(required(f"{path}.type", "type is required when seccompProfile is set"))
    elif kind not in _PROFILES:
        errors.append(not_supported(f"{path}.type", kind, _PROFILES))
    if kind == "Localhost":
        if local is None:
            errors.append(required(f"{path}.localhostProfile", "must be set when seccomp type is Localhost"))
        else:
            errors += validate_descending_path(local, f"{path}.localhostProfile")
    elif local is not None:
        shown = {"Type": kind, "LocalhostProfile": local}
        detail = "can only be set when seccomp type is Localhost"
        errors.append(invalid_value(f"{path}.localhostProfile", shown, detail))
    return errors


def validate_app_armor(profile: Json | None, path: str) -> list[FieldError]:
    if profile is None:
        return []
    errors: list[FieldError] = []
    kind, local = profile.get("type") or "", profile.get("localhostProfile")
    at = f"{path}.localhostProfile"
    if kind == "Localhost":
        if not local:
            errors.append(required(at, "must be set when AppArmor type is Localhost"))
        elif local.strip() != local:
            errors.append(invalid_value(at, local, "must not be padded with whitespace"))
        if local and len(local) > _PATH_LIMIT:
            errors.append(too_long(at, _PATH_LIMIT))
    elif kind in _PROFILES:
        if local is not None:
            shown = Verbatim(go_json(local))
            errors.append(invalid_value(at, shown, "can only be set when AppArmor type is Localhost"))
    elif not kind:
        errors.append(required(f"{path}.type", "type is required when appArmorProfile is set"))
    else:
        errors.append(not_supported(f"{path}.type", kind, _PROFILES))
    return errors


# --- pods -----------------------------------------------------------------------------------------------------------


def _validate_sysctls(spec: Json, sysctls: list[Json], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for i, sysctl in enumerate(sysctls):
        at, name = f"{path}[{i}].name", sysctl.get("name") or ""
        if not name:
            errors.append(required(at))
        elif len(name) > _SYSCTL_LIMIT or not _SYSCTL.fullmatch(name):
            detail = f"must have at most {_SYSCTL_LIMIT} characters and match regex ^{_SYSCTL_FMT}$"
            errors.append(invalid_value(at, name, detail))
        elif name in seen:
            errors.append(duplicate(at, name))
        dotted = name.replace("/", ".")
        if spec.get("hostNetwork") and dotted.startswith(_NET):
            errors.append(invalid_value(at, name, "may not be specified when 'hostNetwork' is true"))
        elif spec.get("hostIPC") and dotted.startswith(_IPC):
            errors.append(invalid_value(at, name, "may not be specified when 'hostIPC' is true"))
        seen.add(name)
    return errors


_ONE_OF: Final = (
    ("supplementalGroupsPolicy", ("Merge", "Strict")),
    ("seLinuxChangePolicy", ("Recursive",)),
)


def validate_pod_security(spec: Json, path: str) -> list[FieldError]:
    """`spec` is a pod's; `path` that of its security context."""
    context: Json = spec.get("securityContext") or {}
    shared = spec.get("shareProcessNamespace")
    if not context and not shared:
        return []
    errors = _validate_ids(context, ("fsGroup", "runAsUser", "runAsGroup"), path)
    for i, group in enumerate(context.get("supplementalGroups") or ()):
        if not 0 <= group <= MAX_ID:
            errors.append(invalid_value(f"{path}.supplementalGroups[{i}]", group, between(0, MAX_ID)))
    if shared and spec.get("hostPID"):
        detail = "ShareProcessNamespace and HostPID cannot both be enabled"
        errors.append(invalid_value(f"{path}.shareProcessNamespace", True, detail))
    if sysctls := context.get("sysctls"):
        errors += _validate_sysctls(spec, sysctls, f"{path}.sysctls")
    policy = context.get("fsGroupChangePolicy")
    if policy is not None and policy not in ("Always", "OnRootMismatch"):
        errors.append(not_supported(f"{path}.fsGroupChangePolicy", policy, ("Always", "OnRootMismatch")))
    errors += validate_seccomp(context.get("seccompProfile"), f"{path}.seccompProfile")
    errors += validate_windows(context.get("windowsOptions"), f"{path}.windowsOptions")
    errors += validate_app_armor(context.get("appArmorProfile"), f"{path}.appArmorProfile")
    for name, known in _ONE_OF:
        if (value := context.get(name)) is not None and value not in known:
            errors.append(not_supported(f"{path}.{name}", value, known))
    return errors


# --- containers -----------------------------------------------------------------------------------------------------

_INTERNAL_FIELDS: Final = (
    "capabilities", "privileged", "seLinuxOptions", "windowsOptions", "runAsUser", "runAsGroup", "runAsNonRoot",
    "readOnlyRootFilesystem", "allowPrivilegeEscalation", "procMount", "seccompProfile", "appArmorProfile",
)  # fmt: skip
_INTERNAL_NAMES: Final = {"seLinuxOptions": "SELinuxOptions"}


def _go_name(name: str) -> str:
    return _INTERNAL_NAMES.get(name, name[:1].upper() + name[1:])


def _as_internal(context: Json) -> Json:
    """A container's security context as upstream prints it: its Go names, in their order."""
    shown: dict[str, Any] = {}
    for name in _INTERNAL_FIELDS:
        value = context.get(name)
        if name == "capabilities" and value is not None:
            value = {"Add": value.get("add"), "Drop": value.get("drop")}
        elif isinstance(value, dict):
            value = {_go_name(key): part for key, part in value.items()}
        shown[_go_name(name)] = value
    return shown


def validate_container_security(context: Json, path: str, host_users: bool) -> list[FieldError]:
    errors = _validate_ids(context, ("runAsUser", "runAsGroup"), path)
    mount = context.get("procMount")
    if mount is not None:
        if mount not in ("Default", "Unmasked"):
            errors.append(not_supported(f"{path}.procMount", mount, ("Default", "Unmasked")))
        if host_users and mount == "Unmasked":
            errors.append(invalid_value(f"{path}.procMount", mount, "`hostUsers` must be false to use `Unmasked`"))
    errors += validate_seccomp(context.get("seccompProfile"), f"{path}.seccompProfile")
    if context.get("allowPrivilegeEscalation") is False:
        cannot = "cannot set `allowPrivilegeEscalation` to false and "
        if context.get("privileged"):
            errors.append(invalid_value(path, _as_internal(context), f"{cannot}`privileged` to true"))
        added = (context.get("capabilities") or {}).get("add") or ()
        for capability in added:
            if capability == "CAP_SYS_ADMIN":
                shown = _as_internal(context)
                errors.append(invalid_value(path, shown, f"{cannot}`capabilities.Add` CAP_SYS_ADMIN"))
    errors += validate_windows(context.get("windowsOptions"), f"{path}.windowsOptions")
    return errors + validate_app_armor(context.get("appArmorProfile"), f"{path}.appArmorProfile")


def validate_host_users(spec: Json, path: str) -> list[FieldError]:
    """Fields incompatible with user namespaces."""
    if spec.get("hostUsers") is not False:
        return []
    why = "when `hostUsers` is false"
    errors: list[FieldError] = []
    for name, shown in (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")):
        if spec.get(name):
            errors.append(forbidden_value(f"{path}.{shown}", why))
    for name in ("initContainers", "containers", "ephemeralContainers"):
        for i, container in enumerate(spec.get(name) or ()):
            if container.get("volumeDevices"):
                errors.append(forbidden_value(f"{path}.{name}[{i}].volumeDevices", why))
    return errors


_NO_LINUX: Final = "cannot be set for a windows pod"
_POD_LINUX: Final = (
    "securityContext.appArmorProfile", "securityContext.seLinuxOptions", "hostUsers", "hostPID", "hostIPC",
    "securityContext.seccompProfile", "securityContext.fsGroup", "securityContext.fsGroupChangePolicy",
    "securityContext.sysctls", "shareProcessNamespace", "securityContext.runAsUser", "securityContext.runAsGroup",
    "securityContext.supplementalGroups", "securityContext.supplementalGroupsPolicy",
    "securityContext.seLinuxChangePolicy",
)  # fmt: skip
_CONTAINER_LINUX: Final = (
    "appArmorProfile", "seLinuxOptions", "seccompProfile", "capabilities", "readOnlyRootFilesystem", "privileged",
    "allowPrivilegeEscalation", "procMount", "runAsUser", "runAsGroup",
)  # fmt: skip


def validate_for_system(spec: Json, system: str, path: str) -> list[FieldError]:
    """Fields of the other operating system must be unset."""
    contexts = [
        (container.get("securityContext") or {}, f"{path}.{kind}[{i}].securityContext")
        for kind in ("initContainers", "containers", "ephemeralContainers")
        for i, container in enumerate(spec.get(kind) or ())
    ]
    own = spec.get("securityContext") or {}
    if system == "linux":
        why = "windows options cannot be set for a linux pod"
        both = [(own, f"{path}.securityContext"), *contexts]
        places = [at for context, at in both if context.get("windowsOptions") is not None]
        return [forbidden_value(f"{at}.windowsOptions", why) for at in places]
    if system != "windows":
        return []
    errors = []
    for name in _POD_LINUX:
        holder = own if name.startswith("securityContext.") else spec
        found = holder.get(name.rpartition(".")[2])
        if found is not None and not (name in ("hostPID", "hostIPC") and not found):
            errors.append(forbidden_value(f"{path}.{name}", _NO_LINUX))
    return errors + [
        forbidden_value(f"{at}.{name}", _NO_LINUX)
        for context, at in contexts
        for name in _CONTAINER_LINUX
        if context.get(name) is not None
    ]
