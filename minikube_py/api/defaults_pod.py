"""Defaults of a pod's spec, in pods and templates; the rules of `pkg/apis/core/v1/defaults.go`.

Objects are changed in place. They come from decode, so every value has the type its field asks for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from minikube_py.api.defaulting import part
from minikube_py.api.errors import Json, bad_request
from minikube_py.api.memo import remembered
from minikube_py.fields import quantity

TERMINATION_MESSAGE_PATH: Final = "/dev/termination-log"
FILE_MODE: Final = 0o644
TOKEN_EXPIRATION_S: Final = 3600

# --- quantities -----------------------------------------------------------------------------------------------------


@remembered(16384)
def _canonical_text(text: str) -> str:
    return quantity.canonical(text.strip())


@remembered(16384)
def _milli_text(text: str) -> str:
    """Canonical, and rounded up to thousandths as upstream keeps resource lists."""
    parsed = quantity.parse(text.strip())
    if parsed.scale >= -3:
        return str(parsed)
    return str(quantity.Quantity(parsed.at_scale(-3), -3, parsed.format, ""))


def _read(value: Any, reader: Callable[[str], str]) -> str:
    try:
        return reader(value if type(value) is str else str(quantity.from_json(value)))
    except quantity.QuantityError as wrong:
        raise bad_request(f"unable to decode: {wrong}") from None


def canonical_quantity(value: Any) -> str:
    """A quantity as upstream prints it. Raises: StatusError 400."""
    return _read(value, _canonical_text)


def default_resource_list(resources: Json) -> None:
    """Raises: StatusError 400."""
    try:
        # There may be thousands: no step of Python for each, if all are texts.
        resources.update(zip(resources, list(map(_milli_text, resources.values()))))
    except (TypeError, AttributeError, quantity.QuantityError):
        for name, value in resources.items():
            resources[name] = _read(value, _milli_text)


# --- images ---------------------------------------------------------------------------------------------------------

_COMPONENT: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_DOMAIN: Final = (
    r"(?:(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
    r"(?:\.(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))*|\[(?:[a-fA-F0-9:]+)\])(?::[0-9]+)?"
)
_REFERENCE: Final = re.compile(
    rf"(?:(?P<domain>{_DOMAIN})/)?(?P<path>{_COMPONENT}(?:/{_COMPONENT})*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?"
    r"(?:@(?P<digest>[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}))?",
    re.ASCII,
)
_IMAGE_LIMIT: Final = 4096


@remembered(8192)
def _pull_policy(image: str) -> str:
    match = _REFERENCE.fullmatch(image)
    if match is None or re.fullmatch("[a-f0-9]{64}", image):
        return "IfNotPresent"
    tag, digest = match["tag"], match["digest"]
    return "Always" if tag == "latest" or not (tag or digest) else "IfNotPresent"


def default_pull_policy(image: str) -> str:
    """`Always` for the tag `latest`, explicit or implied; an invalid reference has no tag."""
    return _pull_policy(image) if len(image) <= _IMAGE_LIMIT else "IfNotPresent"


# --- containers -----------------------------------------------------------------------------------------------------


def _default_http_get(action: Json) -> None:
    if not action.get("path"):
        action["path"] = "/"
    if not action.get("scheme"):
        action["scheme"] = "HTTP"


_PROBE_NUMBERS: Final = (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3))


def _default_probe(probe: Json) -> None:
    for key, value in _PROBE_NUMBERS:
        if not probe.get(key):
            probe[key] = value
    if (action := probe.get("httpGet")) is not None:
        _default_http_get(action)
    grpc = probe.get("grpc")
    if grpc is not None and grpc.get("service") is None:
        grpc["service"] = ""


def _default_env(env: list[Json]) -> None:
    for variable in env:
        source = variable.get("valueFrom")
        if not source:
            if variable.get("value") == "":
                del variable["value"]
            continue
        if (selector := source.get("fieldRef")) is not None and not selector.get("apiVersion"):
            selector["apiVersion"] = "v1"
        if (selector := source.get("resourceFieldRef")) is not None:
            selector["divisor"] = canonical_quantity(selector.get("divisor") or "0")
        if (selector := source.get("fileKeyRef")) is not None and selector.get("optional") is None:
            selector["optional"] = False


def default_container(container: Json) -> None:
    get = container.get
    if not get("imagePullPolicy"):
        container["imagePullPolicy"] = default_pull_policy(get("image") or "")
    if not get("terminationMessagePath"):
        container["terminationMessagePath"] = TERMINATION_MESSAGE_PATH
    if not get("terminationMessagePolicy"):
        container["terminationMessagePolicy"] = "File"
    resources = get("resources")
    if resources:
        if limits := resources.get("limits"):
            default_resource_list(limits)
        if requests := resources.get("requests"):
            default_resource_list(requests)
    elif resources is None:
        container["resources"] = {}
    if ports := get("ports"):
        for port in ports:
            if not port.get("protocol"):
                port["protocol"] = "TCP"
    if env := get("env"):
        _default_env(env)
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if (probe := get(name)) is not None:
            _default_probe(probe)
    if lifecycle := get("lifecycle"):
        for name in ("postStart", "preStop"):
            action = (lifecycle.get(name) or {}).get("httpGet")
            if action is not None:
                _default_http_get(action)


def _default_requests(container: Json) -> None:
    """Limits default a container's missing requests."""
    resources = container.get("resources")
    limits = resources.get("limits") if resources else None
    if resources and limits:
        requests = resources.get("requests")
        if requests is None:
            requests = resources["requests"] = {}
        for name, value in limits.items():
            requests.setdefault(name, value)


