"""Containers of a pod: names, images, ports, environment, mounts, probes and lifecycle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from minikube_py.api.errors import (
    FieldError,
    Json,
    duplicate,
    forbidden_value,
    invalid_value,
    not_supported,
    required,
    too_many,
    value_not_found,
)
from minikube_py.api.meta import (
    between,
    is_config_key,
    is_dns1123_label,
    is_dns1123_subdomain,
    is_env_name,
    is_header_name,
    is_port_name,
    is_port_number,
)
from minikube_py.api.validation.paths import (
    validate_descending_path,
    validate_field_ref,
    validate_no_backsteps,
    validate_resource_field_ref,
)
from minikube_py.api.validation.resources import NEGATIVE, validate_requirements
from minikube_py.api.validation.security import validate_container_security

PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
_MESSAGE_POLICIES: Final = ("File", "FallbackToLogsOnError")
_PROPAGATIONS: Final = ("Bidirectional", "HostToContainer", "None")
_RECURSIVE: Final = ("Disabled", "Enabled", "IfPossible")
WHITESPACE: Final = "must not have leading or trailing whitespace"


class PodContext(NamedTuple):
    """Pod context for container rules."""

    volumes: Mapping[str, Json]
    claim_names: tuple[str, ...]
    grace_s: int | None
    restart_policy: str
    host_users: bool


# --- ports ----------------------------------------------------------------------------------------------------------


def _validate_ports(ports: Sequence[Json], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    names: set[str] = set()
    for i, port in enumerate(ports):
        name = port.get("name")
        if name:
            if messages := is_port_name(name):
                errors += [invalid_value(f"{path}[{i}].name", name, message) for message in messages]
            elif name in names:
                errors.append(duplicate(f"{path}[{i}].name", name))
            else:
                names.add(name)
        number = port.get("containerPort") or 0
        if not number:
            errors.append(required(f"{path}[{i}].containerPort"))
        elif not 1 <= number <= 65535:
            errors.append(invalid_value(f"{path}[{i}].containerPort", number, between(1, 65535)))
        host = port.get("hostPort")
        if host and not 1 <= host <= 65535:
            errors.append(invalid_value(f"{path}[{i}].hostPort", host, between(1, 65535)))
        protocol = port.get("protocol") or ""
        if protocol not in PROTOCOLS:
            at = f"{path}[{i}].protocol"
            errors.append(not_supported(at, protocol, PROTOCOLS) if protocol else required(at))
    return errors


def validate_host_ports(containers: Sequence[Json], path: str) -> list[FieldError]:
    """No host port is taken twice."""
    errors: list[FieldError] = []
    taken: set[str] = set()
    for i, container in enumerate(containers):
        for j, port in enumerate(container.get("ports") or ()):
            if host := port.get("hostPort"):
                key = f"{port.get('protocol', '')}/{port.get('hostIP') or ''}/{host}"
                if key in taken:
                    errors.append(duplicate(f"{path}[{i}].ports[{j}].hostPort", key))
                taken.add(key)
    return errors


def validate_port_or_name(port: Any, path: str) -> list[FieldError]:
    """An IntOrString that names a port."""
    messages = is_port_name(port) if isinstance(port, str) else is_port_number(port or 0)
    return [invalid_value(path, port if port is not None else 0, message) for message in messages]


# --- environment ----------------------------------------------------------------------------------------------------


def _validate_key_ref(selector: Json, path: str) -> list[FieldError]:
    name, key = selector.get("name") or "", selector.get("key") or ""
    errors = [invalid_value(f"{path}.name", name, message) for message in is_dns1123_subdomain(name)]
    if not key:
        return [*errors, required(f"{path}.key")]
    return errors + [invalid_value(f"{path}.key", key, message) for message in is_config_key(key)]


def _validate_file_key_ref(selector: Json, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    key, volume, target = selector.get("key") or "", selector.get("volumeName") or "", selector.get("path") or ""
    if not key:
        errors.append(required(f"{path}.key"))
    else:
        errors += [invalid_value(f"{path}.key", key, message) for message in is_env_name(key)]
    if not volume:
        errors.append(required(f"{path}.volumeName"))
    else:
        errors += [invalid_value(f"{path}.volumeName", volume, message) for message in is_dns1123_label(volume)]
    if not target:
        return [*errors, required(f"{path}.path")]
    return errors + validate_no_backsteps(target, f"{path}.path")


def _validate_env_source(variable: Json, source: Json, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    count = 0
    if (part := source.get("fieldRef")) is not None:
        count += 1
        errors += validate_field_ref(part, f"{path}.fieldRef", volume=False)
    if (part := source.get("resourceFieldRef")) is not None:
        count += 1
        errors += validate_resource_field_ref(part, f"{path}.resourceFieldRef", volume=False)
    for name in ("configMapKeyRef", "secretKeyRef"):
        if (part := source.get(name)) is not None:
            count += 1
            errors += _validate_key_ref(part, f"{path}.{name}")
    if (part := source.get("fileKeyRef")) is not None:
        count += 1
        errors += _validate_file_key_ref(part, f"{path}.fileKeyRef")
    if not count:
        known = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        errors.append(invalid_value(path, "", f"must specify one of: {known}"))
    elif variable.get("value"):
        errors.append(invalid_value(path, "", "may not be specified when `value` is not empty"))
    elif count > 1:
        errors.append(invalid_value(path, "", "may not have more than one field specified at a time"))
    return errors


def _validate_env(env: Sequence[Json], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for i, variable in enumerate(env):
        name = variable.get("name")
        if not name:
            errors.append(required(f"{path}[{i}].name"))
        elif messages := is_env_name(name):
            errors += [invalid_value(f"{path}[{i}].name", name, message) for message in messages]
        if (source := variable.get("valueFrom")) is not None:
            errors += _validate_env_source(variable, source, f"{path}[{i}].valueFrom")
    return errors


def _validate_env_from(sources: Sequence[Json], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for i, source in enumerate(sources):
        at = f"{path}[{i}]"
        if prefix := source.get("prefix"):
            errors += [invalid_value(f"{at}.prefix", prefix, message) for message in is_env_name(prefix)]
        count = 0
        for kind in ("configMapRef", "secretRef"):
            if (part := source.get(kind)) is None:
                continue
            count += 1
            name = part.get("name") or ""
            if not name:
                errors.append(required(f"{at}.{kind}.name"))
            else:
                masked = f"{name[:-2]}a" if len(name) > 1 and name.endswith("-") else name
                errors += [invalid_value(f"{at}.{kind}.name", name, m) for m in is_dns1123_subdomain(masked)]
        if not count:
            errors.append(invalid_value(path, "", "must specify one of: `configMapRef` or `secretRef`"))
        elif count > 1:
            errors.append(invalid_value(path, "", "may not have more than one field specified at a time"))
    return errors


# --- mounts ---------------------------------------------------------------------------------------------------------


def _validate_propagation(mount: Json, container: Json, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    mode, recursive = mount.get("mountPropagation"), mount.get("recursiveReadOnly")
    if mode is not None:
        if mode not in _PROPAGATIONS:
            errors.append(not_supported(f"{path}.mountPropagation", mode, _PROPAGATIONS))
        if mode == "Bidirectional" and not (container.get("securityContext") or {}).get("privileged"):
            detail = "Bidirectional mount propagation is available only to privileged containers"
            errors.append(forbidden_value(f"{path}.mountPropagation", detail))
    if recursive in ("Enabled", "IfPossible"):
        at = f"{path}.recursiveReadOnly"
        if not mount.get("readOnly"):
            errors.append(forbidden_value(at, "may only be specified when readOnly is true"))
        if mode not in (None, "None"):
            detail = "may only be specified when mountPropagation is None or not specified"
            errors.append(forbidden_value(at, detail))
    elif recursive is not None and recursive not in _RECURSIVE:
        errors.append(not_supported(f"{path}.recursiveReadOnly", recursive, _RECURSIVE))
    return errors


def _validate_mounts(container: Json, volumes: Mapping[str, Json], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    points: set[str] = set()
    devices = {d.get("name") or "": d.get("devicePath") or "" for d in container.get("volumeDevices") or ()}
    for i, mount in enumerate(container["volumeMounts"]):
        get = mount.get
        name, point = get("name") or "", get("mountPath") or ""
        if not name:
            errors.append(required(f"{path}[{i}].name"))
        if name not in volumes:
            errors.append(value_not_found(f"{path}[{i}].name", name))
        if not point:
            errors.append(required(f"{path}[{i}].mountPath"))
        if point in points:
            errors.append(invalid_value(f"{path}[{i}].mountPath", point, "must be unique"))
        points.add(point)
        if name in devices:
            errors.append(invalid_value(f"{path}[{i}].name", name, "must not already exist in volumeDevices"))
        if point in devices.values():
            detail = "must not already exist as a path in volumeDevices"
            errors.append(invalid_value(f"{path}[{i}].mountPath", point, detail))
        sub, expression = get("subPath"), get("subPathExpr")
        if sub:
            errors += validate_descending_path(sub, f"{path}.subPath")
        if expression:
            if sub:
                detail = "subPathExpr and subPath are mutually exclusive"
                errors.append(invalid_value(f"{path}[{i}].subPathExpr", expression, detail))
            errors += validate_descending_path(expression, f"{path}.subPathExpr")
        if "mountPropagation" in mount or "recursiveReadOnly" in mount:
            errors += _validate_propagation(mount, container, path)
    return errors


def _validate_devices(container: Json, volumes: Mapping[str, Json], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    names: set[str] = set()
    points: set[str] = set()
    mounts = {m.get("name") or "": m.get("mountPath") or "" for m in container.get("volumeMounts") or ()}
    for i, device in enumerate(container["volumeDevices"]):
        at, name, point = f"{path}[{i}]", device.get("name") or "", device.get("devicePath") or ""
        if not name:
            errors.append(required(f"{at}.name"))
        if name in names:
            errors.append(invalid_value(f"{at}.name", name, "must be unique"))
        volume = volumes.get(name)
        if volume is None:
            errors.append(value_not_found(f"{at}.name", name))
        elif not {"persistentVolumeClaim", "ephemeral"} & volume.keys():
            detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            errors.append(invalid_value(f"{at}.name", name, detail))
        if not point:
            errors.append(required(f"{at}.devicePath"))
        if point in points:
            errors.append(invalid_value(f"{at}.devicePath", point, "must be unique"))
        if ".." in point.split("/"):
            errors.append(invalid_value(f"{at}.devicePath", point, "can not contain backsteps ('..')"))
        else:
            points.add(point)
        if name in mounts:
            errors.append(invalid_value(f"{at}.name", name, "must not already exist in volumeMounts"))
        if point in mounts.values():
            errors.append(invalid_value(f"{at}.devicePath", point, "must not already exist as a path in volumeMounts"))
        if name:
            names.add(name)
    return errors


# --- probes and lifecycle -------------------------------------------------------------------------------------------


def _validate_http_get(action: Json, path: str) -> list[FieldError]:
    errors = [] if action.get("path") else [required(f"{path}.path")]
    errors += validate_port_or_name(action.get("port"), f"{path}.port")
    scheme = action.get("scheme") or ""
    if scheme not in ("HTTP", "HTTPS"):
        errors.append(not_supported(f"{path}.scheme", scheme, ("HTTP", "HTTPS")))
    for header in action.get("httpHeaders") or ():
        name = header.get("name") or ""
        errors += [invalid_value(f"{path}.httpHeaders", name, message) for message in is_header_name(name)]
    return errors


def _validate_sleep(action: Json, path: str, grace_s: int | None) -> list[FieldError]:
    sleep_s = action.get("seconds") or 0
    if grace_s is None or 0 <= sleep_s <= grace_s:
        return []
    detail = f"must be non-negative and less than terminationGracePeriodSeconds ({grace_s})"
    return [invalid_value(path, sleep_s, detail)]


def _validate_handler(handler: Json, path: str, grace_s: int | None) -> list[FieldError]:
    errors: list[FieldError] = []
    found = False
    for name in ("exec", "httpGet", "tcpSocket", "grpc", "sleep"):
        action = handler.get(name)
        if action is None:
            continue
        at = f"{path}.{name}"
        if found:
            errors.append(forbidden_value(at, "may not specify more than 1 handler type"))
            continue
        found = True
        if name == "exec":
            errors += [] if action.get("command") else [required(f"{at}.command")]
        elif name == "httpGet":
            errors += _validate_http_get(action, at)
        elif name == "sleep":
            errors += _validate_sleep(action, at, grace_s)
        else:
            errors += validate_port_or_name(action.get("port"), f"{at}.port")
    if not found:
        errors.append(required(path, "must specify a handler type"))
    return errors


_PROBE_NUMBERS: Final = (
    "initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold",
)  # fmt: skip


def _validate_probe(probe: Json, path: str, grace_s: int | None, *, readiness: bool) -> list[FieldError]:
    handler = {name: probe.get(name) for name in ("exec", "httpGet", "tcpSocket", "grpc")}
    errors = _validate_handler(handler, path, grace_s)
    for name in _PROBE_NUMBERS:
        value = probe.get(name) or 0
        if value < 0:
            errors.append(invalid_value(f"{path}.{name}", value, NEGATIVE))
    period_s = probe.get("terminationGracePeriodSeconds")
    if period_s is not None and period_s <= 0:
        errors.append(invalid_value(f"{path}.terminationGracePeriodSeconds", period_s, "must be greater than 0"))
    if readiness:
        if period_s is not None:
            detail = "must not be set for readinessProbes"
            errors.append(invalid_value(f"{path}.terminationGracePeriodSeconds", period_s, detail))
    elif probe.get("successThreshold") != 1:
        errors.append(invalid_value(f"{path}.successThreshold", probe.get("successThreshold") or 0, "must be 1"))
    return errors


PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")


def validate_hooks(container: Json, path: str, grace_s: int | None) -> list[FieldError]:
    """Lifecycle and probes, which regular containers and sidecars may have."""
    errors: list[FieldError] = []
    if lifecycle := container.get("lifecycle"):
        for name in ("postStart", "preStop"):
            if (handler := lifecycle.get(name)) is not None:
                own = {key: handler.get(key) for key in ("exec", "httpGet", "tcpSocket", "sleep")}
                errors += _validate_handler(own, f"{path}.lifecycle.{name}", grace_s)
    for name in PROBES:
        if (probe := container.get(name)) is not None:
            errors += _validate_probe(probe, f"{path}.{name}", grace_s, readiness=name == "readinessProbe")
    return errors


# --- restart and resize policies ------------------------------------------------------------------------------------

_RESTART_POLICIES: Final = ("Always", "Never", "OnFailure")
_RULE_ACTIONS: Final = ("Restart", "RestartAllContainers")
_RULES_LIMIT: Final = 20
_EXIT_CODES_LIMIT: Final = 255


def validate_container_restart(container: Json, path: str) -> list[FieldError]:
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules") or ()
    errors: list[FieldError] = []
    if policy is None:
        if not rules:
            return errors
        errors.append(required(f"{path}.restartPolicy", "must specify restartPolicy when restart rules are used"))
    elif policy not in _RESTART_POLICIES:
        errors.append(not_supported(f"{path}.restartPolicy", policy, _RESTART_POLICIES))
    if len(rules) > _RULES_LIMIT:
        errors.append(too_many(f"{path}.restartPolicyRules", len(rules), _RULES_LIMIT))
    for i, rule in enumerate(rules):
        at, action, codes = f"{path}.restartPolicyRules[{i}]", rule.get("action") or "", rule.get("exitCodes")
        if action not in _RULE_ACTIONS:
            errors.append(not_supported(f"{at}.action", action, _RULE_ACTIONS))
        if codes is None:
            errors.append(required(f"{at}.exitCodes", "must be specified"))
            continue
        operator, values = codes.get("operator") or "", codes.get("values") or ()
        if operator not in ("In", "NotIn"):
            errors.append(not_supported(f"{at}.exitCodes.operator", operator, ("In", "NotIn")))
        if len(values) > _EXIT_CODES_LIMIT:
            errors.append(too_many(f"{at}.exitCodes.values", len(values), _EXIT_CODES_LIMIT))
    return errors


def _validate_resize(policies: Sequence[Json], path: str, pod_policy: str) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for i, policy in enumerate(policies):
        resource, restart = policy.get("resourceName") or "", policy.get("restartPolicy") or ""
        if resource in seen:
            errors.append(duplicate(f"{path}[{i}]", resource))
        seen.add(resource)
        for value, known in ((resource, ("cpu", "memory")), (restart, ("NotRequired", "RestartContainer"))):
            if value not in known:
                errors.append(not_supported(path, value, known) if value else required(path))
        if pod_policy == "Never" and restart != "NotRequired":
            detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
            errors.append(invalid_value(path, restart, detail))
    return errors


# --- containers -----------------------------------------------------------------------------------------------------


def validate_common(container: Json, path: str, pod: PodContext) -> list[FieldError]:
    """What holds for containers of all sorts."""
    errors: list[FieldError] = []
    get = container.get
    name = get("name")
    if not name:
        errors.append(required(f"{path}.name"))
    elif messages := is_dns1123_label(name):
        errors += [invalid_value(f"{path}.name", name, message) for message in messages]
    if not get("image"):
        errors.append(required(f"{path}.image"))
    policy = get("terminationMessagePolicy") or ""
    if policy not in _MESSAGE_POLICIES:
        at = f"{path}.terminationMessagePolicy"
        errors.append(not_supported(at, policy, _MESSAGE_POLICIES) if policy else required(at))
    if ports := get("ports"):
        errors += _validate_ports(ports, f"{path}.ports")
    if env := get("env"):
        errors += _validate_env(env, f"{path}.env")
    if env_from := get("envFrom"):
        errors += _validate_env_from(env_from, f"{path}.envFrom")
    if get("volumeMounts"):
        errors += _validate_mounts(container, pod.volumes, f"{path}.volumeMounts")
    if get("volumeDevices"):
        errors += _validate_devices(container, pod.volumes, f"{path}.volumeDevices")
    pull = get("imagePullPolicy") or ""
    if pull not in _PULL_POLICIES:
        at = f"{path}.imagePullPolicy"
        errors.append(not_supported(at, pull, _PULL_POLICIES) if pull else required(at))
    if resources := get("resources"):
        errors += validate_requirements(resources, f"{path}.resources", pod.claim_names)
    if resize := get("resizePolicy"):
        errors += _validate_resize(resize, f"{path}.resizePolicy", pod.restart_policy)
    if context := get("securityContext"):
        errors += validate_container_security(context, f"{path}.securityContext", pod.host_users)
    return errors


def validate_containers(containers: Sequence[Json], path: str, pod: PodContext) -> list[FieldError]:
    if not containers:
        return [required(path)]
    errors: list[FieldError] = []
    names: set[str] = set()
    any_ports = False
    for i, container in enumerate(containers):
        at = f"{path}[{i}]"
        errors += validate_common(container, at, pod)
        name = container.get("name") or ""
        if name in names:
            errors.append(duplicate(f"{at}.name", name))
        names.add(name)
        errors += validate_hooks(container, at, pod.grace_s)
        if "restartPolicy" in container or "restartPolicyRules" in container:
            errors += validate_container_restart(container, at)
        any_ports = any_ports or bool(container.get("ports"))
    return errors + validate_host_ports(containers, path) if any_ports else errors


_ONLY_LASTING: Final = (
    "ports", "resources", "resizePolicy", "restartPolicy", "restartPolicyRules", *PROBES, "lifecycle",
)  # fmt: skip


def validate_ephemeral_containers(
    containers: Sequence[Json], others: Sequence[Json], path: str, pod: PodContext
) -> list[FieldError]:
    """`others`: all containers of the pod that are not ephemeral."""
    errors: list[FieldError] = []
    lasting = {container.get("name") or "" for container in others}
    names = set(lasting)
    for i, container in enumerate(containers):
        at, name, target = f"{path}[{i}]", container.get("name") or "", container.get("targetContainerName")
        errors += validate_common(container, at, pod)
        image = container.get("image") or ""
        if image != image.strip():
            errors.append(invalid_value(f"{at}.image", image, WHITESPACE))
        if name in names:
            errors.append(duplicate(f"{at}.name", name))
        names.add(name)
        if target and target not in lasting:
            errors.append(value_not_found(f"{at}.targetContainerName", target))
        wrong = [field for field in _ONLY_LASTING if container.get(field)]
        for j, mount in enumerate(container.get("volumeMounts") or ()):
            wrong += [f"volumeMounts[{j}].{field}" for field in ("subPath", "subPathExpr") if mount.get(field)]
        errors += [forbidden_value(f"{at}.{field}", "cannot be set for an Ephemeral Container") for field in wrong]
    return errors


def validate_init_containers(
    containers: Sequence[Json], regular: Sequence[Json], path: str, pod: PodContext
) -> list[FieldError]:
    errors: list[FieldError] = []
    names = {container.get("name") or "" for container in regular}
    for i, container in enumerate(containers):
        at, name = f"{path}[{i}]", container.get("name") or ""
        errors += validate_common(container, at, pod)
        errors += validate_container_restart(container, at)
        if name in names:
            errors.append(duplicate(f"{at}.name", name))
        elif name:
            names.add(name)
        errors += validate_host_ports([container], path)
        if container.get("restartPolicy") == "Always":
            errors += validate_hooks(container, at, pod.grace_s)
            continue
        for hook in ("lifecycle", *PROBES):
            if container.get(hook) is not None:
                detail = "may not be set for init containers without restartPolicy=Always"
                errors.append(forbidden_value(f"{at}.{hook}", detail))
        for j, policy in enumerate(container.get("resizePolicy") or ()):
            if policy.get("restartPolicy") == "RestartContainer":
                detail = "must not be set to 'RestartContainer' for non-sidecar initContainers"
                errors.append(invalid_value(f"{at}.resizePolicy[{j}].restartPolicy", "RestartContainer", detail))
    return errors