# --- volumes --------------------------------------------------------------------------------------------------------


def _default_items(items: list[Json] | None) -> None:
    for item in items or ():
        if (selector := item.get("fieldRef")) is not None and not selector.get("apiVersion"):
            selector["apiVersion"] = "v1"
        if (selector := item.get("resourceFieldRef")) is not None:
            selector["divisor"] = canonical_quantity(selector.get("divisor") or "0")


def _default_mode(source: Json) -> None:
    if source.get("defaultMode") is None:
        source["defaultMode"] = FILE_MODE


def _default_downward(source: Json) -> None:
    _default_mode(source)
    _default_items(source.get("items"))


def _default_projected(source: Json) -> None:
    _default_mode(source)
    for inner in source.get("sources") or ():
        if (token := inner.get("serviceAccountToken")) is not None and token.get("expirationSeconds") is None:
            token["expirationSeconds"] = TOKEN_EXPIRATION_S
        if (downward := inner.get("downwardAPI")) is not None:
            _default_items(downward.get("items"))


def _default_empty_dir(source: Json) -> None:
    if source.get("sizeLimit") is not None:
        source["sizeLimit"] = canonical_quantity(source["sizeLimit"])


def _default_host_path(source: Json) -> None:
    if source.get("type") is None:
        source["type"] = ""


def _default_image(source: Json) -> None:
    if not source.get("pullPolicy"):
        source["pullPolicy"] = default_pull_policy(source.get("reference") or "")


def _default_ephemeral(source: Json) -> None:
    template = source.get("volumeClaimTemplate")
    if template is None:
        return
    template.setdefault("metadata", {})
    default_claim_spec(template.setdefault("spec", {}))


def default_claim_spec(spec: Json) -> None:
    """Of a PersistentVolumeClaim, or of a template of one."""
    resources = part(spec, "resources")
    for name in ("limits", "requests"):
        if resources.get(name):
            default_resource_list(resources[name])
    if spec.get("volumeMode") is None:
        spec["volumeMode"] = "Filesystem"


def _fill(**values: Any) -> Callable[[Json], None]:
    def fill(source: Json) -> None:
        for key, value in values.items():
            if source.get(key) in (None, ""):
                source[key] = value

    return fill


_SHARED_SOURCES: Final[dict[str, Callable[[Json], None]]] = {
    "hostPath": _default_host_path,
    "iscsi": _fill(iscsiInterface="default"),
    "rbd": _fill(pool="rbd", user="admin", keyring="/etc/ceph/keyring"),
    "azureDisk": _fill(cachingMode="ReadWrite", fsType="ext4", readOnly=False, kind="Shared"),
    "scaleIO": _fill(storageMode="ThinProvisioned", fsType="xfs"),
}
"""Sources that PersistentVolumes have, too."""
_VOLUME_SOURCES: Final[dict[str, Callable[[Json], None]]] = {
    **_SHARED_SOURCES,
    "secret": _default_mode,
    "configMap": _default_mode,
    "downwardAPI": _default_downward,
    "projected": _default_projected,
    "emptyDir": _default_empty_dir,
    "image": _default_image,
    "ephemeral": _default_ephemeral,
}


def default_persistent_source(spec: Json) -> None:
    """The sources in the spec of a PersistentVolume."""
    for name, filler in _SHARED_SOURCES.items():
        if spec.get(name) is not None:
            filler(spec[name])


def default_volume(volume: Json) -> None:
    sources = [name for name in volume if name != "name" and volume[name] is not None]
    if not sources:
        volume["emptyDir"] = {}
    for name in sources:
        filler = _VOLUME_SOURCES.get(name)
        if filler is not None:
            filler(volume[name])


# --- pod specs ------------------------------------------------------------------------------------------------------


def default_pod_spec(spec: Json) -> None:
    """A pod's spec, or a template's."""
    get = spec.get
    if not get("restartPolicy"):
        spec["restartPolicy"] = "Always"
    if get("terminationGracePeriodSeconds") is None:
        spec["terminationGracePeriodSeconds"] = 30
    if not get("dnsPolicy"):
        spec["dnsPolicy"] = "ClusterFirst"
    if get("securityContext") is None:
        spec["securityContext"] = {}
    if not get("schedulerName"):
        spec["schedulerName"] = "default-scheduler"
    account = get("serviceAccountName") or get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for name in ("initContainers", "containers", "ephemeralContainers"):
        if containers := get(name):
            for container in containers:
                default_container(container)
    if volumes := get("volumes"):
        for volume in volumes:
            default_volume(volume)
    if overhead := get("overhead"):
        default_resource_list(overhead)
    if resources := get("resources"):
        for name in ("limits", "requests"):
            if resources.get(name):
                default_resource_list(resources[name])


def _default_host_ports(spec: Json) -> None:
    for name in ("containers", "initContainers"):
        for container in spec.get(name) or ():
            for port in container.get("ports") or ():
                if not port.get("hostPort"):
                    port["hostPort"] = port.get("containerPort", 0)


def default_pod(pod: Json) -> None:
    spec = pod.get("spec")
    if spec is None:
        spec = pod["spec"] = {}
    default_pod_spec(spec)
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    for name in ("containers", "initContainers"):
        if containers := spec.get(name):
            for container in containers:
                _default_requests(container)
    if spec.get("resources"):
        _default_pod_level_requests(spec)
    if spec.get("enableServiceLinks") is None:
        spec["enableServiceLinks"] = True
    if spec.get("hostNetwork"):
        _default_host_ports(spec)
    if status := pod.setdefault("status", {}):
        _follow_address(status)


def _follow_address(status: Json) -> None:
    """`podIP` is the first of `podIPs`, and decides where both are given; `pkg/apis/core/v1/conversion.go`."""
    address, addresses = status.get("podIP"), status.get("podIPs")
    if address and (not addresses or addresses[0].get("ip") != address):
        status["podIPs"] = [{"ip": address}]
    elif addresses and (first := addresses[0].get("ip")):
        status["podIP"] = first


def default_admitted_pod(pod: Json) -> None:
    """What follows from the containers' requests that admission has set: upstream defaults again what it has stored."""
    if pod["spec"].get("resources"):
        _default_pod_level_requests(pod["spec"])


# --- pod-level resources (KEP-2837) ---------------------------------------------------------------------------------


def _default_pod_level_requests(spec: Json) -> None:
    resources = spec["resources"]
    limits = resources.get("limits") or {}
    if limits or resources.get("requests"):
        requested = resources.get("requests") or {}
        for name, text in _aggregate(spec, "limits").items():
            if name.startswith("hugepages-") and name not in requested:
                limits.setdefault(name, text)
        if limits:
            resources["limits"] = limits
    if not limits:
        return
    requests = resources.get("requests") or {}
    for name, text in _aggregate(spec, "requests").items():
        if name in ("cpu", "memory"):
            requests.setdefault(name, text)
    for name, text in limits.items():
        if name in ("cpu", "memory") or name.startswith("hugepages-"):
            requests.setdefault(name, text)
    if requests:
        resources["requests"] = requests


def _aggregate(spec: Json, which: str) -> dict[str, str]:
    """The containers' total requests: the sum of the regular and restartable ones, or one init container's if that is
    more."""
    total: dict[str, quantity.Quantity] = {}
    peak: dict[str, quantity.Quantity] = {}
    sidecars: dict[str, quantity.Quantity] = {}

    def amounts(container: Json) -> dict[str, quantity.Quantity]:
        given = (container.get("resources") or {}).get(which) or {}
        return {name: quantity.parse(text) for name, text in given.items()}

    def add(to: dict[str, quantity.Quantity], more: dict[str, quantity.Quantity]) -> None:
        for name, amount in more.items():
            to[name] = to[name].plus(amount) if name in to else amount

    for container in spec.get("containers") or ():
        add(total, amounts(container))
    for container in spec.get("initContainers") or ():
        own = amounts(container)
        if container.get("restartPolicy") == "Always":
            add(total, own)
            add(sidecars, own)
            running = dict(sidecars)
        else:
            running = dict(sidecars)
            add(running, own)
        for name, amount in running.items():
            if name not in peak or amount.compare(peak[name]) > 0:
                peak[name] = amount
    for name, amount in peak.items():
        if name not in total or amount.compare(total[name]) > 0:
            total[name] = amount
    return {name: str(amount) for name, amount in total.items()}
